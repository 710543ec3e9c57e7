"""A captured call that is like the one before it goes a short way through Python; one that only
looks like it goes the long way, and means what it says."""

import contextlib
import gc
import sys
import weakref

import numpy as np
import pytest

from tinygrad import Context, GlobalCounters, Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.base.errors import JitError
from tinygrad.engine import faults, sharing, storage


def ramp(*shape, dtype=None):
    return Tensor.arange(int(np.prod(shape)), dtype=dtype or dtypes.float32).reshape(*shape)


def python_calls(function):
    """The functions of Python that run in one call, this one's argument left out."""
    names = []

    def tell(frame, event, argument):
        if event == "call":
            names.append(frame.f_code.co_qualname)

    gc.collect()  # what others left ends now, and not meanwhile
    sys.setprofile(tell)
    try:
        function()
    finally:
        sys.setprofile(None)
    return names[1:]


def settled(function, *arguments, **named):
    """A captured step that goes the short way."""
    step = TinyJit(function)
    for _ in range(4):
        step(*arguments, **named)
    return step


# ---- the short way -------------------------------------------------------------------------------


def one_tensor():
    x = ramp(4, 3).realize()
    step = settled(lambda a: a.sum().contiguous().realize(), x)
    return lambda: step(x)


def checked():
    x, at = ramp(9).realize(), Tensor([1, 2]).realize()
    step = settled(lambda a, i: a[i].realize(), x, at)
    return lambda: step(x, at)


def containers():
    x, y, z = (ramp(4, 3).realize() + n for n in range(3))
    given = [x.realize(), {"y": y.realize(), "k": 3, "s": "text", "n": None}]
    step = settled(lambda pair, z: (pair[0] * pair[1]["y"] + z).realize(), given, z=z.realize())
    return lambda: step(given, z=z)


def training():
    layer = nn.Linear(3, 2)
    optimizer = nn.optim.SGD(nn.state.get_parameters(layer), lr=0.1)

    def run(x):
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.realize()

    x = ramp(4, 3).realize()
    with Context(TRAINING=1):
        step = settled(run, x)
        step(x)
    return lambda: step(x)


def counted():
    state, x = Tensor.zeros(3).contiguous().realize(), ramp(3).realize()
    step = settled(lambda a: state.assign(state + a).realize(), x)
    return lambda: step(x)


def symbolic():
    x, n = ramp(16, 3).realize(), Variable("n", 1, 16)
    step = settled(lambda a: (a + 1).contiguous().realize(), x[: n.bind(3)])
    view = x[: n.bind(5)]
    return lambda: step(view)


@pytest.mark.parametrize(
    ("program", "most", "again"),
    [
        (one_tensor, 36, 24),
        (checked, 37, 25),
        (containers, 52, 38),
        (training, 55, 38),
        (counted, 40, 38),
        (symbolic, 65, 65),
    ],
    ids=lambda p: getattr(p, "__name__", p),
)
@pytest.mark.usefixtures("others_are_old")
def test_a_captured_call_runs_few_functions(program, most, again, monkeypatch):
    # memory of others that isn't aligned is asked for in each call, and lives as long as its owner
    monkeypatch.setattr(sharing, "_crooked", weakref.WeakSet())
    call = program()
    with Context(TRAINING=int(program is training)):
        kept = [call() for _ in range(3)]
        # now and then a call drops what is dead, for many that don't
        names = min([python_calls(call) for _ in range(3)], key=len)
        assert len(names) <= most, names
        del kept
        for _ in range(3):
            call()
        names = min([python_calls(call) for _ in range(3)], key=len)
        assert len(names) <= again, names


def test_a_captured_step_keeps_its_fault_words_until_one_is_written():
    x, good, bad = ramp(4).realize(), Tensor([3, -4]).realize(), Tensor([3, 4]).realize()
    step = settled(lambda a, i: a[i].realize(), x, good)
    (words,) = step.captured.executions[0].plan.faults
    words.clean.clear()
    for _ in range(3):
        assert step(x, good).tolist() == [3, 0]
    assert not words.clean and not faults.noted
    given = [good, bad, good, bad, bad, good]
    for index, made in list(zip(given, [step(x, i) for i in given], strict=True)):
        if index is good:
            with contextlib.suppress(IndexError):  # whoever ran what failed is told of it, once
                x.tolist()
            assert made.tolist() == [3, 0]
        else:
            with pytest.raises(IndexError, match="index 4 is out of range .* legal are -4 to 3"):
                made.tolist()
    assert step(x, good).tolist() == [3, 0] and not faults.noted


# ---- results that are made again in their places -------------------------------------------------


def address(tensor):
    return tensor.uop.base.storage.handle


def test_a_result_that_nobody_holds_gives_its_place_to_a_later_one():
    step, x = doubled()
    places = {address(step(x)) for _ in range(9)}
    result = step(x)
    for _ in range(9):
        result = step(x)
        places.add(address(result))
    assert len(places) <= 3


@pytest.mark.parametrize(("mebibytes", "kept"), ((4, True), (24, False)))
def test_results_keep_their_place_up_to_a_size(mebibytes, kept):
    x = Tensor.zeros(mebibytes << 18).contiguous().realize()
    before = GlobalCounters.mem_used
    step = settled(lambda a: (a + 1).realize(), x)
    step(x)
    assert (GlobalCounters.mem_used > before) == kept


HOLDING = {
    "tensor": lambda t: t.tolist,
    "expression": lambda t: (t + 0).tolist,
    "view": lambda t: t.T.T.tolist,
    "part": lambda t: t[1:].reshape(-1).tolist,
    "copy yet to be made": lambda t: t.expand(2, 4, 3)[1].tolist,
    "node": lambda t: Tensor.of(t.uop).tolist,
    "buffer": lambda t: lambda b=t.uop.base.storage: storage.as_array(b, dtypes.float32).tolist(),
    "array": lambda t: np.asarray(t).tolist,
    "memory": lambda t: t.data().tolist,
    "dlpack": lambda t: np.from_dlpack(t).tolist,
    "gradient": lambda t: (t.detach().requires_grad_() * 1).tolist,
}


@pytest.mark.parametrize("hold", HOLDING.values(), ids=HOLDING)
def test_what_still_shows_a_result_keeps_it(hold):
    step, x = doubled()
    other = (ramp(4, 3) + 100).realize()
    for _ in range(4):
        step(x)
    value = np.ravel((ramp(4, 3) * 2).numpy())
    look = hold(step(x))
    size = np.ravel(hold(step(x))()).size
    later = [step(other) for _ in range(6)]
    for _ in range(6):
        step(other)
    np.testing.assert_array_equal(np.ravel(look()), value[-size:])
    assert len({address(t) for t in later}) == 6


def test_a_result_that_was_written_is_right_when_it_is_made_again():
    step, x = doubled()
    for _ in range(6):
        result = step(x)
        result.assign(result + 1).realize()
        assert result.tolist() == (ramp(4, 3) * 2 + 1).tolist()
    assert step(x).tolist() == (ramp(4, 3) * 2).tolist()


def test_a_result_to_which_a_weak_reference_is_left_is_no_other_result():
    step, x = doubled()
    noted = weakref.WeakKeyDictionary()
    for number in range(6):
        result = step(x)
        noted[result] = number
        del result
        assert step(x) not in noted


def test_a_result_that_another_step_holds_as_its_state_is_kept():
    step, x = doubled()
    for _ in range(4):
        step(x)
    state = step(x)
    adds = settled(lambda a: (a + state).realize(), x)
    for _ in range(6):
        step((ramp(4, 3) + 100).realize())
    assert adds(x).tolist() == (ramp(4, 3) * 3).tolist()


def test_two_views_of_one_result_are_made_again_together():
    x = ramp(4, 3).realize()

    def run(a):
        made = (a * 2).realize()
        return made, made.T

    step = settled(run, x)
    for n in range(8):
        whole, turned = step((ramp(4, 3) + n).realize())
        assert turned.tolist() == ((ramp(4, 3) + n) * 2).T.tolist()
        if n % 2:
            turned.assign(turned * 0).realize()
            assert whole.tolist() == np.zeros((4, 3)).tolist()


# ---- what only looks alike -----------------------------------------------------------------------


def doubled():
    x = ramp(4, 3).realize()
    return settled(lambda a: (a * 2).realize(), x), x


@pytest.mark.parametrize(
    "make",
    [
        lambda: ramp(3, 4).realize().T,  # a view in another order
        lambda: ramp(5, 3).realize()[1:],  # a part
        lambda: ramp(4, 3),  # nothing computed yet
        lambda: ramp(12).realize().reshape(4, 3),
        lambda: ramp(1, 3).realize().expand(4, 3),
        lambda: ramp(4, 3).realize().detach(),
        lambda: Tensor.ones(4, 3),  # no storage
        lambda: Tensor(np.arange(12, dtype=np.float32).reshape(4, 3)),
    ],
)
def test_a_tensor_that_lies_otherwise_has_its_value(make):
    step, x = doubled()
    given = make()
    for _ in range(2):
        assert (step(given).numpy() == given.numpy() * 2).all()
        assert (step(x).numpy() == x.numpy() * 2).all()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda x: x.reshape(3, 4), r"called with \(dtypes.float\[3, 4\]|\[3, 4\]"),
        (lambda x: x.reshape(12), r"\[12\]"),
        (lambda x: x.cast("int32").realize(), "int"),
        (lambda x: x.to("PYTHON").realize(), "PYTHON"),
        (lambda x: (x + 0).realize().requires_grad_(), "requires_grad"),
    ],
)
def test_another_signature_is_refused_and_the_step_goes_on(make, says):
    step, x = doubled()
    with pytest.raises(JitError, match=says):
        step(make(x))
    assert (step(x).numpy() == x.numpy() * 2).all()


def test_tensors_that_share_a_buffer_only_now_are_refused():
    x, y = ramp(3).realize(), (ramp(3) + 1).realize()
    step = settled(lambda a, b: (a + b).realize(), x, y)
    with pytest.raises(JitError, match="same buffer"):
        step(x, x)
    assert step(x, y).tolist() == [1, 3, 5]


def test_plain_values_are_told_apart_to_the_bit():
    x = ramp(3).realize()
    step = settled(lambda a, k: (a * k).realize(), x, 1.0)
    assert [step(x, k).dtype for k in (1.0, 1, True)] == [dtypes.float32] * 3
    minus = TinyJit(lambda a, k: (a * k).realize())
    for k in (0.0, 0.0, 0.0, -0.0, -0.0, -0.0, 0.0):
        assert np.signbit(minus(x, k).numpy()[1]) == np.signbit(k)


def test_a_key_that_changes_its_mind_is_another_key():
    class Mode:
        value = 1

        def __hash__(self):
            return self.value

        def __eq__(self, other):
            return self.value == other.value

    mode, x = Mode(), ramp(3).realize()
    step = settled(lambda a, m: (a * m.value).realize(), x, mode)
    mode.value = 5
    assert step(x, mode).tolist() == [0, 5, 10]


def test_a_pending_write_to_an_argument_is_seen():
    step, _ = doubled()
    x = ramp(4, 3).contiguous().realize()
    step(x)
    x.assign(x + 1)
    assert (step(x).numpy() == (np.arange(12).reshape(4, 3) + 1) * 2).all()
    x[0] = 7
    assert step(x)[0].tolist() == [14, 14, 14]


def test_results_stay_what_they_were():
    step, _ = doubled()
    given = [(ramp(4, 3) + n).realize() for n in range(6)]
    results = [step(x) for x in given]
    for x, result in zip(given, results, strict=True):
        assert (result.numpy() == x.numpy() * 2).all()


def test_what_still_needs_the_old_state_gets_it():
    state, x = ramp(3).contiguous().realize(), ramp(3).realize()
    step = settled(lambda a: state.assign(state + a).realize(), x)
    old = state.tolist()
    waiting, padded = state * 10, state.pad((1, 1))
    step(x)
    assert waiting.tolist() == [10 * v for v in old]
    assert padded.tolist() == [0, *old, 0]
    assert state.tolist() == [v + n for n, v in enumerate(old)]


def test_a_part_that_was_looked_at_before_shows_the_new_state():
    state, x = ramp(6).contiguous().realize(), ramp(6).realize()
    step = settled(lambda a: state.assign(state + a).realize(), x)
    part = state[::2]
    assert part.tolist() == state.tolist()[::2]
    step(x)
    assert part.tolist() == state[::2].tolist() == state.tolist()[::2]


def test_modes_are_looked_at_each_time():
    x = ramp(1000).realize() + 1
    x.realize()
    step = settled(lambda a: a.dropout(0.5).realize(), x)
    with Context(TRAINING=1):
        for _ in range(4):
            assert 300 < int((step(x) == 0).sum().item()) < 700
    assert (step(x).numpy() == x.numpy()).all()


def test_symbolic_sizes_take_the_short_way_too():
    x = ramp(16, 3).realize()
    n = Variable("n", 1, 16)
    step = TinyJit(lambda a: (a + 1).contiguous().realize())
    for k in (3, 5, 7, 2, 16, 1):
        view = x[: n.bind(k)]
        result = step(view)
        assert result.shape[0].val == k
        assert (result.numpy() == x.numpy()[:k] + 1).all()


def test_a_variable_with_two_values_is_refused_after_any_number_of_calls():
    x, y = ramp(8, 3).realize(), ramp(8, 3).realize() + 1
    y.realize()
    n = Variable("n", 1, 8)
    step = TinyJit(lambda a, b: (a.sum() + b.sum()).realize())
    for k in (2, 3, 4, 5):
        step(x[: n.bind(k)], y[: n.bind(k)])
    with pytest.raises(JitError, match="two values"):
        step(x[: n.bind(2)], y[: n.bind(3)])
    with pytest.raises(JitError, match="captured for"):
        step(x[: n.bind(2)], y)
