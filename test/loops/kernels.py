"""Kernels as the scheduler makes them, before a recipe; and how to show their loops."""

from math import prod

from tinygrad.base.dtype import dtypes
from tinygrad.base.target import Target
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.simplify.affine import simplify_index
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

LOG2E = 1.4426950408889634

# A machine with large vectors; a small one whose caches even a test fills; one of scalars; groups.
WIDE = Target("CPU", vector=64, registers=32, cache_l1=48 << 10, cache_l2=2 << 20)
NARROW = Target("CPU", vector=32, registers=16)
TINY = Target("CPU", vector=64, registers=32, cache_l1=1 << 10, cache_l2=1 << 12)
SMALL = Target("CPU", vector=16, registers=16, cache_l1=1 << 11, cache_l2=1 << 15)
SCALAR = Target("PYTHON", vector=0)
GROUPS = Target("CL", vector=16, has_groups=True, group_limit=256)

loop = UOp.range


def named(**sizes):
    """Loops by name, in this order."""
    return [loop(size, name) for name, size in sizes.items()]


def number(value):
    return UOp.const(dtypes.index, value)


def buffer(slot, size, dtype=dtypes.float32):
    return UOp(Ops.PARAM, dtype, (), (slot, size))


def at(slot, shape, *indices, dtype=dtypes.float32, gate=None):
    """One element of a row-major buffer."""
    steps = [prod(shape[i + 1 :]) for i in range(len(shape))]
    offset = number(0)
    for index, step in zip(indices, steps, strict=True):
        offset = offset + index * step
    return buffer(slot, prod(shape), dtype).index(simplify_index(offset), gate=gate)


def out(shape, value, *loops):
    return UOp.sink(at(0, shape, *loops, dtype=value.dtype).store(value, *loops))


def elementwise(*shape, dtype=dtypes.float32):
    loops = [loop(n, f"i{i}") for i, n in enumerate(shape)]
    x, y = (at(s, shape, *loops, dtype=dtype) for s in (1, 2))
    return out(shape, x * y + x, *loops)


def total(rows, columns, axis, monoid="add", dtype=dtypes.float32):
    i, j = loop(rows, "i0"), loop(columns, "k0")
    loops = (i, j) if axis else (j, i)
    shape = (rows, columns)
    value = at(1, shape, i, j, dtype=dtype).reduce(monoid, loops[1])
    return out((shape[1 - axis],), value, loops[0])


def sums_of_rows_and_columns(rows, columns):
    """Two sums of rows that also take in columns: gradients of a norm over a transposed axis."""
    i, j, k = named(i0=rows, k0=columns, k1=columns)

    def both(k):
        return at(1, (rows, columns), i, k) + at(2, (columns, rows), k, i) * at(3, (columns,), k)

    return out((rows,), both(j).reduce("add", j) * (both(k) * both(k)).reduce("add", k), i)


def sum_of_rows_and_columns(rows, depth, dtype=dtypes.float32):
    i, r = loop(rows, "i0"), loop(depth, "k0")
    row, column = at(1, (rows, depth), i, r, dtype=dtype), at(2, (depth, rows), r, i, dtype=dtype)
    return out((rows,), (row * column).reduce("add", r), i)


def softmax_of_a_transpose(rows, width):
    """Of a transposed matrix: its rows are columns in memory."""
    i, j, first, second = named(i0=rows, i1=width, k0=width, k1=width)
    shape = (width, rows)
    top = at(1, shape, first, i).reduce("max", first)
    total = (at(1, shape, second, i) - top).alu(Ops.EXP2).reduce("add", second)
    return out((rows, width), (at(1, shape, j, i) - top).alu(Ops.EXP2) / total, i, j)


def softmax_along_the_middle(batch, width, rows):
    """Of (batch, width, rows), stored as (rows, batch, width)."""
    i, b, j, first, second = named(i0=rows, i1=batch, i2=width, k0=width, k1=width)

    def x(k):
        return at(1, (batch, width, rows), b, k, i)

    def e(k):
        return (x(k) - x(first).reduce("max", first)).alu(Ops.EXP2)

    total = e(second).reduce("add", second)
    return out((rows, batch, width), e(j) * total.reciprocal(), i, b, j)


def whole_sum(*shape):
    loops = [loop(n, f"k{i}") for i, n in enumerate(shape)]
    value = at(1, shape, *loops).reduce("add", *loops)
    return UOp.sink(buffer(0, 1).index(number(0)).store(value))


def transpose(rows, columns, dtype=dtypes.float32):
    i, j = loop(rows, "i0"), loop(columns, "i1")
    x = at(1, (columns, rows), j, i, dtype=dtype)
    return out((rows, columns), x + x, i, j)


def long_transpose(rows, columns, terms=12):
    """More than is done beside squares in registers, and a read along memory."""
    i, j = loop(rows, "i0"), loop(columns, "i1")
    x, y = at(1, (columns, rows), j, i), at(2, (rows, columns), i, j)
    value = x
    for _ in range(terms):
        value = value * y + x
    return out((rows, columns), value, i, j)


def matmul(m, n, k, a_t=False, b_t=False, dtype=dtypes.float32, scaled=False):
    i, j, r = loop(m, "i0"), loop(n, "i1"), loop(k, "k0")
    a = at(1, (k, m), r, i, dtype=dtype) if a_t else at(1, (m, k), i, r, dtype=dtype)
    b = at(2, (n, k), j, r, dtype=dtype) if b_t else at(2, (k, n), r, j, dtype=dtype)
    if scaled:
        a, b = a.maximum(0), b * 2
    return out((m, n), (a * b).reduce("add", r), i, j)


def matrices_innermost(count, m, n, k):
    """Products of several pairs of matrices, whose elements are stored side by side."""
    i, j, b, r = named(i0=m, i1=n, i2=count, k0=k)
    value = at(1, (count, m, k), b, i, r) * at(2, (count, n, k), b, j, r)
    return out((m, n, count), value.reduce("add", r), i, j, b)


def halves_of_bytes(rows, words, lanes):
    """Sums of products with numbers of four bits, two a byte, which lie in words of each lane."""
    i, r, w, h, b = named(i0=rows, k0=lanes, k1=words, k2=2, k3=4)
    place = (rows, words, lanes, 4), i, w, r, b
    low, high = (at(1, *place, gate=gate, dtype=dtypes.int32) for gate in (h < 1, number(0) < h))
    given = at(2, (words, 2, lanes, 4), w, h, r, b, dtype=dtypes.int32)
    whole = ((low & 15) + (high >> 4)) * given
    return out((rows,), whole.reduce("add", w, h, b).cast(dtypes.float32).reduce("add", r), i)


COMBINED = {
    "squares": ("add", lambda a, b, c: (a - b) * (a - b)),
    "differences": ("max", lambda a, b, c: (a - b).maximum(b - a)),
    "largest sum": ("max", lambda a, b, c: a + b),
    "product of sums": ("mul", lambda a, b, c: (a + b) * 0.1),
    "weighted": ("add", lambda a, b, c: (a + b).maximum(0) * c),
    "unequal": ("add", lambda a, b, c: a.ne(b).cast(dtypes.int32)),
}
"""How rows of two matrices are combined, and a number of each column: monoid and expression."""


def combined(m, n, k, how, b_t=True):
    """A reduction over what rows of two matrices are together, as a distance is."""
    monoid, expression = COMBINED[how]
    i, j, r = loop(m, "i0"), loop(n, "i1"), loop(k, "k0")
    b = at(2, (n, k), j, r) if b_t else at(2, (k, n), r, j)
    value = expression(at(1, (m, k), i, r), b, at(3, (k,), r))
    return out((m, n), value.reduce(monoid, r), i, j)


def reduced_product(m, n, k, how="max"):
    """The maximum of each row of a product, or of the squared distances of rows."""
    i, j, r = named(i0=m, k1=n, k0=k)
    a, b = at(1, (m, k), i, r), at(2, (n, k), j, r)
    value = (a - b) * (a - b) if how == "distances" else a * b
    return out((m,), value.reduce("add", r).reduce("max", j), i)


def reduced_products(matrices, m, n, k):
    """The maximum of each row of several products."""
    b, i, j, r = named(i0=matrices, i1=m, k1=n, k0=k)
    value = at(1, (matrices, m, k), b, i, r) * at(2, (matrices, n, k), b, j, r)
    return out((matrices, m), value.reduce("add", r).reduce("max", j), b, i)


def product_summed_over_matrices(m, n, k, matrices):
    """The sum of what a function is of several products' elements."""
    i, j, r, b = named(i0=m, i1=n, k1=k, k0=matrices)
    value = (at(1, (matrices, m, k), b, i, r) * at(2, (matrices, n, k), b, j, r)).reduce("add", r)
    return out((m, n), value.maximum(0).reduce("add", b), i, j)


def summed_product(parts, m, n, k):
    """Partial sums of a product's positive elements, each of `m` rows."""
    i, rows, j, r = named(i0=parts, k0=m, k2=n, k1=k)
    value = (at(1, (parts * m, k), i * m + rows, r) * at(2, (n, k), j, r)).reduce("add", r)
    return out((parts,), value.maximum(0).reduce("add", rows, j), i)


def residual(m, n, k):
    """A product and another array's elements."""
    i, j, r = loop(m, "i0"), loop(n, "i1"), loop(k, "k0")
    total = (at(1, (m, k), i, r) * at(2, (k, n), r, j)).reduce("add", r)
    return out((m, n), total + at(3, (m, n), i, j), i, j)


def taps_of_rows(m, n, k, taps):
    """Rows lie side by side with their taps, for each k: weights, where inputs get a gradient."""
    i, j, r, t = loop(m, "i0"), loop(n, "i1"), loop(k, "k0"), loop(taps, "k1")
    a, b = at(1, (k, m, taps), r, i, t), at(2, (k, taps, n), r, t, j)
    return out((m, n), (a * b).reduce("add", r, t), i, j)


def product_of_centred_rows(m, n, images, pixels):
    """A sum over images and pixels; each row less the sum of all that is in it."""
    i, j, k0, k1, k2, k3 = named(i0=m, i1=n, k0=images, k1=pixels, k2=images, k3=pixels)
    total = at(1, (images, m, pixels), k2, i, k3).reduce("add", k2, k3)
    row = at(1, (images, m, pixels), k0, i, k1) + total * -1.0
    value = (row * at(2, (images, n, pixels), k0, j, k1)).reduce("add", k0, k1)
    return out((m, n), value, i, j)


def product_and_window(m, n, k, taps):
    """A product, and beside it a sum over a few rows of another array."""
    i, j, q, t = named(i0=m, i1=n, k0=k, k1=taps)
    total = (at(1, (m, k), i, q) * at(2, (k, n), q, j)).reduce("add", q)
    return out((m, n), total + at(3, (m + taps - 1, n), i + t, j).reduce("max", t), i, j)


def half_matmul(m, n, k):
    """Half operands, products rounded to half, summed in float32."""
    i, j, r = loop(m, "i0"), loop(n, "i1"), loop(k, "k0")
    a, b = at(1, (m, k), i, r, dtype=dtypes.half), at(2, (k, n), r, j, dtype=dtypes.half)
    return out((m, n), (a * b).cast(dtypes.float32).reduce("add", r).cast(dtypes.half), i, j)


def wide_matmul(m, n, k, dtype=dtypes.bfloat16):
    """Narrow operands, products and sums in float32."""
    i, j, r = loop(m, "i0"), loop(n, "i1"), loop(k, "k0")
    a, b = at(1, (m, k), i, r, dtype=dtype), at(2, (k, n), r, j, dtype=dtype)
    product = a.cast(dtypes.float32) * b.cast(dtypes.float32)
    return out((m, n), product.reduce("add", r).cast(dtype), i, j)


def matvec(rows, columns):
    i, k = loop(rows, "i0"), loop(columns, "k0")
    value = at(1, (rows, columns), i, k) * at(2, (columns,), k)
    return out((rows,), value.reduce("add", k), i)


def turning_matvec(rows, turning, columns, piece):
    """Rows take turns in memory: a piece of each of `turning`, then the next piece of each."""
    pieces = columns // piece
    i, j, k0, k1 = named(i0=turning, i1=rows, k0=pieces, k1=piece)
    matrix = at(1, (rows, pieces, turning, piece), j, k0, i, k1)
    value = matrix * at(2, (pieces, piece), k0, k1)
    return out((turning, rows), value.reduce("add", k0, k1), i, j)


def softmax_of_columns(rows, columns):
    i, j, k0, k1 = named(i0=rows, i1=columns, k0=rows, k1=rows)

    def x(r):
        return at(1, (rows, columns), r, j)

    most = x(k0).reduce("max", k0)

    def e(r):
        return ((x(r) - most) * LOG2E).exp2()

    return out((rows, columns), e(i) * e(k1).reduce("add", k1).reciprocal(), i, j)


def softmax(rows, columns):
    i, j, j1, j2 = named(i0=rows, i1=columns, k0=columns, k1=columns)

    def x(j):
        return at(1, (rows, columns), i, j)

    most = x(j1).reduce("max", j1)

    def e(j):
        return ((x(j) - most) * LOG2E).exp2()

    return out((rows, columns), e(j) * e(j2).reduce("add", j2).reciprocal(), i, j)


def states(rows, blocks, terms):
    """Of each block of a row its maximum, and the sum of exponentials less that."""
    i, j, k1, k2 = named(i0=rows, i1=blocks, k0=terms, k1=terms)

    def x(k):
        return at(2, (rows, blocks, terms), i, j, k)

    most = x(k1).reduce("max", k1)
    total = ((x(k2) - most) * LOG2E).exp2().reduce("add", k2)
    places = (at(slot, (rows, blocks), i, j) for slot in (0, 1))
    return UOp.sink(*(p.store(v, i, j) for p, v in zip(places, (most, total), strict=True)))


def layernorm(rows, columns):
    i, j, j1, j2 = named(i0=rows, i1=columns, k0=columns, k1=columns)

    def x(j):
        return at(1, (rows, columns), i, j)

    mean = x(j1).reduce("add", j1) * (1 / columns)
    variance = ((x(j2) - mean) * (x(j2) - mean)).reduce("add", j2) * (1 / columns)
    scale = (variance + 1e-5).sqrt().reciprocal()
    value = (x(j) - mean) * scale * at(2, (columns,), j) + at(3, (columns,), j)
    return out((rows, columns), value, i, j)


def centred_sums(rows, columns):
    """The squares of x less its mean, its products with y, and y's least: one pass for three."""
    i, j, j1, j2, j3 = named(i0=rows, **{f"k{n}": columns for n in range(4)})

    def x(slot, j):
        return at(slot, (rows, columns), i, j)

    mean = x(1, j).reduce("add", j) * (1 / columns)
    squares = ((x(1, j1) - mean) * (x(1, j1) - mean)).reduce("add", j1)
    products = ((x(1, j2) - mean) * x(2, j2)).reduce("add", j2)
    return out((rows,), squares + products * (x(2, j3) * -1).reduce("max", j3), i)


def conv(
    batch, channels, height, width, outputs, stride=1, groups=1, size=3, last=False, lies=False
):
    """size x size, padded by half of it. `last`: the result's channels are its last axis; `lies`:
    the image's are."""
    down, across = (-(-length // stride) for length in (height, width))
    n, o, h, w = named(i0=batch, i1=outputs, i2=down, i3=across)
    c, a, b = named(k0=channels // groups, k1=size, k2=size)
    y, x = h * stride + a + -(size // 2), w * stride + b + -(size // 2)
    gate = (number(-1) < y) & (y < height) & (number(-1) < x) & (x < width)
    channel = c if groups == 1 else c + o // (outputs // groups) * (channels // groups)
    pixel = at(1, (batch, channels, height, width), n, channel, y, x, gate=gate)
    if lies:
        pixel = at(1, (batch, height, width, channels), n, y, x, channel, gate=gate)
    weight = at(2, (outputs, channels // groups, size, size), o, c, a, b)
    value = (pixel * weight).reduce("add", c, a, b)
    if last:
        return out((batch, down, across, outputs), value, n, h, w, o)
    return out((batch, outputs, down, across), value, n, o, h, w)


def weight_gradient(batch, channels, height, width, outputs, stride=1):
    """Of that convolution: a sum over the batch and its pixels."""
    down, across = (-(-length // stride) for length in (height, width))
    o, c, a, b = named(i0=outputs, i1=channels, i2=3, i3=3)
    n, h, w = named(k0=batch, k1=down, k2=across)
    y, x = h * stride + a + -1, w * stride + b + -1
    gate = (number(-1) < y) & (y < height) & (number(-1) < x) & (x < width)
    pixel = at(1, (batch, channels, height, width), n, c, y, x, gate=gate)
    grad = at(2, (batch, outputs, down, across), n, o, h, w)
    return out((outputs, channels, 3, 3), (grad * pixel).reduce("add", n, h, w), o, c, a, b)


def grown_over(batch, channels, height, width, outputs):
    """A transposed convolution, 4 x 4 with stride 2, of which a pixel is cut off on each side: two
    windows cover a pixel in each direction."""
    n, o, h, w = named(i0=batch, i1=outputs, i2=2 * height, i3=2 * width)
    c, a, b = named(k0=channels, k1=2, k2=2)
    y, x = (h + 1) // 2 + a * -1, (w + 1) // 2 + b * -1
    gate = (number(-1) < y) & (y < height) & (number(-1) < x) & (x < width)
    pixel = at(1, (batch, channels, height, width), n, c, y, x, gate=gate)
    weight = at(2, (channels, outputs, 4, 4), c, o, (h + 1) % 2 + a * 2, (w + 1) % 2 + b * 2)
    value = (pixel * weight).reduce("add", c, a, b)
    return out((batch, outputs, 2 * height, 2 * width), value, n, o, h, w)


def grown(channels, height, width, outputs, pad=0):
    """A transposed convolution, 2 x 2 with stride 2: its windows lie side by side. `pad`: so much
    is cut off on each side."""
    o, h, w = named(i0=outputs, i1=2 * (height - pad), i2=2 * (width - pad))
    (c,) = named(k0=channels)
    h_at, w_at = h + pad, w + pad
    pixel = at(1, (channels, height, width), c, h_at // 2, w_at // 2)
    weight = at(2, (channels, outputs, 2, 2), c, o, h_at % 2, w_at % 2)
    value = (pixel * weight).reduce("add", c)
    return out((outputs, 2 * (height - pad), 2 * (width - pad)), value, o, h, w)


def attention(heads, tokens, width, causal=True, dtype=dtypes.float32, early=False, masked=False):
    """Scores and sums in float32, products of `dtype`. `early`: weights are divided by the sum;
    `masked`: a float mask is added to the scores."""
    h, q, d, e = loop(heads, "i0"), loop(tokens, "i1"), loop(width, "i2"), loop(width, "k0")
    t1, t2, t3 = (loop(tokens, f"k{i}") for i in (1, 2, 3))

    def x(slot, *i):
        return at(slot, (heads, tokens, width), h, *i, dtype=dtype).cast(dtypes.float32)

    def score(t):
        s = (x(1, q, e) * x(2, t, e)).reduce("add", e) * (LOG2E / width**0.5)
        if masked:
            s = s + at(4, (tokens, tokens), q, t)
        return (t < q + 1).where(s, float("-inf")) if causal else s

    most = score(t1).reduce("max", t1)

    def weight(t):
        return (score(t) - most).exp2()

    share = weight(t2).reduce("add", t2).reciprocal()
    rounded = (weight(t3) * share if early else weight(t3)).cast(dtype).cast(dtypes.float32)
    value = (rounded * x(3, t3, d)).reduce("add", t3)
    return out((heads, tokens, width), value if early else value * share, h, q, d)


def value_gradient(heads, tokens, width, masked=True):
    """What attention's values get: weights, which the kernel makes again, by queries. The mask has
    a row for each query."""
    h, t, d, e, q = (
        loop(heads, "i0"),
        loop(tokens, "i1"),
        loop(width, "i2"),
        *named(k0=width, k1=tokens),
    )
    shape = (heads, tokens, width)
    score = (at(1, shape, h, q, e) * at(2, shape, h, t, e)).reduce("add", e) * LOG2E
    score = score + at(3, (tokens, tokens), q, t) if masked else score
    weight = (score - at(4, (heads, tokens), h, q)).exp2()
    return out(shape, (weight * at(5, shape, h, q, d)).reduce("add", q), h, t, d)


def score_gradients(heads, tokens, width, causal=True):
    """What attention's keys and values get, which are the stores' rows, and what its queries get,
    who sum over these rows: of weights that all of them make again."""
    h, t, d = named(i0=heads, i1=tokens, i2=width)
    q, e = named(i3=tokens, i4=width)
    k0, k1, k2, k3 = named(k0=width, k1=width, k2=tokens, k3=tokens)

    def x(slot, *i):
        return at(slot, (heads, tokens, width), h, *i)

    def weight(q):
        score = (x(3, q, k0) * x(4, t, k0)).reduce("add", k0) * LOG2E
        score = (t < q + 1).where(score, float("-inf")) if causal else score
        return (score - at(7, (heads, tokens), h, q)).exp2()

    def change(q):
        return weight(q) * ((x(6, q, k1) * x(5, t, k1)).reduce("add", k1) - 1)

    keys = (change(k2) * x(3, k2, d)).reduce("add", k2)
    values = (weight(k3) * x(6, k3, d)).reduce("add", k3)
    queries = (change(q) * x(4, t, e)).reduce("add", t)
    return UOp.sink(
        x(0, t, d).store(values, h, t, d),
        x(1, t, d).store(keys, h, t, d),
        x(2, q, e).store(queries * 0.5, h, q, e),
    )


def gated_products(m, n, k):
    """silu(a @ b) * (a @ c): two products in one nest."""
    i, j, r, s = loop(m, "i0"), loop(n, "i1"), loop(k, "k0"), loop(k, "k1")
    first = (at(1, (m, k), i, r) * at(2, (k, n), r, j)).reduce("add", r)
    second = (at(1, (m, k), i, s) * at(3, (k, n), s, j)).reduce("add", s)
    return out((m, n), first * ((first * -LOG2E).exp2() + 1).reciprocal() * second, i, j)


def matmul_softmax(m, n, k):
    i, j, r = loop(m, "i0"), loop(n, "i1"), loop(k, "k0")
    n1, n2 = loop(n, "k1"), loop(n, "k2")

    def x(j):
        return (at(1, (m, k), i, r) * at(2, (k, n), r, j)).reduce("add", r)

    most = x(n1).reduce("max", n1)

    def e(j):
        return ((x(j) - most) * LOG2E).exp2()

    return out((m, n), e(j) * e(n2).reduce("add", n2).reciprocal(), i, j)


def gather_rows(count, width, table):
    i, j = loop(count, "i0"), loop(width, "i1")
    row = buffer(2, count, dtypes.int32).index(i).cast(dtypes.index) % table
    return out((count, width), buffer(1, table * width).index(row * width + j), i, j)


def gather(count, table):
    i = loop(count, "i0")
    row = buffer(2, count, dtypes.int32).index(i).cast(dtypes.index) % table
    return out((count,), buffer(1, table).index(row), i)


def depthwise_step(batch, channels, height, width, size, last=0):
    """The weights' gradient of a depthwise convolution, kept in an average, and that taken off the
    weights. `last`: channels are last in what they are the gradient of; 2: in the image, too."""
    o, a, b = loops = named(i0=channels, i1=size, i2=size)
    n, h, w = named(k0=batch, k1=height, k2=width)
    y, x = h + a + -(size // 2), w + b + -(size // 2)
    gate = (number(-1) < y) & (y < height) & (number(-1) < x) & (x < width)
    image = (batch, channels, height, width)
    pixel, slope = at(2, image, n, o, y, x, gate=gate), at(3, image, n, o, h, w)
    if last:
        slope = at(3, (batch, height, width, channels), n, h, w, o)
    if last == 2:
        pixel = at(2, (batch, height, width, channels), n, y, x, o, gate=gate)
    average, weights = (at(s, (channels, size, size), *loops) for s in (0, 1))
    new = average * 0.5 + (pixel * slope).reduce("add", n, h, w)
    return UOp.sink(average.store(new, *loops), weights.store(weights + new * -0.5, *loops))


def two_outputs(rows, columns):
    i, j = loop(rows, "i0"), loop(columns, "i1")
    x = at(2, (rows, columns), i, j)
    places = [at(s, (rows, columns), i, j) for s in (0, 1)]
    return UOp.sink(places[0].store(x + x, i, j), places[1].store(x * x, i, j))


def in_order(rows, columns):
    """As of a scatter: rows one after the other."""
    i, j = loop(rows, "i0", "ORDERED"), loop(columns, "i1")
    return out((rows, columns), at(0, (rows, columns), i, j) + at(1, (rows, columns), i, j), i, j)


def padded(rows, columns):
    i, j = loop(rows + 2, "i0"), loop(columns + 3, "i1")
    y, x = i + -1, j + -2
    gate = (number(-1) < y) & (y < rows) & (number(-1) < x) & (x < columns)
    return out((rows + 2, columns + 3), at(1, (rows, columns), y, x, gate=gate) + 1.0, i, j)


def folded(channels, positions):
    """Each pixel's sum over the windows of 3 that cover it, with stride 2, padded by 1."""
    c, i, k = loop(channels, "i0"), loop(2 * positions, "i1"), loop(2, "k0")
    tap, at_ = (i + 1) % 2 + k * 2, (i + 1) // 2 + k * -1
    gate = (tap < 3) & (number(-1) < at_) & (at_ < positions)
    x = at(1, (channels, positions, 3), c, simplify_index(at_), simplify_index(tap), gate=gate)
    return out((channels, 2 * positions), x.reduce("add", k), c, i)


def rests(rows, columns):
    """Sums of rests of data: no phases."""
    i, k = loop(rows, "i0"), loop(columns, "k0")
    x = at(1, (rows, columns), i, k, dtype=dtypes.int32) % 2
    return out((rows,), x.reduce("add", k), i)


def maxpool(channels, size):
    c, h, w, p, q = named(i0=channels, i1=size, i2=size, k0=2, k1=2)
    x = at(1, (channels, 2 * size, 2 * size), c, h * 2 + p, w * 2 + q)
    return out((channels, size, size), x.reduce("max", p, q), c, h, w)


def first_index_of_max(rows, columns):
    i, k1, k2 = loop(rows, "i0"), loop(columns, "k0"), loop(columns, "k1")
    most = at(1, (rows, columns), i, k1).reduce("max", k1)
    place = (at(1, (rows, columns), i, k2).eq(most)).where(k2.cast(dtypes.int32) * -1, -(2**31))
    return out((rows,), place.reduce("max", k2), i)


def masked_sum(rows):
    i, k = loop(rows, "i0"), loop(rows, "k0")
    return out((rows,), (k < i + 1).where(at(1, (rows, rows), i, k), 0.0).reduce("add", k), i)


def checked(count):
    i = loop(count, "i0")
    x = buffer(1, count, dtypes.int32).index(i)
    return out((count,), x.check(x < 100, "IndexError", "too large") + 1, i)


def growing_sum(most, width):
    """A reduction over as many rows as a variable says."""
    n = UOp.variable("n", 1, most).cast(dtypes.index)
    k, j = loop(n, "k0"), loop(width, "i0")
    return out((width,), buffer(1, most * width).index(k * width + j).reduce("add", k), j)


def growing_rows(most, width):
    n = UOp.variable("n", 1, most).cast(dtypes.index)
    i, j = loop(n, "i0"), loop(width, "i1")
    place = buffer(0, most * width).index(i * width + j)
    return UOp.sink(place.store(buffer(1, most * width).index(i * width + j) * 2, i, j))


def growing_softmax(rows, most):
    """Rows as long as a variable says."""
    n = UOp.variable("n", 1, most).cast(dtypes.index)
    i, j, k = loop(rows, "i0"), loop(n, "i1"), loop(n, "k0")
    x = buffer(1, rows * most)
    total = x.index(i * most + k).reduce("add", k)
    place = buffer(0, rows * most).index(i * most + j)
    return UOp.sink(place.store(x.index(i * most + j) + total, i, j))


def gated_matvec(rows, columns):
    """Two matrices by one vector, one result times the other."""
    i, k, j = loop(rows, "i0"), loop(columns, "k0"), loop(columns, "k1")
    shape = (rows, columns)
    first = (at(1, shape, i, k) * at(3, (columns,), k)).reduce("add", k)
    second = (at(2, shape, i, j) * at(3, (columns,), j)).reduce("add", j)
    return out((rows,), first * second, i)


# ---- loops as text -------------------------------------------------------------------------------


def expression(node):
    """An index expression, for people."""
    if node.op is Ops.RANGE:
        return name_of(node)
    if node.op is Ops.CONST:
        return str(node.arg)
    if node.op is Ops.CAST:
        return expression(node.src[0])
    if node.op is Ops.DEFINE_VAR:
        return node.arg[0]
    sign = {Ops.ADD: "+", Ops.MUL: "*", Ops.IDIV: "//", Ops.MOD: "%"}[node.op]
    left, right = map(expression, node.src)
    if node.op is Ops.ADD or node.src[0].op not in (Ops.ADD,):
        return f"{left}{sign}{right}"
    return f"({left}){sign}{right}"


def one_loop(r):
    limits = "".join(f"<{expression(limit)}" for limit in r.src[1:])
    size = size_of(r) if r.src[0].op is Ops.CONST else expression(r.src[0])
    return f"{name_of(r)}:{size}{limits}" + ("" if role_of(r) == "LOOP" else f" {role_of(r)}")


def loops(kernel):
    """The loops of the STORE, of each stage and of each REDUCE, a line each."""
    lines = []
    for node in kernel.toposort():
        if node.op in (Ops.REDUCE, Ops.STAGE, Ops.STORE):
            head = node.arg[0] if node.op is Ops.STAGE else node.op.name.lower()
            lines.append(f"{head}: " + ", ".join(map(one_loop, own_ranges(node))))
    return "\n".join(lines)
