"""Settings that a captured step reads from outside: a change of one is an error, whatever way it is
read; of what it doesn't read, of what is equal, and of what it sets itself, nothing is said."""

import cProfile
import functools
import sys
import time
from collections import defaultdict
from enum import Enum

import pytest
from together import together

from tinygrad import Tensor, TinyJit, dtypes, nn
from tinygrad.base.errors import JitError
from tinygrad.engine.places import _parts
from tinygrad.engine.reads import _reads
from tinygrad.nn import optim

rate, mode = 0.5, "double"


class Kind(Enum):
    ONE, OTHER = 1, 2


class Base:
    depth = 2.0
    __slots__ = ("width", "__dict__")


class Net(Base):
    power = 3.0

    def __init__(self):
        self.width, self.scale, self.steps, self.bias = 1.5, 2.0, 0, None
        self.kind, self.dtype, self.act = Kind.ONE, dtypes.float, Tensor.relu
        self.config = {"gain": 1.25, "list": [0.5, 0.75]}
        self.layer = nn.Linear(2, 2)
        self.parts = [nn.LayerNorm(2), nn.Dropout(0.0)]

    @property
    def doubled(self):
        return self.scale * 2

    @classmethod
    def raised(cls, x):
        return x * cls.power

    def __call__(self, x):
        self.steps_now = 1
        for part in self.parts:
            x = part(x)
        x = x * self.width * self.depth * self.doubled * self.config["gain"]
        x = self.act(x.cast(self.dtype)) if self.kind is Kind.ONE else x
        x = x * sum([k * self.config["list"][1] for k in (1, 2)])
        return self.layer(self.raised(x) if self.bias is None else x + self.bias)

    def train(self):
        self.steps += 1


def vec(*values):
    return Tensor([[float(v) for v in values]]).realize()


def given(net):
    """A step of a net, captured."""
    step = TinyJit(lambda x: net(x).realize())
    for _ in range(3):
        step(vec(1, 2))
    return step


def set_element(held, key, value):
    held[key] = value


CHANGES = {
    "an attribute": (lambda net: setattr(net, "scale", 3.0), "self.scale (in Net.doubled) is 3.0"),
    "a slot": (lambda net: setattr(net, "width", 3.0), "self.width"),
    "of its class": (lambda net: setattr(Net, "power", 4.0), "cls.power"),
    "of a class above": (lambda net: setattr(Base, "depth", 4.0), "self.depth"),
    "one that hides it": (lambda net: setattr(net, "depth", 4.0), "self.depth"),
    "a key": (lambda net: set_element(net.config, "gain", 2.0), "self.config['gain']"),
    "in a comprehension": (
        lambda net: set_element(net.config["list"], 1, 2.0), "self.config['list'][1]"
    ),
    "a layer's": (lambda net: setattr(net.parts[0], "eps", 1.0), "self.eps"),
    "another kind of number": (lambda net: setattr(net, "scale", 2), "is 2 now"),
    "an enumeration's": (lambda net: setattr(net, "kind", Kind.OTHER), "self.kind"),
    "a dtype": (lambda net: setattr(net, "dtype", dtypes.half), "self.dtype"),
    "a function": (lambda net: setattr(net, "act", Tensor.tanh), "self.act"),
    "nothing that was something": (lambda net: setattr(net, "bias", 1.0), "self.bias"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_an_error(name, monkeypatch):
    monkeypatch.setattr(Net, "power", 3.0)
    monkeypatch.setattr(Base, "depth", 2.0)
    change, words = CHANGES[name]
    net = Net()
    step = given(net)
    change(net)
    for _ in range(2):
        with pytest.raises(JitError) as caught:
            step(vec(1, 2))
        assert words in str(caught.value) and "reset()" in str(caught.value)
    step.reset()
    for _ in range(3):
        assert step(vec(1, 2)).tolist() == net(vec(1, 2)).tolist()


def test_what_is_not_read_or_is_equal_may_change():
    net = Net()
    step = given(net)
    wanted = net(vec(1, 2)).tolist()
    for change in (net.train, lambda: setattr(net, "scale", float("2.0"))):
        change()
        assert step(vec(1, 2)).tolist() == wanted
    net.scale = 3.0
    with pytest.raises(JitError):
        step(vec(1, 2))
    net.scale = 2.0
    assert step(vec(1, 2)).tolist() == wanted


def test_globals_and_closures(monkeypatch):
    beta = 2.0

    @TinyJit
    def step(x):
        return (x * rate * beta if mode == "double" else x).realize()

    three = [step(vec(1, 2)).tolist() for _ in range(3)]
    assert three == [[[1.0, 2.0]]] * 3
    for name, value in (("rate", 0.25), ("mode", "single")):
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules[__name__], name, value)
            with pytest.raises(JitError, match=f"{name} .in .*step. is {value!r} now"):
                step(vec(1, 2))
    beta = 3.0
    with pytest.raises(JitError, match=r"beta .* is 3\.0 now; the captured call read 2\.0"):
        step(vec(1, 2))
    beta = 2.0
    assert step(vec(1, 2)).tolist() == three[0]


def test_an_optimizers_numbers():
    weight = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = nn.optim.SGD([weight], lr=0.125, momentum=0.5)

    @TinyJit
    def step(x):
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    with Tensor.train():
        for _ in range(3):
            step(vec(1, 2))
        optimizer.lr = 0.25  # a tensor, whatever is given
        step(vec(1, 2))
        optimizer.momentum = 0.25
        with pytest.raises(JitError, match=r"self\.momentum"):
            step(vec(1, 2))


def scaled_by(factor):
    return lambda x: x * factor


def test_functions_of_one_code_and_functions_defined_again():
    twice, thrice = scaled_by(2.0), scaled_by(3.0)
    step = TinyJit(lambda x: thrice(twice(x)).realize())
    assert [step(vec(1)).item() for _ in range(3)] == [6.0] * 3
    twice = scaled_by(2.0)
    assert step(vec(1)).item() == 6.0
    for factors in ((4.0, 3.0), (2.0, 4.0)):
        twice, thrice = map(scaled_by, factors)
        with pytest.raises(JitError, match="factor|twice|thrice"):
            step(vec(1))


class Counts:
    def __init__(self):
        self.n, self.quiet, self.latest = 0, False, 0.0

    def counts(self, x):
        self.n += 1
        return (x * self.n).realize()

    def counts_elsewhere(self, x):
        self.count()
        return (x * 2).realize()

    def count(self):
        self.n = self.n + 1

    def restores(self, x):
        before, self.quiet = self.quiet, True
        out = self.look(x)
        self.quiet = before
        return out

    def sets_first(self, x):
        self.quiet = True
        out = self.look(x)
        self.quiet = False
        return out

    def look(self, x):
        return (x * (2 if self.quiet else 3)).realize()

    def stores(self, x):
        self.latest = self.latest_of(x)
        return (x * 2).realize()

    def latest_of(self, x):
        Counts.serial += 1
        return float(Counts.serial)

    serial = 0


def counted(kind):
    calls = 0

    def counts(x):
        nonlocal calls
        global every_call
        calls += 1
        every_call += 1
        return (x * 2).realize()

    def keeps(x):
        nonlocal calls
        calls = number = calls + 1
        return (x * number).realize()

    def reads(x):
        nonlocal calls
        calls += 1
        return (x * calls).realize()

    return {"counts": counts, "keeps": keeps, "reads": reads}[kind], lambda: (calls, every_call)


every_call = 0


def test_a_number_that_only_counts_counts_the_calls_that_run_python():
    function, counts = counted("counts")
    step = TinyJit(function)
    assert [step(vec(n)).item() for n in range(4)] == [0, 2, 4, 6]
    assert counts() == (2, 2)


@pytest.mark.parametrize("kind", ["keeps", "reads"])
def test_a_counter_that_the_step_reads_is_an_error(kind):
    step = TinyJit(counted(kind)[0])
    step(vec(1))
    with pytest.raises(JitError, match="from 1 to 2|with 2 at"):
        step(vec(1))


@pytest.mark.parametrize("name", ["counts", "counts_elsewhere", "stores"])
def test_a_number_that_the_step_changes_is_an_error(name):
    step = TinyJit(getattr(Counts(), name))
    step(vec(1))
    with pytest.raises(JitError, match=r"changes (self\.n|Counts\.serial) .* from 1 to 2"):
        step(vec(1))
    Counts.serial = 0


@pytest.mark.parametrize("name", ["restores", "sets_first"])
def test_a_number_that_it_sets_and_sets_back(name):
    step = TinyJit(getattr(Counts(), name))
    assert [step(vec(1)).item() for _ in range(4)] == [2.0] * 4


def test_a_method_that_is_captured_for_each_instance():
    class Scaled:
        def __init__(self, factor):
            self.factor = factor

        @TinyJit
        def step(self, x):
            return (x * self.factor).realize()

    two, three = Scaled(2.0), Scaled(3.0)
    for _ in range(3):
        assert (two.step(vec(1)).item(), three.step(vec(1)).item()) == (2.0, 3.0)
    two.factor = 4.0
    with pytest.raises(JitError, match=r"self\.factor"):
        two.step(vec(1))
    assert three.step(vec(1)).item() == 3.0


def test_what_is_made_inside_is_nobodys():
    class Turn:
        def __init__(self, n):
            self.n = n

    def step(x):
        return twice(x, Turn(time.perf_counter()))

    def twice(x, turn):
        return (x * 2 if turn.n >= 0 else x).realize()

    run = TinyJit(step)
    assert [run(vec(1)).item() for _ in range(4)] == [2.0] * 4


def test_an_argument_is_part_of_the_key():
    step = TinyJit(lambda x, k: (x * k).realize())
    for k in (2.0, 3.0, 2.0, 3.0, 2.0, 3.0):
        assert step(vec(1), k).item() == k


def test_threads_capture_each_for_itself():
    def work(factor):
        net = Counts()
        net.n = factor
        step = TinyJit(lambda x: (x * net.n).realize())
        assert [step(vec(1)).item() for _ in range(3)] == [factor] * 3
        net.n = 9
        with pytest.raises(JitError, match=r"net\.n"):
            step(vec(1))

    together(*[functools.partial(work, n) for n in (1, 2, 3)])


def test_a_profiler_goes_on():
    profile = cProfile.Profile()
    net = Net()
    profile.enable()
    given(net)
    profile.disable()
    assert any("__call__" in str(row) for row in profile.getstats())
    assert sys.getprofile() is None
    given(net)
    assert sys.getprofile() is None


def test_an_error_inside_ends_the_looking():
    def step(x):
        if len(seen := [*calls, 1]) and calls.append(1) is None and len(seen) > 1:
            raise ValueError("mine")
        return (x * 2).realize()

    calls = []
    run = TinyJit(step)
    run(vec(1))
    with pytest.raises(ValueError, match="mine"):
        run(vec(1))
    assert sys.getprofile() is None


def test_looking_runs_nobodys_code():
    asked = []

    class Loud(dict):
        def __getitem__(self, key):
            asked.append(key)
            return 2.0

    loud, filled = Loud(), defaultdict(lambda: 2.0)
    step = TinyJit(lambda x: (x * (loud["k"] if x.ndim == 2 else filled["k"])).realize())
    assert [step(vec(1)).item() for _ in range(3)] == [2.0] * 3
    assert asked == ["k"] * 2 and not filled


def test_names_of_a_functions_code():
    found = {(str(read), read.is_stored) for read in _reads(Counts.restores.__code__, __name__)}
    assert found >= {("self.quiet", False), ("self.quiet", True), ("self.look", False)}
    assert not any(text.startswith("before") for text, _ in found)  # of its own
    assert _reads(Counts.restores.__code__, "tinygrad.engine.jit") == ()
    assert _reads(Counts.restores.__code__, "json.decoder") == ()


def test_what_is_searched_is_held_by_its_owner():
    """A list that a property makes dies at once: one of the step would have its `id`, and be taken
    for it."""
    schedule = optim.StepLR(optim.SGD([{"params": [Tensor([1.0])]}], lr=0.1), 2)
    places = list(_parts(schedule))
    assert [p.get(p.owner, p.key) is p.value for p in places] == [True] * len(places)
    assert [p.value for p in places if p.value is schedule.optimizer]
