"""A captured step does what its plain calls do, for every kind of program; what it couldn't do is
an error that says so. One program or misuse a line."""

import copy
import gc
import pickle
import threading
import time
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from together import together

from tinygrad import Context, GlobalCounters, Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.base.errors import ArgumentError, JitError, ShapeError
from tinygrad.tensor.generator import Generator

CALLS = 5


def vec(*values):
    return Tensor([float(v) for v in values]).realize()


Pair = namedtuple("Pair", "left right")


@dataclass
class Batch:
    x: Tensor
    scale: float = 2.0


@dataclass(frozen=True)
class Result:
    loss: Tensor
    count: int = 3


class Counter:
    """A step with state of its own."""

    def __init__(self):
        self.total = vec(0, 0)
        self.seen = Tensor.zeros(1, dtype="int").contiguous().realize()

    def add(self, x):
        self.total.assign(self.total + x)  # not realized: the end of the step does it
        self.seen += 1
        return (self.total * 2).realize()


def detached_counter(jit):
    total = Tensor([0.0], requires_grad=False)
    add = jit(lambda x: (x * total.assign(total + 1)).realize())
    made = [add(vec(1)) for _ in range(CALLS)]
    total.assign(vec(10))  # between two calls
    return [*made, add(vec(1)), total]


def counter(jit):
    me = Counter()
    add = jit(me.add)
    return [*[add(vec(n, 1)) for n in range(CALLS)], me.total, me.seen]


def training(jit):
    Tensor.manual_seed(1)
    net = nn.Linear(3, 2)
    optimizer = nn.optim.Adam(nn.state.get_parameters(net), lr=0.1)

    def step(x, y):
        with Tensor.train():
            optimizer.zero_grad()
            loss = (net(x).dropout(0.3) - y).square().mean()
            loss.backward()
            optimizer.step()
        return loss.realize()

    run = jit(step)
    x, y = Tensor.rand(4, 3).realize(), Tensor.rand(4, 2).realize()
    losses = [run(x + n, y) for n in range(CALLS)]
    return [*losses, net.weight, net.bias]


def accumulated(jit):
    """Each call writes one row of a cache, and reads those up to there."""
    cache = Tensor.zeros(8, 2).contiguous().realize()
    place = Variable("place", 0, 7)

    def step(x, at):
        cache[at : at + 1].assign(x.reshape(1, 2)).realize()
        return cache[: at + 1].sum(0).realize()

    run = jit(step)
    return [*[run(vec(n, 1), place.bind(n)) for n in range(CALLS)], cache]


def drawn(jit, generator=None):
    Tensor.manual_seed(5)
    run = jit(lambda x: (x + Tensor.rand(2) + Tensor.randn(2).realize()).realize())
    first = [run(vec(0, n)) for n in range(CALLS)]
    between = Tensor.rand(2).realize()
    Tensor.manual_seed(6)  # replays draw by the seed of now
    return [*first, between, *[run(vec(0, n)) for n in range(2)]]


def from_before(jit):
    """What was pending before the step reads it is the same in each call."""
    Tensor.manual_seed(2)
    noise, weight = Tensor.rand(2), vec(1, 2)
    twice = weight * 2
    run = jit(lambda x: (x + noise + twice).realize())
    out = [run(vec(n, n)) for n in range(3)]
    weight.assign(vec(50, 60)).realize()
    return [*out, *[run(vec(n, n)) for n in range(2)]]


def pending_write(jit):
    """Writes to the state from outside, before and after the capture, realized by nobody."""
    weight = vec(1)
    run = jit(lambda x: (x * weight).realize())
    out = []
    for n in range(CALLS):
        out.append(run(vec(n)))
        weight.assign(weight * 2 + n)
    return [*out, run(vec(1)), weight]


def in_place_argument(jit):
    def step(x, y):
        x += y
        return (x * 2).realize()

    run = jit(step)
    a, b = vec(1, 2), vec(5, 5)
    before = []
    for n in range(CALLS):
        x = b if n == 2 else a
        before.append(x * 10)  # computed by nobody: it means the old value
        before.append(run(x, vec(n, n)))
    return [*before, a, b]


def aliases(jit):
    run = jit(lambda a, b: (a + b * 2).realize())
    x = vec(1, 2)
    return [run(x, x.detach()) for _ in range(CALLS)]


def closure_is_argument(jit):
    """The captured argument is a tensor that the step also knows from outside."""
    weight, other = vec(3), vec(5)
    run = jit(lambda x: (x * weight).realize())
    return [run(weight), run(weight), run(other), run(weight)]


def returned(jit):
    """Results that are views of each other, the argument, or state, and written to afterwards."""
    state = vec(7, 8)

    def step(x):
        y = (x * 2).realize()
        return y, y[:1], x, state, state[1:], [y + 1, {"three": 3}]

    run = jit(step)
    out = []
    for n in range(CALLS):
        x = vec(n, n + 1)
        y, first, same, whole, part, (more, rest) = run(x)
        later = first * 3
        y.assign(vec(100, 200))
        x.assign(vec(-1, -2))
        whole.assign(whole + 1)
        out += [y, first, same, whole, part, more, later]
        assert rest == {"three": 3} and same is x and whole is state
    return [*out, state]


def containers(jit):
    def step(batch, *rest, pair, more=None):
        out = batch.x * batch.scale + pair.left - pair.right
        for tensor in more["list"]:
            out = out + tensor
        if batch.scale > 2:
            return Result(out.realize())  # early
        return {"a": Result((out + rest[0]).realize(), 4), "b": Pair(out.realize(), None)}

    run = jit(step)
    found = []
    for n in range(CALLS + 3):
        batch, pair = Batch(vec(n), 3.0 if n % 2 else 2.0), Pair(vec(1), vec(n))
        more = OrderedDict(list=(vec(1), vec(n)), what=slice(1, 2), names={"x", "y"})
        result = run(batch, vec(2), pair=pair, more=more)
        if n % 2:
            assert isinstance(result, Result) and result.count == 3
            found.append(result.loss)
        else:
            assert list(result) == ["a", "b"] and result["a"].count == 4
            assert isinstance(result["b"], Pair) and result["b"].right is None
            found += [result["a"].loss, result["b"].left]
    return found


@dataclass
class Twice:
    x: Tensor

    def __post_init__(self):
        self.twice = self.x * 2


class Labelled(dict):
    def __init__(self, *rows, label):
        super().__init__(*rows)
        self.label = label


def containers_with_attributes(jit):
    def step(batch, table, named):
        first = batch.x + batch.twice * named.label
        assert table.default_factory is list
        return Labelled([("sum", (first + table["x"]).realize())], label=(named.label, batch))

    run, found = jit(step), []
    for n in range(2 * CALLS):
        named = Labelled([("y", vec(1))], label=n % 2)
        result = run(Twice(vec(n)), defaultdict(list, x=vec(n + 1)), named)
        assert result.label[0] == n % 2
        found += [result["sum"], result.label[1].twice]
    return found


def numbers_are_keys(jit):
    x = Tensor([3, 4]).realize()
    run = jit(lambda x, k: (x * k).realize())
    return [run(x, k) for k in (1, 1, 1, True, True, True, 1.0, 1.0, 1.0, 2, 0.0, -0.0, -0.0)]


def modes_are_keys(jit):
    Tensor.manual_seed(4)
    run = jit(lambda x: x.dropout(0.5).realize())
    x = Tensor.ones(8).contiguous().realize()
    out = []
    for n in range(8):
        with Tensor.train(n in (0, 1, 2, 5)):
            out.append(run(x))
    with Tensor.no_grad():
        return [*out, run(x)]


def nested(jit):
    inner = jit(lambda x: (x * 2).realize())

    def step(x):
        for _ in range(3):
            x = inner(x)
        return (x + 1).realize()

    outer = jit(step)
    return [*[outer(vec(n)) for n in range(CALLS)], inner(vec(9)), inner(vec(8))]


def made_inside(jit):
    def step(x, n):
        table = Tensor([[1.0, 2.0], [3.0, 4.0]])
        fresh = Tensor.zeros(2, 2).contiguous().realize()
        fresh[0] = x
        fresh += table
        drawn = Tensor.arange(2) + n
        return fresh.realize(), (fresh @ table + drawn).realize(), Tensor.full((2,), 7.0)

    run, n = jit(step), Variable("n", 0, 20)
    return [t for i in range(CALLS) for t in run(vec(i, 1), n.bind(i))]


def unshared_inside(jit):
    """Equal expressions share a buffer until one is written to."""

    def step(x):
        a, b = (x * 2).realize(), (x * 2).realize()
        a += 1
        return a.realize(), b

    run = jit(step)
    return [t for n in range(CALLS) for t in run(vec(n, n))]


def sizes(jit):
    n, rows = Variable("n", 1, 6), Tensor.arange(12).reshape(6, 2).float().realize()
    run = jit(lambda x, k, m: ((x[:k] * 2).sum(0).realize(), (x + 1).realize(), m))
    out = []
    for i in range(1, 6):
        total, more, m = run(rows[: n.bind(i)], n.bind(i), n.bind(i) + 1)
        assert m.val == i + 1
        out += [total, more[:1], more.sum()]
    return out


def empty(jit):
    run = jit(lambda x: ((x * 2).realize(), x.sum().realize(), x))
    return [t for _ in range(CALLS) for t in run(Tensor(np.zeros((0, 3), np.float32)))]


def views_and_constants(jit):
    run = jit(lambda x: (x.T @ x + 1).realize())
    whole = Tensor.arange(24).reshape(4, 3, 2).float().realize()
    inputs = [
        whole[0],
        whole[1].flip(0),
        whole[:, 1][:3],
        Tensor.ones(3, 2),
        whole[3],
        whole[2] * 2,
    ]
    return [run(x) for x in inputs]


def kept_gradient(jit):
    """Gradients of the inside, returned."""
    weight = Tensor([2.0, 3.0], requires_grad=True)

    def step(x):
        (gradient,) = (x * weight).square().sum().gradient(weight)
        return gradient.realize()

    run = jit(step)
    return [run(vec(n, 1)) for n in range(CALLS)]


def truncated(jit):
    """A recurrent state that goes from call to call: of the plain call it wants a gradient."""
    weight = Tensor([2.0, 3.0], requires_grad=True)

    def step(x, h):
        h = (x + h.detach() * weight).tanh()
        (gradient,) = h.square().sum().gradient(weight)
        return h.realize(), gradient.realize()

    run, h, seen = jit(step), vec(0, 0), []
    for n in range(CALLS):
        h, gradient = run(vec(n, 1) * 0.1, h)
        seen += [h, gradient]
    return seen


def constants_as_state(jit):
    """State that is no storage yet, and of which no call returns anything."""
    count, places = Tensor.zeros(1), Tensor.zeros(3).contiguous()
    scale = Tensor.ones(2, requires_grad=True)

    def step(x):
        count.assign(count + 1)
        places.__iadd__(2)
        scale.assign(scale.detach() * 2)
        return (x * 2).realize()

    run = jit(step)
    return [*[run(vec(n)) for n in range(CALLS)], count, places, scale]


PROGRAMS = [
    counter, detached_counter, training, accumulated, drawn, from_before, pending_write,
    in_place_argument, aliases,
    closure_is_argument, returned, containers, containers_with_attributes, numbers_are_keys,
    modes_are_keys, nested, made_inside, unshared_inside, sizes, empty, views_and_constants,
    kept_gradient, truncated, constants_as_state,
]  # fmt: skip


def values(tensors):
    return [(t.dtype, t.numpy().tolist()) for t in tensors]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_program(program):
    assert values(program(TinyJit)) == values(program(lambda step: step))


@pytest.mark.parametrize("device", ["CL", "WEBGPU", "PYTHON"])
@pytest.mark.parametrize("program", [returned, drawn, in_place_argument], ids=lambda p: p.__name__)
def test_program_elsewhere(program, device):
    with Context(DEV=device):
        assert values(program(TinyJit)) == values(program(lambda step: step))


# ---- misuses -------------------------------------------------------------------------------------


def three(step, *arguments):
    for _ in range(3):
        step(*arguments)


def calls(function, *arguments):
    return lambda: three(TinyJit(function), *[a() if callable(a) else a for a in arguments])


def rebinds():
    class Recurrent:
        hidden = vec(0)

        def __call__(self, x):
            self.hidden = (self.hidden + x).realize()
            return self.hidden

    me = Recurrent()
    me.hidden = vec(0)
    kept = [TinyJit(me)]
    kept += [kept[0](vec(1)) for _ in range(3)]


def state_is_read():
    weight = vec(1)
    three(TinyJit(lambda x: (x * weight.item()).realize()), vec(1))


def state_is_replaced():
    weight = vec(1)
    step = TinyJit(lambda x: (x * weight).realize())
    three(step, vec(1))
    weight.replace(vec(2))
    step(vec(1))


def detached_state_is_replaced():
    total = Tensor([1.0], requires_grad=False)  # a view that gradients stop at
    step = TinyJit(lambda x: (x * total.assign(total + 1)).realize())
    three(step, vec(1))
    total.replace(vec(2))
    step(vec(1))


def rebinds_what_others_hold():
    held, seen = {"hidden": vec(0)}, []

    def step(x):
        seen.append(held["hidden"])
        held["hidden"] = (held["hidden"] + x).realize()
        return held["hidden"]

    three(TinyJit(step), vec(1))


def exchanges():
    held = [vec(0), vec(10)]

    def step(x):
        out = (held[0] + x).realize()
        held.reverse()
        return out

    three(TinyJit(step), vec(1))


class Scaled:
    def __init__(self):
        self.parts = [vec(2)]

    @TinyJit
    def step(self, x):
        return (x * self.parts[0]).realize()


def other_weight():
    """The old one is kept, as when averaged weights take their place for a while."""
    model = Scaled()
    kept = [model.parts[0], model.step(vec(1)), model.step(vec(1)), model.step(vec(1))]
    model.parts[0] = vec(3)
    model.step(kept[1])


def other_of_a_class():
    class Model:
        scale = vec(2)

        def __call__(self, x):
            return (x * self.scale).realize()

    step = TinyJit(Model())
    three(step, vec(1))
    kept = [Model.scale]
    Model.scale = vec(3)
    step(kept[0])


def other_model():
    models = {"best": nn.Linear(1, 1)}
    step = TinyJit(lambda x: models["best"](x).realize())
    three(step, vec(1))
    kept = models["best"]
    models["best"] = nn.Linear(1, 1)
    step(kept(vec(1)).realize())


def state_is_gone():
    held = [vec(1)]
    step = TinyJit(lambda x: (x * held[0]).realize())
    three(step, vec(1))
    held[0] = vec(2)
    step(vec(1))


def argument_is_state():
    weight = vec(1)
    step = TinyJit(lambda x: weight.assign(weight + x).realize())
    three(step, vec(1))
    step(weight)


def argument_was_state():
    weight = vec(1)
    three(TinyJit(lambda x: weight.assign(weight + x).realize()), weight)


def changes_a_container():
    def step(d):
        d["y"] = (d["x"] * 2).realize()

    run = TinyJit(step)
    for _ in range(3):
        run({"x": vec(1)})


def counts():
    def step(x):
        return (x * 2).realize(), time.perf_counter()

    three(TinyJit(step), vec(1))


def seeds():
    def step(x):
        Tensor.manual_seed(3)
        return (x + Tensor.rand(1)).realize()

    three(TinyJit(step), vec(1))


def two_values():
    n, x = Variable("n", 1, 4), vec(1, 2, 3, 4)
    step = TinyJit(lambda a, b: (a.sum() + b.sum()).realize())
    for i in (1, 2, 3):
        step(x[: n.bind(i)], x[: n.bind(i + 1)])


def binds_inside():
    n, x = Variable("n", 1, 4), vec(1, 2, 3, 4)
    step = TinyJit(lambda m: (x[: n.bind(2)].sum() + x[:m].sum()).realize())
    for i in (1, 3, 3):
        step(n.bind(i))


def other_dtype():
    step = TinyJit(lambda x: (x + 1).realize())
    three(step, vec(1))
    step(Tensor([1]).realize())


def other_device():
    step = TinyJit(lambda x: (x + 1).realize())
    three(step, vec(1))
    step(vec(1).to("PYTHON"))


def result_backward():
    weight = Tensor([2.0], requires_grad=True)
    step = TinyJit(lambda x: (x * weight).sum().realize())
    for _ in range(3):
        step(vec(1)).backward()


def replaced_unread():
    state = vec(1)

    def step(x):
        state.replace(x * 2)
        return (x + 1).realize()

    three(TinyJit(step), vec(1))


def argument_gradient():
    def step(x):
        (x * x).sum().backward()
        return (x * 2).realize()

    three(TinyJit(step), Tensor([2.0], requires_grad=True))


def argument_has_gradient():
    three(TinyJit(lambda x: (x + 1 if x.grad is None else x).realize()), Tensor([2.0]))


def argument_gets_gradient():
    def step(x):
        (x * x).sum().backward()
        return x.grad.realize()

    three(TinyJit(step), Tensor([2.0], requires_grad=True))


MISUSES = {
    "item": (calls(lambda x: (x * x.sum().item()).realize(), vec(1)), JitError, "read on the host"),
    "tolist": (calls(lambda x: x.tolist(), vec(1)), JitError, "return the tensor"),
    "numpy": (calls(lambda x: (x + Tensor(x.numpy())).realize(), vec(1)), JitError, "numpy"),
    "if": (calls(lambda x: (x if x > 0 else -x).realize(), vec(1)), JitError, "if tensor"),
    "state read": (state_is_read, JitError, "inside the captured step"),
    "replaced unread": (replaced_unread, JitError, "becomes another expression"),
    "rebound state": (rebinds, JitError, r"test_jit\.py:\d+\) and puts another in its place"),
    "replaced state": (state_is_replaced, JitError, r"is another now.*reset\(\)"),
    "replaced detached": (detached_state_is_replaced, JitError, r"is another now.*reset\(\)"),
    "state that is gone": (state_is_gone, JitError, r"another tensor, or none.*reset\(\)"),
    "rebound state that others hold": (rebinds_what_others_hold, JitError, "puts another in its"),
    "exchanged state": (exchanges, JitError, "puts another in its place"),
    "another weight": (other_weight, JitError, "another tensor, or none, is where"),
    "another one of a class": (other_of_a_class, JitError, "another tensor, or none, is where"),
    "another model": (other_model, JitError, "another tensor, or none, is where"),
    "array protocol": (calls(lambda x: np.asarray(x + 1), vec(1)), JitError, "read on the host"),
    "dlpack": (calls(lambda x: np.from_dlpack(x), vec(1)), JitError, "read on the host"),
    "look at its gradient": (argument_has_gradient, JitError, "reads .grad of argument 0"),
    "return its gradient": (argument_gets_gradient, JitError, r"return it.*loss\.gradient\(x\)"),
    "argument that is state": (argument_is_state, JitError, "argument 0 lies in a buffer"),
    "state as captured argument": (argument_was_state, JitError, "argument 0 is also read"),
    "changed container": (changes_a_container, JitError, "changes a container"),
    "counting": (counts, JitError, r"differs from call to call: tuple\(a tensor, .*, then"),
    "seeding": (seeds, JitError, "seeds a random stream"),
    "two values of a variable": (two_values, JitError, "n = 1, n = 2"),
    "a variable bound inside": (binds_inside, JitError, "binds n to 2 inside"),
    "write into a part": (
        calls(lambda x: x.assign(x + 1).realize(), vec(1, 2, 3)[:2]), JitError, "writes into arg"
    ),
    "array": (calls(lambda x, a: (x + 1).realize(), vec(1), np.ones(1)), JitError, "ndarray"),
    "replaced argument": (
        calls(lambda x: x.replace(x + 1).realize(), vec(1)), JitError, "in the place of argument 0"
    ),
    "another dtype": (other_dtype, JitError, r"\(float\[1\] on CPU\), called with \(int\[1\]"),
    "another device": (other_device, JitError, r"on CPU\), called with \(float\[1\] on PYTHON"),
    "backward of a result": (result_backward, ArgumentError, "backward: .*captured step"),
    "gradient of an argument": (argument_gradient, JitError, "gradient reached argument 0"),
    "nothing computed": (calls(lambda x: 3, vec(1)), JitError, "nothing was computed"),
}  # fmt: skip


def test_what_is_made_anew_on_the_way_to_state_may_be():
    """Lists that are rebuilt, nearer ways, other attributes: the state is where it was."""
    held = {"layers": [nn.Linear(1, 1), nn.Linear(1, 1)], "count": 0}

    def step(x):
        held["layers"] = list(held["layers"])
        held["last"] = held["layers"][1]
        return held["last"](held["layers"][0](x)).realize()

    run = TinyJit(step)
    for n in range(6):
        held["count"] += 1
        held["layers"] = list(held["layers"])
        expected = step(vec(n)).item()
        assert run(vec(n)).item() == expected


@pytest.mark.usefixtures("others_are_old")
def test_a_model_is_not_kept_alive_by_its_captured_step():
    model = Scaled()
    for _ in range(4):
        model.step(vec(1))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", MISUSES)
def test_misuse(name):
    misuse, error, words = MISUSES[name]
    with pytest.raises(error, match=words):
        misuse()
    step = TinyJit(lambda x: (x + 1).realize())  # and the next one works
    assert [step(vec(n)).item() for n in range(4)] == [1.0, 2.0, 3.0, 4.0]


def test_what_a_step_keeps_to_itself_can_not_be_read():
    class Step:
        def __call__(self, x):
            self.twice = x * 2
            self.thrice = (x * 3).realize()
            return (x + 1).realize()

    me = Step()
    run = TinyJit(me)
    run(vec(1))
    assert [me.twice.item(), me.thrice.item()] == [2.0, 3.0]
    run(vec(1))
    for tensor in (me.twice, me.thrice):
        with pytest.raises(ArgumentError, match=r"test_jit\.py:\d+.*inside a captured step"):
            tensor.item()


def test_many_keys_are_warned_of():
    step = TinyJit(lambda x, k: (x + k).realize())
    with pytest.warns(UserWarning, match="64 calls.*bound variables"):
        for k in range(70):
            step(vec(1), k)


def test_an_exception_inside_leaves_everything_as_plain_calls_do():
    total, fail = vec(0), [False]

    def step(x):
        total.assign(total + x).realize()
        if fail[0]:
            raise ShapeError("of the user")
        return (total * 2).realize()

    run = TinyJit(step)
    assert run(vec(1)).item() == 2.0
    fail[0] = True
    for _ in range(2):  # while it captures
        with pytest.raises(ShapeError, match="of the user"):
            run(vec(1))
    fail[0] = False
    assert [run(vec(1)).item() for _ in range(3)] == [8.0, 10.0, 12.0]
    assert total.item() == 6.0


@pytest.mark.parametrize("call", range(3))
def test_what_was_written_to_an_argument_before_an_exception_is_there(call):
    """In the first call, in the one that is captured, and in none later: that is refused."""
    fail = [False]

    def step(x):
        x.assign(x * 2 + 1)
        if fail[0]:
            raise ShapeError("of the user")
        return x + 1

    run = TinyJit(step)
    for _ in range(call):
        run(vec(1))
    fail[0], x = True, vec(1)
    with pytest.raises(JitError if call == 2 else ShapeError):
        run(x)
    assert x.item() == (1.0 if call == 2 else 3.0)


def test_what_it_shows():
    run = TinyJit(lambda x: ((x.sum() + 1).realize(), (x * 2).realize()))
    assert (run.cnt, run.captured, run.jit_cache) == (0, None, [])
    three(run, vec(1, 2))
    assert run.cnt == 3 and run.captured is not None
    assert len(run.jit_cache) == 2 and run.linear == run.jit_cache
    run.reset()
    assert (run.cnt, run.captured, run.jit_cache) == (0, None, [])


def test_methods_capture_for_each_instance():
    @dataclass(eq=True)
    class Scale:
        factor: Tensor

        @TinyJit
        def __call__(self, x):
            return (x * self.factor).realize()

    two, three_ = Scale(vec(2)), Scale(vec(3))
    for n in range(4):
        assert (two(vec(n)).item(), three_(vec(n)).item()) == (2 * n, 3 * n)
    Scale.__call__.reset()
    assert type(two).__call__.captured is None


def test_threads_capture_and_compute_beside_each_other():
    """One captures again and again while others compute, replay and draw."""
    wrong, done = [], threading.Event()
    weight = Tensor.arange(16).reshape(4, 4).float().realize()
    shared = TinyJit(lambda x: (x @ weight + Tensor.rand(1) * 0).realize())

    def captures():
        try:
            for n in range(25):
                step = TinyJit(lambda x: ((x @ weight).realize() * 2).realize())
                for _ in range(3):
                    if step(Tensor.full((4, 4), float(n)).contiguous()).sum().item() != 8 * n * 120:
                        wrong.append("captures")
        finally:
            done.set()

    def computes():
        while not done.is_set():
            if ((weight * 2).contiguous() + weight).sum().item() != 3 * 120:
                wrong.append("computes")

    def replays():
        while not done.is_set():
            if shared(Tensor.ones(4, 4).contiguous()).sum().item() != 4 * 120:
                wrong.append("replays")

    together(captures, computes, replays, replays, often=True)
    assert not wrong


def test_threads_draw_different_numbers():
    step = TinyJit(lambda x: (x + Tensor.rand(1)).realize())
    x = vec(0)
    three(step, x)
    seen = sum(together(*[lambda: [step(x).item() for _ in range(50)]] * 4), [])
    assert len(seen) == len(set(seen)) == 200


# ---- random steps --------------------------------------------------------------------------------

ACTIONS = {
    "add": lambda m: m.push(m.top() + m.below()),
    "multiply": lambda m: m.push(m.top() * m.below()),
    "scale": lambda m: m.push(m.top() * 3 - 1),
    "realize": lambda m: m.push(m.top().realize()),
    "roll": lambda m: m.push(m.top().roll(1, 0)),
    "flip": lambda m: m.push(m.top().flip(0)),
    "sum": lambda m: m.push(m.top().sum() + m.below()),
    "state": lambda m: m.push(m.state * 1),
    "write": lambda m: m.state.assign(m.state * 0.5 + m.top().detach()),
    "write part": lambda m: m.state.__setitem__(slice(0, 2), m.top()[1:3]),
    "write and realize": lambda m: m.state.assign(m.top().detach() - m.state).realize(),
    "argument": lambda m: m.push(m.argument),
    "write argument": lambda m: m.argument.assign(m.top() * 0.25),
    "draw": lambda m: m.push(Tensor.rand(4)),
    "new": lambda m: m.push(Tensor([1.0, 2.0, 3.0, 4.0])),
    "in place": lambda m: m.fresh().__iadd__(m.below()),
    "earlier": lambda m: m.push(m.outside),
}


class Machine:
    """A stack of tensors that random actions work on."""

    def __init__(self, argument, state, outside):
        self.argument, self.state, self.outside = argument, state, outside
        self.stack = [argument * 1, argument + 1]

    def push(self, tensor):
        self.stack.append(tensor)

    def top(self):
        return self.stack[-1]

    def below(self):
        return self.stack[-2]

    def fresh(self):
        self.push((self.top() + 2).contiguous().realize())
        return self.top()


@hypothesis.given(
    st.lists(st.sampled_from(sorted(ACTIONS)), min_size=1, max_size=6),
    st.lists(st.sampled_from(["call", "write state", "read", "draw", "keep"]), max_size=6),
)
@hypothesis.settings(max_examples=25)
def test_random_steps(actions, between):
    def run(jit):
        Tensor.manual_seed(9)
        state, outside = vec(1, 2, 3, 4), vec(4, 3, 2, 1) * 2
        arguments = [vec(n, 1, n, 2) for n in range(3)]
        seen = []

        def step(x):
            machine = Machine(x, state, outside)
            for action in actions:
                ACTIONS[action](machine)
            return machine.top().realize(), (machine.below() + 1).realize()

        captured = jit(step)
        for n, action in enumerate(["call", "call", "call", *between, "call"]):
            x = arguments[n % 3]
            if action == "call":
                seen += captured(x)
            elif action == "write state":
                state.assign(state + n)
            elif action == "read":
                seen.append((state * 1).realize())
            elif action == "draw":
                seen.append(Tensor.rand(2))
            else:
                seen += [state * 2, x + 1]
        return [t.numpy().tolist() for t in [*seen, state, *arguments]]

    plain = run(lambda step: step)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            np.concatenate([np.ravel(v) for v in run(TinyJit)]),
            np.concatenate([np.ravel(v) for v in plain]),
            rtol=1e-6,
        )


def test_default_dtypes_are_part_of_the_key():
    step = TinyJit(lambda x: (x + Tensor.ones(1)).realize())
    three(step, Tensor([1]).realize())
    try:
        dtypes.default_float = dtypes.float16
        assert step(Tensor([1]).realize()).dtype is dtypes.float16
    finally:
        dtypes.default_float = dtypes.float32


@pytest.mark.parametrize("capture", [False, True])
def test_results_that_are_still_held_are_no_readers_of_what_the_next_call_overwrites(capture):
    """Two nets against each other: each loss reads weights that the other's step overwrote."""
    a, b = (Tensor(np.ones(3, np.float32)).realize().requires_grad_() for _ in range(2))
    first, second = nn.optim.SGD([a], lr=0.1), nn.optim.SGD([b], lr=0.1)

    def step():
        second.zero_grad()
        against = ((a * 3).detach() * b).sum() + (b * 2).sum()
        against.backward()
        second.step()
        first.zero_grad()
        second.zero_grad()
        loss = (a * 3 * b).sum()
        loss.backward()
        first.step()
        return against.realize(), loss.realize()

    run, found = TinyJit(step) if capture else step, []
    with Tensor.train():
        for _ in range(4):
            results = run()
            found.append([round(t.item(), 3) for t in results])
    assert found == [[15.0, 4.5], [6.825, 0.344], [0.609, -3.056], [-5.937, -7.705]]


@pytest.mark.usefixtures("others_are_old")
def test_a_generator_that_dies_harms_no_step_that_never_drew_from_it():
    """A capture may meet streams of other programs; it keeps those that it drew from itself."""
    bystander, own = Generator(1), Generator(2)
    step = TinyJit(lambda x: (x + Tensor.rand(2, generator=own)).realize())
    x = Tensor([1.0, 2.0]).realize()
    found = [step(x).tolist() for _ in range(2)]
    del bystander
    gc.collect()
    found += [step(x).tolist() for _ in range(2)]
    fresh = Generator(2)
    assert found == [(x + Tensor.rand(2, generator=fresh)).tolist() for _ in range(4)]


@pytest.mark.usefixtures("others_are_old")
def test_what_nobody_sees_after_a_replay_takes_turns_in_one_arena():
    x = Tensor.zeros(1 << 19).contiguous().realize()
    gc.collect()
    before = GlobalCounters.mem_used

    @TinyJit
    def step(x):
        for _ in range(8):
            x = (x + 1).realize()
        return x

    for _ in range(4):
        np.testing.assert_array_equal(step(x).numpy(), np.full(1 << 19, 8.0, np.float32))
    gc.collect()
    assert GlobalCounters.mem_used - before <= 3 * 4 << 19  # the last is the result's place


def test_what_is_kept_between_plans_of_a_step_is_not_overwritten():
    """Each plan's arena began at the same byte; what passes from one to another must not."""

    @TinyJit
    def step(x):
        early = (x + 1).realize()
        middle = (early.sum(0, keepdim=True) * 2).contiguous().exp().contiguous().realize()
        return (early * 2 + middle).realize(), early.sum().realize()

    x = Tensor.arange(12).reshape(3, 4).float().realize() * 0.01
    x = x.realize()
    early = x.numpy() + 1
    for _ in range(4):
        out, total = step(x)
        expected = early * 2 + np.exp(early.sum(0, keepdims=True) * 2)
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5)
        np.testing.assert_allclose(total.item(), early.sum(), rtol=1e-5)


PARTS = {
    "a slice": lambda whole: whole[2:4],
    "a turned one": lambda whole: whole[2:4].flip(0),
    "a column": lambda whole: whole.reshape(3, 2)[1],
    "a constant": lambda whole: Tensor(1.0).expand(2),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("step", [lambda x: x.assign(x + 1).sum(), lambda x: x.reshape(2, 1)])
def test_a_replay_refuses_a_part_where_a_copy_would_lose_writes(part, step):
    jit = TinyJit(step)
    for _ in range(3):
        jit(vec(1, 2))
    whole = vec(0, 1, 2, 3, 4, 5)
    with pytest.raises(JitError, match="argument 0 is a part of a larger tensor.*whole tensor"):
        jit(PARTS[part](whole))
    assert whole.tolist() == [0, 1, 2, 3, 4, 5]
    jit(vec(1, 2))


def _trained(captures, counts, zeroes):
    """A layer's weight, and its gradient before each step, by so many backward passes a step."""
    draw = np.random.default_rng(0)
    weight = Tensor(np.full((3, 2), 0.1, "float32"), requires_grad=True).realize()
    optimizer = nn.optim.Adam([weight], lr=0.01)

    def forward(x):
        loss = (x @ weight).square().mean()
        loss.backward()
        return loss.realize()

    backward = TinyJit(forward) if "backward" in captures else forward
    step = TinyJit(optimizer.step) if "step" in captures else optimizer.step
    found = []
    with Tensor.train():
        for count in counts:
            if zeroes:
                optimizer.zero_grad()
            elif weight.grad is not None:
                weight.grad.assign(weight.grad * 0)
            for _ in range(count):
                backward(Tensor(draw.standard_normal((4, 3)).astype("float32")))
            found.append(weight.grad.numpy())
            step()
    return [*found, weight.numpy()]


@pytest.mark.parametrize("counts", [(1,) * 5, (2,) * 4, (3, 1, 4, 2)])
@pytest.mark.parametrize("zeroes", [True, False])
@pytest.mark.parametrize("captures", [("backward",), ("step",), ("backward", "step")])
def test_gradients_are_there_after_replays_and_add_up(captures, zeroes, counts):
    found, wanted = _trained(captures, counts, zeroes), _trained((), counts, zeroes)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)


def test_a_first_gradient_is_a_new_one_in_each_replay():
    w = Tensor([1.0, 2.0], requires_grad=True).realize()

    @TinyJit
    def step(x):
        return (x * w).sum().backward().realize()

    kept = []
    for n in range(5):
        w.grad = None
        step(Tensor([float(n), 1.0]).realize())
        kept.append(w.grad)
    assert [each.tolist() for each in kept] == [[n, 1.0] for n in range(5)]
    with pytest.raises(JitError, match="has a .grad, and had none"):
        step(Tensor([1.0, 1.0]).realize())
    w.grad = None
    step(Tensor([7.0, 1.0]).realize())
    assert w.grad.tolist() == [7.0, 1.0]


def test_replays_add_to_a_gradient_that_another_pass_made():
    w = Tensor([1.0, 2.0], requires_grad=True).realize()
    step = TinyJit(lambda x: (x * w).sum().backward().realize())
    for n in range(3):
        step(Tensor([float(n), 1.0]).realize())
    assert w.grad.tolist() == [3.0, 3.0]
    w.grad = None
    (w * w).sum().backward()  # 2, 4
    step(Tensor([5.0, 1.0]).realize())
    assert w.grad.tolist() == [7.0, 5.0]


def _looks(w, x):
    return (x + w.grad if w.grad is not None else x * 2).realize()


def _looks_by_name(w, x):
    return (x + 1 if getattr(w, "grad", None) is None else x * 2).realize()


def _clears(w, x):
    w.grad = None
    return (x + 1).realize()


def _clears_first(w, x):
    w.grad = None
    (w * x).sum().backward()
    return (w.grad * 2).realize()


def _clears_last(w, x):
    (w * x).sum().backward()
    made = (w * 2 + w.grad).realize()
    w.grad = None
    return made


def _zeroes(w, x):
    if w.grad is not None:
        w.grad.zero_()
    (w * x).sum().backward()
    return (w.grad * 2).realize()


def _begins_otherwise(w, x):
    (w * x if w.grad is None else w * x * 3).sum().backward()
    return (w.grad * 2).realize()


def _adds(w, x):
    (w * x).sum().backward()
    return (w.grad * 2).realize()


def _zeroes_what_is_there(w, x):
    nn.optim.SGD([w]).zero_grad(set_to_none=False)
    return (x * 2).realize()


def _seen_of_gradients(step, before, wrap):
    """What calls give and leave, if `before` each there is no gradient, some, or what was left."""
    w, seen = Tensor([1.0, 2.0], requires_grad=True).realize(), []
    run = wrap(lambda x: step(w, x))
    for n, there in enumerate(before):
        if there != "left":
            w.grad = Tensor([float(n), 1.0]).realize() if there == "some" else None
        try:
            seen.append(run(Tensor([float(n), 3.0]).realize()).tolist())
            seen.append(None if w.grad is None else w.grad.tolist())
        except (JitError, ArgumentError) as error:
            assert ".grad" in str(error) or "zero_grad" in str(error)
            seen.append("refused")
            break
    return seen


@pytest.mark.parametrize("then", ["none", "some", "left"])
@pytest.mark.parametrize("first", ["none", "some", "left"])
@pytest.mark.parametrize(
    "step",
    [
        *(_looks, _looks_by_name, _clears, _clears_first, _clears_last),
        *(_zeroes, _zeroes_what_is_there, _begins_otherwise, _adds),
    ],
)
def test_gradients_that_a_step_looks_for_by_hand_are_there_in_replays_or_it_says_so(
    step, first, then
):
    before = [first] * 3 + [then] * 2
    plain = _seen_of_gradients(step, before, lambda step: step)
    captured = _seen_of_gradients(step, before, TinyJit)
    refused = captured[-1] == "refused"
    assert captured == (plain[: len(captured) - 1] + ["refused"] if refused else plain)
    if step is _clears or first == then != "left":
        assert not refused


def test_a_captured_step_can_look_at_a_gradient_that_it_has_added_to():
    w = Tensor([1.0, 2.0], requires_grad=True).realize()
    step = TinyJit(lambda x: _adds(w, x))
    for _ in range(3):
        step(Tensor([1.0, 1.0]).realize())
    w.grad = None
    assert step(Tensor([2.0, 1.0]).realize()).tolist() == [4.0, 2.0]


def test_a_captured_step_of_an_optimizer_misses_its_gradient():
    w = Tensor([1.0, 2.0], requires_grad=True).realize()
    optimizer = nn.optim.SGD([w], lr=0.5)
    step = TinyJit(optimizer.step)
    with Tensor.train():
        for _ in range(3):
            optimizer.zero_grad()
            (w * w).sum().backward()
            step()
        assert w.tolist() == [0.0, 0.0]
        optimizer.zero_grad()
        with pytest.raises(JitError, match="has no .grad, which the captured call read"):
            step()


def _against(wrap, zeroes, to_none):
    """Two nets against each other, each with a step: the second's adds to the first's gradient."""
    draw = np.random.default_rng(0)

    def drawn(*shape):
        return Tensor(draw.standard_normal(shape).astype(np.float32) * 0.3).realize()

    made, judge = drawn(4, 8).requires_grad_(), drawn(8, 2).requires_grad_()
    losses = (lambda x: (x @ judge).square().mean(), lambda x: ((x @ made).tanh() @ judge).sum())
    optimizers = [nn.optim.SGD([each], lr=0.1, momentum=0.5) for each in (judge, made)]

    def step_of(optimizer, loss_of, when):
        def step(x):
            loss = loss_of(x)
            if when == "first":
                optimizer.zero_grad(to_none)
            loss.backward()
            optimizer.step()
            if when == "last":
                optimizer.zero_grad(to_none)
            return loss.realize()

        return wrap(step)

    steps = [step_of(*each) for each in zip(optimizers, losses, zeroes, strict=True)]
    found = []
    with Tensor.train():
        for _ in range(5):
            for step, optimizer, when, width in zip(steps, optimizers, zeroes, (8, 4), strict=True):
                if when == "between":
                    optimizer.zero_grad(to_none)
                found.append(step(drawn(8, width)).item())
    grad = [] if judge.grad is None else judge.grad.numpy().ravel()
    return np.concatenate([found, judge.numpy().ravel(), made.numpy().ravel(), grad])


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("second", ["first", "last", "between", "never"])
@pytest.mark.parametrize("first", ["first", "last", "between", "never"])
def test_two_captured_steps_may_add_to_one_gradient(first, second, to_none):
    wanted = _against(lambda step: step, (first, second), to_none)
    found = _against(TinyJit, (first, second), to_none)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_gradient_that_only_the_captured_step_itself_saw_is_not_kept():
    w = Tensor([1.0, 2.0], requires_grad=True).realize()
    optimizer = nn.optim.SGD([w], lr=0.5)

    @TinyJit
    def step():
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()

    with Tensor.train():
        for _ in range(3):
            step()
        with pytest.raises(ArgumentError, match=r"zero_grad\(\) of its own.*between the calls"):
            w.grad.tolist()


def test_a_gradient_that_comes_after_the_capture_is_not_left_out():
    w = Tensor([1.0, 2.0], requires_grad=True).realize()
    optimizer = nn.optim.SGD([w], lr=0.5)

    @TinyJit
    def step():
        (w * w).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    with Tensor.train():
        for _ in range(3):
            step()
        w.sum().backward()
        with pytest.raises(JitError, match="has a .grad, and had none"):
            step()


WAITING = {
    "padded": (lambda x: x.pad((1, 1)), lambda x: np.pad(x, 1)),
    "part of padded": (lambda x: x.pad((1, 1))[1:3], lambda x: x[:2]),
    "repeated": (lambda x: x.repeat(2), lambda x: np.tile(x, 2)),
    "turned": (lambda x: x.reshape(2, 2).T.reshape(4), lambda x: x.reshape(2, 2).T.reshape(4)),
}


@pytest.mark.parametrize("name", WAITING)
def test_a_copy_that_waits_keeps_the_state_from_before_a_captured_write(name):
    ours, theirs = WAITING[name]
    state, wanted = Tensor([0.0, 1, 2, 3]).realize(), np.arange(4.0)
    step = TinyJit(lambda x: state.assign(state + x).realize())
    for _ in range(5):
        copy, kept = ours(state), theirs(wanted).copy()
        step(Tensor([1.0, 2, 3, 4]).realize())
        wanted = wanted + [1, 2, 3, 4]
        assert copy.tolist() == kept.tolist() and state.tolist() == wanted.tolist()


def test_the_function_may_be_given_by_name():
    step = TinyJit(fxn=lambda x: (x + 1).realize())
    assert [step(Tensor([n]).realize()).tolist() for n in range(3)] == [[1], [2], [3]]


def trained(momentum, jit):
    """The losses of five steps, and the bytes that are held after them."""
    gc.collect()
    before = GlobalCounters.mem_used
    weight = (Tensor.arange(256 * 512).reshape(256, 512) / 1e5).realize()
    x = (Tensor.arange(4 * 256).reshape(4, 256) / 1e3).realize()
    optimizer = nn.optim.SGD([weight.requires_grad_(True)], lr=1e-2, momentum=momentum)

    @TinyJit
    def step(x):
        optimizer.zero_grad()
        loss = (x @ weight).square().mean()
        loss.backward()
        optimizer.step()
        return loss.realize()

    with Tensor.train(), Context(JIT=jit):
        losses = [step(x).item() for _ in range(5)]
    gc.collect()
    return losses, GlobalCounters.mem_used - before


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.usefixtures("others_are_old")
def test_gradients_that_nobody_reads_are_not_stored(momentum):
    losses, kept = trained(momentum, jit=1)
    assert kept < (1 + bool(momentum)) * 256 * 512 * 4 * 9 // 8  # the weights and their momentum
    np.testing.assert_allclose(losses, trained(momentum, jit=0)[0], rtol=1e-5)


@pytest.mark.parametrize(
    "part",
    [
        lambda s: (s + 1)[0:2],
        lambda s: Tensor.cat(s, s)[2:5],
        lambda s: s.pad(((1, 0), (0, 0))),
        lambda s: Tensor.stack(s, s)[1],
        lambda s: s.clone(),
        lambda s: s.repeat(2, 1),
        lambda s: s.T.reshape(-1, 1),
    ],
)
@pytest.mark.parametrize(
    "view", [lambda p: p.T, lambda p: p.flip(0), lambda p: p.reshape(-1), lambda p: p[::2]]
)
def test_a_part_of_an_expression_and_a_view_of_it_are_computed_by_each_replay(part, view):
    state = Tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]).realize()

    def step(x):
        result = part(state * x)
        return result, view(result)

    captured, kept, wanted = TinyJit(step), [], []
    for turn in range(CALLS):
        kept += captured(vec(2.0))
        wanted += [each.numpy() for each in step(vec(2.0))]
        state[0] = float(turn)
    for found, right in zip(kept, wanted, strict=True):
        np.testing.assert_array_equal(found.numpy(), right)


@pytest.mark.parametrize("made", [lambda t: t.repeat(2, 1), lambda t: t.T.reshape(-1)])
def test_a_copy_of_state_or_of_an_argument_is_copied_by_each_replay(made):
    """It lies in memory as a view does; but it is none."""
    state = Tensor([[0.0, 1.0], [2.0, 3.0]]).realize()
    captured, kept, wanted = TinyJit(lambda x: (made(state), made(x))), [], []
    for turn in range(CALLS):
        x = Tensor([[float(turn), 1.0], [2.0, 3.0]]).realize()
        kept += captured(x)
        wanted += [made(state).numpy(), made(x).numpy()]
        state[0] = float(turn)
        x[1] = -1.0
    for found, right in zip(kept, wanted, strict=True):
        np.testing.assert_array_equal(found.numpy(), right)


def test_an_argument_may_be_a_view_of_which_there_is_a_copy():
    """Read alone it is computed alone, which isn't where it lies."""
    step = TinyJit(lambda x: x + 1)
    rows = Tensor([[1, 2, 3], [4, 5, 6]]).realize()
    for _ in range(4):
        part = rows[::2]
        part.realize().numpy()
        assert step(part).tolist() == [[2, 3, 4]]


class Stepping:
    """A model that holds its own step."""

    def __init__(self):
        self.weight = vec(1, 2)
        self.step = TinyJit(self.forward)

    def forward(self, x):
        return (self.weight * x).realize()


def added(x):
    return (x + 1).realize()


def test_a_copied_model_captures_for_itself():
    model = Stepping()
    for _ in range(3):
        model.step(vec(1, 1))
    other = copy.deepcopy(model)
    other.weight.assign(vec(3, 4)).realize()
    for _ in range(3):
        assert other.step(vec(1, 1)).tolist() == [3, 4]
        assert model.step(vec(1, 1)).tolist() == [1, 2]


class Weighted:
    """A model whose weight may be an expression, which is part of the kernels."""

    def __init__(self, weight):
        self.weight = weight
        self.step = TinyJit(self.forward)

    def forward(self, x):
        return (self.weight * x).sum().realize()


def of_file(folder):
    nn.state.safe_save({"weight": Tensor.ones(2).half()}, str(folder / "ones.safetensors"))
    return nn.state.safe_load(str(folder / "ones.safetensors"))["weight"].float()


UNSTORED = {
    "constant": lambda folder: Tensor.ones(2),
    "contiguous": lambda folder: Tensor.ones(2).contiguous(),
    "counts": lambda folder: Tensor.arange(2) * 0.0 + 1,
    "of a file": of_file,
}
MADE_ANOTHER = {
    "assigned": lambda model: model.weight.assign(vec(2, 2)),
    "a part written": lambda model: model.weight.__setitem__(slice(None), 2.0),
    "in place": lambda model: model.weight.add_(1),
    "loaded": lambda model: nn.state.load_state_dict(model, {"weight": vec(2, 2)}, verbose=False),
    "another tensor": lambda model: setattr(model, "weight", Tensor.full((2,), 2.0)),
}


@pytest.mark.parametrize("change", MADE_ANOTHER)
@pytest.mark.parametrize("made", UNSTORED)
def test_what_was_no_storage_is_another_after_a_change(made, change, tmp_path):
    model = Weighted(UNSTORED[made](tmp_path))
    assert [model.step(vec(1, n)).item() for n in range(4)] == [1, 2, 3, 4]
    MADE_ANOTHER[change](model)
    assert [model.step(vec(1, n)).item() for n in range(4)] == [2, 4, 6, 8]


@pytest.mark.parametrize("made", UNSTORED)
def test_what_was_no_storage_may_be_computed_between_replays(made, tmp_path):
    model = Weighted(UNSTORED[made](tmp_path))
    captured = [model.step(vec(1, n)) and model.step.captured for n in range(3)][-1]
    assert model.weight.tolist() == [1, 1]
    assert model.step(vec(1, 7)).item() == 8 and model.step.captured is captured


def test_a_norm_whose_evaluation_was_captured_first_learns():
    norm, x = nn.BatchNorm2d(2), Tensor.arange(8).reshape(1, 2, 2, 2).float().realize()
    test = TinyJit(lambda x: norm(x).realize())
    for _ in range(3):
        test(x)
    optimizer = nn.optim.SGD([norm.weight, norm.bias], lr=0.1)
    with Tensor.train():
        norm(x).square().sum().backward()
        optimizer.step()
    assert test(x).tolist() == norm(x).tolist()


@pytest.mark.parametrize("copied", [copy.copy, lambda step: pickle.loads(pickle.dumps(step))])
def test_a_copy_of_a_step_has_captured_nothing(copied):
    step = TinyJit(added)
    for _ in range(3):
        step(vec(1))
    other = copied(step)
    assert other.captured is None and step.captured is not None
    assert [other(vec(n)).item() for n in range(3)] == [1, 2, 3]


def test_a_gradient_that_is_no_tensor_is_of_no_concern_to_a_capture():
    odd = Tensor([1.0], requires_grad=True)
    odd.grad = 5
    one = Tensor([1.0], requires_grad=True)
    step = TinyJit(lambda x: (x + one).realize())
    assert [step(Tensor([float(n)]).realize()).item() for n in range(4)] == [1.0, 2.0, 3.0, 4.0]
    one.requires_grad = False  # of no concern to a step without gradients
    assert step(Tensor([4.0]).realize()).item() == 5.0 and odd.grad == 5
    odd.grad = None


def steps_of(make, count=5):
    """What a step gives captured, and plainly: `make` returns it with state of its own."""
    given = [Tensor([float(k)]).realize() for k in range(count)]
    captured, plain = TinyJit(make()), make()
    return [captured(x).tolist() for x in given], [plain(x).tolist() for x in given]


def waves():
    field, flow = Tensor.zeros(9), Tensor.zeros(8)  # constants, of which the step makes storage

    def step(x):
        flow.add_(0.5 * (field[1:] - field[:-1]))
        field[1:-1] += 0.5 * (flow[1:] - flow[:-1])
        field[5] += x[0]
        return field.abs().max()

    return step


def test_state_that_was_never_read_stays_where_it_is():
    captured, plain = steps_of(waves)
    assert captured == plain
