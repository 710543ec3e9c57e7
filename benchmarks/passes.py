"""Work that passes over memory: norms, losses, order, indexing. A row says what goes in; what each
framework does with it stands in its cases' PASSES (JAX has none of these yet)."""

from __future__ import annotations

import math
from dataclasses import dataclass

ROWS, CLASSES, IMAGES, TABLE = (4096, 1024), (256, 50257), (32, 64, 56, 56), (32000, 512)


@dataclass(frozen=True)
class Pass:
    """`shapes` of float inputs, then `picked` whole numbers below `high`; `times` how often the
    first input's bytes must at least move."""

    meaning: str
    shapes: tuple[tuple[int, ...], ...]
    times: float
    high: int = 0
    picked: int = 0

    @property
    def nbytes(self) -> int:
        return int(4 * math.prod(self.shapes[0]) * self.times)


PASSES = {
    "groupnorm_8x256x32": Pass("32 groups", ((8, 256, 32, 32), (256,), (256,)), 2),
    "rmsnorm_4096": Pass("of rows of 1024", (ROWS, ROWS[1:]), 2),
    "batchnorm_train_32x64x56": Pass("by the batch's own", (IMAGES, (64,), (64,)), 3),
    "softmax_backward_4096": Pass("by rows of 1024", (ROWS, ROWS), 3),
    "layernorm_backward_4096": Pass("by rows of 1024", (ROWS, ROWS), 3),
    "cross_entropy_50k": Pass("50257 classes", (CLASSES,), 1, CLASSES[1], CLASSES[0]),
    "cross_entropy_backward_50k": Pass("50257 classes", (CLASSES,), 2, CLASSES[1], CLASSES[0]),
    "sort_64k": Pass("65536 numbers", ((1 << 16,),), 2),
    "topk_10_64k": Pass("10 of 65536", ((1 << 16,),), 1),
    "argmax_4096": Pass("of rows of 4096", ((4096, 4096),), 1),
    "cumsum_4096": Pass("along rows of 4096", ((4096, 4096),), 2),
    "embedding_backward_32000x512": Pass("4096 tokens", (TABLE, (4096, 512)), 1, TABLE[0], 4096),
}
