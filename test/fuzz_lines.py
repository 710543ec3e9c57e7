"""Random lines of tensor programs, for `fuzz_graphs`: each kind of line is a method of Writer that
sees the values so far and returns lines which define new ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import TinygradError
from tinygrad.tensor import Tensor

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 33, 64, 70)
MOST = 1500  # elements of a value
DTYPES = ("float32",) * 7 + ("float64", "float16", "bfloat16", "bool", "int8", "uint8", "int16")
DTYPES += ("int32", "int32", "int64", "uint32", "uint64", "fp8e4m3", "fp8e5m2")
FLOATS = ("float32", "float64", "float16", "bfloat16")

ON_FLOATS = (
    "{}.sin()",
    "{}.cos()",
    "{}.exp()",
    "{}.exp2()",
    "({}.abs() + 0.5).log()",
    "({}.abs() + 0.5).log2()",
    "{}.abs().sqrt()",
    "({}.abs() + 0.25).rsqrt()",
    "{}.relu()",
    "{}.sigmoid()",
    "{}.tanh()",
    "{}.gelu()",
    "{}.silu()",
    "{}.elu()",
    "{}.floor()",
    "{}.ceil()",
    "{}.trunc()",
    "{}.round()",
    "{}.reciprocal()",
    "{}.sign()",
    "{}.isnan()",
    "{}.isinf()",
    "{}.square()",
    "{}.erf()",
    "{}.softplus()",
    "{}.clamp(-1, 1)",
    "{}.pow(3)",
    "{}.pow(0.5)",
)
ON_ALL = (
    "-{}",
    "{}.abs()",
    "{} * 2",
    "{} + 1",
    "3 - {}",
    "{}.contiguous()",
    "{}.detach()",
    "kept({})",
    "{}.sign()",
    "{} == 0",
    "{} > 1",
    "{}.logical_not()",
)
ON_INTS = ("~{}", "{} & 6", "{} | 3", "{} ^ 5", "{} << 2", "{} >> 1", "{} // 3", "{} % 5")
PAIRS = (
    "{} + {}",
    "{} - {}",
    "{} * {}",
    "{}.maximum({})",
    "{}.minimum({})",
    "{} < {}",
    "{} <= {}",
    "{} == {}",
    "{} != {}",
)
FLOAT_PAIRS = ("{} / {}", "{}.pow({}.clamp(-2, 2))", "{}.lerp({}, 0.25)", "{}.copysign({})")
INT_PAIRS = ("{} & {}", "{} | {}", "{} ^ {}")
POSITIVE_PAIRS = ("{} // {}", "{} % {}", "{} << {}", "{} >> {}", "{}.fmod({})")
REDUCTIONS = ("sum", "sum", "sum", "max", "max", "min", "mean", "prod", "any", "all", "argmax")
FLOAT_REDUCTIONS = ("std", "var", "logsumexp", "softmax", "log_softmax", "layernorm", "argmin")
RUNNING = ("cumsum", "cumsum", "cummax", "logcumsumexp", "sort", "argsort", "cumprod")

Values = Mapping[str, Tensor]
NAMES = {dtypes.fields()[name]: name for name in DTYPES}


def name_of(dtype: DType) -> str:
    """The name by which a program knows a dtype."""
    return NAMES.get(dtype, dtype.name)


class Writer:
    """Writes lines; remembers those that were kept."""

    def __init__(self, draw: np.random.Generator) -> None:
        self.draw = draw
        self.kept: list[str] = []
        self.count = 0
        self.inputs: list[str] = []

    # ---- the program -----------------------------------------------------------------------------

    def lines(self, values: Values) -> list[str]:
        """Lines of one kind, chosen at random."""
        if not values or self.chance(0.08):
            return [self.new(self.input(self.shape(), self.pick(DTYPES)))]
        kinds: tuple[tuple[Callable[[str, Tensor], list[str]], int], ...] = (
            (self.unary, 5),
            (self.pair, 6),
            (self.positive_pair, 1),
            (self.choice, 2),
            (self.cast, 2),
            (self.movement, 8),
            (self.join, 2),
            (self.reduction, 5),
            (self.running, 2),
            (self.product, 3),
            (self.window, 3),
            (self.overlap, 1),
            (self.gather, 3),
            (self.mixed_index, 3),
            (self.symbolic, 1),
            (self.write_part, 3),
            (self.scatter, 2),
            (self.write, 3),
            (self.gradient, 1),
        )
        weights = np.array([weight for _, weight in kinds], float)
        kind = kinds[self.draw.choice(len(kinds), p=weights / weights.sum())][0]
        self.values = values
        name = self.recent(list(values))
        before = self.count
        lines = kind(name, values[name])
        if not lines:
            self.count = before
        return lines

    def keep(self, lines: list[str]) -> None:
        self.kept.extend(lines)

    def forget(self, lines: list[str]) -> None:
        """The lines can't run: whatever they defined is gone (a later line may reuse the name)."""

    def program(self, names: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
        """Lines, outputs, realised together?"""
        made = [n for n in names if re.fullmatch(r"v\d+", n)]
        text = "\n".join(self.kept)
        last = [n for n in made if len(re.findall(rf"\b{n}\b", text)) == 1] or made[-1:]
        more = [n for n in made if self.chance(0.15) and n not in last]
        outputs = [n for n in last + more if 0 not in names[n].shape or self.chance(0.3)]
        return tuple(self.kept), tuple(outputs[-6:] or last[:1]), self.chance(0.5)

    # ---- helpers ---------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return bool(self.draw.random() < p)

    def pick(self, options: Any) -> Any:
        return options[int(self.draw.integers(len(options)))]

    def recent(self, names: list[str]) -> str:
        """Mostly one of the last."""
        return self.pick(names[-4:]) if self.chance(0.7) else self.pick(names)

    def new(self, expression: str) -> str:
        self.count += 1
        return f"v{self.count - 1} = {expression}"

    def shape(self, most: int = MOST) -> tuple[int, ...]:
        while True:
            shape = tuple(self.pick(SIZES) for _ in range(self.pick((0, 1, 1, 2, 2, 2, 3, 3, 4))))
            if shape and self.chance(0.02):
                shape = (*shape[:-1], 0)
            if prod(shape) <= most:
                return shape

    def input(self, shape: tuple[int, ...], dtype: str, kind: str = "") -> str:
        kind = kind or self.pick(("normal",) * 6 + ("special", "positive"))
        return f"given({int(self.draw.integers(1000))}, {shape}, {dtype!r}, {kind!r})"

    def partner(self, name: str, t: Tensor) -> str:
        """A value that `t` broadcasts with."""
        for other in self.draw.permutation(list(self.values)):
            if other != name and _fits(t.shape, self.values[other].shape) and self.chance(0.8):
                return str(other)
        shape = tuple(1 if self.chance(0.25) else n for n in t.shape)
        shape = shape[int(self.draw.integers(len(shape) + 1)) :] if self.chance(0.3) else shape
        dtype = name_of(t.dtype) if self.chance(0.7) else self.pick(DTYPES)
        return self.input(shape, dtype)

    def axis(self, t: Tensor) -> int:
        return int(self.draw.integers(t.ndim)) - (t.ndim if self.chance(0.3) else 0)

    # ---- kinds of lines --------------------------------------------------------------------------

    def unary(self, name: str, t: Tensor) -> list[str]:
        own = ON_FLOATS if t.is_floating_point() else ON_INTS if dtypes.is_int(t.dtype) else ()
        return [
            self.new(self.pick(own + ON_ALL if self.chance(0.4) or not own else own).format(name))
        ]

    def pair(self, name: str, t: Tensor) -> list[str]:
        other = self.partner(name, t)
        more = FLOAT_PAIRS if t.is_floating_point() else ()
        known = self.values.get(other)
        if not more and known is not None and not known.is_floating_point():
            more = INT_PAIRS
        both = [name, other] if self.chance(0.6) else [other, name]
        return [self.new(self.pick(PAIRS + more).format(*both))]

    def positive_pair(self, name: str, t: Tensor) -> list[str]:
        if t.dtype is dtypes.bool:
            return []
        whole = dtypes.is_int(t.dtype) and self.chance(0.5)
        divisor = self.input(tuple(t.shape), name_of(t.dtype), "divisor" if whole else "small")
        if whole:
            return [self.new(self.pick(POSITIVE_PAIRS[:2]).format(name, divisor))]
        options = POSITIVE_PAIRS[:2] if t.is_floating_point() else POSITIVE_PAIRS[:4]
        return [self.new(self.pick(options).format(name, divisor))]

    def choice(self, name: str, t: Tensor) -> list[str]:
        other = self.partner(name, t)
        condition = self.pick(
            (f"({name} > 0)", f"({name} != {name})", self.input(tuple(t.shape), "bool"))
        )
        choices = [name, other] if self.chance(0.5) else [other, self.pick((name, "0", "1.5"))]
        return [
            self.new(
                f"{condition}.where({choices[0]}, {choices[1]})".replace(
                    ".where(0, ", f".where({name}, "
                )
            )
        ]

    def cast(self, name: str, t: Tensor) -> list[str]:
        if self.chance(0.15):
            same = [
                d
                for d in set(DTYPES) - {"bool"}
                if np.dtype("V2").itemsize and dtypes.fields()[d].itemsize == t.dtype.itemsize
            ]
            if t.dtype is not dtypes.bool and not t.is_floating_point() and same:
                return [self.new(f"{name}.bitcast({self.pick(sorted(same))!r})")]
        if self.chance(0.15):  # through 8 bits and back
            back = self.pick(("float32", "float16", "bfloat16", "int32"))
            small = f"{name}.cast({self.pick(('fp8e4m3', 'fp8e5m2'))!r})"
            whole = "" if back != "int32" else ".float().nan_to_num(1, 2, 3)"
            return [self.new(f"{small}{whole}.cast({back!r})")]
        return [self.new(f"{name}.cast({self.pick(DTYPES)!r})")]

    def mixed_index(self, name: str, t: Tensor) -> list[str]:
        """Tensors, masks, slices and numbers side by side."""
        if t.ndim < 1 or 0 in t.shape or prod(t.shape) > MOST // 2:
            return []
        key = self.key(tuple(t.shape))
        return [self.new(f"{name}[{key}]")] if key else []

    def key(self, shape: tuple[int, ...]) -> str:
        parts = []
        count = self.pick((1, 2, 3))
        for n in shape:
            kind = int(self.draw.integers(6))
            if kind == 0:
                parts.append(self.index((count,), n))
            elif kind == 1:
                parts.append(f"{int(self.draw.integers(-n, n))}")
            elif kind == 2:
                parts.append("::-1" if self.chance(0.5) else "::2")
            elif kind == 3 and not any("bool" in part for part in parts) and self.chance(0.5):
                parts.append(self.input((n,), "bool", "normal"))
            else:
                parts.append(":")
        if sum("bool" in part for part in parts) and any("int32" in part for part in parts):
            return ""  # the hits of a mask and the indices rarely broadcast
        return ", ".join(parts)

    def symbolic(self, name: str, t: Tensor) -> list[str]:
        """Part of the first axis, as long as a variable says."""
        if t.ndim < 1 or t.shape[0] < 2 or 0 in t.shape or t.dtype is dtypes.bool:
            return []
        most = int(t.shape[0])
        part = f"{name}[:bound({int(self.draw.integers(1, most + 1))}, {most})]"
        inner = self.pick((part, f"({part} * 2)", f"({part} + 1)"))
        return [self.new(f"{inner}.{self.pick(('sum', 'max', 'min'))}(0)")]

    def movement(self, name: str, t: Tensor) -> list[str]:
        made = self.pick(MOVEMENTS)(self, t) if t.ndim else self.pick((".reshape(1, 1)", ""))
        return [self.new(name + made)] if made else []

    def join(self, name: str, t: Tensor) -> list[str]:
        if not t.ndim:
            return []
        axis = self.axis(t) % t.ndim
        if self.chance(0.4):
            return [self.new(f"{name}.stack({self.same(name, t)}, dim={axis})")]
        shape = tuple(self.pick((1, 2, 5)) if i == axis else n for i, n in enumerate(t.shape))
        other = name if self.chance(0.3) else self.input(shape, name_of(t.dtype))
        if prod(t.shape) * 2 > MOST * 2:
            return []
        both = [name, other] if self.chance(0.5) else [other, name]
        return [self.new(f"{both[0]}.cat({both[1]}, dim={axis})")]

    def same(self, name: str, t: Tensor) -> str:
        """Another value of this shape and dtype."""
        for other, o in self.values.items():
            if other != name and o.shape == t.shape and o.dtype is t.dtype and self.chance(0.7):
                return other
        return self.input(tuple(t.shape), name_of(t.dtype))

    def reduction(self, name: str, t: Tensor) -> list[str]:
        float_too = REDUCTIONS + FLOAT_REDUCTIONS if t.is_floating_point() else REDUCTIONS
        kind = self.pick(float_too)
        if kind in ("argmax", "argmin", "softmax", "log_softmax", "layernorm"):
            return [self.new(f"{name}.{kind}({self.axis(t)})")] if t.ndim else []
        if not t.ndim or self.chance(0.2):
            return [self.new(f"{name}.{kind}()")]
        axes = sorted({self.axis(t) % t.ndim for _ in range(self.pick((1, 1, 2)))})
        keep = ", keepdim=True" if self.chance(0.4) else ""
        return [self.new(f"{name}.{kind}(axis={tuple(axes)}{keep})")]

    def running(self, name: str, t: Tensor) -> list[str]:
        kind = self.pick(RUNNING)
        if not t.ndim or 0 in t.shape or (kind.startswith("log") and not t.is_floating_point()):
            return []
        part = "[0]" if kind in ("cummax", "sort") else ""
        return [self.new(f"{name}.{kind}({self.axis(t)}){part}")]

    def product(self, name: str, t: Tensor) -> list[str]:
        dtype = name_of(t.dtype)
        if t.ndim < 1 or t.dtype is dtypes.bool:
            return []
        if t.ndim >= 2 and self.chance(0.3):
            return [self.new(f"{name} @ {name}.transpose(-1, -2)")]
        n = self.pick((1, 3, 4, 8, 16, 17, 33))
        if prod(t.shape) * n > 40000 or prod(t.shape[:-1]) * n > MOST * 2:
            return []
        inner = self.input((t.shape[-1], n), dtype, "normal")
        if self.chance(0.3) and t.ndim >= 2:
            return [self.new(f"{self.input((n, t.shape[-2]), dtype, 'normal')} @ {name}")]
        return [self.new(f"{name} @ {inner}")]

    def window(self, name: str, t: Tensor) -> list[str]:
        """Convolution or pooling over the last one or two axes."""
        if t.ndim < 2 or prod(t.shape[:-2]) > 8 or t.dtype is dtypes.bool:
            return []
        channels = prod(t.shape[:-2])
        if not channels:
            return []
        h, w = t.shape[-2:]
        x = f"{name}.reshape(1, {channels}, {h}, {w})"
        taps = [self.pick([k for k in (1, 2, 3, 5) if k <= max(1, n)]) for n in (h, w)]
        how = f"stride={self.pick((1, 1, 2, 3))}, dilation={self.pick((1, 1, 1, 2))}"
        if self.chance(0.5) and t.is_floating_point():
            pads = min(1, *(k // 2 for k in taps))
            kind = self.pick(("max_pool2d", "avg_pool2d"))
            return [self.new(f"{x}.{kind}({tuple(taps)}, {how}, padding={pads})")]
        groups = channels if self.chance(0.2) else 1
        out = groups * self.pick((1, 2, 3))
        weight = self.input((out, channels // groups, *taps), name_of(t.dtype), "normal")
        kind = "conv2d" if self.chance(0.8) else "conv_transpose2d"
        if kind == "conv_transpose2d":
            weight = self.input((channels, 2, *taps), name_of(t.dtype), "normal")
            groups = 1
        how = f"groups={groups}, {how}, padding={self.pick((0, 1, 2))}"
        return [self.new(f"{x}.{kind}({weight}, {how})")]

    def overlap(self, name: str, t: Tensor) -> list[str]:
        """Columns, often of a product, added up where they overlap. Not of what may be infinite, or
        NaN as any bits may: at the borders a product's other factor is read as 0."""
        if t.ndim < 2 or prod(t.shape[:-2]) > 8 or t.dtype is dtypes.bool or 0 in t.shape:
            return []
        if any("'special'" in line or "bitcast" in line for line in self.kept):
            return []
        *lead, taps, count = map(int, t.shape)
        step = self.pick((1, 2, 3, taps))
        value = f"{name}.reshape({prod(lead)}, {taps}, {count})"
        if self.chance(0.5):
            depth = self.pick((1, 3, 16, 33, 65))
            weight = self.input((taps, depth), name_of(t.dtype), "normal")
            columns = self.input((prod(lead), depth, count), name_of(t.dtype), "normal")
            value = f"({weight} @ {columns} * {value})"
        size = taps + step * (count - 1)
        return [self.new(f"{value}.fold((1, {size}), (1, {taps}), stride=(1, {step}))")]

    def index(self, shape: tuple[int, ...], size: int) -> str:
        """Indices below `size`, some counted from the end."""
        return f"({self.input(shape, 'int32', 'normal')} % {2 * size} - {size})"

    def gather(self, name: str, t: Tensor) -> list[str]:
        if not t.ndim or 0 in t.shape:
            return []
        axis = self.axis(t) % t.ndim
        if self.chance(0.5):
            shape = tuple(self.pick((1, 2, 5)) if i == axis else n for i, n in enumerate(t.shape))
            index = f"({self.index(shape, t.shape[axis])} % {t.shape[axis]})"
            return [self.new(f"{name}.gather({axis}, {index})")]
        shape = self.pick(((3,), (2, 2), (1,), (7,)))
        index = self.index(shape, t.shape[axis])
        before = ":, " * axis
        return [self.new(f"{name}[{before}{index}]")]

    def scatter(self, name: str, t: Tensor) -> list[str]:
        if not t.ndim or 0 in t.shape or t.dtype is dtypes.bool:
            return []
        axis = self.axis(t) % t.ndim
        shape = tuple(self.pick((1, 3, 6)) if i == axis else n for i, n in enumerate(t.shape))
        index = f"({self.index(shape, t.shape[axis])} % {t.shape[axis]})"
        source = self.input(shape, name_of(t.dtype), "normal")
        if self.chance(0.3):
            return [self.new(f"{name}.scatter({axis}, {index}, {source})")]
        how = self.pick(("sum", "prod", "amax", "amin"))
        return [self.new(f"{name}.scatter_reduce({axis}, {index}, {source}, {how!r})")]

    def write(self, name: str, t: Tensor) -> list[str]:
        """Part of an input, or all of it, is overwritten; what read it before keeps the old."""
        stored = [
            n
            for n in self.values
            if re.search(rf"^{n} = given\([^)]*\), '\w+', '\w+'\)$", "\n".join(self.kept), re.M)
        ]
        if not stored:
            return []
        target = self.pick(stored)
        own = self.values[target]
        if not own.ndim or 0 in own.shape:
            return []
        fresh = self.input(tuple(own.shape), name_of(own.dtype), "normal")
        axis, size = self.axis(own) % own.ndim, own.shape[self.axis(own) % own.ndim]
        before = ":, " * axis
        size = own.shape[axis]
        begin = int(self.draw.integers(size))
        end = int(self.draw.integers(begin, size)) + 1
        options = [
            f"{target}.assign({target} * 2 - {fresh})",
            f"{target} += {fresh}",
            f"{target}[{before}{begin}:{end}] = 3",
            f"{target}[{before}{begin}] = {target}[{before}{size - 1 - begin}]",
            f"{target}[{before}{begin}:{end}] = {target}.flip({axis})[{before}{begin}:{end}]",
            f"{target}.flip({axis})[{before}::2] = 1",
        ]
        behind = zip(own.shape[::-1], t.shape[::-1], strict=False)
        if t.ndim <= own.ndim and all(m in (1, n) for n, m in behind) and name != target:
            options += [f"{target}.assign({name}.cast({target}.dtype))"] * 3
        line = self.pick(options)
        return [line]

    def write_part(self, name: str, t: Tensor) -> list[str]:
        """Writes by tensors, by masks, through views and with operators."""
        stored = [
            n
            for n in self.values
            if re.search(rf"^{n} = given\([^)]*\), '\w+', '\w+'\)$", "\n".join(self.kept), re.M)
        ]
        if not stored:
            return []
        target = self.pick(stored)
        own = self.values[target]
        if not own.ndim or 0 in own.shape or own.dtype is dtypes.bool:
            return []
        shape = tuple(own.shape)
        key, mask = self.key(shape), self.input(shape, "bool", "normal")
        fresh = self.input(shape, name_of(own.dtype), "normal")
        options = [
            f"{target}[{mask}] = 5",
            f"{target}[{mask}] = {fresh}[{mask}]",
            f"{target}[{mask}] += 1",
        ]
        if key:
            options += [f"{target}[{key}] = 7", f"{target}[{key}] += 2"]
            options += [f"{target}[{key}] = {fresh}[{key}]"]
        if self.chance(0.3):
            view = self.new(f"{target}.flip({self.axis(own)})[::2]")
            return [view, f"{view.partition(' ')[0]} *= 2"]
        return [self.pick(options)]

    def gradient(self, name: str, t: Tensor) -> list[str]:
        """The gradient of a value with respect to an earlier one."""
        floats = [n for n, v in self.values.items() if v.dtype in (dtypes.float32, dtypes.float64)]
        if name not in floats:
            return []
        wanted = self.pick(floats)
        return [self.new(f"{name}.sum().gradient({wanted}, materialize_grads=True)[0]")]


# ---- movement ------------------------------------------------------------------------------------


def _reshape(w: Writer, t: Tensor) -> str:
    size, shape = prod(t.shape), []
    if size == 0:
        return ""
    while size > 1 and len(shape) < 3:
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        shape.append(w.pick(divisors))
        size //= shape[-1]
    shape.append(size)
    if w.chance(0.3):
        shape.insert(int(w.draw.integers(len(shape) + 1)), 1)
    return f".reshape({tuple(shape)})"


def _permute(w: Writer, t: Tensor) -> str:
    return f".permute({tuple(int(i) for i in w.draw.permutation(t.ndim))})"


def _flip(w: Writer, t: Tensor) -> str:
    return f".flip({w.axis(t)})"


def _expand(w: Writer, t: Tensor) -> str:
    shape = [w.pick((2, 3, 8)) if n == 1 and w.chance(0.7) else n for n in t.shape]
    shape = [w.pick((1, 2, 4)), *shape] if w.chance(0.2) else shape
    return f".expand({tuple(shape)})" if prod(shape) <= MOST * 2 else ""


def _slice(w: Writer, t: Tensor) -> str:
    parts = []
    for n in t.shape:
        begin = int(w.draw.integers(n + 1)) if w.chance(0.5) else 0
        end = int(w.draw.integers(begin, n + 1)) if w.chance(0.5) else n
        if begin >= end and w.chance(0.95):
            begin, end = 0, n
        step = w.pick((1, 1, 1, 1, 2, 3, -1, -2))
        if n and w.chance(0.15):
            parts.append(str(int(w.draw.integers(-n, n))))
        elif step < 0:
            parts.append(f"::{step}")
        else:
            parts.append(f"{begin}:{end}:{step}" if step > 1 else f"{begin}:{end}")
    return f"[{', '.join(parts)}]"


def _pad(w: Writer, t: Tensor) -> str:
    pads = tuple((w.pick((0, 0, 1, 3)), w.pick((0, 0, 1, 2))) for _ in t.shape)
    if prod(n + a + b for n, (a, b) in zip(t.shape, pads, strict=True)) > MOST * 2:
        return ""
    return f".pad({pads}, value={w.pick((0, 0, 1, 7))})"


def _shift(w: Writer, t: Tensor) -> str:
    return f".roll({w.pick((1, 2, -1))}, {w.axis(t)})"


def _repeat(w: Writer, t: Tensor) -> str:
    times = tuple(w.pick((1, 1, 2, 3)) for _ in t.shape)
    return f".repeat({times})" if prod(times) * prod(t.shape) <= MOST * 2 else ""


def _unfold(w: Writer, t: Tensor) -> str:
    axis = w.axis(t) % t.ndim
    size = w.pick((1, 2, 3))
    if t.shape[axis] < size or prod(t.shape) * size > MOST * 2:
        return ""
    return f".unfold({axis}, {size}, {w.pick((1, 2))})"


def _triangle(w: Writer, t: Tensor) -> str:
    return f".{w.pick(('tril', 'triu'))}({w.pick((-1, 0, 1))})" if t.ndim >= 2 else ""


def _diagonal(w: Writer, t: Tensor) -> str:
    return ".diagonal()" if t.ndim >= 2 and 0 not in t.shape else ""


def _squeeze(w: Writer, t: Tensor) -> str:
    return ".squeeze()" if w.chance(0.5) else f".unsqueeze({w.axis(t)})"


MOVEMENTS = (_reshape, _reshape, _permute, _permute, _flip, _expand, _expand, _slice, _slice, _pad)
MOVEMENTS += (_shift, _repeat, _unfold, _triangle, _diagonal, _squeeze)


def _fits(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether two shapes broadcast, to something not too large."""
    pairs = list(zip(a[::-1], b[::-1], strict=False))
    if any(n != m and 1 not in (n, m) for n, m in pairs):
        return False
    longer = a if len(a) > len(b) else b
    common = [*longer[: len(longer) - len(pairs)], *(max(n, m) for n, m in pairs)]
    return prod(common) <= MOST * 2


# ---- scalar functions for gradients --------------------------------------------------------------

SMOOTH = (
    "{}.sin()",
    "{}.exp()",
    "({}.abs() + 0.5).log()",
    "({}.square() + 0.5).sqrt()",
    "{}.sigmoid()",
    "{}.tanh()",
    "{}.relu()",
    "{}.gelu()",
    "{} * 0.5 - 1",
    "({} + 3).reciprocal()",
    "{}.softmax(-1)",
    "{}.log_softmax(0)",
    "{}.cumsum(0)",
    "{}.sort(-1)[0]",
    "{}.max(axis=0, keepdim=True)",
    "{}.sum(axis=-1, keepdim=True)",
    "{}.mean(axis=0)",
    "{}.var(axis=-1)",
    "{}.logsumexp(axis=-1, keepdim=True)",
    "{}.prod(axis=-1, keepdim=True)",
    "{}.transpose(0, -1)",
    "{}.flip(0)",
    "{}.reshape(-1)",
    "{}.unsqueeze(0)",
    "{}.pad(((1, 2),) + ((0, 0),) * ({}.ndim - 1))",
    "{}[::2]",
    "{}[..., 0]",
    "{}.roll(1, 0)",
    "{}.repeat((2,) * {}.ndim)",
    "{}.cat({}, dim=0)",
    "{}.unfold(0, 1, 1)",
    "{}[[0, -1, 0]]",
    "{}.gather(0, {}.detach().argsort(0))",
    "{}.tril() if {}.ndim > 1 else {}",
    "({} > 0.1).where({}, {} * 2)",
    "{}.layernorm()",
    "{}.clamp(-0.7, 0.9)",
)
BOTH = ("{} * {}", "{} + {}", "{} - {}", "{} / ({}.square() + 1)", "{}.maximum({})")
BOTH += ("{}.transpose(0, -1) @ {}", "{}.pow(2) * {}", "{}.minimum({})", "{}.stack({}).sum(0)")


def derivative_program(draw: np.random.Generator) -> tuple[Callable[..., Tensor], list[Any]]:
    """A scalar function of two tensors of float64, and where to take its derivative."""
    shape = tuple(int(n) for n in draw.choice([1, 2, 3, 5], size=int(draw.integers(1, 4))))
    arrays = [draw.standard_normal(shape) for _ in range(2)]
    lines: list[str] = []
    values = [Tensor(a) for a in arrays]
    while len(lines) < 7:
        i, j = (int(k) for k in draw.integers(max(0, len(values) - 3), len(values), 2))
        options = BOTH if draw.random() < 0.3 else SMOOTH
        text = options[int(draw.integers(len(options)))]
        names = [f"v[{i}]", f"v[{j}]"] if options is BOTH else [f"v[{i}]"] * 3
        line = text.format(*names)
        try:
            made = eval(line, {"v": values})
        except (TinygradError, IndexError):
            continue
        if made.ndim and made.numel() and prod(made.shape) <= 300:
            values.append(made)
            lines.append(line)

    def function(*xs: Tensor) -> Tensor:
        v = list(xs)
        for line in lines:
            v.append(eval(line, {"v": v}))
        return (v[-1].sin() + v[-2].sum() * 0.1).sum()

    return function, arrays
