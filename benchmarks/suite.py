"""What is measured: one row a case, the same in every framework, and the numbers it starts from.

A module cases_<framework>.py has a function of each row's name, or makes it from the row. It takes
`Inputs`, builds what the case needs, and returns a function without arguments, which is what is
timed. The module also has `finish(result)`, which waits until a result is there, and
`host(result)`, which gives it as a NumPy array of float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from attentions import ATTENTIONS
from convolutions import CONVOLUTIONS, GRADIENTS
from passes import PASSES
from products import PRODUCTS

MEGA = 1 << 20


@dataclass(frozen=True)
class Case:
    """`operations` and `nbytes` are what one call must at least do and move; 0: not stated.
    `comparable`: results are equal in every framework (models start from weights of their own)."""

    name: str
    meaning: str
    operations: int = 0
    nbytes: int = 0
    comparable: bool = True


def _product(size: int, itemsize: int) -> tuple[int, int]:
    return 2 * size**3, 3 * size**2 * itemsize


SUITE = (
    Case("matmul_f32_512", "product of two 512 x 512 matrices", *_product(512, 4)),
    Case("matmul_f32_1024", "the same, 1024 x 1024", *_product(1024, 4)),
    Case("matmul_f32_2048", "the same, 2048 x 2048", *_product(2048, 4)),
    Case("matmul_bf16_1024", "in bfloat16", *_product(1024, 2)),
    Case("matmul_bf16_2048", "in bfloat16", *_product(2048, 2)),
    Case("matvec_f32_4096", "matrix times vector", 2 * 4096**2, 64 * MEGA),
    Case("elementwise_chain_16m", "relu(a*b+1.5)*a - b*0.5", 6 * 16 * MEGA, 192 * MEGA),
    Case("gelu_4m", "gelu by tanh", 0, 32 * MEGA),
    Case("sum_16m", "sum of all", 16 * MEGA, 64 * MEGA),
    Case("sum_axis0_16m", "sums of columns", 16 * MEGA, 64 * MEGA),
    Case("softmax_4096", "softmax of 4096 rows of 4096", 0, 128 * MEGA),
    Case("layernorm_4096", "layer norm of 4096 rows of 1024", 0, 32 * MEGA),
    Case("transpose_4096", "a transpose that is stored", 0, 128 * MEGA),
    Case("gather_rows", "4096 rows of 512 out of 32000", 0, 16 * MEGA),
    Case("conv3x3_64_56", "64 to 64 channels, 8 images 56 x 56", 2 * 8 * 56**2 * 64 * 64 * 9),
    Case("depthwise3x3_128_56", "128 channels apart, 8 images 56 x 56", 2 * 8 * 56**2 * 128 * 9),
    Case(
        "attention_causal_8x1024x64", "causal attention, 8 heads, 1024 tokens", 2 * 8 * 1024**2 * 64
    ),
    Case("mnist_train_step_b128", "a convolutional network with Adam", comparable=False),
    Case("mlp_train_step_b32", "two linear layers with SGD", comparable=False),
    Case("gpt_train_step_4l_256d", "a small GPT with AdamW", comparable=False),
    Case("gpt2_small_forward_t128", "GPT-2 small, 128 tokens", comparable=False),
    Case("resnet18_forward_b1", "ResNet-18, one image", comparable=False),
    Case("resnet18_train_step_b8", "ResNet-18 with SGD, 8 images", comparable=False),
)

MORE = (
    *(Case(name, row.meaning, row.operations) for name, row in CONVOLUTIONS.items()),
    *(
        Case(name, f"{row.meaning}, gradient by {by}", row.operations)
        for name, (row, by) in GRADIENTS.items()
    ),
    *(Case(name, row.meaning, row.operations) for name, row in ATTENTIONS.items()),
    *(Case(name, row.meaning, row.operations) for name, row in PRODUCTS.items()),
    *(Case(name, row.meaning, 0, row.nbytes) for name, row in PASSES.items()),
)
"""Cases beyond the suite: measured where --cases names them."""

CASES: dict[str, Case] = {case.name: case for case in (*SUITE, *MORE)}


class Inputs:
    """The same numbers for every framework: drawn in the order in which a case asks."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = np.random.default_rng(seed)

    def normal(self, *shape: int) -> np.ndarray:
        """Standard normal float32."""
        return self.generator.standard_normal(shape, dtype=np.float32)

    def below(self, high: int, *shape: int) -> np.ndarray:
        """Whole numbers from 0 to high - 1, int64."""
        return self.generator.integers(0, high, shape)
