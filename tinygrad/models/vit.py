"""The vision transformer. (Dosovitskiy and others, "An Image is Worth 16x16 Words", 2021.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tinygrad.models.attention import EncoderLayer
from tinygrad.models.checkpoint import Names, Only, Pretrained, class_count
from tinygrad.nn import Conv2d, LayerNorm, Linear
from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class ViTConfig:
    """Sizes; the defaults are those of ViT-B/16 on ImageNet."""

    image: int = 224
    patch: int = 16
    channels: int = 3
    dim: int = 768
    hidden: int = 3072
    layers: int = 12
    heads: int = 12
    classes: int = 1000
    eps: float = 1e-12
    qkv_bias: bool = True
    activation: str = "gelu"


class ViT(Pretrained):
    """Images to the scores of classes: patches are tokens, and one more token looks at them all.

    >>> model = ViT(ViTConfig(image=8, patch=4, dim=8, hidden=16, layers=1, heads=2, classes=5))
    >>> model(Tensor.ones(2, 3, 8, 8)).shape
    (2, 5)
    """

    ONLY: ClassVar[Only] = {"model_type": ("vit",)}
    NAMES: ClassVar[Names] = {
        "vit.embeddings.cls_token": "first",
        "vit.embeddings.position_embeddings": "places",
        "vit.embeddings.patch_embeddings.projection": "patches",
        "vit.encoder.layer.{}.layernorm_before": "layers.{}.norm1",
        "vit.encoder.layer.{}.attention.attention.query": "layers.{}.attention.query",
        "vit.encoder.layer.{}.attention.attention.key": "layers.{}.attention.key",
        "vit.encoder.layer.{}.attention.attention.value": "layers.{}.attention.value",
        "vit.encoder.layer.{}.attention.output.dense": "layers.{}.attention.out",
        "vit.encoder.layer.{}.layernorm_after": "layers.{}.norm2",
        "vit.encoder.layer.{}.intermediate.dense": "layers.{}.up",
        "vit.encoder.layer.{}.output.dense": "layers.{}.down",
        "vit.layernorm": "norm",
        "classifier": "head",
    }

    def __init__(self, config: ViTConfig | None = None) -> None:
        self.config = config = config or ViTConfig()
        count = (config.image // config.patch) ** 2
        self.first = Tensor.zeros(1, 1, config.dim)
        self.places = Tensor.randn(1, count + 1, config.dim) * 0.02
        self.patches = Conv2d(config.channels, config.dim, config.patch, stride=config.patch)
        sizes = (config.dim, config.heads, config.hidden, config.eps)
        self.layers = [
            EncoderLayer(*sizes, config.activation, config.qkv_bias) for _ in range(config.layers)
        ]
        self.norm = LayerNorm(config.dim, config.eps)
        self.head = Linear(config.dim, config.classes)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(
            ViTConfig(
                config["image_size"],
                config["patch_size"],
                config["num_channels"],
                config["hidden_size"],
                config["intermediate_size"],
                config["num_hidden_layers"],
                config["num_attention_heads"],
                class_count(config),
                config["layer_norm_eps"],
                config.get("qkv_bias", True),
                config.get("hidden_act", "gelu"),
            )
        )

    def features(self, images: Tensor) -> Tensor:
        """Images (batch, channels, image, image) → a vector a token (batch, 1 + patches, dim)."""
        x = self.patches(images).flatten(2).transpose(1, 2)  # (batch, patches, dim)
        first = self.first.expand(x.shape[0], 1, x.shape[2])
        x = first.cat(x, dim=1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    def __call__(self, images: Tensor) -> Tensor:
        """Images (batch, channels, image, image) → scores (batch, classes)."""
        return self.head(self.features(images)[:, 0])
