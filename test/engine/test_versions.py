"""assign: a node names the version of a buffer that it reads. Whatever runs when, a program means
what its order says: every expression has the values of the moment at which it was built."""

import gc
import random
import time
import weakref

import numpy as np
import pytest

from tinygrad import Context, Tensor
from tinygrad.base.errors import ArgumentError
from tinygrad.engine.storage import realized_buffer
from tinygrad.uop.op import Ops


def vector(*values: float) -> Tensor:
    return Tensor(list(values)).realize()


def test_expressions_built_before_an_assign_keep_the_old_value():
    x = vector(1.0, 2.0)
    y = x * 2
    x.assign(Tensor([10.0, 20.0]))
    assert y.tolist() == [2.0, 4.0]
    assert x.tolist() == [10.0, 20.0]
    assert (x * 2).tolist() == [20.0, 40.0]


def test_old_reader_is_right_when_the_assign_runs_first():
    x = vector(1.0, 2.0)
    y = x * 2
    x.assign(Tensor([10.0, 20.0])).realize()
    assert y.tolist() == [2.0, 4.0]


def test_assign_of_an_expression_of_itself():
    x = vector(1.0, 2.0)
    for _ in range(3):
        x.assign(x * 2 + 1).realize()
    assert x.tolist() == [15.0, 23.0]


def test_assigns_that_were_not_realized_between():
    x = vector(1.0, 2.0)
    for _ in range(3):
        x.assign(x * 2 + 1)
    assert x.tolist() == [15.0, 23.0]


def test_swap_of_two_buffers():
    a, b = vector(1.0, 2.0), vector(3.0, 4.0)
    old_a, old_b = a + 0, b + 0
    a.assign(old_b)
    b.assign(old_a)
    assert (a.tolist(), b.tolist()) == ([3.0, 4.0], [1.0, 2.0])


def test_assign_through_a_view_is_seen_by_all():
    x = Tensor.zeros(2, 3).contiguous().realize()
    row = x[1]
    x[0].assign(Tensor([1.0, 2.0, 3.0])).realize()
    assert x.tolist() == [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]
    row.assign(Tensor([4.0, 5.0, 6.0])).realize()
    assert x.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def test_assign_of_a_transposed_self():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    x.assign(x.T).realize()
    assert x.tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_assign_writes_into_the_same_storage():
    x = vector(1.0, 2.0)
    before = x.uop.realized
    x.assign(x + 1).realize()
    assert x.uop.realized is before


def test_setitem_then_read():
    x = Tensor.zeros(4).contiguous().realize()
    x[1:3] = Tensor([5.0, 6.0])
    assert x.tolist() == [0.0, 5.0, 6.0, 0.0]


def test_a_node_of_an_overwritten_version_cannot_be_read():
    """Silence would be a wrong answer: only tensors that are alive are computed in time."""
    x = vector(1.0, 2.0)
    node = (x * 3).uop
    x.assign(Tensor([7.0, 8.0])).realize()
    with pytest.raises(ArgumentError, match="an assign has since overwritten"):
        Tensor(node).tolist()


def test_two_thousand_updates_in_place():
    x = Tensor.zeros(8).contiguous().realize()
    start = time.thread_time()
    for _ in range(2000):
        x.assign(x + 1).realize()
    assert x.tolist() == [2000.0] * 8
    assert time.thread_time() - start < 20


def test_empty_has_storage_of_its_own():
    x = Tensor.empty(3)
    x.assign(Tensor([1.0, 2.0, 3.0])).realize()
    assert x.tolist() == [1.0, 2.0, 3.0]
    assert Tensor.empty(3).numpy().shape == (3,)


# ---- programs at random --------------------------------------------------------------------------


class Program:
    """Two buffers and any number of expressions, in tinygrad and in NumPy side by side."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.buffers = [vector(*(10.0 * i + j for j in range(4))) for i in range(2)]
        self.wanted = [t.numpy() for t in self.buffers]
        self.expressions: list[Tensor] = []
        self.values: list[np.ndarray] = []
        self.log: list[str] = []

    def two(self) -> tuple[int, int, float]:
        return self.choose.randrange(2), self.choose.randrange(2), self.choose.randrange(1, 4)

    def build(self) -> None:
        i, j, c = self.two()
        self.expressions.append(self.buffers[i] * c + self.buffers[j])
        self.values.append(self.wanted[i] * c + self.wanted[j])
        self.log.append(f"e{len(self.values) - 1} = b{i} * {c} + b{j}")

    def build_on(self) -> None:
        i, _, _ = self.two()
        e = self.choose.randrange(len(self.values))
        self.expressions.append(self.expressions[e] + self.buffers[i].flip(0))
        self.values.append(self.values[e] + self.wanted[i][::-1])
        self.log.append(f"e{len(self.values) - 1} = e{e} + b{i}.flip(0)")

    def assign(self) -> None:
        i, j, c = self.two()
        turned = self.choose.random() < 0.3
        source = self.buffers[j].flip(0) if turned else self.buffers[j]
        self.buffers[i].assign(source * c - 1)
        self.wanted[i] = (self.wanted[j][::-1] if turned else self.wanted[j]) * c - 1
        self.log.append(f"b{i}.assign(b{j}{'.flip(0)' if turned else ''} * {c} - 1)")

    def assign_expression(self) -> None:
        i, _, c = self.two()
        e = self.choose.randrange(len(self.values))
        self.buffers[i].assign(self.expressions[e] + c)
        self.wanted[i] = self.values[e] + c
        self.log.append(f"b{i}.assign(e{e} + {c})")

    def write_slice(self) -> None:
        i, j, c = self.two()
        a = self.choose.randrange(3)
        self.buffers[i][a : a + 2] = self.buffers[j][1:3] + c
        new = self.wanted[i].copy()
        new[a : a + 2] = self.wanted[j][1:3] + c
        self.wanted[i] = new
        self.log.append(f"b{i}[{a}:{a + 2}] = b{j}[1:3] + {c}")

    def write_element(self) -> None:
        i, _, c = self.two()
        a = self.choose.randrange(4)
        self.buffers[i][a] = float(c)
        self.wanted[i] = self.wanted[i].copy()
        self.wanted[i][a] = c
        self.log.append(f"b{i}[{a}] = {c}")

    def realize(self) -> None:
        i, _, _ = self.two()
        self.buffers[i].realize()
        self.log.append(f"b{i}.realize()")

    def realize_expression(self) -> None:
        e = self.choose.randrange(len(self.values))
        self.expressions[e].realize()
        self.log.append(f"e{e}.realize()")

    def run(self, steps: int) -> None:
        always = [self.build, self.assign, self.assign, self.write_slice, self.write_element]
        always.append(self.realize)
        with_expressions = [self.build_on, self.assign_expression, self.realize_expression]
        for _ in range(steps):
            self.choose.choice(always + (with_expressions if self.values else []))()

    def check(self) -> None:
        ours = [t.tolist() for t in (*self.buffers, *self.expressions)]
        wanted = [v.tolist() for v in (*self.wanted, *self.values)]
        assert ours == wanted, "; ".join(self.log)


@pytest.mark.parametrize("steps", [3, 5, 9])
@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed, steps):
    program = Program(100 * steps + seed)
    try:
        program.run(steps)
    except ArgumentError as error:
        pytest.fail(f"{error}: " + "; ".join(program.log))
    program.check()


@pytest.mark.parametrize("before", [False, True], ids=["view of a value", "view of an expression"])
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "an equal tensor lives"])
@pytest.mark.parametrize("function", [Tensor.__eq__, Tensor.__mul__], ids=["==", "*"])
def test_views_of_what_was_computed_see_what_is_written(function, shared, before):
    """Whenever they were made. Expressions of them keep the old value, and so do equal tensors."""
    a, b = Tensor([1.0, 2.0]).realize(), Tensor([1.0, 3.0]).realize()
    value, equal = function(a, b), function(a, b) if shared else None
    view = value.expand(4, 2) if before else None
    value.realize()
    view = value.expand(4, 2) if view is None else view
    kept, old = view.sum(0), [4 * n for n in function(a, b).tolist()]
    for new in ([0.0, 1.0], [1.0, 0.0]):
        value.assign(Tensor(new, dtype=value.dtype))
        assert view.sum(0).tolist() == [4 * n for n in new]
        assert value.tolist() == new
        assert kept.tolist() == old
        assert equal is None or [4 * n for n in equal.tolist()] == old


def test_views_of_an_expression_see_what_is_written_to_it():
    """Whether something was computed already changes no meaning."""
    value = Tensor([1.0, 2.0]) * 2
    view = value.expand(3, 2)
    value.assign(Tensor([5.0, 6.0]))
    assert view.sum(0).tolist() == [15.0, 18.0]
    assert value.tolist() == [5.0, 6.0]


def test_a_constant_that_somebody_computed_is_still_a_constant():
    """What else lives in the process changes no kernel: this one adds 7, and reads one buffer."""
    held = [Tensor(3).realize(), Tensor.full((4,), 4).realize()]
    total = Tensor([1, 2, 3, 4]) + 3 + 4
    total.kernelize()
    ops = [node.op for node in total.uop.src[1].arg.ast.toposort()]
    assert ops.count(Ops.PARAM) == 2
    assert total.tolist() == [8, 9, 10, 11]
    held[0].assign(Tensor(5))
    held[1].assign(Tensor([1, 2, 3, 4]))
    assert held[0].item() == 5
    assert held[1].tolist() == [1, 2, 3, 4]
    assert (Tensor(3) + Tensor.full((4,), 4)).tolist() == [7] * 4


def test_a_view_costs_the_same_however_many_tensors_live(monkeypatch):
    """A family knows its members; nobody looks through all tensors for them."""
    from tinygrad.engine.holders import Holders

    value = vector(1.0, 2.0)
    monkeypatch.setattr(Holders, "__iter__", lambda self: pytest.fail("all tensors were looked at"))
    views = [value.reshape(2, 1) for _ in range(100)]
    assert (views[0] + views[99]).shape == (2, 1)
    assert len(value._members()) == 101
    for _ in range(500):
        value.reshape(1, 2)
    del views
    assert len(value._members()) == 1
    assert len(value.family.members.references()) < 210


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.assign(t * 2 + 1),
        lambda t: t.add_(1),
        lambda t: t.__setitem__(0, 5.0),
        lambda t: t[1:].assign(t[:-1].exp()),
        lambda t: t.reshape(2, 2).add_(t.reshape(2, 2).T),
        lambda t: [t.assign(t + 1), t.assign(t * 2)],
        lambda t: t.detach().assign(t.sum().expand(4)),
    ],
)
@pytest.mark.parametrize("spec", [0, 1])
@pytest.mark.usefixtures("others_are_old")
def test_a_write_that_nobody_reads_goes_with_its_tensor(write, spec):
    with Context(SPEC=spec):
        kept = []
        for _ in range(3):
            t = vector(1.0, 2.0, 3.0, 4.0)
            buffer = weakref.ref(realized_buffer(t.uop))
            write(t)
            del t
            gc.collect()
            kept.append(buffer() is not None)
    assert kept == [False] * 3
