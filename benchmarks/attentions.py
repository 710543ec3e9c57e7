"""Attention of every kind: cases beyond the suite, measured where --cases names them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Attention:
    """One batch. `mask`: "causal", "bool" or "float" (queries x keys), or none. `backward`: the
    three gradients of the sum of the result, weighted, with the result."""

    meaning: str
    heads: int
    queries: int
    keys: int
    size: int
    mask: str = ""
    key_heads: int = 0  # 0: as many as there are heads
    backward: bool = False

    @property
    def query_shape(self) -> tuple[int, ...]:
        """Of q and of the result."""
        return 1, self.heads, self.queries, self.size

    @property
    def key_shape(self) -> tuple[int, ...]:
        """Of k and v."""
        return 1, self.key_heads or self.heads, self.keys, self.size

    @property
    def operations(self) -> int:
        """Multiplications and additions of what no mask hides: two products, seven with gradients
        that make the scores again."""
        seen = self.queries * self.keys // (2 if self.mask == "causal" else 1)
        return 2 * (7 if self.backward else 2) * self.heads * seen * self.size


ATTENTIONS = {
    "attention_full": Attention("all keys", 8, 1024, 1024, 64),
    "attention_bool_mask": Attention("a bool mask", 8, 1024, 1024, 64, "bool"),
    "attention_float_mask": Attention("a float mask", 8, 1024, 1024, 64, "float"),
    "attention_size_32": Attention("causal, heads of 32", 16, 512, 512, 32, "causal"),
    "attention_size_80": Attention("causal, heads of 80", 8, 512, 512, 80, "causal"),
    "attention_size_128": Attention("causal, heads of 128", 8, 1024, 1024, 128, "causal"),
    "attention_odd": Attention("333 tokens, heads of 80", 4, 333, 333, 80),
    "attention_shared_keys": Attention("4 heads share", 32, 512, 512, 64, "causal", 8),
    "attention_long": Attention("4,096 tokens", 2, 4096, 4096, 64, "causal"),
    "attention_8192_keys": Attention("16 queries", 8, 16, 8192, 128),
    "attention_one_query": Attention("decoding", 12, 1, 1024, 64),
    "attention_one_query_4096": Attention("decoding, 4 heads share", 32, 1, 4096, 128, "", 8),
    "attention_backward": Attention(
        "causal, gradients", 8, 1024, 1024, 64, "causal", backward=True
    ),
    "attention_backward_full": Attention("gradients", 8, 512, 512, 64, backward=True),
    "attention_backward_bool_mask": Attention(
        "a bool mask, gradients", 8, 512, 512, 64, "bool", backward=True
    ),
    "attention_backward_float_mask": Attention(
        "a float mask, gradients", 8, 512, 512, 64, "float", backward=True
    ),
    "attention_backward_size_128": Attention(
        "heads of 128, gradients", 4, 512, 512, 128, "causal", backward=True
    ),
    "attention_backward_shared": Attention(
        "4 heads share, gradients", 8, 512, 512, 64, "causal", 2, backward=True
    ),
}
