"""Qwen 2 and 3: LLaMA with biases (2), or normalized queries and keys (3); and their mixtures.

(Yang and others, "Qwen2 Technical Report", 2024; "Qwen3 Technical Report", 2025.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from tinygrad.models.checkpoint import Names, Only
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


def mixture(config: Mapping[str, Any]) -> dict[str, Any]:
    """Which layers have experts: each so-manieth, but those that are named; and the experts."""
    named, every = config.get("mlp_only_layers") or (), config.get("decoder_sparse_step", 1)
    layers = range(config["num_hidden_layers"])
    return {
        "experts": config.get("num_experts") or config["num_local_experts"],
        "experts_used": config["num_experts_per_tok"],
        "expert_hidden": config["moe_intermediate_size"],
        "shared_hidden": config.get("shared_expert_intermediate_size", 0),
        "normalised": config.get("norm_topk_prob", False),
        "mixed": tuple((i + 1) % every == 0 and i not in named for i in layers),
    }


EXPERTS: Names = {
    "model.layers.{}.mlp.gate": "layers.{}.feed.router",
    "model.layers.{}.mlp.experts.*.gate_proj": "layers.{}.feed.gate",
    "model.layers.{}.mlp.experts.*.up_proj": "layers.{}.feed.up",
    "model.layers.{}.mlp.experts.*.down_proj": "layers.{}.feed.down",
    "model.layers.{}.mlp.shared_expert.gate_proj": "layers.{}.feed.shared.gate",
    "model.layers.{}.mlp.shared_expert.up_proj": "layers.{}.feed.shared.up",
    "model.layers.{}.mlp.shared_expert.down_proj": "layers.{}.feed.shared.down",
    "model.layers.{}.mlp.shared_expert_gate": "layers.{}.feed.shared_gate",
}


class Qwen2(Llama):
    """Qwen 2 and 2.5, from Hugging Face's layout or a GGUF file's."""

    ONLY: ClassVar[Only] = {"model_type": ("qwen2",)}
    FAMILY: ClassVar[str] = "qwen2"
    PAIRED: ClassVar[bool] = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(DecoderConfig(**shared_config(config) | windows(config) | {"qkv_bias": True}))


class Qwen3(Llama):
    """Qwen 3, from Hugging Face's layout or a GGUF file's."""

    ONLY: ClassVar[Only] = {"model_type": ("qwen3",)}
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


class Qwen2Moe(Qwen2):
    """Qwen 1.5 and 2 with experts, one of them shared by all tokens."""

    ONLY: ClassVar[Only] = {"model_type": ("qwen2_moe",)}
    FAMILY: ClassVar[str] = "qwen2moe"
    NAMES: ClassVar[Names] = {**HUGGING_FACE, **EXPERTS}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        given = shared_config(config) | windows(config) | mixture(config)
        return cls(DecoderConfig(**given | {"qkv_bias": config.get("qkv_bias", True)}))


class Qwen3Moe(Qwen3):
    """Qwen 3 with experts."""

    ONLY: ClassVar[Only] = {"model_type": ("qwen3_moe",)}
    FAMILY: ClassVar[str] = "qwen3moe"
    NAMES: ClassVar[Names] = {**Qwen3.NAMES, **EXPERTS}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        near = config.get("sliding_window") if config.get("use_sliding_window", False) else None
        given = shared_config(config) | mixture(config)
        return cls(DecoderConfig(**given, window=near, qk_norm=True))
