"""Mistral: LLaMA whose attention has a window. (Jiang and others, "Mistral 7B", 2023.)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from tinygrad.models.checkpoint import Only
from tinygrad.models.decoder import DecoderConfig
from tinygrad.models.llama import Llama, shared_config


class Mistral(Llama):
    """Mistral, from Hugging Face's layout or a GGUF file's."""

    ONLY: ClassVar[Only] = {"model_type": ("mistral",)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(DecoderConfig(**shared_config(config), window=config.get("sliding_window")))
