"""Products of every form: cases beyond the suite, measured where --cases names them; not in JAX."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Product:
    """A (m x k) by B (k x n). `turned`: for each operand whether memory holds its transpose, "t",
    or itself, "n". `fused`: gelu(relu(A) @ 2B + bias)."""

    meaning: str
    m: int
    k: int
    n: int
    turned: str = "nn"
    dtype: str = "float32"
    batch: tuple[int, ...] = ()
    fused: bool = False

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of A and of B, as memory holds them."""
        a, b = (self.m, self.k), (self.k, self.n)
        a, b = a[:: 1 - 2 * (self.turned[0] == "t")], b[:: 1 - 2 * (self.turned[1] == "t")]
        return (*self.batch, *a), (*self.batch, *b)

    @property
    def operations(self) -> int:
        return 2 * self.m * self.k * self.n * math.prod(self.batch)


PRODUCTS = {
    "product_512_nt": Product("by a transpose", 512, 512, 512, "nt"),
    "product_512_tn": Product("of a transpose", 512, 512, 512, "tn"),
    "product_512_tt": Product("of transposes", 512, 512, 512, "tt"),
    "product_odd": Product("odd sizes", 1000, 777, 333),
    "product_odd_tn": Product("odd sizes, of a transpose", 1000, 777, 333, "tn"),
    "product_64_rows": Product("64 rows", 64, 1024, 1024),
    "product_2_rows": Product("2 rows", 2, 1024, 1024),
    "product_16_columns": Product("rows of 4 KB", 1024, 1024, 16),
    "product_deep_nt": Product("a long sum, by a transpose", 64, 100000, 64, "nt"),
    "product_fused": Product("with what is before and after", 512, 784, 128, "nt", fused=True),
    "product_batched": Product("32 of them", 128, 64, 128, "nt", batch=(32,)),
    "product_bf16_odd": Product("odd sizes", 333, 333, 333, dtype="bfloat16"),
}
