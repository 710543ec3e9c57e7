"""The suite in the tinygrad API, for this project and for the system that it shares the API with.
Every step is captured by TinyJit, as a program that repeats it would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from attentions import ATTENTIONS, Attention
from convolutions import BY, CONVOLUTIONS, GRADIENTS, Convolution
from passes import PASSES
from products import PRODUCTS, Product
from suite import Inputs

from tinygrad import Context, Device, Tensor, TinyJit, dtypes, nn

Step = Callable[[], Tensor]


def finish(result: Tensor) -> Tensor:
    Device[Device.DEFAULT].synchronize()
    return result


def host(result: Tensor) -> np.ndarray:
    return result.cast(dtypes.float32).numpy()


def floats(inputs: Inputs, *shape: int) -> Tensor:
    return Tensor(inputs.normal(*shape)).realize()


def numbers(inputs: Inputs, high: int, *shape: int) -> Tensor:
    return Tensor(inputs.below(high, *shape).astype(np.int32)).realize()


def captured(function: Callable[..., Tensor], *arguments: Tensor) -> Step:
    step = TinyJit(lambda *given: function(*given).contiguous().realize())
    return lambda: step(*arguments)


# ---- kernels -------------------------------------------------------------------------------------


def product(inputs: Inputs, size: int, dtype: Any = dtypes.float32) -> Step:
    a, b = (
        floats(inputs, size, size).cast(dtype).contiguous().realize(),
        floats(inputs, size, size).cast(dtype).contiguous().realize(),
    )
    return captured(lambda a, b: a @ b, a, b)


def matmul_f32_512(inputs: Inputs) -> Step:
    return product(inputs, 512)


def matmul_f32_1024(inputs: Inputs) -> Step:
    return product(inputs, 1024)


def matmul_f32_2048(inputs: Inputs) -> Step:
    return product(inputs, 2048)


def matmul_bf16_1024(inputs: Inputs) -> Step:
    return product(inputs, 1024, dtypes.bfloat16)


def matmul_bf16_2048(inputs: Inputs) -> Step:
    return product(inputs, 2048, dtypes.bfloat16)


def matvec_f32_4096(inputs: Inputs) -> Step:
    return captured(lambda a, b: a @ b, floats(inputs, 4096, 4096), floats(inputs, 4096))


def elementwise_chain_16m(inputs: Inputs) -> Step:
    a, b = floats(inputs, 4096, 4096), floats(inputs, 4096, 4096)
    return captured(lambda a, b: (a * b + 1.5).relu() * a - b * 0.5, a, b)


def gelu_4m(inputs: Inputs) -> Step:
    return captured(Tensor.gelu, floats(inputs, 2048, 2048))


def sum_16m(inputs: Inputs) -> Step:
    return captured(lambda a: a.sum(), floats(inputs, 4096, 4096))


def sum_axis0_16m(inputs: Inputs) -> Step:
    return captured(lambda a: a.sum(0), floats(inputs, 4096, 4096))


def softmax_4096(inputs: Inputs) -> Step:
    return captured(lambda a: a.softmax(-1), floats(inputs, 4096, 4096))


def layernorm_4096(inputs: Inputs) -> Step:
    a, weight, bias = floats(inputs, 4096, 1024), floats(inputs, 1024), floats(inputs, 1024)
    return captured(lambda a: a.layernorm(eps=1e-5) * weight + bias, a)


def transpose_4096(inputs: Inputs) -> Step:
    return captured(lambda a: a.T, floats(inputs, 4096, 4096))


def gather_rows(inputs: Inputs) -> Step:
    rows, picked = floats(inputs, 32000, 512), numbers(inputs, 32000, 4096)
    return captured(lambda rows, picked: rows[picked], rows, picked)


def conv3x3_64_56(inputs: Inputs) -> Step:
    images, weight = floats(inputs, 8, 64, 56, 56), floats(inputs, 64, 64, 3, 3)
    return captured(lambda x, w: x.conv2d(w, padding=1), images, weight)


def depthwise3x3_128_56(inputs: Inputs) -> Step:
    images, weight = floats(inputs, 8, 128, 56, 56), floats(inputs, 128, 1, 3, 3)
    return captured(lambda x, w: x.conv2d(w, padding=1, groups=128), images, weight)


def convolution(x: Tensor, weight: Tensor, row: Convolution) -> Tensor:
    kind = Tensor.conv_transpose2d if row.is_transposed else Tensor.conv2d
    options = {"stride": row.stride, "padding": row.pad, "dilation": row.dilation}
    return kind(x, weight, groups=row.groups, **options)


def convolved(inputs: Inputs, row: Convolution) -> Step:
    x, weight = floats(inputs, *row.x), floats(inputs, *row.weight)
    return captured(lambda x, w: convolution(x, w, row), x, weight)


def differentiated(inputs: Inputs, row: Convolution, by: str) -> Step:
    """The gradient of a convolution by its `x` or `weight`."""
    given = floats(inputs, *row.x), floats(inputs, *row.weight)
    grad = floats(inputs, *convolution(*given, row).shape)

    def run(x: Tensor, weight: Tensor, grad: Tensor) -> Tensor:
        return convolution(x, weight, row).gradient((x, weight)[BY.index(by)], gradient=grad)[0]

    return captured(run, *given, grad)


def multiplied(inputs: Inputs, row: Product) -> Step:
    dtype = getattr(dtypes, row.dtype)
    a, b = (floats(inputs, *shape).cast(dtype).contiguous().realize() for shape in row.shapes)
    bias = floats(inputs, row.n)

    def run(*held: Tensor) -> Tensor:
        a, b = (
            x.transpose(-1, -2) if t == "t" else x for x, t in zip(held, row.turned, strict=True)
        )
        return (a.relu() @ (b * 2) + bias).gelu() if row.fused else a @ b

    return captured(run, a, b)


def attended(inputs: Inputs, row: Attention) -> Step:
    q, k, v = (floats(inputs, *s) for s in (row.query_shape, row.key_shape, row.key_shape))
    mask: Any = None
    if row.mask == "bool":
        mask = Tensor(inputs.normal(row.queries, row.keys) > -0.5).realize()
    if row.mask == "float":
        mask = floats(inputs, row.queries, row.keys)

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        causal, shared = row.mask == "causal", row.key_heads > 0
        return q.scaled_dot_product_attention(k, v, mask, is_causal=causal, enable_gqa=shared)

    if not row.backward:
        return captured(forward, q, k, v)
    weights = floats(inputs, *row.query_shape)

    @TinyJit
    def step(*given: Tensor) -> Tensor:
        out = forward(*given)
        gradients = out.gradient(*given, gradient=weights)
        out.realize(*gradients)
        return gradients[1]

    return lambda: step(q, k, v)


def gradient(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, *rest: loss(x, *rest).gradient(x)[0]


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


def group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    grouped = x.reshape(x.shape[0], 32, -1).layernorm().reshape(x.shape)
    return grouped * weight.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    spread, mean = x.var_mean((0, 2, 3), correction=0)
    return x.batchnorm(weight, bias, mean, (spread + 1e-5).rsqrt())


OVER: dict[str, Callable[..., Tensor]] = {
    "groupnorm_8x256x32": group_norm,
    "rmsnorm_4096": rms_norm,
    "batchnorm_train_32x64x56": batch_norm,
    "softmax_backward_4096": gradient(lambda x, g: (x.softmax(-1) * g).sum()),
    "layernorm_backward_4096": gradient(lambda x, g: (x.layernorm() * g).sum()),
    "cross_entropy_50k": Tensor.sparse_categorical_crossentropy,
    "cross_entropy_backward_50k": gradient(Tensor.sparse_categorical_crossentropy),
    "sort_64k": lambda x: x.sort()[0],
    "topk_10_64k": lambda x: x.topk(10)[0],
    "argmax_4096": lambda x: x.argmax(-1),
    "cumsum_4096": lambda x: x.cumsum(-1),
    "embedding_backward_32000x512": gradient(lambda table, g, at: (table[at] * g).sum()),
}


def passed(inputs: Inputs, name: str) -> Step:
    row = PASSES[name]
    given = [floats(inputs, *shape) for shape in row.shapes]
    given += [numbers(inputs, row.high, row.picked)] if row.picked else []
    return captured(OVER[name], *given)


def __getattr__(name: str) -> Callable[[Inputs], Step]:
    """The case of a row of `convolutions`, `attentions` or `passes`."""
    if name in CONVOLUTIONS:
        return lambda inputs: convolved(inputs, CONVOLUTIONS[name])
    if name in GRADIENTS:
        return lambda inputs: differentiated(inputs, *GRADIENTS[name])
    if name in PRODUCTS:
        return lambda inputs: multiplied(inputs, PRODUCTS[name])
    if name in ATTENTIONS:
        return lambda inputs: attended(inputs, ATTENTIONS[name])
    if name in OVER:
        return lambda inputs: passed(inputs, name)
    raise AttributeError(name)


def attention_causal_8x1024x64(inputs: Inputs) -> Step:
    query, key, value = (floats(inputs, 1, 8, 1024, 64) for _ in range(3))
    return captured(
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True), query, key, value
    )


# ---- models --------------------------------------------------------------------------------------


def training(model: Any, optimizer: Callable[[list[Tensor]], Any], x: Tensor, y: Tensor) -> Step:
    """One step of training on the same batch again and again."""
    chosen = optimizer(nn.state.get_parameters(model))

    @TinyJit
    def step(x: Tensor, y: Tensor) -> Tensor:
        chosen.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y)
        loss.backward()
        chosen.step()
        return loss.realize()

    def run() -> Tensor:
        with Context(TRAINING=1):
            return step(x, y)

    return run


def inference(model: Any, x: Tensor) -> Step:
    for parameter in nn.state.get_parameters(model):
        parameter.requires_grad = False
        parameter.realize()
    return captured(model, x)


class Digits:
    """A convolutional network for images 28 x 28."""

    def __init__(self) -> None:
        self.layers = [
            *(nn.Conv2d(1, 32, 5), Tensor.relu, nn.Conv2d(32, 32, 5), Tensor.relu),
            *(nn.BatchNorm(32), Tensor.max_pool2d),
            *(nn.Conv2d(32, 64, 3), Tensor.relu, nn.Conv2d(64, 64, 3), Tensor.relu),
            *(nn.BatchNorm(64), Tensor.max_pool2d),
            *(lambda x: x.flatten(1), nn.Linear(576, 10)),
        ]

    def __call__(self, x: Tensor) -> Tensor:
        return x.sequential(self.layers)


def mnist_train_step_b128(inputs: Inputs) -> Step:
    x, y = floats(inputs, 128, 1, 28, 28), numbers(inputs, 10, 128)
    return training(Digits(), nn.optim.Adam, x, y)


class Perceptron:
    """Two linear layers."""

    def __init__(self) -> None:
        self.hidden, self.out = nn.Linear(784, 128), nn.Linear(128, 10)

    def __call__(self, x: Tensor) -> Tensor:
        return self.out(self.hidden(x).relu())


def mlp_train_step_b32(inputs: Inputs) -> Step:
    x, y = floats(inputs, 32, 784), numbers(inputs, 10, 32)
    return training(Perceptron(), lambda p: nn.optim.SGD(p, 0.01), x, y)


class Block:
    """A transformer's block, normalised before."""

    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def __call__(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm_1(x)).reshape(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = (part[0] for part in parts.permute(2, 0, 3, 1, 4).chunk(3))
        mixed = query.scaled_dot_product_attention(key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.narrow(self.widen(self.norm_2(x)).gelu())


class GPT:
    """Tokens to logits."""

    def __init__(self, layers: int, width: int, heads: int, tokens: int, length: int) -> None:
        self.token, self.position = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = [Block(width, heads) for _ in range(layers)]
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)

    def __call__(self, tokens: Tensor) -> Tensor:
        places = Tensor.arange(tokens.shape[1]).reshape(1, -1)
        x = self.token(tokens) + self.position(places)
        return self.head(self.norm(x.sequential(self.blocks)))


def gpt_train_step_4l_256d(inputs: Inputs) -> Step:
    model = GPT(4, 256, 8, 1024, 128)
    x, y = numbers(inputs, 1024, 8, 128), numbers(inputs, 1024, 8 * 128)
    flat = Flat(model)
    return training(flat, nn.optim.AdamW, x, y)


class Flat:
    """A model whose logits are one row a token."""

    def __init__(self, model: GPT) -> None:
        self.model = model

    def __call__(self, x: Tensor) -> Tensor:
        return self.model(x).flatten(0, 1)


def gpt2_small_forward_t128(inputs: Inputs) -> Step:
    return inference(GPT(12, 768, 12, 50257, 128), numbers(inputs, 50257, 1, 128))


class Residual:
    """Two convolutions and what goes around them."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        self.first = nn.Conv2d(given, made, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(made, made, 3, 1, 1, bias=False)
        self.norm_1, self.norm_2 = nn.BatchNorm(made), nn.BatchNorm(made)
        self.around: list[Any] = []
        if stride != 1 or given != made:
            self.around = [nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm(made)]

    def __call__(self, x: Tensor) -> Tensor:
        inside = self.norm_2(self.second(self.norm_1(self.first(x)).relu()))
        return (inside + x.sequential(self.around)).relu()


RESIDUALS = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))


class ResNet18:
    """Images 224 x 224 to 1000 logits."""

    def __init__(self) -> None:
        self.stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm(64), Tensor.relu]
        given = [64, *(made for made, _ in RESIDUALS)]
        pairs = zip(given, RESIDUALS, strict=False)
        self.blocks = [Residual(before, made, stride) for before, (made, stride) in pairs]
        self.head = nn.Linear(512, 1000)

    def __call__(self, x: Tensor) -> Tensor:
        x = x.sequential(self.stem).max_pool2d(3, 2, padding=1)
        return self.head(x.sequential(self.blocks).mean((2, 3)))


def resnet18_forward_b1(inputs: Inputs) -> Step:
    return inference(ResNet18(), floats(inputs, 1, 3, 224, 224))


def resnet18_train_step_b8(inputs: Inputs) -> Step:
    x, y = floats(inputs, 8, 3, 224, 224), numbers(inputs, 1000, 8)
    return training(ResNet18(), lambda p: nn.optim.SGD(p, 0.01), x, y)
