"""The suite in PyTorch; with COMPILE=1 in the environment everything goes through torch.compile."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from attentions import ATTENTIONS, Attention
from convolutions import BY, CONVOLUTIONS, GRADIENTS, Convolution
from passes import PASSES
from products import PRODUCTS, Product
from suite import Inputs
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(int(os.environ.get("THREADS", "0")) or os.cpu_count() or 1)
COMPILE = os.environ.get("COMPILE") == "1"
Step = Callable[[], torch.Tensor]


def finish(result: torch.Tensor) -> torch.Tensor:
    return result


def host(result: torch.Tensor) -> np.ndarray:
    return result.detach().float().cpu().numpy()


def compiled(function: Any) -> Any:
    return torch.compile(function) if COMPILE else function


def floats(inputs: Inputs, *shape: int) -> torch.Tensor:
    return torch.from_numpy(inputs.normal(*shape)).to(torch.get_default_device())


def numbers(inputs: Inputs, high: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(inputs.below(high, *shape)).to(torch.get_default_device())


def plain(function: Callable[..., torch.Tensor], *arguments: torch.Tensor) -> Step:
    """A call that keeps nothing for gradients."""
    chosen = compiled(function)

    def run() -> torch.Tensor:
        with torch.no_grad():
            return chosen(*arguments)

    return run


# ---- kernels -------------------------------------------------------------------------------------


def product(inputs: Inputs, size: int, dtype: torch.dtype = torch.float32) -> Step:
    a, b = floats(inputs, size, size).to(dtype), floats(inputs, size, size).to(dtype)
    return plain(torch.matmul, a, b)


def matmul_f32_512(inputs: Inputs) -> Step:
    return product(inputs, 512)


def matmul_f32_1024(inputs: Inputs) -> Step:
    return product(inputs, 1024)


def matmul_f32_2048(inputs: Inputs) -> Step:
    return product(inputs, 2048)


def matmul_bf16_1024(inputs: Inputs) -> Step:
    return product(inputs, 1024, torch.bfloat16)


def matmul_bf16_2048(inputs: Inputs) -> Step:
    return product(inputs, 2048, torch.bfloat16)


def matvec_f32_4096(inputs: Inputs) -> Step:
    return plain(torch.matmul, floats(inputs, 4096, 4096), floats(inputs, 4096))


def elementwise_chain_16m(inputs: Inputs) -> Step:
    a, b = floats(inputs, 4096, 4096), floats(inputs, 4096, 4096)
    return plain(lambda a, b: (a * b + 1.5).relu() * a - b * 0.5, a, b)


def gelu_4m(inputs: Inputs) -> Step:
    return plain(lambda a: F.gelu(a, approximate="tanh"), floats(inputs, 2048, 2048))


def sum_16m(inputs: Inputs) -> Step:
    return plain(lambda a: a.sum(), floats(inputs, 4096, 4096))


def sum_axis0_16m(inputs: Inputs) -> Step:
    return plain(lambda a: a.sum(0), floats(inputs, 4096, 4096))


def softmax_4096(inputs: Inputs) -> Step:
    return plain(lambda a: a.softmax(-1), floats(inputs, 4096, 4096))


def layernorm_4096(inputs: Inputs) -> Step:
    a, weight, bias = floats(inputs, 4096, 1024), floats(inputs, 1024), floats(inputs, 1024)
    return plain(lambda a: F.layer_norm(a, (1024,), weight, bias), a)


def transpose_4096(inputs: Inputs) -> Step:
    return plain(lambda a: a.T.contiguous(), floats(inputs, 4096, 4096))


def gather_rows(inputs: Inputs) -> Step:
    rows, picked = floats(inputs, 32000, 512), numbers(inputs, 32000, 4096)
    return plain(lambda rows, picked: rows[picked], rows, picked)


def conv3x3_64_56(inputs: Inputs) -> Step:
    images, weight = floats(inputs, 8, 64, 56, 56), floats(inputs, 64, 64, 3, 3)
    return plain(lambda x, w: F.conv2d(x, w, padding=1), images, weight)


def depthwise3x3_128_56(inputs: Inputs) -> Step:
    images, weight = floats(inputs, 8, 128, 56, 56), floats(inputs, 128, 1, 3, 3)
    return plain(lambda x, w: F.conv2d(x, w, padding=1, groups=128), images, weight)


def convolved(inputs: Inputs, row: Convolution) -> Step:
    x, weight = floats(inputs, *row.x), floats(inputs, *row.weight)
    kinds = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
    kind = (kinds if row.is_transposed else (F.conv1d, F.conv2d, F.conv3d))[x.ndim - 3]
    options = {"stride": row.stride, "padding": row.pad, "dilation": row.dilation}
    return plain(lambda x, w: kind(x, w, groups=row.groups, **options), x, weight)


def differentiated(inputs: Inputs, row: Convolution, by: str) -> Step:
    """The gradient of a convolution by its `x` or `weight`."""
    x, weight = floats(inputs, *row.x), floats(inputs, *row.weight)
    axes = x.ndim - 2
    stride, pad, dilation = ([n] * axes for n in (row.stride, row.pad, row.dilation))
    form = (stride, pad, dilation, row.is_transposed, [0] * axes, row.groups)
    wanted = [name == by for name in (*BY, "bias")]
    shape = torch.convolution(x, weight, None, *form).shape

    def run(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        backward = torch.ops.aten.convolution_backward
        return backward(grad, x, weight, None, *form, wanted)[BY.index(by)]

    return plain(run, floats(inputs, *shape), x, weight)


def multiplied(inputs: Inputs, row: Product) -> Step:
    dtype = getattr(torch, row.dtype)
    a, b = (floats(inputs, *shape).to(dtype) for shape in row.shapes)
    bias = floats(inputs, row.n)

    def run(*held: torch.Tensor) -> torch.Tensor:
        a, b = (
            x.transpose(-1, -2) if t == "t" else x for x, t in zip(held, row.turned, strict=True)
        )
        return F.gelu(a.relu() @ (b * 2) + bias, approximate="tanh") if row.fused else a @ b

    return plain(run, a, b)


def attended(inputs: Inputs, row: Attention) -> Step:
    q, k, v = (floats(inputs, *s) for s in (row.query_shape, row.key_shape, row.key_shape))
    mask: Any = None
    if row.mask == "bool":
        mask = torch.from_numpy(inputs.normal(row.queries, row.keys) > -0.5)
    if row.mask == "float":
        mask = floats(inputs, row.queries, row.keys)

    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        causal, shared = row.mask == "causal", row.key_heads > 0
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=shared)

    if not row.backward:
        return plain(forward, q, k, v)
    weights = floats(inputs, *row.query_shape)
    for x in (q, k, v):
        x.requires_grad = True
    run = compiled(forward)
    return lambda: torch.autograd.grad(run(q, k, v), (q, k, v), weights)[1]


def gradient(
    function: Callable[..., torch.Tensor], *, seeded: bool = True
) -> Callable[..., torch.Tensor]:
    """The gradient by the first argument; the second is that of the result if `seeded`."""

    def step(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        seed, rest = (rest[0], rest[1:]) if seeded else (None, rest)
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(function(x, *rest), x, seed)[0]

    return step


OVER: dict[str, Callable[..., torch.Tensor]] = {
    "groupnorm_8x256x32": lambda x, w, b: F.group_norm(x, 32, w, b),
    "rmsnorm_4096": lambda x, w: F.rms_norm(x, (1024,), w, 1e-6),
    "batchnorm_train_32x64x56": lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
    "softmax_backward_4096": gradient(lambda x: x.softmax(-1)),
    "layernorm_backward_4096": gradient(lambda x: F.layer_norm(x, (1024,))),
    "cross_entropy_50k": F.cross_entropy,
    "cross_entropy_backward_50k": gradient(F.cross_entropy, seeded=False),
    "sort_64k": lambda x: x.sort()[0],
    "topk_10_64k": lambda x: x.topk(10)[0],
    "argmax_4096": lambda x: x.argmax(-1),
    "cumsum_4096": lambda x: x.cumsum(-1),
    "embedding_backward_32000x512": gradient(lambda table, at: F.embedding(at, table)),
}


def passed(inputs: Inputs, name: str) -> Step:
    row = PASSES[name]
    given = [floats(inputs, *shape) for shape in row.shapes]
    given += [numbers(inputs, row.high, row.picked)] if row.picked else []
    return plain(OVER[name], *given)


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
    return plain(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), query, key, value
    )


# ---- models --------------------------------------------------------------------------------------


def training(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> Step:
    """One step of training on the same batch again and again."""
    chosen = optimizer(model.parameters())
    loss_of = compiled(lambda: F.cross_entropy(model(x), y))

    def run() -> torch.Tensor:
        chosen.zero_grad()
        loss = loss_of()
        loss.backward()
        chosen.step()
        return loss

    return run


def mnist_train_step_b128(inputs: Inputs) -> Step:
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.Conv2d(32, 32, 5), nn.ReLU()),
        *(nn.BatchNorm2d(32), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()),
        *(nn.BatchNorm2d(64), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(576, 10)),
    )
    x, y = floats(inputs, 128, 1, 28, 28), numbers(inputs, 10, 128)
    return training(model, torch.optim.Adam, x, y)


def mlp_train_step_b32(inputs: Inputs) -> Step:
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    x, y = floats(inputs, 32, 784), numbers(inputs, 10, 32)
    return training(model, lambda p: torch.optim.SGD(p, 0.01), x, y)


class Block(nn.Module):
    """A transformer's block, normalised before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm_1(x)).reshape(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.narrow(F.gelu(self.widen(self.norm_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Tokens to logits, one row a token if `flat`."""

    def __init__(
        self, layers: int, width: int, heads: int, tokens: int, length: int, flat: bool = False
    ) -> None:
        super().__init__()
        self.flat = flat
        self.token, self.position = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        logits = self.head(self.norm(self.blocks(x)))
        return logits.flatten(0, 1) if self.flat else logits


def gpt_train_step_4l_256d(inputs: Inputs) -> Step:
    model = GPT(4, 256, 8, 1024, 128, flat=True)
    x, y = numbers(inputs, 1024, 8, 128), numbers(inputs, 1024, 8 * 128)
    return training(model, torch.optim.AdamW, x, y)


def gpt2_small_forward_t128(inputs: Inputs) -> Step:
    model = GPT(12, 768, 12, 50257, 128).eval()
    return plain(model, numbers(inputs, 50257, 1, 128))


class Residual(nn.Module):
    """Two convolutions and what goes around them."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(given, made, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(made, made, 3, 1, 1, bias=False)
        self.norm_1, self.norm_2 = nn.BatchNorm2d(made), nn.BatchNorm2d(made)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or given != made:
            narrow = nn.Conv2d(given, made, 1, stride, bias=False)
            self.around = nn.Sequential(narrow, nn.BatchNorm2d(made))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = self.norm_2(self.second(self.norm_1(self.first(x)).relu()))
        return (inside + self.around(x)).relu()


RESIDUALS = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))


def resnet18() -> nn.Module:
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    given = [64, *(made for made, _ in RESIDUALS)]
    pairs = zip(given, RESIDUALS, strict=False)
    blocks = [Residual(before, made, stride) for before, (made, stride) in pairs]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *blocks, *head)


def resnet18_forward_b1(inputs: Inputs) -> Step:
    return plain(resnet18().eval(), floats(inputs, 1, 3, 224, 224))


def resnet18_train_step_b8(inputs: Inputs) -> Step:
    x, y = floats(inputs, 8, 3, 224, 224), numbers(inputs, 1000, 8)
    return training(resnet18(), lambda p: torch.optim.SGD(p, 0.01), x, y)
