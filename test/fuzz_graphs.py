"""Random programs of tensors, run on several devices and compared with NumPy's evaluator of graphs:
with one judge, and so with each other. Any device will do, those of the tests too (`devices`); what
is asked of its numbers is what its Target.numerics promises.

A program is a list of lines of Python, so what fails prints as something to paste. `given` makes an
input from its arguments alone, so a line means the same whatever stands around it.

How near is near enough is not guessed: the oracle computes the program again with every rounding
disturbed at random. What then moves may differ by a few times as much; what jumps (a comparison on
the edge, the integer part of a whole number) is not compared.

    python test/fuzz_graphs.py --minutes 10 --seed 1 --devices CPU,NOOPT,PYTHON,CL
    python test/fuzz_graphs.py --devices all
    python test/fuzz_graphs.py --devices PYTHON*3,CPU*2,CPU+CL

PYTHON*3 is three of a kind, CPU+CL these two: inputs are cut over them somehow, or lie on each.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import tensor_reference
from devices import BUILT, present
from fuzz_lines import Writer, name_of
from tensor_reference import numpy_dtype

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import DTypeError, IndexCheckError, ShapeError, TinygradError
from tinygrad.base.settings import Context
from tinygrad.base.target import Numerics
from tinygrad.engine.devices import Device
from tinygrad.engine.faults import forget_faults
from tinygrad.tensor import Tensor
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops

Variable = UOp.variable

INTERPRETED = ("PYTHON", "CORE", "TOY")
"""They start at once; those that compile take long for each kernel."""

DEVICES = ("CPU", "NOOPT", *(name for name in BUILT if name not in ("CPU", "NULL")))
"""NOOPT: the CPU without recipes."""

SAMPLES = 5  # disturbed evaluations: in one, disturbances may cancel
SLACK = 24  # times what the disturbance moved
SLACK_OF_BYTES = 2  # where one rounding moves it by an eighth, or a quarter
INEXACT_DIVISION = 4  # times that where quotients and square roots are not correctly rounded


@dataclass(frozen=True)
class Program:
    """Lines that define v0, v1, ..; the names whose values are compared; realised together?"""

    lines: tuple[str, ...]
    outputs: tuple[str, ...]
    together: bool = False

    def __str__(self) -> str:
        read = [f"print({name}.numpy())" for name in self.outputs]
        if self.together:
            read.insert(0, f"Tensor.realize({', '.join(self.outputs)})")
        return "\n".join([*self.lines, *read])


@dataclass
class Failure(Exception):
    """A program that a device gets wrong, and what happened."""

    program: Program
    device: str
    what: str

    def __str__(self) -> str:
        return f"on {self.device}: {self.what}\n{self.program}"


# ---- inputs --------------------------------------------------------------------------------------

SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1e-3, 2.5)


def array_of(seed: int, shape: tuple[int, ...], name: str, kind: str) -> np.ndarray:
    """The numbers of an input; the same for the same arguments."""
    draw = np.random.default_rng([seed, len(name), ord(name[0]), len(kind)])
    dtype = numpy_dtype(dtypes.fields()[name])
    if name == "bool":
        return draw.integers(0, 2, shape).astype(bool)
    if kind == "small":  # indices, counts, shifts: 1 to 3
        return draw.integers(1, 4, shape).astype(dtype)
    if kind == "divisor":  # not 0, of either sign
        low = 0 if dtype.kind == "u" else -4
        return np.where((d := draw.integers(low, 5, shape)) == 0, 3, d).astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if kind == "special":
            edges = [limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1, 7]
            return draw.choice(np.array(edges, dtype), shape)
        return draw.integers(max(limits.min, -9), 10, shape).astype(dtype)
    if kind == "special":
        return draw.choice(np.array(SPECIAL), shape).astype(dtype)
    values = draw.standard_normal(shape)
    return (np.abs(values) + 0.25 if kind == "positive" else values).astype(dtype)


def given(seed: int, shape: tuple[int, ...], dtype: str, kind: str = "normal") -> Tensor:
    """An input, realised."""
    array = array_of(seed, shape, dtype, kind)
    return Tensor(array).realize()


def several(device: str) -> tuple[str, ...]:
    """The devices that PYTHON*3 or CPU+CL are; one of any other name."""
    kind, _, count = device.partition("*")
    return tuple(f"{kind}:{n}" for n in range(int(count))) if count else tuple(device.split("+"))


def given_over(names: tuple[str, ...]) -> Callable[..., Tensor]:
    """`given` that cuts what it makes: along which axis, and where, is drawn from its arguments."""

    def given(seed: int, shape: tuple[int, ...], dtype: str, kind: str = "normal") -> Tensor:
        whole = Tensor(array_of(seed, shape, dtype, kind), device=names[0])
        draw = np.random.default_rng([seed, len(shape), *shape])
        axis = int(draw.integers(-1, len(shape)))
        if axis < 0:
            return whole.to(names).realize()
        ends = sorted(int(n) for n in draw.integers(shape[axis] + 1, size=len(names) - 1))
        splits = np.diff([0, *ends, shape[axis]]).tolist() if draw.random() < 0.5 else None
        return whole.shard(names, axis, splits=splits).realize()

    return given


def bound(size: int, most: int) -> Any:
    """A size that is a variable, for now `size`."""
    return Variable("n", 1, most).bind(size)


# ---- the oracle ----------------------------------------------------------------------------------

FUNCTIONS = {Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.POW, Ops.SQRT, Ops.RECIP}
INEXACT = FUNCTIONS | {Ops.FDIV, Ops.ADD, Ops.MUL}
SUMS = {Ops.REDUCE_AXIS, Ops.RUNNING, Ops.FOLD, Ops.SCATTER}
NARROW = {
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
ULP = {"float64": 2.0**-52, "float32": 2.0**-23, **NARROW}


class Oracle:
    """Values of nodes; with a seed, roundings are disturbed."""

    def __init__(self, seed: int | None = None) -> None:
        self.draw = None if seed is None else np.random.default_rng(seed)
        self.done: dict = {}

    def __call__(self, root) -> np.ndarray:
        stack = [root]
        with np.errstate(all="ignore"):
            while stack:
                node = stack[-1]
                if node in self.done:
                    stack.pop()
                    continue
                src = node.src if node.known is None else (node.known,)
                if node.known is None and node.op in GroupOp.Movement:
                    src = src[:1]  # further ones are sizes
                todo = [s for s in src if s not in self.done]
                if todo:
                    stack.extend(todo)
                    continue
                stack.pop()
                self.done[node] = self._value(node)
        return self.done[root]

    def _value(self, node) -> np.ndarray:
        if node.known is not None:
            return self.done[node.known]
        if node.op is Ops.ASSIGN:
            return self._assigned(node)
        if node.op in GroupOp.Movement and len(node.src) > 1:
            source = self.done[node.src[0]]
            plain = UOp.const(node.dtype, 0, "CPU").broadcast_to(source.shape)
            return tensor_reference.RULES[node.op](plain.moved(node.op, _now(node.sizes)), source)
        value = tensor_reference._value(node, self.done)
        if node.op is Ops.CALL:  # the results of a host function, which rounds nothing
            return value
        if node.op is Ops.BITCAST and self.draw is not None:
            return _other_signs(value, self.done[node.src[0]])
        ulp = ULP.get(value.dtype.name, 0)
        if self.draw is None or not ulp:
            return value
        noise = self.draw.uniform(1, 2, value.shape) * self.draw.choice((-ulp, ulp), value.shape)
        wide = value.astype(np.float64)
        if node.op in INEXACT or node.op is Ops.CAST:
            wide = wide * (1 + noise)
        elif node.op in SUMS and self._may_overflow(node, value.dtype):
            return np.full_like(value, np.nan)  # infinite or not by the order: not compared
        elif node.op in SUMS:
            wide = wide + noise * self._size(node)
        return wide.astype(value.dtype)

    def _may_overflow(self, node, dtype) -> bool:
        """Whether what a reduction has taken in so far may be out of range, in some order."""
        src = [np.abs(self.done[s].astype(np.float64)) for s in node.src if s in self.done]
        ones = [np.maximum(s, 1) for s in src]
        limit = min(float(ml_dtypes.finfo(dtype).max), 1e300)
        if node.arg[0] != "mul":
            return any(s.size and np.nansum(s[np.isfinite(s)]) > limit for s in src[:2])
        return any(s.size and np.prod(s[np.isfinite(s)]) > limit for s in ones[:2])

    def _size(self, node) -> np.ndarray:
        """The sum of what a sum takes in, without signs, times what its roundings may be."""
        src = [np.abs(self.done[s].astype(np.float64)) for s in node.src if s in self.done]
        if node.op is Ops.SCATTER:
            return np.asarray(src[0].max(initial=0) + src[1].sum())
        rule = tensor_reference.RULES[node.op]
        turns = 8 if node.dtype in (dtypes.float16, dtypes.bfloat16) else 1
        return np.asarray(rule(node, *src)).astype(np.float64) * turns

    def _assigned(self, node) -> np.ndarray:
        base = node.src[0].base
        counted = UOp(Ops.ARANGE, dtypes.int64, (), base.shape[0])
        places = Oracle()(node.src[0].viewed(counted))
        out = self.done[base].copy() if base in self.done else Oracle()(base).copy()
        out[places.reshape(-1)] = self.done[node.src[1]].reshape(-1)
        return out


def _other_signs(bits: np.ndarray, source: np.ndarray) -> np.ndarray:
    """Any NaN is as good as another: the highest bit of one is nobody's promise."""
    if source.dtype.itemsize != bits.dtype.itemsize or bits.dtype.kind not in "iu":
        return bits
    unsigned = bits.view(f"u{bits.dtype.itemsize}")
    highest = unsigned.dtype.type(1 << (8 * bits.dtype.itemsize - 1))
    return np.where(source != source, unsigned ^ highest, unsigned).view(bits.dtype)


def _now(sizes: Any) -> Any:
    """Sizes as the numbers that they are now."""
    if isinstance(sizes, tuple):
        return tuple(map(_now, sizes))
    return sizes if isinstance(sizes, int) else sizes.val


# ---- running -------------------------------------------------------------------------------------


def first(device: str) -> str:
    """The device of a name; of several the first."""
    return "CPU" if device == "NOOPT" else several(device)[0]


def build(program: Program, device: str, realize: bool = True, watch: Any = None) -> dict:
    """The names after the lines ran on `device`; `kept(x)` realises in between.
    `watch(names, line)` is asked before each line for what to call after it."""
    before, Device.DEFAULT = Device.DEFAULT, first(device)
    names = {
        "Tensor": Tensor,
        "dtypes": dtypes,
        "given": given_over(several(device)) if len(several(device)) > 1 else given,
        "bound": bound,
        "kept": (lambda x: x if is_view(x) else x.realize()) if realize else (lambda x: x),
    }
    try:
        for line in program.lines:
            told = watch(names, line) if watch else None
            exec(line, names)
            if told:
                told()
    finally:
        Device.DEFAULT = before
    return names


def is_view(x: Tensor) -> bool:
    """Whether later writes are seen through `x`; realising some of these makes them copies."""
    node = x._node
    while node.op in GroupOp.Movement or node.op is Ops.DETACH:
        node = node.src[0]
    return node.op in (Ops.BUFFER, Ops.ASSIGN)


def expected(program: Program) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each output its value, and how far each element may be off (inf: anything goes)."""
    exact, *others = judges = [Oracle(), *map(Oracle, range(SAMPLES))]
    names = build(program, "PYTHON", realize=False, watch=lambda *now: _judged(judges, *now))
    nodes = {name: names[name]._node for name in program.outputs}
    values = {name: exact(node) for name, node in nodes.items()}
    room = {name: np.zeros(v.shape) for name, v in values.items()}
    for other in others:
        for name, node in nodes.items():
            room[name] = np.maximum(room[name], _moved(values[name], other(node)))
    return {name: (values[name], room[name]) for name in program.outputs}


def _judged(judges: list[Oracle], names: dict, line: str) -> Callable[[], None]:
    """Before a line: what the judges say of what is pending. A write may compute it; to be called
    after the line, so that buffers then hold what the judges said, not what the device made. What
    the line itself computes, as masks do, is what it makes of each judge's values."""
    before = dict(names)
    tensors = {k: v for k, v in names.items() if isinstance(v, Tensor)}
    waiting = {k: t for k, t in tensors.items() if t._node.base.op not in (Ops.BUFFER, Ops.CONST)}
    pending = [(t, t._node.base) for t in waiting.values()]
    for judge in judges:
        for _, base in pending:
            judge(base)
    values = {(judge, k): judge(t._node) for judge in judges[1:] for k, t in waiting.items()}

    def stored() -> None:
        for tensor, base in pending:
            now = tensor._node.base
            now = now.src[0].base if now.op is Ops.ASSIGN else now
            for judge in judges:
                value = judge.done.get(base)
                if now.op is Ops.BUFFER and value is not None and value.size == now.arg:
                    judge.done.setdefault(now, value.reshape(-1))
        old = {tensor._node.base for tensor in tensors.values()}
        made = {k: v._node.base for k, v in names.items() if isinstance(v, Tensor)}
        made = {k: b for k, b in made.items() if b not in old and b.op is Ops.BUFFER}
        for judge in judges[1:] if made and waiting else ():
            again = before | {k: Tensor(values[judge, k]) for k in waiting}
            exec(line, again)
            for name, base in made.items():
                value = again[name].numpy().reshape(-1)
                if value.size != names[name].numel() and dtypes.is_float(base.dtype):
                    judge.done[base] = np.full(base.arg, np.nan, value.dtype)  # anything goes
                elif value.size == base.arg:
                    judge.done[base] = value

    return stored


def _moved(value: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far a disturbance moved each element."""
    if value.dtype.kind in "biu":
        return np.where(value == other, 0.0, np.inf)
    wide, other = value.astype(np.float64), other.astype(np.float64)
    with np.errstate(all="ignore"):
        difference = np.abs(wide - other)
    same = (wide == other) | (np.isnan(wide) & np.isnan(other))
    limit = float(ml_dtypes.finfo(value.dtype).max)
    jumps = np.isnan(difference) | np.isinf(difference) | (np.abs(other) > limit / 2)
    return np.where(same, 0.0, np.where(jumps, np.inf, difference))


def run(program: Program, device: str) -> dict[str, np.ndarray]:
    """The outputs as `device` computes them."""
    forget_faults()  # what an earlier program left to be raised
    with Context(NOOPT=int(device == "NOOPT")):
        names = build(program, device)
        outputs = [names[name] for name in program.outputs]
        if program.together:
            outputs[0].realize(*outputs[1:])
        return {name: t.numpy() for name, t in zip(program.outputs, outputs, strict=True)}


def numerics_of(device: str) -> Numerics:
    """What its numbers promise."""
    found = Device[first(device)].target.numerics
    assert isinstance(found, Numerics)
    return found


def differs(got: np.ndarray, value: np.ndarray, room: np.ndarray, promised: Numerics) -> str:
    """What is wrong with an output; empty if nothing."""
    is_alike = got.shape == value.shape if promised.values else got.ndim == value.ndim
    if not is_alike or got.dtype != value.dtype:  # a mask's count is a value, too
        return f"{got.shape} {got.dtype}, should be {value.shape} {value.dtype}"
    if not promised.values:
        return ""
    if not promised.exact_division:
        room = room * INEXACT_DIVISION
    if value.dtype.kind in "biu":
        wrong = (got != value) & np.isfinite(room)
    else:
        a, b = got.astype(np.float64), value.astype(np.float64)
        name = value.dtype.name
        ulp = ULP[name] if name in NARROW else 2 * ULP[name]
        tiny = {8: 1e-300, 4: 1e-37, 2: 1e-6, 1: 2.0**-8}[value.dtype.itemsize]
        slack, ulps = (SLACK, 4) if value.dtype.itemsize > 1 else (SLACK_OF_BYTES, 1)
        with np.errstate(all="ignore"):
            far = np.abs(a - b) > slack * room + ulps * ulp * np.abs(b) + tiny
        is_same = (a == b) | (np.isnan(a) & np.isnan(b))
        if not promised.nan:
            is_same |= ~np.isfinite(b)
        wrong = ~is_same & (far | ~np.isfinite(a) | ~np.isfinite(b)) & np.isfinite(room)
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{wrong.sum()} of {wrong.size} wrong, [{at}] is {got[at]}, should be {value[at]}"


def check(program: Program, devices: Iterable[str] = DEVICES) -> None:
    """Raises Failure for the first device that gets an output wrong."""
    wanted = expected(program)
    for device in devices:
        try:
            got = run(program, device)
        except Exception as error:
            if is_refused(error, device):
                continue
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{os.path.basename(last.filename)}:{last.name}"
            what = f"{type(error).__name__} in {place}: {str(error)[:300]}"
            raise Failure(program, device, what) from error
        for name in program.outputs:
            wrong = differs(got[name], *wanted[name], numerics_of(device))
            if wrong:
                raise Failure(program, device, f"{name}: {wrong}")


def is_refused(error: Exception, device: str) -> bool:
    """Whether the device says that it lacks float64, as it does; or knows no values, and so not how
    many a mask chose."""
    if isinstance(error, ShapeError | IndexCheckError) and not numerics_of(device).values:
        return True
    lacks = device != "NOOPT" and "float64" not in Device[first(device)].target.dtypes
    return lacks and isinstance(error, DTypeError) and "of float64" in str(error)


# ---- making and shrinking ------------------------------------------------------------------------


def generate(seed: int, steps: int = 12) -> Program:
    """A random program."""
    writer = Writer(np.random.default_rng(seed))
    names = build(Program((), ()), "PYTHON", realize=False)
    for _ in range(steps):
        lines = writer.lines({k: v for k, v in names.items() if re.fullmatch(r"v\d+", k)})
        try:
            for line in lines:
                exec(line, names)
        except TinygradError:
            writer.forget(lines)
        else:
            writer.keep(lines)
    return Program(*writer.program(names))


def shrunk(failure: Failure) -> Failure:
    """The same failure with as few lines as go."""
    kind = failure.what.split(":")[0] if "Error" in failure.what else ""
    best = failure
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(best.program):
            try:
                check(candidate, (best.device,))
            except Failure as found:
                if ("Error" in found.what) == bool(kind) and kind in found.what:
                    best, progress = found, True
                    break
            except Exception:
                continue
    return best


def _smaller(program: Program) -> Iterable[Program]:
    for name in program.outputs if len(program.outputs) > 1 else ():
        yield replace(program, outputs=(name,), together=False)
        yield replace(program, outputs=tuple(n for n in program.outputs if n != name))
    for i in reversed(range(len(program.lines))):
        yield replace(program, lines=program.lines[:i] + program.lines[i + 1 :])
    names = build(program, "PYTHON", realize=False)
    for i, line in enumerate(program.lines):
        name, _, right = line.partition(" = ")
        if re.fullmatch(r"v\d+", name) and not right.startswith("given"):
            t = names[name]
            made = f"{name} = given({i}, {t.shape}, {name_of(t.dtype)!r})"
            lines = (*program.lines[:i], made, *program.lines[i + 1 :])
            yield replace(program, lines=lines)
    for i in range(1, len(program.lines)):  # an output in the middle
        name = program.lines[i].partition(" = ")[0]
        if re.fullmatch(r"v\d+", name) and program.outputs != (name,):
            yield replace(program, lines=program.lines[: i + 1], outputs=(name,), together=False)


# ---- long runs -----------------------------------------------------------------------------------


@dataclass
class Tally:
    graphs: int = 0
    failures: list[Failure] = field(default_factory=list)


def fuzz(seeds: Iterable[int], devices: Iterable[str] = DEVICES, until: float = np.inf) -> Tally:
    """Checks a program a seed until the clock says `until`."""
    tally = Tally()
    for seed in seeds:
        if time.monotonic() > until:
            break
        tally.graphs += 1
        try:
            check(generate(seed), devices)
        except Failure as failure:
            small = shrunk(failure)
            tally.failures.append(small)
            print(f"--- seed {seed} {small}\n", flush=True)
        except Exception as error:  # the front end, or the oracle
            print(f"--- seed {seed}: {type(error).__name__} {error}", flush=True)
            traceback.print_exc()
            tally.failures.append(Failure(Program((), ()), "none", repr(error)))
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--devices", default="CPU,NOOPT,PYTHON,CL", help="names, or all")
    options = parser.parse_args()
    names = options.devices.split(",")
    chosen = ["NOOPT", *present()] if names == ["all"] else names
    until = time.monotonic() + options.minutes * 60
    seeds = range(options.seed, sys.maxsize)
    tally = fuzz(seeds, chosen, until)
    where = ", ".join(chosen)
    print(f"{tally.graphs} graphs on {where} from seed {options.seed}: {len(tally.failures)} finds")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
