"""The suite in JAX, everything under jax.jit. Parameters are plain dicts and lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from attentions import ATTENTIONS, Attention
from convolutions import BY, CONVOLUTIONS, GRADIENTS, Convolution
from jax import lax
from suite import Inputs

Array = Any
Step = Callable[[], Array]


def finish(result: Array) -> Array:
    return jax.block_until_ready(result)


def host(result: Array) -> np.ndarray:
    return np.asarray(result.astype(jnp.float32))


def floats(inputs: Inputs, *shape: int) -> Array:
    return jnp.asarray(inputs.normal(*shape))


def numbers(inputs: Inputs, high: int, *shape: int) -> Array:
    return jnp.asarray(inputs.below(high, *shape).astype(np.int32))


def compiled(function: Callable[..., Array], *arguments: Any) -> Step:
    step = jax.jit(function)
    return lambda: step(*arguments)


# ---- kernels -------------------------------------------------------------------------------------


def product(inputs: Inputs, size: int, dtype: Any = jnp.float32) -> Step:
    a, b = floats(inputs, size, size).astype(dtype), floats(inputs, size, size).astype(dtype)
    return compiled(jnp.matmul, a, b)


def matmul_f32_512(inputs: Inputs) -> Step:
    return product(inputs, 512)


def matmul_f32_1024(inputs: Inputs) -> Step:
    return product(inputs, 1024)


def matmul_f32_2048(inputs: Inputs) -> Step:
    return product(inputs, 2048)


def matmul_bf16_1024(inputs: Inputs) -> Step:
    return product(inputs, 1024, jnp.bfloat16)


def matmul_bf16_2048(inputs: Inputs) -> Step:
    return product(inputs, 2048, jnp.bfloat16)


def matvec_f32_4096(inputs: Inputs) -> Step:
    return compiled(jnp.matmul, floats(inputs, 4096, 4096), floats(inputs, 4096))


def elementwise_chain_16m(inputs: Inputs) -> Step:
    a, b = floats(inputs, 4096, 4096), floats(inputs, 4096, 4096)
    return compiled(lambda a, b: jax.nn.relu(a * b + 1.5) * a - b * 0.5, a, b)


def gelu_4m(inputs: Inputs) -> Step:
    return compiled(lambda a: jax.nn.gelu(a, approximate=True), floats(inputs, 2048, 2048))


def sum_16m(inputs: Inputs) -> Step:
    return compiled(lambda a: a.sum(), floats(inputs, 4096, 4096))


def sum_axis0_16m(inputs: Inputs) -> Step:
    return compiled(lambda a: a.sum(0), floats(inputs, 4096, 4096))


def softmax_4096(inputs: Inputs) -> Step:
    return compiled(lambda a: jax.nn.softmax(a, -1), floats(inputs, 4096, 4096))


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred * lax.rsqrt(variance + 1e-5) * weight + bias


def layernorm_4096(inputs: Inputs) -> Step:
    a, weight, bias = floats(inputs, 4096, 1024), floats(inputs, 1024), floats(inputs, 1024)
    return compiled(layer_norm, a, weight, bias)


def transpose_4096(inputs: Inputs) -> Step:
    return compiled(lambda a: a.T + 0, floats(inputs, 4096, 4096))


def gather_rows(inputs: Inputs) -> Step:
    rows, picked = floats(inputs, 32000, 512), numbers(inputs, 32000, 4096)
    return compiled(lambda rows, picked: rows[picked], rows, picked)


def convolution(x: Array, weight: Array, stride: int = 1, pad: int = 0, groups: int = 1) -> Array:
    pads, strides = [(pad, pad)] * 2, (stride, stride)
    return lax.conv_general_dilated(x, weight, strides, pads, feature_group_count=groups)


def conv3x3_64_56(inputs: Inputs) -> Step:
    images, weight = floats(inputs, 8, 64, 56, 56), floats(inputs, 64, 64, 3, 3)
    return compiled(lambda x, w: convolution(x, w, pad=1), images, weight)


def depthwise3x3_128_56(inputs: Inputs) -> Step:
    images, weight = floats(inputs, 8, 128, 56, 56), floats(inputs, 128, 1, 3, 3)
    return compiled(lambda x, w: convolution(x, w, pad=1, groups=128), images, weight)


def attention(query: Array, key: Array, value: Array) -> Array:
    """Causal: (batch, heads, tokens, width) each."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) / math.sqrt(query.shape[-1])
    tokens = scores.shape[-1]
    past = jnp.tril(jnp.ones((tokens, tokens), bool))
    weights = jax.nn.softmax(jnp.where(past, scores, -jnp.inf), -1)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, value)


def convolved(inputs: Inputs, row: Convolution) -> Step:
    x, weight = floats(inputs, *row.x), floats(inputs, *row.weight)
    return compiled(kind_of(row), x, weight)


def differentiated(inputs: Inputs, row: Convolution, by: str) -> Step:
    """The gradient of a convolution by its `x` or `weight`."""
    given = floats(inputs, *row.x), floats(inputs, *row.weight)
    grad = floats(inputs, *jax.eval_shape(kind_of(row), *given).shape)

    def run(x: Array, weight: Array, grad: Array) -> Array:
        return jax.vjp(kind_of(row), x, weight)[1](grad)[BY.index(by)]

    return compiled(run, *given, grad)


def kind_of(row: Convolution) -> Callable[[Array, Array], Array]:
    """The convolution of a row, as a function of x and weight."""
    axes = range(2, len(row.x))
    each = (1,) * len(axes)

    def run(x: Array, w: Array) -> Array:
        if not row.is_transposed:
            pads, strides = [(row.pad, row.pad)] * len(axes), (row.stride,) * len(axes)
            gaps = (row.dilation,) * len(axes)
            return lax.conv_general_dilated(
                x, w, strides, pads, rhs_dilation=gaps, feature_group_count=row.groups
            )
        w = jnp.flip(w.swapaxes(0, 1), tuple(axes))
        pads = [(n - 1 - row.pad,) * 2 for n in w.shape[2:]]
        return lax.conv_general_dilated(x, w, each, pads, (row.stride,) * len(axes))

    return run


def attended(inputs: Inputs, row: Attention) -> Step:
    q, k, v = (floats(inputs, *s) for s in (row.query_shape, row.key_shape, row.key_shape))
    mask: Any = None
    if row.mask == "causal":
        mask = jnp.tril(jnp.ones((row.queries, row.keys), bool))
    if row.mask == "bool":
        mask = jnp.asarray(inputs.normal(row.queries, row.keys) > -0.5)
    if row.mask == "float":
        mask = floats(inputs, row.queries, row.keys)

    def forward(q: Array, k: Array, v: Array) -> Array:
        share = q.shape[1] // k.shape[1]
        k, v = (jnp.repeat(x, share, 1) for x in (k, v))
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(row.size)
        if row.mask:
            scores = scores + mask if row.mask == "float" else jnp.where(mask, scores, -jnp.inf)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)

    if not row.backward:
        return compiled(forward, q, k, v)
    weights = floats(inputs, *row.query_shape)
    gradients = jax.grad(lambda *given: (forward(*given) * weights).sum(), (0, 1, 2))
    run = jax.jit(lambda *given: gradients(*given))
    return lambda: jax.block_until_ready(run(q, k, v))[1]


def __getattr__(name: str) -> Callable[[Inputs], Step]:
    """The case of a row of `convolutions` or `attentions`."""
    if name in CONVOLUTIONS:
        return lambda inputs: convolved(inputs, CONVOLUTIONS[name])
    if name in GRADIENTS:
        return lambda inputs: differentiated(inputs, *GRADIENTS[name])
    if name in ATTENTIONS:
        return lambda inputs: attended(inputs, ATTENTIONS[name])
    raise AttributeError(name)


def attention_causal_8x1024x64(inputs: Inputs) -> Step:
    return compiled(attention, *(floats(inputs, 1, 8, 1024, 64) for _ in range(3)))


# ---- layers --------------------------------------------------------------------------------------


def linear_weights(inputs: Inputs, given: int, made: int) -> Any:
    return {"w": floats(inputs, given, made) / math.sqrt(given), "b": jnp.zeros(made)}


def linear(weights: Any, x: Array) -> Array:
    return x @ weights["w"] + weights["b"]


def conv_weights(inputs: Inputs, made: int, given: int, size: int) -> Any:
    scale = 1 / math.sqrt(given * size * size)
    return {"w": floats(inputs, made, given, size, size) * scale, "b": jnp.zeros((made, 1, 1))}


def norm_weights(size: int) -> Any:
    return {"w": jnp.ones(size), "b": jnp.zeros(size)}


def scaled(weights: Any, x: Array) -> Array:
    return x * weights["w"][:, None, None] + weights["b"][:, None, None]


def batch_norm(weights: Any, x: Array) -> Array:
    """With the batch's own statistics, as in training."""
    mean, variance = (f(x, axis=(0, 2, 3), keepdims=True) for f in (jnp.mean, jnp.var))
    return scaled(weights, (x - mean) * lax.rsqrt(variance + 1e-5))


def max_pool(x: Array, size: int = 2, stride: int = 2, pad: int = 0) -> Array:
    window, strides = (1, 1, size, size), (1, 1, stride, stride)
    pads = [(0, 0), (0, 0), (pad, pad), (pad, pad)]
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, pads)


def cross_entropy(logits: Array, labels: Array) -> Array:
    chances = jax.nn.log_softmax(logits, -1)
    return -jnp.take_along_axis(chances, labels[..., None], -1).mean()


# ---- optimizers ----------------------------------------------------------------------------------


def sgd(weights: Any, gradients: Any, state: Any) -> tuple[Any, Any]:
    return jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradients), state


def adam_state(weights: Any) -> Any:
    zeros = jax.tree.map(jnp.zeros_like, weights)
    return zeros, zeros, jnp.zeros(())


def adam(decay: float) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    def update(weights: Any, gradients: Any, state: Any) -> tuple[Any, Any]:
        mean, square, time = state
        time = time + 1
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradients)
        square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, square, gradients)

        def moved(w: Array, m: Array, s: Array) -> Array:
            step = m / (1 - 0.9**time) / (jnp.sqrt(s / (1 - 0.999**time)) + 1e-8)
            return w - 1e-3 * (step + decay * w)

        return jax.tree.map(moved, weights, mean, square), (mean, square, time)

    return update


def training(weights: Any, loss: Any, update: Any, state: Any, x: Array, y: Array) -> Step:
    """One step of training on the same batch again and again."""

    @jax.jit
    def step(weights: Any, state: Any, x: Array, y: Array) -> tuple[Any, Any, Array]:
        value, gradients = jax.value_and_grad(loss)(weights, x, y)
        weights, state = update(weights, gradients, state)
        return weights, state, value

    held = [weights, state]

    def run() -> Array:
        held[0], held[1], value = step(held[0], held[1], x, y)
        jax.block_until_ready(held)
        return value

    return run


# ---- models --------------------------------------------------------------------------------------


def mnist_train_step_b128(inputs: Inputs) -> Step:
    shapes = ((32, 1, 5), (32, 32, 5), (64, 32, 3), (64, 64, 3))
    weights = {
        "conv": [conv_weights(inputs, *shape) for shape in shapes],
        "norm": [norm_weights(32), norm_weights(64)],
        "head": linear_weights(inputs, 576, 10),
    }

    def loss(weights: Any, x: Array, y: Array) -> Array:
        for half in (0, 1):
            for part in weights["conv"][2 * half : 2 * half + 2]:
                x = jax.nn.relu(convolution(x, part["w"]) + part["b"])
            x = max_pool(batch_norm(weights["norm"][half], x))
        return cross_entropy(linear(weights["head"], x.reshape(x.shape[0], -1)), y)

    x, y = floats(inputs, 128, 1, 28, 28), numbers(inputs, 10, 128)
    return training(weights, loss, adam(0.0), adam_state(weights), x, y)


def mlp_train_step_b32(inputs: Inputs) -> Step:
    weights = [linear_weights(inputs, 784, 128), linear_weights(inputs, 128, 10)]

    def loss(weights: Any, x: Array, y: Array) -> Array:
        return cross_entropy(linear(weights[1], jax.nn.relu(linear(weights[0], x))), y)

    x, y = floats(inputs, 32, 784), numbers(inputs, 10, 32)
    return training(weights, loss, sgd, (), x, y)


def gpt_weights(inputs: Inputs, layers: int, width: int, tokens: int, length: int) -> Any:
    def block() -> Any:
        sizes = {"qkv": (1, 3), "project": (1, 1), "widen": (1, 4), "narrow": (4, 1)}
        made = {n: linear_weights(inputs, a * width, b * width) for n, (a, b) in sizes.items()}
        return {**made, "norm_1": norm_weights(width), "norm_2": norm_weights(width)}

    return {
        "token": floats(inputs, tokens, width) * 0.02,
        "position": floats(inputs, length, width) * 0.02,
        "blocks": [block() for _ in range(layers)],
        "norm": norm_weights(width),
        "head": floats(inputs, width, tokens) * 0.02,
    }


def gpt(weights: Any, tokens: Array, heads: int) -> Array:
    def normed(part: Any, x: Array) -> Array:
        return layer_norm(x, part["w"], part["b"])

    x = weights["token"][tokens] + weights["position"][: tokens.shape[1]]
    batch, length, width = x.shape
    for block in weights["blocks"]:
        parts = linear(block["qkv"], normed(block["norm_1"], x))
        parts = parts.reshape(batch, length, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
        mixed = attention(*parts).transpose(0, 2, 1, 3).reshape(batch, length, width)
        x = x + linear(block["project"], mixed)
        wide = jax.nn.gelu(linear(block["widen"], normed(block["norm_2"], x)))
        x = x + linear(block["narrow"], wide)
    return normed(weights["norm"], x) @ weights["head"]


def gpt_train_step_4l_256d(inputs: Inputs) -> Step:
    weights = gpt_weights(inputs, 4, 256, 1024, 128)
    x, y = numbers(inputs, 1024, 8, 128), numbers(inputs, 1024, 8 * 128)

    def loss(weights: Any, x: Array, y: Array) -> Array:
        return cross_entropy(gpt(weights, x, 8).reshape(-1, 1024), y)

    return training(weights, loss, adam(0.01), adam_state(weights), x, y)


def gpt2_small_forward_t128(inputs: Inputs) -> Step:
    weights, x = gpt_weights(inputs, 12, 768, 50257, 128), numbers(inputs, 50257, 1, 128)
    return compiled(lambda weights, x: gpt(weights, x, 12), weights, x)


RESIDUALS = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))


def resnet_weights(inputs: Inputs) -> Any:
    def kernel(made: int, given: int, size: int) -> Array:
        return conv_weights(inputs, made, given, size)["w"]

    blocks = []
    given = 64
    for made, stride in RESIDUALS:
        block = {
            **{"first": kernel(made, given, 3), "second": kernel(made, made, 3)},
            **{"norm_1": norm_weights(made), "norm_2": norm_weights(made)},
        }
        if stride != 1 or given != made:
            block |= {"around": kernel(made, given, 1), "norm_around": norm_weights(made)}
        blocks.append(block)
        given = made
    stem, head = kernel(64, 3, 7), linear_weights(inputs, 512, 1000)
    return {"stem": stem, "norm": norm_weights(64), "blocks": blocks, "head": head}


def resnet(weights: Any, x: Array, norm: Callable[[Any, Array], Array]) -> Array:
    x = jax.nn.relu(norm(weights["norm"], convolution(x, weights["stem"], 2, 3)))
    x = max_pool(x, 3, 2, 1)
    for block, (_, stride) in zip(weights["blocks"], RESIDUALS, strict=True):
        inside = jax.nn.relu(norm(block["norm_1"], convolution(x, block["first"], stride, 1)))
        inside = norm(block["norm_2"], convolution(inside, block["second"], 1, 1))
        if "around" in block:
            x = norm(block["norm_around"], convolution(x, block["around"], stride))
        x = jax.nn.relu(inside + x)
    return linear(weights["head"], x.mean((2, 3)))


def resnet18_forward_b1(inputs: Inputs) -> Step:
    weights, x = resnet_weights(inputs), floats(inputs, 1, 3, 224, 224)
    return compiled(lambda weights, x: resnet(weights, x, scaled), weights, x)


def resnet18_train_step_b8(inputs: Inputs) -> Step:
    weights = resnet_weights(inputs)

    def loss(weights: Any, x: Array, y: Array) -> Array:
        return cross_entropy(resnet(weights, x, batch_norm), y)

    x, y = floats(inputs, 8, 3, 224, 224), numbers(inputs, 1000, 8)
    return training(weights, loss, sgd, (), x, y)
