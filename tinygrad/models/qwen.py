"""Qwen 2 and 3: LLaMA with biases (2), or normalized queries and keys (3).

(Yang and others, "Qwen2 Technical Report", 2024; "Qwen3 Technical Report", 2025.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from tinygrad.models.checkpoint import Names
from tinygrad.models.decoder import DecoderConfig
from tinygrad.models.llama import HUGGING_FACE, Llama, shared_config


def windows(config: Mapping[str, Any]) -> dict[str, Any]:
    """Which layers look back only so far: as `layer_types` says, else from one layer on."""
    if not config.get("use_sliding_window", False) or config.get("sliding_window") is None:
        return {}
    kinds, layers = config.get("layer_types"), range(config["num_hidden_layers"])
    if kinds is None:
        first = config.get("max_window_layers", 28)
        return {"window": config["sliding_window"], "windowed": tuple(i >= first for i in layers)}
    near = tuple(kind == "sliding_attention" for kind in kinds)
    return {"window": config["sliding_window"], "windowed": near}


class Qwen2(Llama):
    """Qwen 2 and 2.5, from Hugging Face's layout or a GGUF file's."""

    FAMILY: ClassVar[str] = "qwen2"
    PAIRED: ClassVar[bool] = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(DecoderConfig(**shared_config(config) | windows(config) | {"qkv_bias": True}))


class Qwen3(Llama):
    """Qwen 3, from Hugging Face's layout or a GGUF file's."""

    FAMILY: ClassVar[str] = "qwen3"
    PAIRED: ClassVar[bool] = False

    NAMES: ClassVar[Names] = {
        **HUGGING_FACE,
        "model.layers.{}.self_attn.q_norm": "layers.{}.attention.query_norm",
        "model.layers.{}.self_attn.k_norm": "layers.{}.attention.key_norm",
    }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(DecoderConfig(**shared_config(config), **windows(config), qk_norm=True))
