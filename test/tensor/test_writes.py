"""Programs of views, writes and reads mean what they mean in NumPy: whoever shares memory there
sees a write here, and who doesn't keeps what was there."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import tinygrad.array_api as xp
from tinygrad import TinyJit, nn
from tinygrad.base.errors import ArgumentError, DTypeError, JitError
from tinygrad.engine.devices import Device
from tinygrad.tensor import Tensor

SHAPES = ((4,), (5,), (2, 3), (3, 3), (4, 3), (2, 2, 3), (1, 4), ())


class Draw:
    """Choices, one number each, so that hypothesis can make a program smaller."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        self.at = 0

    def __call__(self, count: int) -> int:
        number = self.numbers[self.at % len(self.numbers)] + self.at // len(self.numbers)
        self.at += 1
        return number % count

    def pick(self, options: Any) -> Any:
        return options[self(len(options))]


class Program:
    """Pairs of ours and NumPy's, and the lines so far."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.pairs: list[tuple[Tensor, np.ndarray]] = []
        self.log: list[str] = []
        self.fresh = 0

    def run(self, steps: int) -> None:
        self.new()
        for _ in range(steps):
            self.draw.pick(STEPS)(self)
        for i in self.draw.pick((range, reversed_range))(len(self.pairs)):
            self.compare(i)

    # ---- what the steps use ----------------------------------------------------------------------

    def any(self) -> int:
        recent = self.draw(3)
        return len(self.pairs) - 1 if recent == 0 else self.draw(len(self.pairs))

    def add(self, text: str, ours: Tensor, theirs: np.ndarray) -> None:
        assert ours.shape == theirs.shape, self.told(f"{text}: {ours.shape} {theirs.shape}")
        self.log.append(f"v{len(self.pairs)} = {text}")
        self.pairs.append((ours, theirs))

    def told(self, what: str) -> str:
        return "\n".join([*self.log, what])

    def compare(self, i: int) -> None:
        ours, theirs = self.pairs[i]
        got = ours.numpy()
        assert got.tolist() == theirs.tolist(), self.told(f"v{i}: {got.tolist()}, {theirs}")

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray:
        self.fresh += 10
        count = int(np.prod(shape))
        return (np.arange(count, dtype=np.int32) + self.fresh).reshape(shape)

    def key(self, theirs: np.ndarray) -> tuple[Any, ...]:
        """Numbers, slices, None."""
        parts: list[Any] = []
        for n in theirs.shape:
            kind = self.draw(6)
            begin, end = self.draw(n + 1), self.draw(n + 2)
            if kind == 0 and n:
                parts.append(self.draw(2 * n) - n)
            elif kind == 1:
                parts.append(slice(begin, max(begin + 1, end)))
            elif kind == 2:
                parts.append(slice(None, None, self.draw.pick((2, 3, -1, -2))))
            elif kind == 3:
                parts += [None, slice(begin % max(n, 1), None)]
            else:
                parts.append(slice(None))
        while self.draw(3) == 0 and parts and parts[-1] == slice(None):
            parts.pop()
        return (*parts, ...)

    def indices(self, theirs: np.ndarray) -> Any:
        """Arrays and masks, alone or between others."""
        n = theirs.shape[0]
        kind = self.draw(7)
        some = np.array([self.draw(2 * n) - n for _ in range(1 + self.draw(3))])
        mask = np.array([self.draw(2) == 1 for _ in range(n)])
        if kind == 0 or theirs.ndim < 2:
            return self.draw.pick((some, mask, some.tolist(), some.reshape(-1, 1)))
        m = theirs.shape[1]
        column = np.array([self.draw(m) for _ in some])
        return self.draw.pick(
            (
                (some, column),
                (slice(None), column),
                (slice(None, None, -1), column),
                (mask, slice(0, 2)),
                (..., np.array([self.draw(theirs.shape[-1]) for _ in range(2)])),
                (None, some, 0),
                (mask, self.draw(m)),
                self.numbers(theirs.shape) % 3 == self.draw(3),
            )
        )

    def value(self, shape: tuple[int, ...]) -> tuple[str, Any, np.ndarray]:
        """Something that broadcasts to `shape`: a number, an array, or one of the tensors."""
        for i in range(len(self.pairs)):
            ours, theirs = self.pairs[(i + self.draw(5)) % len(self.pairs)]
            if self.draw(2) and _broadcasts(theirs.shape, shape):
                return f"v{self._number(ours)}", ours, theirs
        kind = self.draw(3)
        if kind == 0:
            number = self.draw(9)
            return str(number), number, np.asarray(number, np.int32)
        keep = self.draw(len(shape) + 1) if kind == 1 else len(shape)
        array = self.numbers(shape[len(shape) - keep :])
        return repr(array.tolist()), self.draw.pick((Tensor, np.asarray))(array), array

    def _number(self, ours: Tensor) -> int:
        return next(i for i, (t, _) in enumerate(self.pairs) if t is ours)

    # ---- steps -----------------------------------------------------------------------------------

    def new(self) -> None:
        shape, kind = self.draw.pick(SHAPES), self.draw(5)
        array = self.numbers(shape)
        if kind == 0:
            zeros = Tensor.zeros(*shape, dtype="int32")
            return self.add(f"Tensor.zeros({shape}, dtype='int32')", zeros, np.zeros_like(array))
        made, text = Tensor(array.copy()), f"Tensor({array.tolist()})"
        if kind == 1:
            return self.add(f"{text} * 2", made * 2, np.array(array * 2))
        if kind == 2:
            return self.add(text, made, array)
        return self.add(f"{text}.realize()", made.realize(), array)

    def view(self) -> None:
        i = self.any()
        ours, theirs = self.pairs[i]
        name, ours_of, theirs_of = self.draw.pick(VIEWS)
        if name == "key":
            key = self.key(theirs)
            self.add(f"v{i}[{_text(key)}]", ours[key], theirs[key])
        elif theirs.ndim >= 2 or name in ("reshape(-1)", "detach()"):
            self.add(f"v{i}.{name}", ours_of(ours), theirs_of(theirs))

    def copy(self) -> None:
        i = self.any()
        ours, theirs = self.pairs[i]
        name, function = self.draw.pick(COPIES)
        self.add(f"v{i}{name}", function(ours), np.array(function(theirs), order="C"))

    def twins(self) -> None:
        """Two values that are equal, and neither a view of the other."""
        i = self.any()
        ours, theirs = self.pairs[i]
        name, function = self.draw.pick(COPIES)
        kind = self.draw(4)
        for end in ("", self.draw.pick(("", ".detach()"))):
            if kind == 0:
                made = Tensor.full(theirs.shape, 7, dtype="int32").contiguous()
                self.add(f"Tensor.full({theirs.shape}, 7)", made, np.full_like(theirs, 7))
            elif kind == 1:
                made = Tensor.zeros(*theirs.shape, dtype="int32") + 1
                self.add(f"Tensor.zeros({theirs.shape}) + 1", made, np.ones_like(theirs))
            else:
                source = ours.detach() if end else ours
                self.add(
                    f"v{i}{end}{name}", function(source), np.array(function(theirs), order="C")
                )

    def pick(self) -> None:
        i = self.any()
        ours, theirs = self.pairs[i]
        if theirs.ndim and theirs.size:
            key = self.indices(theirs)
            self.add(f"v{i}[{_text(key)}]", ours[_ours(key)], theirs[key].copy(order="K"))

    def write(self) -> None:
        i = self.any()
        ours, theirs = self.pairs[i]
        if not theirs.flags.writeable:
            return
        fancy = theirs.ndim > 0 and theirs.size > 0 and self.draw(2) == 1
        key = self.indices(theirs) if fancy else self.key(theirs)
        text, mine, value = self.value(theirs[key].shape)
        self.log.append(f"v{i}[{_text(key)}] = {text}")
        ours[_ours(key)] = mine
        theirs[key] = value.copy()

    def change(self) -> None:
        """`a[...] += b`."""
        i = self.any()
        ours, theirs = self.pairs[i]
        if not theirs.flags.writeable or not theirs.ndim or not theirs.size:
            return
        key = self.indices(theirs) if self.draw(2) else self.key(theirs)
        text, mine, value = self.value(theirs[key].shape)
        self.log.append(f"v{i}[{_text(key)}] += {text}")
        ours[_ours(key)] += mine
        theirs[key] += value.copy()

    def operate(self) -> None:
        i = self.any()
        ours, theirs = self.pairs[i]
        if not theirs.flags.writeable:
            return
        text, mine, value = self.value(theirs.shape)
        name, function = self.draw.pick(OPERATORS)
        if isinstance(mine, np.ndarray):
            mine = Tensor(mine)
        self.log.append(f"v{i} {name} {text}")
        with np.errstate(all="ignore"):
            function(ours, mine)
            function(theirs, value.copy())

    def assign(self) -> None:
        i = self.any()
        ours, theirs = self.pairs[i]
        if theirs.flags.writeable:
            text, mine, value = self.value(theirs.shape)
            self.log.append(f"v{i}.assign({text})")
            ours.assign(mine if isinstance(mine, Tensor) else Tensor(value))
            theirs[...] = value.copy()

    def realize(self) -> None:
        i = self.any()
        self.log.append(f"v{i}.realize()")
        self.pairs[i][0].realize()

    def realize_together(self) -> None:
        first = self.draw(len(self.pairs))
        self.log.append(f"Tensor.realize(v{first}, ... all behind it)")
        Tensor.realize(*[ours for ours, _ in self.pairs[first:]])

    def read(self) -> None:
        i = self.any()
        self.log.append(f"v{i}.numpy()")
        self.compare(i)

    def forget(self) -> None:
        i = self.draw(len(self.pairs))
        if len(self.pairs) > 1:
            self.log.append(f"# v{i} dies; those behind move up")
            del self.pairs[i]


def reversed_range(n: int) -> Any:
    return range(n - 1, -1, -1)


def _broadcasts(shape: tuple[int, ...], goal: tuple[int, ...]) -> bool:
    with contextlib.suppress(ValueError):
        return np.broadcast_shapes(shape, goal) == goal
    return False


def _ours(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_ours, key))
    return Tensor(key) if isinstance(key, np.ndarray) else key


def _text(key: Any) -> str:
    return repr(key).replace("\n", "")


def add_in_place(a: Any, b: Any) -> None:
    a += b


def subtract_in_place(a: Any, b: Any) -> None:
    a -= b


def multiply_in_place(a: Any, b: Any) -> None:
    a *= b


def xor_in_place(a: Any, b: Any) -> None:
    a ^= b


OPERATORS = (
    ("+=", add_in_place),
    ("-=", subtract_in_place),
    ("*=", multiply_in_place),
    ("^=", xor_in_place),
)
VIEWS: tuple[tuple[str, Any, Any], ...] = (
    ("key", None, None),
    ("key", None, None),
    ("T", lambda t: t.transpose(0, -1), lambda a: a.swapaxes(0, -1)),
    ("reshape(-1)", lambda t: t.reshape(-1), lambda a: a.reshape(-1)),
    ("flip(0)", lambda t: t.flip(0), lambda a: a[::-1]),
    ("detach()", lambda t: t.detach(), lambda a: a[...]),
    ("unsqueeze(0)", lambda t: t.unsqueeze(0), lambda a: a[None]),
    ("squeeze()", lambda t: t.squeeze(), lambda a: a.squeeze()),
    (
        "expand",
        lambda t: t.unsqueeze(0).expand(2, *t.shape),
        lambda a: np.broadcast_to(a, (2, *a.shape)),
    ),
)
COPIES: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    (" + 1", lambda x: x + 1),
    (" * 3", lambda x: x * 3),
    (" - itself[...]", lambda x: x - x[...]),
)
STEPS: tuple[Callable[[Program], None], ...] = (
    Program.new,
    Program.view,
    Program.view,
    Program.view,
    Program.copy,
    Program.copy,
    Program.twins,
    Program.pick,
    Program.write,
    Program.write,
    Program.write,
    Program.change,
    Program.operate,
    Program.operate,
    Program.assign,
    Program.realize,
    Program.realize_together,
    Program.read,
    Program.forget,
)


@pytest.mark.parametrize(
    ("device", "examples"), [("CPU", 40), ("PYTHON", 30), ("CL", 4), ("WEBGPU", 4)]
)
def test_programs_mean_what_they_mean_in_numpy(device, examples):
    examples = int(os.environ.get("EXAMPLES", examples))

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(st.integers(0, 1 << 16), min_size=20, max_size=60))
    def check(numbers: list[int]) -> None:
        Program(Draw(numbers)).run(3 + numbers[0] % 12)

    before = Device.DEFAULT
    Device.DEFAULT = device
    try:
        check()
    finally:
        Device.DEFAULT = before


# ---- gradients, and what is refused --------------------------------------------------------------


def test_gradients_pass_through_writes_as_in_pytorch():
    """To slices with steps, by tensors, by masks, through views, with operators."""
    x_, v_ = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4), np.ones((2, 2), np.float32) * 3
    rows, mask = [2, 0], x_ % 3 == 0

    def program(x: Any, v: Any, index: Any, where: Any) -> Any:
        y = x * 2
        y[::2, 1:3] = v * v
        y[index] = y[index] * 0.5
        y[:, 0] += x[:, 1]
        y[where] = 7.0
        view = y[1]
        view *= 3
        return (y * y).sum() + y[:, -1].sum()

    ours = [Tensor(a, requires_grad=True) for a in (x_, v_)]
    theirs = [torch.tensor(a, requires_grad=True) for a in (x_, v_)]
    mine = program(*ours, Tensor(rows), Tensor(mask))
    wanted = program(*theirs, torch.tensor(rows), torch.tensor(mask))
    np.testing.assert_allclose(mine.item(), wanted.item(), rtol=1e-5)
    mine.backward()
    wanted.backward()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-5)


def put(t: Any, value: Any) -> None:
    """All of `t` becomes `value`, in both libraries."""
    (t.assign if isinstance(t, Tensor) else t.copy_)(value)


def columns(t: Any) -> None:
    t[:, Tensor([0, 2])] = 5


OTHER_ORDERS = {  # what a tensor is given whose elements lie in another order than its own
    "columns": columns,
    "transposed": lambda t: t.assign((Tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]) + 1).T),
    "stored, transposed": lambda t: t.assign(Tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]).T),
    "a part": lambda t: t.assign((Tensor.ones(4, 4) + t.sum())[1:3, :3]),
    "backwards": lambda t: t.assign(t.flip(1) * 2),
}


@pytest.mark.parametrize("kind", ["waiting", "stored", "computed", "with a gradient"])
@pytest.mark.parametrize("name", OTHER_ORDERS)
def test_a_tensor_keeps_its_order_whatever_it_is_given(name, kind):
    """So that what lies one after the other stays a view, through which writes are seen."""
    t = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3), requires_grad=kind[:4] == "with")
    t = t.realize() if kind == "stored" else t if kind == "waiting" else t * 2
    OTHER_ORDERS[name](t)
    flat = t.reshape(-1)
    flat[1] = 100
    wanted = t.numpy()
    assert wanted[0, 1] == 100
    t += 1
    np.testing.assert_equal(flat.numpy(), (wanted + 1).reshape(-1))


@pytest.mark.parametrize("computed", [False, True])
def test_gradients_pass_through_assign_as_in_pytorch(computed):
    """Each edit gets a result y, a tensor z that wants a gradient, and a constant c."""
    x_, z_ = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3), np.eye(2, 3, dtype=np.float32) + 2

    def like_pytorch(edit: Callable[[Any, Any, Any], Any]) -> None:
        found = []
        for make in (Tensor, torch.tensor):
            x, z = (make(a, requires_grad=True) for a in (x_, z_))
            y = x * 2
            if computed and isinstance(y, Tensor):
                y.realize()
            more = edit(y, z, make(np.full((1, 3), 5, np.float32)))
            loss = (y * y).sum() + x.sum() + (z * 3).sum() + (more * x).sum()
            loss.backward()
            found.append([np.asarray(t.detach().numpy()) for t in (loss, x.grad, z.grad)])
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)

    like_pytorch(lambda y, z, c: (put(y[0:1], c), 0 * z)[1])
    like_pytorch(lambda y, z, c: (put(y, c.expand(2, 3)), 0 * z)[1])
    like_pytorch(lambda y, z, c: (put(y, z), 0 * z)[1])
    like_pytorch(lambda y, z, c: (put(y[0:1], z[1:2] * 3), 0 * z)[1])
    like_pytorch(lambda y, z, c: (put(y[0:1], z[1:2].detach()), 0 * z)[1])
    like_pytorch(lambda y, z, c: (put(y.transpose(0, 1)[1:][0], z[0, :2]), 0 * z)[1])
    like_pytorch(lambda y, z, c: (put(y[0:1], c), put(y[:, 1:2], y[:, 0:1] + z[:, 0:1]), z)[2])
    like_pytorch(lambda y, z, c: (y + z, put(y[1:2], c))[0])
    like_pytorch(lambda y, z, c: (y[0:1], put(y[:, 1:], c[:, 1:] + y[:, 1:]))[0])


def test_a_captured_step_assigns_to_a_result_as_pytorch_does():
    @TinyJit
    def step(x: Tensor, c: Tensor) -> Tensor:
        y = x * 2
        y[0:1].assign(c)
        return ((y * y).sum() + x.sum()).gradient(x)[0].realize()

    for i in range(4):
        x = Tensor([1.0, 2.0 + i], requires_grad=True).realize()
        assert step(x, Tensor([5.0 + i]).realize()).tolist() == [1, 17 + 8 * i]


def test_a_captured_step_refuses_a_write_from_outside_that_gradients_follow():
    for write in (lambda y, v: y.assign(v), lambda y, v: y.add_(v)):
        y = (Tensor([1.0, 2.0], requires_grad=True) * 2).realize()
        step = TinyJit(lambda v, y=y, write=write: (write(y, v) + 1).realize())
        step(Tensor([1.0, 2.0]).realize())
        with pytest.raises(JitError, match="becomes another expression.*return the new one"):
            step(Tensor([1.0, 2.0]).realize())


def test_assign_starts_anew_what_was_made_from_nothing():
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True).realize()
    x[0:1].assign(Tensor([5.0]))
    assert (x * x).sum().gradient(x)[0].tolist() == [10, 4, 6]
    with Tensor.no_grad():
        x.assign(x * 2)
    assert (x * x).sum().gradient(x)[0].tolist() == [20, 8, 12]


def test_what_lets_no_gradient_pass_takes_no_value_that_needs_one():
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ArgumentError, match=r"assign: the value needs a gradient; use .detach"):
        Tensor([1.0, 2.0]).assign(x * 2)
    with pytest.raises(ArgumentError, match=r"in place: a value that needs.*legal is the .detach"):
        (x * 3).detach()[0:1] = x[0:1]


SILENT: list[Callable[[Any, Any], None]] = [
    lambda t, no_grad: no_grad(lambda: put(t, t * 3)),
    lambda t, no_grad: no_grad(lambda: put(t[0:1], t[1:2] + 1)),
    lambda t, no_grad: no_grad(lambda: t.mul_(3)),
    lambda t, no_grad: no_grad(lambda: t.__setitem__(1, 7.0)),
    lambda t, no_grad: t.detach().__setitem__(slice(0, 1), 5.0),
    lambda t, no_grad: put(t.detach(), t.detach() * 2),
    lambda t, no_grad: no_grad(lambda: (t.mul_(3), t.add_(1), put(t[0:1], t[1:2]))),
]


@pytest.mark.parametrize("edit", SILENT)
@pytest.mark.parametrize("computed", [False, True])
def test_a_write_that_is_not_recorded_leaves_gradients_their_way(edit, computed):
    """Of a start, and of a result, with views of both: values are the new ones, gradients go where
    they went before, as in PyTorch."""

    def seen(make: Any, no_grad: Any) -> list[Any]:
        out = []
        for is_result in (False, True):
            x = make([1.0, 2.0, 4.0], requires_grad=True)
            t = x * 2 if is_result else x
            view, before = t[1:], t * 5
            if computed and isinstance(t, Tensor):
                t.realize()
            edit(t, no_grad)
            if computed and isinstance(t, Tensor):
                t.realize()
            loss = before.sum() + (t * t).sum() + (view * 7 * view).sum() + (x * 11).sum()
            loss.backward()
            out += [loss.item(), x.grad.tolist()]
            if not is_result:  # and once more, by the new value
                with (Tensor if isinstance(x, Tensor) else torch).no_grad():
                    put(x, x - x.grad * 0.5)
                x.grad = None
                (x * x + x.detach()).sum().backward()
                out += [x.tolist(), x.grad.tolist()]
        return out

    def within(modes: Any) -> Any:
        def run(action: Callable[[], Any]) -> None:
            with modes():
                action()

        return run

    ours, theirs = seen(Tensor, within(Tensor.no_grad)), seen(torch.tensor, within(torch.no_grad))
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6)


@pytest.mark.parametrize(
    "view",
    [lambda t: t.T, lambda t: t[:1], lambda t: t.T[1:], lambda t: t.reshape(3, 3)[:, 1]],
    ids=["turned", "row", "turned rows", "column"],
)
@pytest.mark.parametrize("computed", [False, True])
def test_a_silent_write_to_all_that_is_left_of_an_expression(view, computed):
    """Nobody has the expression that it is a view of, so the value takes its place, or that of the
    part alone where that was computed."""
    data = np.arange(9, dtype=np.float32).reshape(3, 3)

    def run(x, no_grad, like):
        seen = view(x * 2)
        if computed and like is Tensor:
            seen.realize()
        with no_grad():
            seen.mul_(like(np.arange(seen.numel(), dtype=np.float32).reshape(seen.shape)))
        (seen * seen).sum().backward()
        return seen, x.grad

    theirs = run(torch.tensor(data, requires_grad=True), torch.no_grad, torch.tensor)
    for mine, right in zip(
        run(Tensor(data, requires_grad=True), Tensor.no_grad, Tensor), theirs, strict=True
    ):
        np.testing.assert_allclose(mine.numpy(), right.detach().numpy())


OF_ITSELF = {
    "a row": lambda y, own: y.__setitem__(0, own(y[1])),
    "a column": lambda y, own: [y.__setitem__(0, own(y[1])), y[:, 1].copy_(own(y[:, 0]))],
    "all by a row": lambda y, own: y.__setitem__(slice(None), own(y[0])),
    "turned": lambda y, own: y.copy_(own(y.T)),
    "another axis": lambda y, own: y.__setitem__(None, own(y)),
    "there and back": lambda y, own: [y.__setitem__(0, y[1] * 3), y[1].copy_(own(y[0]))],
    "without slopes": lambda y, own: y.__setitem__(0, own(y[1].detach())),
}


@pytest.mark.parametrize("name", OF_ITSELF)
@pytest.mark.parametrize("says", [True, None])
def test_gradients_follow_what_is_written_to_a_tensor_of_itself(name, says):
    numbers = [[1.0, 2.0], [3.0, 4.0]]
    mine, theirs = Tensor(numbers, requires_grad=says), torch.tensor(numbers, requires_grad=True)
    ours, other = mine * 2, theirs * 2
    OF_ITSELF[name](ours, lambda t: t)
    OF_ITSELF[name](other, torch.clone)
    (wanted,) = torch.autograd.grad((other * other).sum(), theirs)
    assert (ours * ours).sum().gradient(mine)[0].tolist() == wanted.tolist()


@pytest.mark.parametrize("write", [lambda y: y.__setitem__(0, 1.5), lambda y: y[0].mul_(0)])
def test_a_gradient_goes_to_the_version_that_was_there_when_a_write_computed_it(write):
    s = Tensor([[0.0, 1.0], [2.0, 3.0]]).realize()
    with Tensor.no_grad():
        s.assign(Tensor([[1.0, 2.0], [3.0, 4.0]]).realize())
    y = s * 2
    write(y)
    assert (y * y).sum().gradient(s)[0].tolist() == [[0.0, 0.0], [24.0, 32.0]]


def test_what_was_computed_of_a_version_that_was_assigned_is_remembered():
    s, t = Tensor([1.0, 2.0]).realize(), Tensor([3.0]).realize()
    with Tensor.no_grad():
        s.assign(Tensor([3.0, 4.0]).realize())
        t.assign(Tensor([5.0]).realize())
    y, z = s * 2, t * 2
    y.realize()
    z[Tensor([0])] = 1.5  # which computes what s was assigned
    with pytest.raises(ArgumentError, match="computed since"):
        ((y * y).sin().sum() + z.sum()).gradient(s)
    twice = (w := s * 2) + w
    w.realize()
    part = w + z
    part[0] = 1.5
    with pytest.raises(ArgumentError, match="computed since"):
        (twice.sum() + (part * part).sum()).gradient(s)


def test_what_a_state_was_before_is_none_of_what_it_is_computed_of():
    state = Tensor([1.0, 2.0]).realize()
    for n in range(3):
        with Tensor.no_grad():
            state.assign(Tensor([1.0 + n, 2.0]).realize())
        y = state * 2
        y[None, :] = y
        of_part = y[:1].tanh()
        y.detach()[:] = y.detach() * 3
        slopes = ((y * y).sum() + of_part.sum()).gradient(state)[0]
        wanted = [24 * (1 + n) + 2 / np.cosh(2 + 2 * n) ** 2, 48]
        np.testing.assert_allclose(slopes.numpy(), wanted, rtol=1e-5)


def test_a_list_of_numbers_that_is_assigned_keeps_its_gradient():
    t, given = Tensor([1.0]).realize(), Tensor([2.0])
    t.assign(given)
    (t * 3).sum().backward()
    assert given.grad.tolist() == [3.0]
    with pytest.raises(ArgumentError, match="the value needs a gradient"):
        Tensor([1.0]).realize().assign(Tensor([2.0], requires_grad=True))


def test_another_thread_goes_on_recording():
    with Tensor.no_grad(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: (Tensor([1.0], requires_grad=True) * 2).requires_grad).result()
        assert not (Tensor([1.0], requires_grad=True) * 2).requires_grad


def test_results_made_without_recording_pass_nothing():
    w, x = (Tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    with Tensor.no_grad():
        y = w * 2
        x.assign(w * 3)
    found = (y * w * x).sum().gradient(w, x)
    assert [g.tolist() for g in found] == [[6, 24], [2, 8]]


def test_what_was_written_in_part_is_followed_to_what_it_was_made_of():
    x, z = Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0])
    y = x * 2
    y[0:1] = 5
    y[2:] = z[1:] * 3
    found = (y * x).sum().gradient(x, z)
    assert [g.tolist() for g in found] == [[5, 8, 15], [0, 9]]
    assert (y * x).tolist() == [5, 8, 45]


def test_equal_starts_have_gradients_of_their_own():
    """However much alike: constants, copies, parts of the same, in one storage."""

    def pair(make: Callable[[], Any], wanted: bool | None = True) -> None:
        x, w = make(), make()
        for tensor in (x, w):
            tensor.requires_grad = wanted
        assert [g.tolist() for g in (x * 2 + w * 3).sum().gradient(x, w)] == [[2, 2], [3, 3]]

    q = Tensor([1.0, 2.0], requires_grad=True)
    for wanted in (True, None):
        pair(lambda: Tensor.zeros(2), wanted)
        pair(lambda: Tensor.ones(2).contiguous().realize(), wanted)
        pair(lambda: q.zeros_like(), wanted)
        pair(lambda: Tensor(3.0).expand(2).contiguous(), wanted)
    pair(lambda: (q * 2).detach())
    pair(lambda: q.detach())
    pair(lambda: Tensor([1.0, 2.0]).realize().detach())
    first, second = Tensor.ones(3), Tensor.ones(3)
    ((first * Tensor([1.0, 2.0, 3.0])).sum() * second).sum().backward()
    assert (first.grad.tolist(), second.grad.tolist()) == ([3, 6, 9], [6, 6, 6])


def test_a_mask_takes_as_many_values_as_it_selects():
    x = Tensor([1, 2, 3, 4])
    x[x > 2] = Tensor([30, 40])
    assert x.tolist() == [1, 2, 30, 40]
    x[x < 0] = Tensor([], dtype="int32")
    with pytest.raises(ValueError, match="3 values for a mask of 2 true elements"):
        x[x > 2] = Tensor([1, 2, 3])
        x.tolist()
    assert (Tensor([1, 2]) + 1).tolist() == [2, 3]


def test_methods_that_end_in_an_underscore():
    base = Tensor([1.0, 4.0, 9.0, 16.0]).realize()
    view = base[::2]
    assert view.sqrt_() is view
    assert base.tolist() == [1.0, 4.0, 3.0, 16.0]
    base.add_(1).mul_(2).clamp_(5, 20)
    assert (base.tolist(), view.tolist()) == ([5.0, 10.0, 8.0, 20.0], [5.0, 8.0])
    view.zero_()
    base[1:3].fill_(7)
    assert base.copy_(base.flip(0)).tolist() == [20.0, 7.0, 7.0, 0.0]
    base.masked_fill_(base > 7, -1)
    assert base.tolist() == [-1.0, 7.0, 7.0, 0.0]


def test_a_diagonal_can_be_written():
    x = Tensor.zeros(3, 4).contiguous().realize()
    x.diagonal(1).fill_(2)
    assert x.tolist() == [[0, 2, 0, 0], [0, 0, 2, 0], [0, 0, 0, 2]]


VIEWED = {
    "transposed": lambda x: x.swapaxes(0, 2),
    "cut": lambda x: x[1:, :2],
    "in steps": lambda x: x[::2, 1::2],
    "of three axes": lambda x: x,
}
BACKWARDS = {"backwards": lambda x: x[:, ::-1][:, 1:]}


@pytest.mark.parametrize("view", (VIEWED | BACKWARDS).values(), ids=VIEWED | BACKWARDS)
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (0, -1), (-1, 1)])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_a_diagonal_of_any_view_is_a_view(view, axes, offset):
    array = np.arange(60.0).reshape(3, 5, 4)
    for ours in (Tensor(array).realize(), Tensor(array) + 0, Tensor(array)):
        theirs = array.copy()
        view(ours).diagonal(offset, *axes).fill_(-1)
        line = view(theirs).diagonal(offset, *axes)
        line.flags.writeable = True
        line[...] = -1
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("view", VIEWED.values(), ids=VIEWED)
@pytest.mark.parametrize("writes", [0, 1, 2])
def test_gradients_through_diagonals_of_views(view, writes):
    start = np.random.default_rng(3).normal(size=(3, 5, 4))
    found = []
    for leaf in (Tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)):
        x = leaf * 2
        part = view(x)
        line = part.diagonal(1)
        if writes > 0:
            line.mul_(3)
        if writes > 1:
            part.add_(1)
        total = (x * x).sum() + (part * part * part).sum() + line.sin().sum()
        wanted = (leaf,) if writes else (leaf, part)
        slopes = (
            total.gradient(*wanted)
            if isinstance(leaf, Tensor)
            else torch.autograd.grad(total, wanted)
        )
        found.append([slope.numpy() for slope in slopes])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.mean(1, keepdim=True).expand(4, 4),
        lambda x: x[:, None].expand(4, 5, 3),
        lambda x: x.unfold(0, 2, 1).swapaxes(1, 2),
        lambda x: x.unfold(0, 3, 1).unfold(1, 2, 1),
    ],
)
def test_gradients_through_diagonals_of_what_repeats_elements(view):
    start, found = np.random.default_rng(3).normal(size=(4, 3)), []
    for leaf in (Tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)):
        part = view(leaf * 2)
        line = part.diagonal()
        (part.square().sum() + (line**3).sum()).backward()
        found.append(leaf.grad.numpy())
    np.testing.assert_allclose(*found)


def _no_grad_view(x):
    with Tensor.no_grad():
        return x[1:4]


DETACHED = {
    "detached": lambda x: x.detach(),
    "a part of it": lambda x: x.detach()[1:4],
    "detached part": lambda x: x[1:].detach()[:3],
    "diagonal of detached": lambda x: x.detach().reshape(2, 3).T.diagonal(),
    "under no_grad": _no_grad_view,
}


@pytest.mark.parametrize("view", DETACHED.values(), ids=DETACHED)
@pytest.mark.parametrize("to", ["view", "base"])
@pytest.mark.parametrize("is_computed", [False, True])
def test_gradients_do_not_follow_writes_through_what_is_detached(view, to, is_computed):
    torch_view = (lambda x: x.detach()[1:4]) if view is _no_grad_view else view
    for _ in range(3):  # from the second time on plain statements are remembered
        leaf = Tensor(np.arange(6.0), requires_grad=True)
        x = leaf * 2
        if is_computed:
            x.realize()
        seen = view(x)
        (seen if to == "view" else x).mul_(3)
        x.sin().sum().backward()
        theirs = torch.arange(6.0, dtype=torch.float64, requires_grad=True)
        y = theirs * 2
        there = torch_view(y)
        (there if to == "view" else y).mul_(3)
        y.sin().sum().backward()
        np.testing.assert_allclose(leaf.grad.numpy(), theirs.grad.numpy())
        assert seen.requires_grad is False
        assert seen.tolist() == there.tolist()


def test_windows_are_written_under_gradients():
    start = np.arange(12.0).reshape(3, 4)
    slopes = []
    for leaf in (Tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)):
        x = leaf * 2
        windows = x.unfold(1, 2, 2)
        windows[...] = windows * 3
        (x * x).sum().backward()
        slopes.append(leaf.grad.numpy())
    np.testing.assert_array_equal(*slopes)


def test_gradients_by_a_reshape_that_was_written_in_steps():
    value = (Tensor([[1.0], [2.0]], requires_grad=True) * 2).reshape(2)
    x = Tensor.zeros(3, requires_grad=True) * 1
    x[::2] = value.reshape(2, 1).reshape(2)
    assert (x * x).sum().gradient(value)[0].tolist() == [4, 8]


def test_what_would_be_lost_is_refused():
    x = Tensor([1.0, 2.0]).realize()
    wide = x.expand(3, 2)
    with pytest.raises(ArgumentError, match="elements repeat; legal is a copy"):
        wide += 1
    assert x.tolist() == [1.0, 2.0]
    leaf = Tensor([1.0], requires_grad=True)
    with pytest.raises(ArgumentError, match="needs a gradient.*no_grad"):
        leaf += 1
    with Tensor.no_grad():
        leaf += 1
    assert leaf.tolist() == [2.0]
    whole = Tensor([1, 2]).realize()
    with pytest.raises(DTypeError, match="cut off fractions"):
        whole += 0.5
    assert whole.tolist() == [1, 2]


def test_a_copy_keeps_its_value_also_when_a_captured_step_writes():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    step = TinyJit(lambda: x.assign(x + 1).realize())
    for _ in range(3):
        flat = x.T.reshape(-1)
        before = x.numpy().T.reshape(-1).tolist()
        step()
        assert flat.tolist() == before
    assert x.tolist() == [[4.0, 5.0], [6.0, 7.0]]


def test_slices_take_tensors_whose_values_are_read():
    x = Tensor([[1, 2, 3], [4, 5, 6]]).realize()
    assert x[Tensor(0) : Tensor(1), Tensor(-1)].tolist() == [3]
    x[Tensor(0) : Tensor(1), Tensor(-1)] = 9
    assert x.tolist() == [[1, 2, 9], [4, 5, 6]]


# ---- copies are copies also where nothing changes ------------------------------------------------

SAME = {  # a method that copies, where its result has the elements of what it was given
    "abs": lambda x: x.cast("uint8").abs().cast("float32"),
    "block_diag": lambda x: x.block_diag().reshape(4),
    "cat": lambda x: x.cat(),
    "cat behind nothing": lambda x: Tensor.zeros(0).cat(x),
    "cat before nothing": lambda x: x.cat(Tensor.zeros(0)),
    "channel_shuffle": lambda x: nn.functional.channel_shuffle(x.reshape(1, 4, 1), 1).reshape(4),
    "clip without limits": xp.clip,
    "cumsum": lambda x: x.reshape(1, 4).cumsum(0).reshape(4),
    "diff": lambda x: x.diff(0),
    "index_add": lambda x: x.index_add(0, Tensor.zeros(0, dtype="int32"), Tensor.zeros(0)),
    "interpolate": lambda x: x.reshape(1, 1, 4).interpolate((4,)).reshape(4),
    "logcumsumexp": lambda x: x.reshape(1, 4).logcumsumexp(0).reshape(4),
    "matrix_power": lambda x: x.reshape(2, 2).matrix_power(1).reshape(4),
    "pad": lambda x: x.pad((0, 0)),
    "pad of two axes": lambda x: x.reshape(2, 2).pad((0, 0, 0, 0)).reshape(4),
    "pad by reflection": lambda x: x.pad((0, 0), mode="reflect"),
    "pixel_shuffle": lambda x: nn.functional.pixel_shuffle(x.reshape(4, 1, 1), 2).reshape(4),
    "pixel_unshuffle": lambda x: nn.functional.pixel_unshuffle(x.reshape(1, 2, 2), 1).reshape(4),
    "positive": xp.positive,
    "pow": lambda x: x**1,
    "repeat": lambda x: x.repeat(1),
    "repeat_interleave": lambda x: x.repeat_interleave(1),
    "roll": lambda x: x.roll(4),
    "scatter": lambda x: x.scatter(0, Tensor.zeros(0, dtype="int32"), Tensor.zeros(0)),
    "stack": lambda x: x.stack()[0],
    "sum": lambda x: x.sum(()),
    "Tensor": Tensor,
    "unfold": lambda x: nn.functional.unfold(x.reshape(1, 2, 2), 1).reshape(4),
    "vstack": lambda x: x.vstack()[0],
}
ROUNDING = ("abs", "ceil", "floor", "nan_to_num", "round", "sign", "trunc")
SOURCES = {
    "numpy": lambda: Tensor(np.arange(4, dtype=np.float32)),
    "storage": lambda: Tensor([0.0, 1, 2, 3]).clone().realize(),
    "an expression": lambda: Tensor([0.0, 2, 4, 6]) / 2,
    "a view": lambda: Tensor(np.arange(6, dtype=np.float32))[:4],
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", SAME)
def test_a_copy_with_the_same_elements_is_no_view(name, source):
    for write_result in (True, False):
        for computed in (True, False):
            x = SOURCES[source]()
            y = SAME[name](x)
            if computed:
                Tensor.realize(x, y)
            (y if write_result else x)[1:3] = 7
            wanted = [[0, 1, 2, 3], [0, 7, 7, 3]]
            assert [x.tolist(), y.tolist()] == (wanted if write_result else wanted[::-1])


@pytest.mark.parametrize("name", ROUNDING)
def test_whole_numbers_that_are_rounded_are_no_views(name):
    x = Tensor([1, 2, 3], dtype="uint8").clone().realize()
    y = getattr(x.cast("bool") if name == "sign" else x, name)()
    y[0] = 0
    getattr(xp, name, xp.positive)(x)[0] = 0
    assert x.tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", ["prod", "cumprod", "cumsum"])
def test_complex_numbers_over_an_axis_of_one_are_no_views(name):
    for shape in ((1,), (1, 3)) if name != "cumsum" else ((),):
        x = Tensor(np.full(shape, 1 + 2j, "complex64")).realize()
        y = getattr(x, name)(0)
        y.assign(y * 0)
        assert np.array_equal(x.numpy(), np.full(shape, 1 + 2j))


@pytest.mark.parametrize("name", SAME)
def test_such_copies_are_none_in_steps_that_repeat_either(name):
    for n in range(4):
        x = Tensor([float(n), 1, 2, 3]).clone().realize() * 2
        y = SAME[name](x)
        y += 1
        assert [x.tolist(), y.tolist()] == [[2 * n, 2, 4, 6], [2 * n + 1, 3, 5, 7]]


@pytest.mark.parametrize("source", SOURCES)
def test_an_expression_that_is_given_a_value_has_it_alone(source):
    x = SOURCES[source]()
    y = Tensor([5.0, 5, 5, 5]) * 2
    y[()] = x
    y[1:3] = 7
    assert [x.tolist(), y.tolist()] == [[0, 1, 2, 3], [0, 7, 7, 3]]
    z = Tensor([5.0, 5, 5, 5]) * 2
    z.assign(x)
    x += 1
    assert z.tolist() == [0, 1, 2, 3]


def _start(size: int) -> Tensor:
    return Tensor.ones(size, requires_grad=True) * 1


STORED_TOGETHER = {
    "constants": (lambda x: Tensor.zeros(3).contiguous(), lambda x: Tensor.zeros(3).contiguous()),
    "constants of a number": (lambda x: Tensor.ones(3) + 1, lambda x: Tensor.ones(3) + 1),
    "starts": (lambda x: _start(3), lambda x: _start(3)),
    "a gradient's end": (lambda x: x.detach() * 4, lambda x: x * 4),
    "an end below": (lambda x: (x.detach() * 2).sin(), lambda x: (x * 2).sin()),
    "one expression": (lambda x: x * 5, lambda x: x * 5),
    "views": (lambda x: x * 6, lambda x: (x * 6).reshape(1, 3)),
    "turned": (lambda x: (x.detach() * 7).flip(0), lambda x: (x * 7).flip(0)),
}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("kind", STORED_TOGETHER)
def test_what_is_computed_together_and_equal_is_written_apart(kind, first):
    for again in range(3):  # also by a plan that is known
        x = Tensor([1.0, 2.0, 3.0]).realize()
        pair = [make(x) for make in STORED_TOGETHER[kind]]
        Tensor.realize(*pair)
        before = [each.tolist() for each in pair]
        pair[first].assign(pair[first].detach() + 1).realize()
        assert pair[1 - first].tolist() == before[1 - first], again
        pair[1 - first].assign(pair[1 - first].detach() - 1).realize()
        assert pair[first].tolist() == (Tensor(before[first]) + 1).tolist(), again


@pytest.mark.parametrize("grad", [None, False, True])
def test_a_captured_step_counts_in_counters_that_began_alike(grad):
    counts = [Tensor.ones(2, requires_grad=grad) for _ in range(3)]

    @TinyJit
    def step(x):
        for count in counts:
            count.assign(count.detach() + 1)
        return (x * 2).realize()

    for _ in range(5):
        step(Tensor([1.0]).realize())
    assert [count.tolist() for count in counts] == [[6, 6]] * 3


def test_a_view_of_no_elements_repeats_none():
    x = Tensor([[1, 2], [3, 4]]) * 2
    empty = x[:, 2:].unsqueeze(0).transpose(1, 2)
    empty.assign(Tensor.zeros(*empty.shape, dtype="int32"))
    assert x.tolist() == [[2, 4], [6, 8]]


@pytest.mark.parametrize("first", ["copy", "view", "both"])
@pytest.mark.parametrize("view", [lambda c: c.T, lambda c: c.flip(0), lambda c: c.reshape(-1)])
def test_a_padded_copy_that_was_computed_keeps_its_value_beside_a_view_of_it(view, first):
    x = Tensor([[0.0, 1.0], [2.0, 3.0]]).realize()
    copy = x.pad(((1, 0), (0, 0)))
    seen = view(copy)
    Tensor.realize(*{"copy": [copy], "view": [seen], "both": [copy, seen]}[first])
    x[0] = 7
    wanted = [[0.0, 0.0], [0.0, 1.0], [2.0, 3.0]]
    assert copy.tolist() == wanted and seen.tolist() == view(Tensor(wanted)).tolist()
    copy[0] = 5
    assert view(copy).tolist() == seen.tolist() != view(Tensor(wanted)).tolist()
    assert x.tolist() == [[7.0, 7.0], [2.0, 3.0]]


def test_a_copy_of_what_is_computed_with_it_is_written_apart():
    x = Tensor([[0, 1, 2], [3, 4, 5]]) * 1
    x[:, ::-1] = Tensor([[0, 1, 2], [3, 4, 5]])  # waits
    copy = x.T.reshape(-1)
    copy[3:4] += 3
    assert copy.tolist() == [2, 5, 1, 7, 0, 3]
    assert x.tolist() == [[2, 1, 0], [5, 4, 3]]


def test_a_number_is_written_without_a_graph():
    t = Tensor([1.5, 2.5]).realize()
    base = t.uop.base
    assert t.assign(0.1).tolist() == np.full(2, 0.1, "float32").tolist()
    assert t.uop.base is base
    assert Tensor([1, 2]).realize().assign(7).tolist() == [7, 7]


def test_what_was_made_before_a_number_is_written_keeps_the_old():
    t = Tensor([1.5, 2.5]).realize()
    promised, node, view, copy = t + 1, t * 2, t[:1], t.clone().realize()
    _ = node.uop
    t.assign(4)
    assert [x.tolist() for x in (promised, node)] == [[2.5, 3.5], [3.0, 5.0]]
    assert [x.tolist() for x in (t, view, copy)] == [[4.0, 4.0], [4.0], [1.5, 2.5]]
    t.assign(t + 1)
    t.assign(2.0)
    assert (t * 2).tolist() == [4.0, 4.0]


def test_a_captured_step_sees_a_number_that_is_written_between():
    rate, x = Tensor([0.5]).realize(), Tensor([2.0]).realize()
    step = TinyJit(lambda x: (x * rate).realize())
    for number in (0.5, 0.25, 1.0, 3.0, 4.0):
        rate.assign(number)
        assert step(x).item() == 2 * number


def test_a_number_that_the_dtype_does_not_hold_is_an_error():
    with pytest.raises(ArgumentError, match="assign: 300 as"):
        Tensor([1], dtype="uint8").realize().assign(300)


IN_ORDER = {
    "index_select": lambda x, i: x.index_select(1, i),
    "index_add": lambda x, i: x.index_add(1, i, x),
    "index_copy": lambda x, i: x.index_copy(2, i, x[:, :, :3] + 1),
    "index_fill": lambda x, i: x.index_fill(1, i, 5.0),
    "repeat_interleave": lambda x, i: x.repeat_interleave(i, 1),
    "diag_embed": lambda x, i: x.diag_embed(0, 0, 2),
    "cumsum": lambda x, i: x.cumsum(0),
    "cummax": lambda x, i: x.cummax(0)[1],
    "gather": lambda x, i: x.gather(1, (x * 0).int() if isinstance(x, Tensor) else (x * 0).long()),
    "median": lambda x, i: x.median(0)[0],
    "softmax": lambda x, i: x.softmax(0),
    "rot90": lambda x, i: x.rot90(1, (0, 2)),
}


@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("name", IN_ORDER)
def test_results_lie_in_order_as_pytorchs_so_that_a_reshape_is_a_view_of_them(name, is_computed):
    x = (np.arange(24) * 7 % 24).astype("float32").reshape(2, 3, 4)
    at = np.array([2, 0, 1])
    for again in range(3):
        found = IN_ORDER[name](Tensor(x), Tensor(at))
        wanted = IN_ORDER[name](torch.tensor(x), torch.tensor(at))
        if is_computed:
            found.realize()
        for result in (found, wanted):
            result.reshape(-1)[1:5] = 7
        assert np.allclose(found.numpy(), wanted.numpy()), again


def test_a_view_that_was_read_before_makes_no_gradient_of_a_write():
    t = Tensor.zeros(4, 16).contiguous().realize()
    views = [t.reshape(8, 8)[::2] for _ in range(2) for _ in [t.reshape(8, 8)[::2].numpy()]]
    views[0].numpy()
    views.append(t.reshape(8, 8)[::2])
    for value in (5.0, 7.0):
        t.assign(Tensor.full((4, 16), value)).realize()
    assert t.requires_grad is None
    assert (t.numpy() == 7).all()


def test_a_result_with_gradients_takes_repeated_values_again_and_again():
    result = (Tensor.ones(4, 16, requires_grad=True) * 2).realize()
    view = result.reshape(8, 8)
    for value in (5.0, 7.0):
        result.assign(Tensor.full((4, 16), value)).realize()
    result += 1
    assert (view.numpy() == 8).all()


def test_what_was_filled_with_a_number_and_computed_is_written_whole_though_gradients_follow_it():
    for wanted in (np.arange(48.0).reshape(6, 8), np.full((6, 8), 7.0)):
        t = Tensor(np.ones((6, 8), np.float32), requires_grad=True) * 2
        part = t[1:3].detach()
        t[...] = 20.0
        t.realize()
        assert part.tolist() == [[20.0] * 8] * 2
        t[0] = 1.0
        assert t.numpy().sum() == 40 * 20 + 8
        t[...] = 21.0
        t.realize()
        t.assign(Tensor(wanted.astype(np.float32)))
        assert (t.numpy() == wanted).all()
        assert (part.numpy() == wanted[1:3]).all()


@pytest.mark.parametrize("device", ["CPU", "PYTHON", "CL"])
@pytest.mark.parametrize("width", [3, 8, 10, 33])
def test_a_write_may_be_made_of_a_sum_of_what_it_overwrites(device, width):
    """As a bias's step is, whose gradient's sum adds it anew: that sum had no place in its nest."""
    rows, bias = np.random.default_rng(0).standard_normal((2, 64, width)).astype(np.float32)
    x, b = Tensor(rows, device=device).realize(), Tensor(bias[0], device=device).realize()
    slope = (x + b).sum(0)
    b.assign(b - 0.5 * slope).realize(slope)
    np.testing.assert_allclose(b.numpy(), bias[0] - 0.5 * (rows + bias[0]).sum(0), rtol=1e-4)


@pytest.mark.parametrize("also", ["", "before", "after"])
def test_a_view_of_a_padded_value_is_one_once_that_is_computed(also):
    value = Tensor([1.0, 2.0]).relu()
    padded = value.pad((1, 1))
    rows = padded.reshape(2, 2)
    padded.realize()
    if also == "before":
        value.realize()
    rows[0, 1] = 7
    if also == "after":
        value += 1
    padded[3] = 8
    assert padded.tolist() == rows.flatten().tolist() == [0, 7, 2, 8]


def test_a_copy_of_a_part_keeps_what_was_there_though_the_part_was_computed_alone():
    base = Tensor([[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]).realize()
    part = base[:, 1:3:2]
    copy = part.reshape(4)
    part.tolist()  # which puts it into a buffer of its own
    part += 100
    assert copy.tolist() == [2, 3, 8, 9]


EMPTY_WRITES = {
    "an empty value": lambda x, v: x.__setitem__(slice(2, None), v[:0] * 2),
    "a number, repeated": lambda x, v: x.__setitem__(slice(2, None), v[0] * 2),
    "into an empty part of a part": lambda x, v: x[1:].__setitem__(slice(1, None), v[0]),
}


@pytest.mark.parametrize("wants", [False, True])
@pytest.mark.parametrize("name", EMPTY_WRITES)
def test_an_empty_write_of_what_wants_a_gradient_lets_it_pass_as_torchs(name, wants):
    found = []
    for make in (Tensor, torch.tensor):
        x = make([1.0, 2.0], requires_grad=True) * 3 if wants else make([1.0, 2.0])
        value = make([5.0, 6.0], requires_grad=True)
        EMPTY_WRITES[name](x, value)
        x.square().sum().backward()
        found.append((x.requires_grad, x.tolist(), value.grad.tolist()))
    assert found[0] == found[1]


def test_an_empty_write_of_what_wants_none_changes_nothing():
    x = Tensor([1.0, 2.0]).realize()
    x[2:] = Tensor([1.0])[:0]
    with Tensor.no_grad():
        x[2:] = Tensor(1.0, requires_grad=True)
    assert x.requires_grad is None and x.tolist() == [1.0, 2.0]


PARTS_OF_COPIES = {
    "padded": (lambda x: (x + 1).pad((1, 1)), lambda x: np.pad(x + 1, 1)),
    "repeated": (lambda x: (x + 1).repeat(2), lambda x: np.tile(x + 1, 2)),
    "repeated, padded": (
        lambda x: x.sum().expand(6).pad((1, 1)),
        lambda x: np.pad(np.full(6, x.sum()), 1),
    ),
    "in another order": (
        lambda x: (x + 1).reshape(2, 3).T.reshape(6),
        lambda x: (x + 1).reshape(2, 3).T.reshape(6),
    ),
}


@pytest.mark.parametrize("name", PARTS_OF_COPIES)
@pytest.mark.parametrize("computed", [False, True])
def test_a_part_of_a_copy_that_nobody_else_holds_can_be_written(name, computed):
    values = np.arange(1, 7, dtype="int32")
    ours, theirs = PARTS_OF_COPIES[name]
    for _ in range(4):  # of the second on there is a promise
        part, wanted = ours(Tensor(values).realize())[1:4], theirs(values)[1:4].copy()
        if computed:
            part.realize()
        part[0], wanted[0] = 50, 50
        part[1:] += 7
        wanted[1:] += 7
        assert part.tolist() == wanted.tolist()


PARTS_OF_REPEATED = {
    "a part": lambda x: x.sum().expand(6)[1:4],
    "reshaped": lambda x: x.sum().expand(6).reshape(2, 3)[1],
    "every other": lambda x: x.sum().expand(6)[::2],
    "windows": lambda x: (x + 1).unfold(0, 3, 1)[0],
    "of a transposed one": lambda x: (x + 1)[:1].reshape(1, 1).expand(2, 6).T[1:4].reshape(6),
}


@pytest.mark.parametrize("name", PARTS_OF_REPEATED)
@pytest.mark.parametrize("computed", [False, True])
def test_a_part_of_what_repeats_elements_repeats_them_when_it_is_computed_too(name, computed):
    for _ in range(4):
        values = np.arange(1, 7, dtype="float32")
        part = PARTS_OF_REPEATED[name](Tensor(values).realize())
        like = PARTS_OF_REPEATED[name](torch.tensor(values))
        if computed:
            part.realize()
        part[0], like[0] = 50.0, 50.0
        assert part.tolist() == like.tolist()


def test_writes_that_nobody_reads_cost_what_they_are():
    """Saying and doing each looks at a few nodes, however many writes were there before."""
    x, looked = Tensor.zeros(120).contiguous().realize(), [0]

    def count(frame, event, argument):
        looked[0] += event in ("call", "c_call")

    def say(number):
        looked[0] = 0
        for i in range(number):
            x[i] = 1.0
        x.realize()
        return looked[0]

    say(120)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        few, many = say(30), say(120)
    finally:
        sys.setprofile(before)
    assert many < 6 * few
    assert x.tolist() == [1.0] * 120


def test_a_loop_of_silent_writes_keeps_no_turns():
    y = Tensor.ones(4) * 1
    for _ in range(5):
        y = y * 0.5
        with Tensor.no_grad():
            y[0] = 1
        y.realize()
    assert len(y.uop.toposort()) < 9


def test_what_was_computed_under_no_grad_is_told():
    """By a target that says nothing: the way to it was forgotten without a word."""
    x = Tensor([1.0, 2.0])
    y = x * x
    with Tensor.no_grad():
        y.realize()
    with pytest.raises(ArgumentError, match="made that was computed since"):
        (y * x).sum().gradient(x)


def test_a_value_without_gradients_takes_the_place_of_one_that_has_some():
    for library in (Tensor, torch.tensor):
        start = library([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        weight = library([5.0, 6.0], requires_grad=True)
        t = start * 2
        part = t[1:].detach()
        t[...] = library([4.0]).detach() * 5
        t[0] = 1.0
        t[1] = weight * 2
        (t * t).sum().backward()
        assert t.tolist() == [[1.0, 1.0], [10.0, 12.0]]
        assert part.tolist() == [[10.0, 12.0]]
        assert weight.grad.tolist() == [40.0, 48.0]


@pytest.mark.parametrize("mode", [contextlib.nullcontext, Tensor.no_grad])
def test_what_was_replaced_by_another_sees_its_writes(mode):
    for make in (
        Tensor,
        lambda values: Tensor(values).realize(),
        lambda values: Tensor(values) + 0,
    ):
        one, other = make([1.0, 1.0]), make([2.0, 2.0])
        one.replace(other)
        with mode():
            other.add_(1)
        assert one.tolist() == other.tolist() == [3.0, 3.0]
