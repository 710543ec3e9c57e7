"""Mixtral: Mistral with a mixture of experts. (Jiang and others, "Mixtral of Experts", 2024.)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from tinygrad.models.checkpoint import Names, Only
from tinygrad.models.decoder import DecoderConfig
from tinygrad.models.llama import HUGGING_FACE, Llama, shared_config


class Mixtral(Llama):
    """Mixtral, from Hugging Face's layout. A GGUF file of it calls itself a LLaMA."""

    ONLY: ClassVar[Only] = {"model_type": ("mixtral",)}
    NAMES: ClassVar[Names] = {
        **HUGGING_FACE,
        "model.layers.{}.block_sparse_moe.gate": "layers.{}.feed.router",
        "model.layers.{}.block_sparse_moe.experts.*.w1": "layers.{}.feed.gate",
        "model.layers.{}.block_sparse_moe.experts.*.w2": "layers.{}.feed.down",
        "model.layers.{}.block_sparse_moe.experts.*.w3": "layers.{}.feed.up",
    }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(
            DecoderConfig(
                **shared_config({"rope_theta": 1e6, **config}),
                window=config.get("sliding_window"),
                experts=config["num_local_experts"],
                experts_used=config["num_experts_per_tok"],
            )
        )
