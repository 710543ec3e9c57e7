"""What becomes one kernel, what is stored, and what is computed first. One fact a line."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor, dtypes, nn
from tinygrad.engine.structure import structure_of
from tinygrad.schedule.kernels import plan
from tinygrad.schedule.plan import Plan, Wishes
from tinygrad.uop.op import Ops


def data(*shape: int) -> Tensor:
    """Realized numbers, so that only the expression under test is scheduled."""
    values = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return Tensor(values).realize()


def plan_of(*tensors: Tensor, wishes: Wishes | None = None) -> Plan:
    return plan(structure_of([t.uop for t in tensors]).sink, *filter(None, [wishes]))


def check(expected: int, *tensors: Tensor) -> None:
    steps = [step for step in plan_of(*tensors).steps if step.op is Ops.KERNEL]
    assert len(steps) == expected, [step.ast for step in steps]


def temporaries(*tensors: Tensor, wishes: Wishes | None = None) -> list[int]:
    made = plan_of(*tensors, wishes=wishes)
    return sorted(s.size for s in made.storages if s.kind == "temp")


X = data(64, 256)
SQUARE = data(64, 64)
IMAGE = data(2, 3, 16, 16)
FILTERS = data(4, 3, 3, 3)

ONE_KERNEL = {
    "elementwise": lambda: ((X * 2 + 1).relu() - X) / 3,
    "a sum and what follows it": lambda: (X.sum(1) * 2).relu(),
    "what precedes a sum": lambda: (X * X + 1).sum(1),
    "softmax": lambda: X.softmax(),
    "log_softmax": lambda: X.log_softmax(),
    "layernorm": lambda: X.layernorm(),
    "matmul with bias and activation": lambda: (SQUARE @ SQUARE + X[:, :64]).relu(),
    "matmul of cheap expressions": lambda: SQUARE.relu() @ (SQUARE * 2).T,
    "conv with bias and activation": lambda: IMAGE.conv2d(FILTERS, padding=1).relu(),
    "max pooling": lambda: IMAGE.relu().max_pool2d(),
    "movement": lambda: X.T.flip(0).reshape(64, 256).pad(((1, 1), (0, 0))),
    "a gather": lambda: X[Tensor([3, 1, 2]).realize()] * 2,
    "a variance": lambda: X.var(1),
    "a softmax of few channels": lambda: data(4, 5, 64, 64).softmax(1),
    "a mean of few channels": lambda: data(4, 3, 64, 64) - data(4, 3, 64, 64).mean(1, keepdim=True),
    "the gradient of a pool of windows side by side": lambda: slope_of_a_pool(64),
}


def slope_of_a_pool(pixels: int) -> Tensor:
    x = data(2, 8, pixels, pixels).requires_grad_()
    half = pixels // 2
    return x.max_pool2d(2).gradient(x, gradient=data(2, 8, half, half))[0]


def test_rows_too_short_for_vectors_are_reduced_first() -> None:
    check(2, slope_of_a_pool(30))


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_is_one_kernel(name: str) -> None:
    check(1, ONE_KERNEL[name]())


IMAGES = data(3, 40, 9, 7)
SCALES = data(40, 1, 1)


def of_groups(x: np.ndarray) -> np.ndarray:
    groups = x.reshape(x.shape[0], 10, -1)
    return (groups - groups.mean(2, keepdims=True)).reshape(x.shape)


ROWS_FIRST = {
    "the mean of channels": (
        lambda x: x - x.mean((0, 2, 3), keepdim=True),
        lambda x: x - x.mean((0, 2, 3), keepdims=True),
    ),
    "what is made of two means": (
        lambda x: x / x.std((0, 2, 3), keepdim=True, correction=0),
        lambda x: x / x.std((0, 2, 3), keepdims=True),
    ),
    "groups": (
        lambda x: (
            x.reshape(x.shape[0], 10, -1) - x.reshape(x.shape[0], 10, -1).mean(2, keepdim=True)
        ).reshape(x.shape),
        of_groups,
    ),
    "rows within rows": (
        lambda x: x - x.mean((0, 2, 3), keepdim=True) - x.abs().mean((2, 3), keepdim=True),
        lambda x: x - x.mean((0, 2, 3), keepdims=True) - abs(x).mean((2, 3), keepdims=True),
    ),
    "another order of axes": (
        lambda x: (x.permute(0, 2, 3, 1) - x.mean((0, 2, 3))).permute(0, 3, 1, 2),
        lambda x: x - x.mean((0, 2, 3), keepdims=True),
    ),
}


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
@pytest.mark.parametrize("name", ROWS_FIRST)
def test_loops_begin_with_what_reductions_depend_on(name: str, device: str) -> None:
    ours, wanted = ROWS_FIRST[name]
    check(1, (ours(data(8, 40, 64, 64)) * SCALES).contiguous())
    found = ours(IMAGES.to(device)) * SCALES.to(device)
    np.testing.assert_allclose(
        found.numpy(), wanted(IMAGES.numpy()) * SCALES.numpy(), rtol=1e-5, atol=1e-6
    )


def test_the_gradients_of_a_batch_norm_share_their_sums() -> None:
    x, scale, shift = data(8, 40, 64, 64), data(40), data(40)
    spread, mean = x.var_mean((0, 2, 3), correction=0)
    y = x.batchnorm(scale, shift, mean, (spread + 1e-5).rsqrt()).relu()
    gradients = y.gradient(x, scale, shift, gradient=data(*x.shape))
    rows, *small = (step.ast for step in plan_of(*gradients).steps)
    assert sum(node.op is Ops.REDUCE for node in rows.toposort()) == 5  # mean, spread, three more
    assert all(node.op is not Ops.REDUCE for ast in small for node in ast.toposort())


def readers(size: int, *tensors: Tensor) -> int:
    """The kernels that read an array of that many elements."""
    found = 0
    for step in plan_of(*tensors).steps:
        members = [step.ast.src[row[0]] for row in step.ast.arg] if step.ast.arg else [step.ast]
        for sink in members:
            below = {node for store in sink.src for node in store.src[1].toposort()}
            found += any(node.op is Ops.PARAM and node.arg[1] == size for node in below)
    return found


def test_the_gradients_of_a_group_norm_are_made_of_sums_over_each_channel() -> None:
    x, scale, shift, slope = data(8, 40, 16, 16), data(40), data(40), data(8, 40, 16, 16)
    y = nn.functional.group_norm(x, 10, scale, shift)
    gradients = y.gradient(x, scale, shift, gradient=slope)
    assert temporaries(*gradients).count(8 * 40) == 2
    assert readers(x.size, *gradients) == 2  # one sums, one makes the gradient of x
    theirs = [torch.tensor(t.numpy(), requires_grad=True) for t in (x, scale, shift)]
    out = torch.nn.functional.group_norm(theirs[0], 10, *theirs[1:])
    wanted = torch.autograd.grad(out, theirs, torch.tensor(slope.numpy()))
    for ours, each in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(ours.numpy(), each.numpy(), rtol=1e-4, atol=2e-5)


LARGE, COLUMN, TABLE = data(40, 32, 64), data(1, 32, 1), data(40, 1, 64)
SUMS_ALONG = {
    "more axes, and fewer": (lambda x, c, t: (x.sum((0, 2)), x.sum(2)), 1),
    "a total and rows": (lambda x, c, t: (x.sum(), x.sum((0, 1))), 1),
    "in another shape": (lambda x, c, t: (x.reshape(20, 4096).sum(1), x.sum((0, 2))), 1),
    "a factor in another shape": (
        lambda x, c, t: ((x * c).reshape(40, 2048).sum(1), (x * c).sum((0, 2))),
        1,
    ),
    "in no shape of both": (lambda x, c, t: (x.reshape(32, 2560).sum(1), x.sum((0, 2))), 2),
    "a factor outside": (lambda x, c, t: ((x * c).sum((1, 2)), x.sum((0, 2))), 1),
    "a factor that changes is inside": (lambda x, c, t: ((x * t).sum((1, 2)), x.sum((0, 2))), 2),
    "both, in another order": (
        lambda x, c, t: ((c * (t * x)).sum((1, 2)), (x * t).sum((0, 2)).square()),
        1,
    ),
    "the same sum twice": (lambda x, c, t: (x.sum((0, 2)), x.sum((0, 2)) + 1), 1),
    "nothing in common": (lambda x, c, t: (x.sum(0), x.sum((1, 2))), 2),
    "sums of sums": (lambda x, c, t: ((x * x.sum((0, 2), keepdim=True)).sum(2), x.sum(2)), 1),
    "the same terms": (
        lambda x, c, t: (c.expand(x.shape).sum((0, 2)), c.expand(x.shape).sum(2)),
        0,
    ),
    "beside each other": (lambda x, c, t: (x.sum(2), (x * t).sum(2), x.exp().sum(2)), 2),
}


@pytest.mark.parametrize("name", SUMS_ALONG)
def test_sums_of_the_same_terms_read_them_once(name: str) -> None:
    ours, kernels = SUMS_ALONG[name]
    made = ours(LARGE, COLUMN, TABLE)
    assert readers(LARGE.size, *made) == kernels
    wanted = ours(*(torch.tensor(t.numpy()).double() for t in (LARGE, COLUMN, TABLE)))
    for each, other in zip(made, wanted, strict=True):
        np.testing.assert_allclose(each.numpy(), other.numpy(), rtol=1e-4, atol=1e-3)


def test_users_that_reduce_other_axes_read_memory() -> None:
    check(2, (X @ X.T).sum(0, keepdim=True) + 1)
    assert temporaries(SQUARE.exp() @ SQUARE) == [64 * 64]  # exp is not redone 64 times


def test_softmax_has_no_temporary() -> None:
    assert temporaries(X.softmax()) == []
    assert temporaries(X.layernorm()) == []


def test_what_is_scaled_by_its_own_statistics_is_stored_if_it_is_costly_and_stays_in_a_cache() -> (
    None
):
    def kept(x: Tensor, cache: int) -> int:
        return max(temporaries(x - x.mean(0), wishes=Wishes(cache=cache)))

    x = data(512, 1000)
    assert kept(x.log(), cache=4 * x.size) == 512_000
    assert kept(x.log(), cache=4 * x.size - 1) == 1000
    assert kept(x.relu() * 2 + 1, cache=4 * x.size) == 1000


def test_what_a_gradient_wants_of_an_activation_is_computed_again() -> None:
    x, weight = data(128, 32), data(32, 128)
    hidden = x @ weight
    out = hidden.gelu()
    after = out @ data(128, 8)
    (gradient,) = after.gradient(weight, gradient=data(128, 8))
    whole = [size for size in temporaries(after, gradient) if size == 128 * 128]
    assert len(whole) == 3, "the product, the activation, and its gradient"
    rows = x.reshape(2, 64, 8, 4).permute(0, 3, 1, 2).contiguous()  # (2, 4, 64, 8)
    centred = rows - rows.mean((0, 2, 3), keepdim=True)
    scaled = centred * (centred.square().mean((0, 2, 3), keepdim=True) + 1e-5).rsqrt()
    (gradient,) = scaled.square().sum().gradient(x)
    assert temporaries(scaled.max((2, 3)), gradient).count(x.size) <= 2


def test_what_is_made_of_a_stored_sum_is_computed_again() -> None:
    """A sum that goes on is stored anyway; what its norm centres is made of it wherever wanted."""
    x = data(512, 64)
    weights, scales = [data(64, 64) for _ in range(3)], [data(64) for _ in range(3)]
    for weight, scale in zip(weights, scales, strict=True):
        x = x + (x.layernorm() * scale) @ weight + data(64)
    gradients = x.gradient(*weights, *scales, gradient=data(512, 64))
    assert temporaries(x, *gradients).count(512 * 64) == 10, "two sums, three norms, five slopes"


def test_what_results_want_in_the_same_turn_is_computed_once() -> None:
    waves = X.sin().exp()
    check(1, waves * X, waves + X, waves * 3)
    assert temporaries(waves * X, waves + X) == []
    first = waves * X
    second = waves + first.contiguous().flip(0)  # which waits for the first, and for all of it
    assert temporaries(first, second) == [X.size] * 2
    expected = np.exp(np.sin(X.numpy()))
    turned = (expected * X.numpy())[::-1]
    np.testing.assert_allclose(second.numpy(), expected + turned, rtol=1e-5, atol=1e-5)


def test_pieces_of_one_array_are_computed_by_the_kernel_that_puts_them_together() -> None:
    gate, value = (x := data(8, 64)).chunk(2, 1)
    for made in (gate * 2 + value, gate * value.sigmoid()):
        (gradient,) = made.gradient(x, gradient=data(8, 32))
        assert temporaries(gradient) == []


def test_a_convolution_of_each_channel_has_tiles_of_its_own() -> None:
    image, filters = data(2, 16, 24, 24), data(16, 1, 3, 3)
    seen = image.conv2d(filters, groups=16, padding=1)
    for after in (
        seen.mean(1),
        seen.argmax(1),
        seen.softmax(-1),
        seen.permute(0, 2, 3, 1).layernorm(),
    ):
        assert temporaries(after)[-1] == image.size
    sound, taps = data(2, 16, 500), data(16, 1, 3)
    check(1, sound.conv2d(taps, groups=16).softmax(-1))  # a few taps are read again


def test_products_whose_factors_are_read_often_are_stored_before_they_are_summed() -> None:
    queries, keys = data(8, 64, 48), data(8, 64, 48)
    assert 8 * 64 * 64 in temporaries((queries @ keys.transpose(1, 2)).square().sum())
    assert 8 * 64 * 64 in temporaries(queries.cdist(keys).sum())
    assert 8 * 64 * 64 not in temporaries((queries[:1] @ keys.transpose(1, 2)[:1]).sum())


def of_input(image: Tensor, filters: Tensor, **how: object) -> Tensor:
    """The gradient of a convolution's input."""
    out = image.conv2d(filters, **how)
    return out.gradient(image, gradient=data(*out.shape))[0]


def test_the_input_gradient_of_a_convolution_is_one_sum() -> None:
    image, filters = data(2, 8, 24, 24), data(16, 8, 3, 3)
    check(1, of_input(image, filters, padding=1))
    assert temporaries(of_input(image, filters, padding=1)) == []
    # of rows shorter than a vector each stored product is asked for once
    assert temporaries(of_input(image, filters, stride=2)) == [2 * 8 * 9 * 11 * 11]
    # phases visit no taps that don't exist, so what storing costs counts, unless sums are long
    image = data(2, 8, 32, 32)
    assert temporaries(of_input(image, filters, stride=2)) == []
    assert temporaries(of_input(image, data(128, 8, 3, 3), stride=2)) != []
    # phases of different length are no loops around a product
    assert temporaries(of_input(data(2, 8, 33, 33), filters, stride=2)) != []


@pytest.mark.parametrize("size, pad", [(24, 1), (7, 0)])
def test_a_product_whose_phases_are_no_loops_is_stored(size: int, pad: int) -> None:
    """With as many taps as the stride a pixel has one product, whose weights it picks. Phases of
    other sizes, or short ones, are loops around nothing, so it picked them lane by lane."""
    image, weight = data(2, 96, size, size), data(96, 8, 3, 3)
    assert temporaries(image.conv_transpose2d(weight, stride=3, padding=pad)) == [2 * 72 * size**2]
    few = image[:, :32].conv_transpose2d(weight[:32], stride=3, padding=pad)
    assert temporaries(few) == []  # what is stored costs as much as this saves
    assert temporaries(data(2, 96, 24, 24).conv_transpose2d(weight, stride=3)) == []


def test_a_product_that_is_spread_over_pixels_has_a_kernel_of_its_own() -> None:
    """Its tiles read both factors once; inside of the pixels' loops each result would be alone."""
    images, weight = data(32, 64, 24, 24), data(200, 64)
    check(2, images + (data(32, 200) @ weight).reshape(32, 64, 1, 1))


def test_which_pixel_was_the_largest_is_asked_again_not_stored() -> None:
    """Windows read each pixel several times: what is stored is the pixels, and the maxima."""
    x = data(4, 8, 30, 30)
    pixels = (x * data(8, 1, 1) + data(8, 1, 1) * data(8, 1, 1)).relu()
    (gradient,) = pixels.max_pool2d(3, 2, padding=1).sum().gradient(x)
    assert max(temporaries(gradient)) <= 4 * 8 * 32 * 32


@pytest.mark.parametrize("activation", ["softplus", "mish", "asinh"])
def test_values_that_share_most_of_their_operations_are_made_again_together(
    activation: str,
) -> None:
    """A backward pass reads several; each alone would cost more operations than storing it, and all
    of them hardly more than one."""

    def kept(rows: int) -> int:
        x = data(rows, 256)
        y = getattr(x, activation)().log_softmax(-1)
        (gradient,) = y.gradient(x, gradient=data(rows, 256))
        return temporaries(y, gradient, wishes=Wishes(cache=32 << 20)).count(x.size)

    assert kept(2048) == 3  # the softmax's
    assert kept(64) > 5  # in a core's own cache storing costs little


def test_what_windows_ask_for_several_times_is_made_once() -> None:
    """Each maximum's share of the gradient is stored; the pixels only look which are theirs."""
    x = data(4, 8, 30, 30)
    (gradient,) = x.max_pool2d(3, 2).gradient(x, gradient=data(4, 8, 14, 14))
    check(2, gradient)
    assert temporaries(gradient) == [4 * 8 * 14 * 14] * 2


def test_a_sum_that_is_asked_for_several_times_is_stored() -> None:
    image, filters = data(2, 64, 56, 56), data(128, 64, 1, 1)
    assert temporaries(of_input(image, filters, stride=2)) == [2 * 64 * 28 * 28]


HEADS, KEYS = data(2, 4, 40, 16), data(2, 2, 40, 16)
MASK = data(40, 40)

ATTENTION = {
    "full": lambda: HEADS.scaled_dot_product_attention(HEADS, HEADS),
    "causal": lambda: HEADS.scaled_dot_product_attention(HEADS, HEADS, is_causal=True),
    "masked": lambda: HEADS.scaled_dot_product_attention(HEADS, HEADS, attn_mask=MASK > 0),
    "biased": lambda: HEADS.scaled_dot_product_attention(HEADS, HEADS, attn_mask=MASK),
    "shared keys": lambda: HEADS.scaled_dot_product_attention(KEYS, KEYS, enable_gqa=True),
    "written out": lambda: (HEADS @ HEADS.transpose(-1, -2)).softmax(-1) @ HEADS,
    "softmax of a product": lambda: (SQUARE @ SQUARE).softmax(-1),
    "layernorm of a product": lambda: (SQUARE @ SQUARE).layernorm(),
    "without a softmax": lambda: (HEADS @ HEADS.transpose(-1, -2)).relu() @ HEADS,
}


@pytest.mark.parametrize("name", ATTENTION)
def test_what_a_product_makes_is_kept_in_rows(name: str) -> None:
    check(1, ATTENTION[name]())


def test_gradients_of_attention_make_the_scores_again() -> None:
    q, k, v = (data(1, 2, 128, 16) for _ in range(3))
    out = q.scaled_dot_product_attention(k, v, is_causal=True)
    wanted = (out, *out.gradient(q, k, v, gradient=data(*out.shape)))
    check(3, *wanted)  # the result; one gradient; two that want the same rows of scores
    assert temporaries(*wanted) == [2 * 128] * 3  # greatest score, sum, sum over the gradient


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(1, 8), (4, 2)])
def test_gradients_of_many_heads_make_the_scores_once(heads: tuple[int, int], causal: bool) -> None:
    q, k, v = (data(*heads, 128, 16) for _ in range(3))
    out = q.scaled_dot_product_attention(k, v, is_causal=causal)
    made = out.gradient(q, k, v, gradient=data(*out.shape))
    check(3, out, *made)  # the result; a sum of each of its rows; all gradients
    assert temporaries(out, *made) == [8 * 128] * 3
    check(3, out, *made[:2])


def test_kernels_that_keep_the_same_rows_crosswise_are_one_if_neither_needs_the_other() -> None:
    q, k, v, w = (data(1, 8, 128, 16) for _ in range(4))
    weights = (q @ k.transpose(-1, -2)).relu()
    along, across = weights @ v, weights.transpose(-1, -2) @ w
    check(1, along, across)
    check(2, along, weights.transpose(-1, -2) @ along)
    check(3, along, weights.transpose(-1, -2) @ (along @ data(16, 16)).contiguous())
    few = weights[:, :7]
    check(2, few @ v[:, :7], few.transpose(-1, -2) @ w[:, :7])  # blocks of rows are better tasks
    expected = weights.numpy()
    for made, other, turned in ((along, v, expected), (across, w, expected.swapaxes(-1, -2))):
        np.testing.assert_allclose(made.numpy(), turned @ other.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("repeated", [False, True])
def test_gradients_of_keys_that_heads_share_want_the_same_rows(
    causal: bool, repeated: bool
) -> None:
    q, k, v = data(1, 4, 128, 16), data(1, 2, 128, 16), data(1, 2, 128, 16)
    keys, values = (x.repeat_interleave(2, 1) if repeated else x for x in (k, v))
    out = q.scaled_dot_product_attention(keys, values, is_causal=causal, enable_gqa=True)
    wanted = (out, *out.gradient(q, k, v, gradient=data(*out.shape)))
    check(3, *wanted)
    assert temporaries(*wanted) == [4 * 128] * 3


def test_a_shift_before_a_layer_reads_the_product_that_its_input_wants() -> None:
    x, shift, weight, g = data(4, 32, 64), data(64), data(48, 64), data(4, 32, 48)
    wanted = (x + shift).linear(weight.T).gradient(x, shift, gradient=g)
    loops = [k.ast.toposort() for k in plan_of(*wanted).steps if k.op is Ops.KERNEL]
    products = [
        n for nodes in loops for n in nodes if n.op is Ops.REDUCE and n.src[0].op is Ops.MUL
    ]
    assert len(products) == 1


def test_gradients_of_attention_by_einsum_store_no_scores() -> None:
    q, k, v = (data(1, 2, 128, 16) for _ in range(3))
    weights = Tensor.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1)
    out = Tensor.einsum("bhqk,bhkd->bhqd", weights, v)
    wanted = (out, *out.gradient(q, k, v, gradient=data(*out.shape)))
    check(2, *wanted)
    assert temporaries(*wanted) == [2 * 128] * 3


def test_einsum_with_heads_inside_stores_no_scores_and_its_result_in_a_row() -> None:
    q, k, v = (data(1, 128, 2, 16) for _ in range(3))
    scores = Tensor.einsum("bqhd,bkhd->bhqk", q, k)
    check(1, scores.contiguous())
    out = Tensor.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    wanted = (out, *out.gradient(q, k, v, gradient=data(*out.shape)))
    check(4, *wanted)
    assert temporaries(*wanted) == [2 * 128] * 3


def test_a_gradient_made_on_the_way_is_a_product_s_operand() -> None:
    """What pads it is on each of its reads: else the sum over taps was no product."""
    image, filters, g = data(1, 8, 16, 16), data(8, 8, 3, 3), data(1, 8, 16, 16)
    made = image.conv2d(filters, padding=1).gradient(image, gradient=g * 0.5 + g.relu())
    (step,) = plan_of(*made).steps
    (total,) = [n for n in step.ast.toposort() if n.op is Ops.REDUCE]
    assert total.src[0].op is Ops.MUL


def test_products_that_are_added_are_summed_each() -> None:
    """What several layers make of one input: its gradient adds before it sums. Of many, some at a
    time."""
    x, weights, g = data(32, 64), [data(64, 48) for _ in range(9)], data(32, 48)
    for count, kernels in ((2, 1), (9, 3)):
        used = [Tensor(w.numpy()).realize() for w in weights[:count]]
        made = sum(x @ w for w in used).gradient(x, gradient=g)
        sums = [n for s in plan_of(*made).steps for n in s.ast.toposort() if n.op is Ops.REDUCE]
        assert [n.src[0].op for n in sums] == [Ops.MUL] * count
        check(kernels, *made)


def test_products_of_windows_that_are_added_are_summed_each() -> None:
    """A convolution of two images by one weight: windows have more elements than their image."""
    images, g = [data(16, 3, 13, 13), data(16, 3, 13, 13) * 2], data(16, 8, 6, 6)
    filters = data(8, 3, 3, 3)
    made = sum(x.realize().conv2d(filters, stride=2) for x in images).gradient(filters, gradient=g)
    sums = [n for s in plan_of(*made).steps for n in s.ast.toposort() if n.op is Ops.REDUCE]
    assert [n.src[0].op for n in sums] == [Ops.MUL] * 2


def test_a_factor_that_terms_share_multiplies_their_sum() -> None:
    """What a mean over 50 rows gives all of them: these are added before they are multiplied."""
    x, w, g = data(4, 50, 64), data(64, 48), data(4, 48)
    made = (x.gelu() @ w).mean(1).gradient(w, gradient=g)
    sums = [n for s in plan_of(*made).steps for n in s.ast.toposort() if n.op is Ops.REDUCE]
    assert [tuple(int(loop.vmax) + 1 for loop in n.src[1:]) for n in sums] == [(50,), (4,)]
    row = data(1, 48)  # as many terms, if both factors are the same for all
    both = (data(4, 1).expand(4, 50).reshape(4, 50, 1) * row).sum(1)
    np.testing.assert_allclose(both.numpy(), 50 * data(4, 1).numpy() * row.numpy(), rtol=1e-5)
    assert Tensor.ones(1, 1, 3, 3).conv2d(Tensor.ones(1, 1, 2, 2)).tolist() == [[[[4.0] * 2] * 2]]


def test_rows_that_no_block_of_them_can_share_are_stored() -> None:
    """A channel's pixels in all images lie along three loops; so three sums don't make them again,
    if that is more than a few operations."""
    x, filters = data(16, 32, 16, 16), data(32, 3, 4, 4)
    made = x.batchnorm(None, None, x.mean((0, 2, 3)), (x.var((0, 2, 3)) + 1).rsqrt())
    y = made.conv_transpose2d(filters, stride=2, padding=1)
    assert x.numel() in temporaries(*y.gradient(x, gradient=data(*y.shape)))


def test_rows_of_which_each_element_is_a_product_of_its_own_are_stored() -> None:
    """Heads innermost: neither factor is the same along a row, so a block of rows has no tile."""
    q, k = data(8, 64, 32), data(8, 64, 32)
    check(2, Tensor.einsum("hqd,hkd->qkh", q, k).softmax(-1))
    check(1, Tensor.einsum("hqd,hkd->hqk", q, k).softmax(-1))


def test_heads_beside_each_other_are_one_kernel() -> None:
    mixed = HEADS.scaled_dot_product_attention(HEADS, HEADS).transpose(1, 2).reshape(2, 40, 64)
    check(1, mixed.contiguous())
    check(1, (mixed + 1).contiguous())


def test_what_each_row_needs_is_stored_beside_the_rows() -> None:
    y = X.layernorm()
    check(2, y, *y.gradient(X, gradient=data(*X.shape)))
    assert temporaries(y, *y.gradient(X, gradient=data(*X.shape))) == [64] * 2


def test_a_large_layer_between_products_is_stored() -> None:
    x, wide, narrow = data(64, 512), data(512, 2048), data(2048, 512)
    assert temporaries((x @ wide).relu() @ narrow) == [64 * 2048]


def test_long_sums_are_split_into_partials() -> None:
    big = data(1 << 18)
    assert temporaries(big.sum()) == [64]
    assert temporaries(big[:-1].sum()) == [64]  # also where the parts don't come out even
    np.testing.assert_allclose(big[:-1].sum().item(), big.numpy()[:-1].sum(), rtol=1e-4)


def test_equal_layers_are_equal_kernels() -> None:
    weights = [data(64, 64) for _ in range(12)]
    x = data(8, 64)
    for w in weights:
        x = (x @ w).relu()
    kernels = {step.ast for step in plan_of(x).steps}
    assert len(kernels) <= 2  # the first reads a parameter where the others read a temporary


def test_results_that_share_loops_share_a_kernel() -> None:
    a, b = data(8, 8), data(8, 8)
    total = a + b
    check(1, total, total * 2)


def test_an_optimizer_step_is_one_kernel() -> None:
    p, m, g = data(8, 8), data(8, 8), data(8, 8)
    m.assign(m * 0.9 + g)
    p.assign(p - m * 0.1)
    check(1, m, p)


def test_temporaries_share_storage() -> None:
    x = data(1024)
    for _ in range(20):
        x = (x + 1).contiguous()
    made = plan_of(x)
    assert sum(s.nbytes for s in made.storages if s.kind == "temp") == 19 * 4096
    assert made.arenas == {x.device: 2 * 4096}


def test_an_old_version_is_read_before_it_is_overwritten() -> None:
    x = data(4, 4)
    before = x.numpy().copy()
    old = x * 2
    x.assign(x.flip(0))
    both = x + old
    np.testing.assert_allclose(both.numpy(), before[::-1] + before * 2, rtol=1e-6)
    np.testing.assert_allclose(old.numpy(), before * 2, rtol=1e-6)


def test_a_circle_of_versions_is_cut_by_a_copy() -> None:
    x, y = data(4, 4), data(4, 4)
    a, b = x.numpy().copy(), y.numpy().copy()
    new_x, new_y = x + y.sum(0), y + x.sum(0)
    x.assign(new_x)
    y.assign(new_y)
    Tensor.realize(x, y)
    np.testing.assert_allclose(x.numpy(), a + b.sum(0), rtol=1e-5)
    np.testing.assert_allclose(y.numpy(), b + a.sum(0), rtol=1e-5)


def test_gradients_that_want_old_parameters_are_stored_and_nothing_is_copied() -> None:
    x, w, b = data(512, 64), data(64), data(64)
    loss = ((x * w + b).tanh() * data(512, 64)).sum()
    for parameter, gradient in zip((w, b), loss.gradient(w, b), strict=True):
        parameter.assign(parameter - gradient)
    made = plan_of(w, b)
    assert [step.op for step in made.steps if step.op is not Ops.KERNEL] == []


def test_a_scatter_leaves_its_target_alone() -> None:
    x = data(6, 4)
    before = x.numpy().copy()
    index = Tensor([1, 1, 5]).realize()
    y = x.clone()
    y[index] = 0.0
    after = before.copy()
    after[[1, 1, 5]] = 0
    np.testing.assert_array_equal(y.numpy(), after)
    np.testing.assert_array_equal(x.numpy(), before)


def test_a_backward_pass_uses_up_what_it_needs_as_it_goes():
    """Weights' gradients are computed when the gradient gets to them, not all at the end."""
    layers = [Tensor.empty(256, 256) for _ in range(12)]
    x = Tensor.empty(4096, 256)
    y = x
    for weight in layers:
        y = (y @ weight).relu().contiguous()
    gradients = y.sum().gradient(*layers)
    made = plan(structure_of([g.uop for g in gradients]).sink)
    activation = 4096 * 256 * 4
    assert sum(made.arenas.values()) <= (2 * len(layers) + 4) * activation


def test_of_a_number_that_gets_more_bytes_the_fewer_are_stored() -> None:
    x, left, right = (data(*s).cast("bfloat16").contiguous() for s in ((1, 64), (96, 64), (32, 96)))
    storages = plan_of(x.linear(left.T).linear(right.T)).storages
    assert "float" not in [repr(s.dtype) for s in storages if s.kind == "temp"]


def test_short_sums_that_a_sum_takes_in_once_stay_in_its_loops() -> None:
    groups = data(32, 16, 8) * data(16, 8)
    check(1, (groups.sum(-1) * data(32, 16)).sum(-1))


def test_products_make_again_what_is_made_of_a_stored_sum() -> None:
    """The activation is a factor of a product, and of the gradient of that one's weights."""
    x, widen, narrow = data(512, 64), data(64, 256), data(256, 64)
    out = (x @ widen).gelu() @ narrow
    gradients = out.gradient(x, widen, narrow, gradient=data(512, 64))
    assert temporaries(out, *gradients).count(512 * 256) == 2, "the sum and its gradient"


def test_a_gradient_that_is_the_same_everywhere_is_a_product_s_operand() -> None:
    """Of a mean of pixels; and of a mean of squares, divided by how many there are."""
    image, filters, scale = data(2, 8, 12, 12), data(8, 8, 3, 3), data(2, 8, 1, 1)
    made = image.conv2d(filters, padding=1)
    for out, loss in (
        (made, (made * scale).mean()),
        (made + image, (made + image).square().mean()),
    ):
        steps = plan_of(out, *loss.gradient(image)).steps
        sums = [n for s in steps for n in s.ast.toposort() if n.op is Ops.REDUCE]
        assert [n.src[0].op for n in sums] == [Ops.MUL] * 2


REGISTERS = Wishes(longest_row=0, lanes=True, in_registers=frozenset({dtypes.bfloat16}))


def largest_kept(*results):
    made = plan(structure_of([x.uop for x in results]).sink, REGISTERS)
    return max(storage.size for storage in made.storages if storage.kind == "temp")


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attentions_gradients_make_scores_in_registers(heads):
    sizes = (4, 640, 16), (heads, 640, 16), (heads, 640, 16)
    q, k, v = (Tensor.empty(1, *n, dtype="bfloat16", requires_grad=True).realize() for n in sizes)
    out = q.scaled_dot_product_attention(k, v, enable_gqa=heads < 4)
    grads = out.gradient(q, k, v, gradient=Tensor.empty(1, *sizes[0], dtype="bfloat16").realize())
    assert largest_kept(out, *grads) <= q.numel()


def test_scores_that_no_unit_multiplies_are_stored():
    """Of a loss over pairs: what its gradients multiply is float32."""
    x, y = (Tensor.empty(640, 16, dtype="bfloat16", requires_grad=True).realize() for _ in "xy")
    loss = x.matmul(y.T, dtype=dtypes.float32).logsumexp(1).sum()
    assert largest_kept(*loss.gradient(x, y)) == 640 * 640


def test_a_sum_that_a_checked_class_narrows_has_no_loop() -> None:
    """The gradient of a loss: a softmax's two sums, none of the one-hot row."""
    classes = Tensor(np.arange(64, dtype=np.int32)).realize()
    steps = plan_of(X.sparse_categorical_crossentropy(classes).gradient(X)[0]).steps
    over_classes = [
        node
        for step in steps
        for node in step.ast.toposort()
        if node.op is Ops.REDUCE and node.src[1].vmax == 255
    ]
    assert {node.arg for node in over_classes} == {"max", "add"} and len(over_classes) == 2


def test_a_windows_gradient_masks_what_it_computes_of_an_image_and_not_the_weights():
    """Masked weights would depend on the pixel: no product's operand, and scalars."""
    image = Tensor.empty(2, 4, 12, 12).realize().requires_grad_(True)
    weights = Tensor.empty(8, 4, 3, 3).realize().requires_grad_(True)
    out = image.conv2d(weights).relu().sum()
    found = out.gradient(image, weights, gradient=Tensor.empty().realize())
    sink = structure_of([x.uop for x in (out, *found)]).sink
    nodes = {n for step in plan(sink).steps if hasattr(step, "ast") for n in step.ast.toposort()}
    size = 8 * 4 * 3 * 3
    reads = [n for n in nodes if n.op is Ops.INDEX and n.src[0].arg[1] == size]
    assert reads and all(len(n.src) == 2 for n in reads)


@pytest.mark.parametrize(
    ("made", "kernels"),
    [
        (lambda x: (x @ x.T).cumsum(1), 2),
        (lambda x: x.softmax(1).cumsum(1), 2),
        (lambda x: x.sum(1).cumsum(0), 2),
        (lambda x: x[:100].scatter_reduce(0, ROWS, x.softmax(1), "sum"), 3),  # the target is a copy
        (lambda x: (x * 2).exp().cumsum(1), 1),  # nothing is reduced
        (lambda x: x[:9, :40].softmax(1).cumsum(1), 1),  # hardly any work
    ],
)
def test_what_is_reduced_before_loops_in_order_is_stored(made, kernels) -> None:
    """In these loops a sum has neither vectors nor tiles: 0.3 of PyTorch's speed, now 1 to 1.7."""
    check(kernels, made(LONG))


LONG = data(300, 256)
ROWS = Tensor.zeros(300, 256, dtype=dtypes.int32).contiguous().realize()


def conjugate_gradients(realized):
    """Two steps towards where a Hessian, shifted, gives ones."""
    rng = np.random.default_rng(0)
    w, v = (Tensor(rng.standard_normal(s), requires_grad=True) for s in ((3, 5), (5, 1)))
    x, y = (Tensor(rng.standard_normal(s)) for s in ((6, 3), (6, 1)))
    slopes = ((x @ w).tanh() @ v - y).square().mean().gradient(w, v)

    def dot(a, b):
        return sum((p * q).sum() for p, q in zip(a, b, strict=True))

    def along(step, to, by):
        made = [p.detach() + step * q for p, q in zip(to, by, strict=True)]
        return [part.realize() if realized else part for part in made]

    found, left = [w.detach() * 0, v.detach() * 0], [w.detach() * 0 + 1, v.detach() * 0 + 1]
    way = left
    for _ in range(2):
        bent = along(0.5, dot(slopes, way).gradient(w, v), way)
        size = dot(left, left)
        step = size / dot(way, bent)
        found, left = along(step, found, way), along(-step, left, bent)
        way = along(dot(left, left) / size, left, way)
    return [part.numpy() for part in found]


def test_products_to_which_many_ways_lead_are_looked_at_once():
    """Else planning takes as long as there are ways: minutes."""
    for ours, theirs in zip(conjugate_gradients(False), conjugate_gradients(True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
