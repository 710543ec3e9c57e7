"""Expressions that `drawn.py` measures, drawn at random: one function a family. A text is evaluated
by both libraries: their names agree."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import NamedTuple

ELEMENTS = 3_000_000
"""Of the largest input, at most."""

WORK = 1_500_000_000
"""Multiplications of a product, at most."""

LEAST = 30_000
"""Elements of the largest input, at least: less is a call's own time."""

Shape = tuple[int, ...]


class Input(NamedTuple):
    """Normal numbers of a `kind` (a dtype's name); or whole ones, from 0 to `high`."""

    kind: str
    shape: Shape
    high: int = 0


class Case(NamedTuple):
    """`text` is evaluated with inputs a, b, c. The first `wanted` of them get gradients, of which
    the result is computed, too."""

    family: str
    text: str
    inputs: tuple[Input, ...]
    wanted: int = 0

    def __str__(self) -> str:
        given = (
            f"{name}:{i.kind}{[*i.shape]}" for name, i in zip("abc", self.inputs, strict=False)
        )
        wanted = f"  gradients of {self.wanted}" if self.wanted else ""
        return f"{self.text}  {' '.join(given)}{wanted}"


class Draw:
    """Where sizes and choices come from."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.of = self.random.choice

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def size(self, least: int, most: int) -> int:
        """A size of any magnitude; half of them are powers of two, a quarter multiples of 8."""
        n = int(math.exp(self.random.uniform(math.log(least), math.log(most + 1))))
        if self.chance(0.5):
            n = 1 << (n.bit_length() - 1)
        elif self.chance(0.5):
            n = n // 8 * 8
        return min(most, max(least, n))

    def sizes(self, count: int, least: int, most: int) -> Shape:
        return tuple(self.size(least, most) for _ in range(count))

    def shape(self, *axes: int, most: int = ELEMENTS) -> Shape:
        """A shape of one of these numbers of axes."""
        count = self.of(axes or (1, 2, 2, 3, 3, 4))
        while True:
            shape = self.sizes(count, 1 if count > 2 else 4, 4096 if count > 1 else most)
            if LEAST <= math.prod(shape) <= most:
                return shape

    def order(self, count: int) -> str:
        axes = list(range(count))
        self.random.shuffle(axes)
        return ", ".join(map(str, axes))


def floats(*shapes: Shape) -> tuple[Input, ...]:
    return tuple(Input("float32", shape) for shape in shapes)


UNARY = (
    *("{}.relu()", "{}.exp()", "{}.sigmoid()", "{}.tanh()", "F.gelu({})", "F.silu({})", "{}.abs()"),
    *("({} * 2 + 1)", "{}.square()", "{}.clamp(-1, 1)", "({} * {})", "F.leaky_relu({}, 0.1)"),
    *("F.softplus({})", "{}.sin()", "({}.abs() + 1).sqrt()", "({}.abs() + 1).log()", "F.elu({})"),
    *("F.hardswish({})", "(1 / ({}.abs() + 1))", "{}.sign()", "{}.floor()", "{}.round()"),
)
BINARY = (
    *("({} + {})", "({} * {})", "({} - {})", "torch.maximum({}, {})"),
    "torch.where({} > 0, {}, 0.5)",
)


def applied(d: Draw, text: str, most: int) -> str:
    """Up to so many elementwise functions of it."""
    for _ in range(d.random.randint(0, most)):
        form = d.of(UNARY)
        text = form.format(*[text] * form.count("{}")) if len(text) < 60 else text
    return text


def chain(d: Draw) -> Case:
    shape = d.shape()
    other = tuple(n if d.chance(0.6) else 1 for n in shape)
    text = d.of(BINARY).format(applied(d, "a", 3), applied(d, "b", 3))
    if len(shape) > 1 and d.chance(0.3):
        text = f"{text}.permute({d.order(len(shape))}).contiguous()"
    return Case("elementwise", applied(d, text, 2), floats(shape, other), d.of((0, 0, 1, 2)))


def reduction(d: Draw) -> Case:
    shape = d.shape()
    axes = tuple(sorted(d.random.sample(range(len(shape)), d.random.randint(1, len(shape)))))
    name = d.of(("sum", "sum", "mean", "mean", "amax", "amin", "var", "std", "logsumexp"))
    text = f"{applied(d, 'a', 2)}.{name}({axes}{', keepdim=True' if d.chance(0.4) else ''})"
    if "keepdim" in text and d.chance(0.6):
        text = f"(a - {text})"
    return Case("reductions", text, floats(shape), d.of((0, 0, 1)))


def norm(d: Draw) -> Case:
    shape = d.shape(2, 3, 4)
    axis, last, channels = d.random.randrange(len(shape)), shape[-1], shape[1]
    x, groups = applied(d, "a", 1), d.of([g for g in (1, 2, 4, 8) if channels % g == 0])
    text, more = d.of(
        (
            (f"{x}.softmax({axis})", ()),
            (f"{x}.log_softmax({axis})", ()),
            (f"F.layer_norm({x}, ({last},), b, c)", ((last,), (last,))),
            (f"F.group_norm({x}, {groups}, b, c)", ((channels,), (channels,))),
            (f"F.normalize({x}, dim={axis})", ()),
            (f"F.rms_norm({x}, ({last},), b)", ((last,),)),
            (f"F.batch_norm({x}, None, None, b, c, True)", ((channels,), (channels,))),
        )
    )
    return Case("norms", text, floats(shape, *more), d.of((0, 0, 1, 1 + len(more))))


def product(d: Draw) -> Case:
    while True:
        (m, n, k), batch = d.sizes(3, 1, 3000), d.of((1, 1, 1, d.size(2, 64)))
        largest = max(m * n, n * k, m * k) * batch
        if 10 * LEAST <= m * n * k * batch <= WORK and largest <= 2 * ELEMENTS:
            break
    turned, other = d.chance(0.25), d.chance(0.4)
    lead = (batch,) if batch > 1 else ()
    a = (*lead, *((k, m) if turned else (m, k)))
    b = (*(lead if d.chance(0.6) else ()), *((n, k) if other else (k, n)))
    kind = d.of(("float32", "float32", "float32", "bfloat16"))
    left = applied(d, "a.mT" if turned else "a", d.of((0, 0, 1)))
    text = f"({left} @ {'b.mT' if other else 'b'})"
    if kind == "float32" and d.chance(0.5):
        text = applied(d, f"({text} + c)", 2)
    inputs = tuple(Input(kind, shape) for shape in (a, b, (n,)))
    return Case(f"products of {kind}", text, inputs, d.of((0, 0, 2)))


def convolution(d: Draw) -> Case:
    while True:
        axes, transposed = d.of((1, 2, 2, 2, 3)), d.chance(0.2)
        groups = d.of((1, 1, 1, 2, 4, 32))
        ins, outs = (groups * d.size(1, 256 // groups) for _ in range(2))
        if d.chance(0.15):
            groups = ins = outs = d.size(8, 256)
        size = d.sizes(axes, 5, {1: 4096, 2: 128, 3: 24}[axes])
        kernel = tuple(d.of((1, 3, 3, 3, 2, 4, 5, 7)) for _ in range(axes))
        kernel = kernel[:1] * axes if d.chance(0.7) else kernel
        stride, dilation, batch = d.of((1, 1, 2, 3)), d.of((1, 1, 1, 2)), d.size(1, 16)
        pad = d.of((0, kernel[0] // 2 * dilation))
        wider = stride**axes if transposed else 1
        work = batch * ins * outs // groups * math.prod(kernel) * math.prod(size)
        work = work * wider // stride**axes
        held = batch * max(ins, outs * wider) * math.prod(size)
        fits = min(size) + 2 * pad > max(kernel) * dilation
        if fits and 100 * LEAST <= work <= WORK and held <= 2 * ELEMENTS:
            break
    sides = (ins, outs) if transposed else (outs, ins)
    weight = (sides[0], sides[1] // groups, *kernel)
    name = f"conv{'_transpose' if transposed else ''}{axes}d"
    how = f"stride={stride}, padding={pad}, dilation={dilation}, groups={groups}"
    wanted = d.of((0, 2))
    family = f"convolutions{', gradients' if wanted else ''}"
    inputs = floats((batch, ins, *size), weight, (outs,))
    return Case(family, f"F.{name}(a, b, c, {how})", inputs, wanted)


def attention(d: Draw) -> Case:
    while True:
        batch, heads, width = d.size(1, 8), d.size(1, 16), d.of((16, 32, 40, 64, 64, 80, 96, 128))
        queries, keys, causal = d.size(1, 2048), d.size(8, 2048), d.chance(0.4)
        queries = keys if causal else queries
        if 100 * LEAST <= batch * heads * width * queries * keys <= WORK:
            break
    text = f"F.scaled_dot_product_attention(a, b, c, is_causal={causal})"
    shapes = ((batch, heads, n, width) for n in (queries, keys, keys))
    return Case("attention", text, floats(*shapes), d.of((0, 0, 3)))


def pick(d: Draw) -> Case:
    rows, width, count = d.size(100, 50_000), d.size(1, 512), d.size(1000, 20_000)
    while max(rows, count) * width > ELEMENTS:
        width = max(1, width // 2)
    each = d.size(1, width)
    table, chosen = Input("float32", (rows, width)), Input("int64", (count,), rows)
    within = Input("int64", (rows, each), width)
    text, inputs, wanted = d.of(
        (
            ("a[b]", (table, chosen), d.of((0, 1))),
            ("F.embedding(b, a)", (table, chosen), d.of((0, 1))),
            ("a.index_select(0, b)", (table, chosen), 0),
            ("a.gather(1, b)", (table, within), d.of((0, 1))),
            ("a.index_add(0, b, c)", (table, chosen, *floats((count, width))), 0),
            ("torch.take_along_dim(a, b, 1)", (table, within), 0),
            ("a.scatter_add(1, b, c)", (table, within, *floats((rows, each))), 0),
            ("torch.where(a > 0, a, 0).sum(1)", (table,), 0),
            ("F.one_hot(b, 100).float().sum(0)", (table, Input("int64", (count,), 100)), 0),
            ("a.masked_fill(a > 1, 0)", (table,), 1),
        )
    )
    return Case("picking", text, inputs, wanted)


def order(d: Draw) -> Case:
    shape = d.shape(1, 2, 2, 3, most=500_000)
    axis = d.random.randrange(len(shape))
    k = min(shape[axis], d.size(1, 50))
    forms = (
        *("a.sort({})[0]", "a.argsort({})", "a.argmax({})", "a.argmin({})", "a.cumsum({})"),
        *("a.cumsum({}).relu()", "a.cumprod({})", "torch.median(a, {})[0]", "a.cummax({})[0]"),
        *("a.logcumsumexp({})", f"a.topk({k}, {{}})[0]"),
    )
    return Case("order", d.of(forms).format(axis), floats(shape))


def pool(d: Draw) -> Case:
    while True:
        axes = d.of((1, 2, 2, 3))
        size = d.sizes(axes, 6, {1: 4096, 2: 160, 3: 32}[axes])
        shape = (d.size(1, 16), d.size(1, 128), *size)
        if LEAST <= math.prod(shape) <= ELEMENTS:
            break
    k, factor = d.of((2, 2, 3, 3, 5)), d.of((2, 2, 3, 0.5))
    window = f"{k}, {d.of((1, 2, 2, k))}, {d.of((0, k // 2))}"
    mode = d.of(("nearest", {1: "linear", 2: "bilinear", 3: "trilinear"}[axes]))
    beside = f"{d.of((1, 2, 5))}, {d.of((0, 1, 3))}{', 1, 1' * (axes - 1)}"
    forms = [
        f"F.max_pool{axes}d(a, {window})",
        f"F.avg_pool{axes}d(a, {window})",
        f"F.adaptive_avg_pool{axes}d(a, {d.of((1, 2, 3, 5))})",
        f"F.pad(a, ({beside}), mode={d.of(('constant', 'reflect', 'replicate'))!r})",
    ]
    if math.prod(shape) * factor**axes < 2 * ELEMENTS:
        forms.append(f"F.interpolate(a, scale_factor={factor}, mode={mode!r})")
    return Case("pools and pads", d.of(forms), floats(shape), d.of((0, 1)))


def move(d: Draw) -> Case:
    shape = d.shape(2, 3, 4)
    axis, turned = d.random.randrange(len(shape)), d.order(len(shape))
    forms = [
        f"(a * 2).permute({turned}).contiguous()",
        f"torch.cat([a, b], {axis})",
        f"torch.cat([a.relu(), b * 2], {axis})",
        f"torch.stack([a, b], {axis})",
        f"a.flip(({axis},))",
        f"a.roll({d.size(1, max(2, shape[axis]))}, {axis})",
        f"a.repeat_interleave(2, {axis})",
        *("a.tril()", "a.triu(1)"),
        f"a.permute({turned}).reshape(-1, {shape[int(turned[-1])]}).softmax(-1)",
        f"a.unfold({axis}, {min(shape[axis], 3)}, 1).sum(-1)",
    ]
    return Case("moves", d.of(forms), floats(shape, shape))


WHOLE = (
    *("a.sum({})", "(a + b)", "(a * b + 3)", "a.amax({})", "torch.where(a > b, a, b)", "(a == b)"),
    *("a.float() * 2", "a.cumsum({})", "(a // 3)", "(a % 7)", "(a & b)", "(a << 2)"),
)
REAL = (
    *("a.sum({})", "(a + b)", "(a * b + 3).exp()", "a.softmax({})", "F.gelu(a)", "a.float() * 2"),
    *("a.mean({})", "a.tanh()"),
)
TRUTH = (
    *("a.any({})", "a.all({})", "(a & b)", "(a ^ b)", "~a", "a.sum({})", "a.float()"),
    "torch.where(a, 1.0, 2.0)",
)
KINDS = {
    **dict.fromkeys(("int8", "uint8", "int32", "int64"), (WHOLE, 100)),
    **dict.fromkeys(("float16", "bfloat16", "float64"), (REAL, 0)),
    "bool": (TRUTH, 2),
}


def other_dtype(d: Draw) -> Case:
    shape, kind = d.shape(), d.of([*KINDS])
    forms, high = KINDS[kind]
    text = d.of(forms).format(d.random.randrange(len(shape)))
    return Case("other dtypes", text, (Input(kind, shape, high),) * 2)


def loss(d: Draw) -> Case:
    rows, classes = d.size(8, 4096), d.size(2, 5000)
    while rows * classes > ELEMENTS:
        rows //= 2
    shape, classed = (rows, classes), Input("int64", (rows,), classes)
    by_class = ("F.cross_entropy(a, b)", "F.cross_entropy(a, b, label_smoothing=0.1)")
    by_class = (*by_class, "F.nll_loss(a.log_softmax(1), b)")
    alike = (
        *("F.mse_loss(a, b)", "F.l1_loss(a, b)", "F.smooth_l1_loss(a, b)", "F.huber_loss(a, b)"),
        "F.binary_cross_entropy_with_logits(a, b.sigmoid())",
        "F.kl_div(a.log_softmax(1), b.softmax(1), reduction='batchmean')",
        *("F.cosine_similarity(a, b, dim=1)", "torch.cdist(a[:300, :64], b[:200, :64])"),
    )
    text = d.of(by_class + alike)
    second = classed if text in by_class else Input("float32", shape)
    return Case("losses", text, (Input("float32", shape), second), d.of((0, 1)))


Step = Callable[[Draw, str, Shape], tuple[str, Shape]]
"""From the text of a value and its shape to those of what is made of it."""


def reshaped(d: Draw, text: str, shape: Shape) -> tuple[str, Shape]:
    """Two axes as one, or one as two."""
    axis = d.random.randrange(len(shape))
    if len(shape) > 2 and axis + 1 < len(shape):
        made = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
    else:
        part = d.of([n for n in (1, 2, 3, 4, 8, 16) if shape[axis] % n == 0])
        made = (*shape[:axis], shape[axis] // part, part, *shape[axis + 1 :])
    return f"{text}.reshape({', '.join(map(str, made))})", made


def sliced(d: Draw, text: str, shape: Shape) -> tuple[str, Shape]:
    """A part of an axis, or every second element."""
    axis, (begin, step) = d.random.randrange(len(shape)), d.of(((1, 1), (0, 2), (1, 2), (3, 1)))
    if shape[axis] < 2 * begin + 2:
        return text, shape
    made = (*shape[:axis], -(-(shape[axis] - begin) // step), *shape[axis + 1 :])
    return f"{text}[{':, ' * axis}{begin}::{step}]", made


def moved(d: Draw, text: str, shape: Shape) -> tuple[str, Shape]:
    axis, turned = d.random.randrange(len(shape)), d.order(len(shape))
    made = tuple(shape[int(i)] for i in turned.split(", "))
    longer = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
    return d.of(
        (
            (f"{text}.permute({turned})", made),
            (f"{text}.flip(({axis},))", shape),
            (f"{text}.roll({d.size(1, max(2, shape[axis]))}, {axis})", shape),
            (f"(lambda x: torch.cat([x, x * 2], {axis}))({text})", longer),
            (f"F.pad({text}, (1, 2))", (*shape[:-1], shape[-1] + 3)),
        )
    )


def by_rows(d: Draw, text: str, shape: Shape) -> tuple[str, Shape]:
    """What takes in an axis: it is reduced, or each of its elements depends on all of them."""
    axis = d.random.randrange(len(shape))
    name = d.of(("sum", "mean", "amax", "amin", "logsumexp", "std"))
    less = (*shape[:axis], *shape[axis + 1 :])
    return d.of(
        (
            *((f"(lambda x: x {d.of('-*')} x.{name}({axis}, keepdim=True))({text})", shape),) * 2,
            *((f"{text}.{name}({axis})", less) if len(shape) > 2 else (text, shape),) * 2,
            (f"{text}.softmax({axis})", shape),
            (f"F.layer_norm({text}, ({shape[-1]},))", shape),
            (f"{text}.cumsum({axis})", shape),
        )
    )


def mixture(d: Draw) -> Case:
    """Some steps, one after the other: what a model's code does between its layers."""
    given: list[Shape] = [d.shape(2, 3, 3, 4, most=ELEMENTS // 4)]
    text, shape = "a", given[0]
    computes: tuple[Step | str, ...] = (by_rows, by_rows, "apply", "beside", "times")
    moves: tuple[Step | str, ...] = (moved, moved, sliced, reshaped)
    for _ in range(d.random.randint(2, 5)):
        kind = d.of((*computes, *moves) if text != "a" else computes)
        if not isinstance(kind, str):
            text, shape = kind(d, text, shape)
        elif kind == "apply":
            form = d.of(UNARY)
            again = form.count("{}") > 1
            text = f"(lambda x: {form.format('x', 'x')})({text})" if again else form.format(text)
        elif len(given) < 3 and kind == "beside":
            given.append(tuple(n if d.chance(0.6) else 1 for n in shape))
            text = f"({text} {d.of('+*-')} {'abc'[len(given) - 1]})"
        elif len(given) < 3 and math.prod(shape) * 256 < WORK:
            given.append((shape[-1], d.size(1, 256)))
            text, shape = f"({text} @ {'abc'[len(given) - 1]})", (*shape[:-1], given[-1][1])
        if math.prod(shape) > 2 * ELEMENTS:
            break
    return Case("mixtures", f"{text}.contiguous()", floats(*given), d.of((0, 0, 1)))


FAMILIES: tuple[Callable[[Draw], Case], ...] = (
    *(chain, reduction, norm, product, convolution, attention, pick, order, pool, move),
    *(other_dtype, loss),
)

MIXTURES = 1_000_000
"""Seeds from here on are mixtures: a new family among the others would give all seeds new cases."""


def drawn(seed: int) -> Case:
    """The case of a number."""
    d = Draw(seed)
    return mixture(d) if seed >= MIXTURES else d.of(FAMILIES)(d)
