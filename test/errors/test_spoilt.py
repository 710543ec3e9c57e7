"""What is read after a CHECK failed: whatever the kernel wrote, or was made of that, raises the
same error at each read; all else is right. One row a case: what must raise, and what must not."""

import contextlib
import threading

import numpy as np
import pytest
from together import at_a_line

from tinygrad import Device, GlobalCounters, Tensor, TinyJit, Variable, nn
from tinygrad.base.helpers import Recent
from tinygrad.engine import faults, plans
from tinygrad.engine.faults import forget_faults
from tinygrad.engine.realize import compute_pending
from tinygrad.tensor import again
from tinygrad.tensor.scan import scan

DEVICES = ["CPU", "CL", "PYTHON"]


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    before = Device.DEFAULT
    Device.DEFAULT = request.param
    yield request.param
    Device.DEFAULT = before
    compute_pending()  # what is wrong fails now, and not in a step that another test captures
    forget_faults()


def values(count: int = 4) -> Tensor:
    return (Tensor.arange(count) + 1).float().contiguous().realize()


def bad() -> Tensor:
    return Tensor([0, 9, 1, 2]).realize()


def good() -> Tensor:
    return Tensor([0, 3, 1, 2]).realize()


def result():
    return [values()[bad()]], []


def result_and_view():
    made = values()[bad()].realize()
    return [made, made[1:], made.reshape(2, 2)], []


def made_of_it():
    made = values()[bad()].realize()
    more = (made * 2).realize()
    del made
    return [more, (more + 1).realize(), more.sum()], [values() + 1]


def several_results():
    x, index = values(), bad()
    one, two = x[index], (x * 3).contiguous()
    one.realize(two)
    return [one], [x]


def division():
    return [Tensor([4, 6, 1, 2]) // Tensor([1, 0, 1, 1]).realize()], []


def assigned():
    x = values()
    x.assign(x[bad()]).realize()
    return [x, x + 1], []


def assigned_in_part():
    x = values()
    x[0:2] = values()[bad()][0:2]
    x.realize()
    x[2:4] = 5.0
    return [x, x[2:]], []


def overwritten_whole():
    x = values()
    x.assign(x[bad()]).realize()
    with pytest.raises(IndexError):
        x.tolist()
    x.assign(values()).realize()
    return [], [x, x + 1]


def overwritten_before_a_read():
    x = values()
    x.assign(x[bad()]).realize()
    x.assign(values()).realize()
    with pytest.raises(IndexError):  # whoever ran it is told
        values().tolist()
    return [], [x]


def reread_with_another_index():
    x, index = values(), bad()
    first = x[index].realize()
    index.assign(good()).realize()
    return [first], [x[index]]


def written_by_index():
    x = values()
    x[bad()] = 1.0
    return [x], []


def other_runs_of_one_plan():
    x = values()
    made = [x[i].realize() for i in (good(), bad(), good(), bad(), good())]
    return [made[1], made[3]], [made[0], made[2], made[4], x]


def captured_results():
    step = TinyJit(lambda x, i: (x[i], x * 2))
    x = values()
    made = [step(x, i) for i in (good(), good(), good(), bad(), good())]
    return [made[3][0]], [made[2][0], made[4][0], made[4][1], x]


def captured_results_of_a_changing_size():
    """A part of what an earlier result lay in is all that a later one needs."""
    step = TinyJit(lambda n: Tensor([1, 2]).one_hot(n).realize())
    n = Variable("n", 1, 8)
    for size in (5, 5, 4, 1, 2):
        made = step(n.bind(size))
    made = [step(n.bind(size)) for size in (4, 3, 2)]
    return [made[2]], made[:2]


def captured_state():
    state = values()

    def move(i):
        state.assign(state[i] + 1)
        return (state * 1).contiguous()

    step = TinyJit(move)
    made = [step(i) for i in (good(), good(), good(), good())]
    wrong = [step(bad())]
    wrong.append(step(good()))
    return [*wrong, state], made


def captured_argument():
    def move(x, i):
        x.assign(x[i])
        return x.sum()

    step, other = TinyJit(move), values()
    x = values()
    for _ in range(3):
        step(x, good())
    total = step(x, bad())
    return [x, total], [other]


def captured_with_what_is_wrong():
    step = TinyJit(lambda x: (x * 2 + 1).realize())
    for _ in range(3):
        step(values())
    made = step(values()[bad()].realize())
    return [made], [step(values())]


def trained():
    weight = nn.Linear(2, 2)
    optimizer = nn.optim.SGD([weight.weight, weight.bias], lr=0.1)
    data = values(8).reshape(4, 2)
    with Tensor.train():
        loss = weight(data[bad()]).sum()
        loss.backward()
        optimizer.step()
    return [weight.weight, loss], [data]


def turn_by_turn():
    table = values()

    def turn(state, x):
        made = table[x.int()].sum() + state
        return [made], [made]

    x = Tensor([[0.0], [1.0], [9.0], [2.0]]).realize()
    (last,), (each,) = scan(turn, [Tensor(0.0)], [x])
    return [last, each], [x]


def sorted_on_the_host():
    made = values()[bad()].sort()[0]
    return [made], [values().sort()[0]]


def elsewhere():
    made = values()[bad()].realize()
    return [made.to("PYTHON"), made.to("NPY"), made.to("CPU:1")], [values().to("PYTHON")]


def over_several_devices():
    name = "CPU" if Device.DEFAULT == "CL" else Device.DEFAULT  # of CL there is one
    both = (f"{name}:1", f"{name}:2")
    x = values(8).shard(both, 0).realize()
    index = Tensor([0, 9, 1, 2]).shard(both).realize()
    made = x[index].realize()
    return [made, made + 1], [x, x + 1]


def of_another_thread():
    made = []
    thread = threading.Thread(target=lambda: made.append(values()[bad()].realize()))
    thread.start()
    thread.join()
    return made, []


def late():
    made = [(values() + n).realize() for n in range(3)]
    wrong = made[0][bad()].realize()
    for n in range(100):
        made.append((made[n % 3] * 2)[good()].realize())
    return [wrong], made


def a_write_of_what_waits():
    """The write computes what waits for the old value; only that is wrong."""
    x = values()
    waits = x[bad()]
    x.assign(values() * 2).realize()
    return [waits], [x]


def a_buffer_of_its_own():
    """Equal expressions share a buffer; who writes gets a copy, or is told then."""
    wrong = values()[bad()].realize()
    one, two = wrong * 2, wrong * 2
    one.realize()
    with contextlib.suppress(IndexError):
        two[0] = 7.0
    return [one, two], []


CASES = [
    *(result, result_and_view, made_of_it, several_results, division, assigned, assigned_in_part),
    *(overwritten_whole, overwritten_before_a_read, reread_with_another_index, written_by_index),
    *(
        other_runs_of_one_plan,
        captured_results,
        captured_results_of_a_changing_size,
        captured_state,
        captured_argument,
    ),
    *(captured_with_what_is_wrong, trained, turn_by_turn, sorted_on_the_host, elsewhere),
    *(over_several_devices, of_another_thread, late, a_write_of_what_waits, a_buffer_of_its_own),
]


@pytest.mark.parametrize("case", CASES)
def test_what_a_failed_check_spoilt_is_never_read(case, monkeypatch):
    """Also if the plans come from the disk, which has no graphs."""
    spoil_and_read(case)
    monkeypatch.setattr(plans, "_plans", Recent(99))
    before = GlobalCounters.plans_made
    spoil_and_read(case)
    assert GlobalCounters.plans_made - before < 3  # of calls of the host


def spoil_and_read(case):
    wrong, right = case()
    for tensor in wrong:
        tensor.realize()
    told = set()
    for _ in range(3):
        for tensor in wrong:
            with pytest.raises((IndexError, ZeroDivisionError)) as caught:
                tensor.numpy()
            told.add(str(caught.value))
    for _ in range(2):
        for tensor in right:
            tensor.numpy()
    assert len(told) <= 1
    assert (values() + 1).tolist() == [2, 3, 4, 5]


def test_what_is_not_spoilt_is_right():
    x = values()
    made = [x[i].realize() for i in (good(), bad(), good())]
    with pytest.raises(IndexError, match="index 9"):
        made[1].numpy()
    for tensor in (made[0], made[2]):
        np.testing.assert_array_equal(tensor.numpy(), [1, 4, 2, 3])


def test_memory_is_lent_only_if_it_is_right(device):
    made = values()[bad()].realize()
    for _ in range(2):
        with pytest.raises(IndexError, match="index 9"):
            np.asarray(made)


def test_what_failed_may_die_at_any_moment_while_faults_are_looked_at(monkeypatch):
    """Another thread drops it, or garbage is collected."""
    monkeypatch.setattr(again, "LARGEST_RESULT", -1)  # no place is kept for the next time
    x, number, comes = values(), 0, True
    looks = [faults._look, faults._spread, faults.raise_faults]
    while comes:
        forget_faults()
        held = [x[bad()].realize()]
        held.append((held[0] * 2).realize())

        def read() -> None:
            with pytest.raises(IndexError, match="index 9"):
                x.tolist()

        comes = at_a_line(number, looks, read, held.clear)[1]
        held.clear()
        assert not faults.spoilt
        number += 1
    assert number > 50
