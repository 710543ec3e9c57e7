"""CLIP: images and texts as vectors of one space.

(Radford and others, "Learning Transferable Visual Models From Natural Language Supervision", 2021.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tinygrad.models.attention import EncoderLayer
from tinygrad.models.checkpoint import Names, Only, Pretrained, refuse_others
from tinygrad.models.tokenizer import read_tokenizer
from tinygrad.nn import Conv2d, Embedding, LayerNorm, Linear
from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class TowerConfig:
    """Sizes of the transformer on one side."""

    dim: int
    hidden: int
    layers: int
    heads: int
    eps: float = 1e-5
    activation: str = "quick_gelu"


@dataclass(frozen=True)
class CLIPConfig:
    """Sizes; the defaults are those of ViT-L/14, whose text side Stable Diffusion 1 uses."""

    text: TowerConfig = TowerConfig(768, 3072, 12, 12)
    vision: TowerConfig = TowerConfig(1024, 4096, 24, 16)
    vocab: int = 49408
    length: int = 77
    end: int = 2  # the token that ends a text; 2: the largest number in it does
    image: int = 224
    patch: int = 14
    shared: int = 768  # features of the space of both


def _layers(config: TowerConfig) -> list[EncoderLayer]:
    sizes = (config.dim, config.heads, config.hidden, config.eps)
    return [EncoderLayer(*sizes, config.activation) for _ in range(config.layers)]


LAYER_NAMES: Names = {
    "layer_norm1": "norm1",
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.out_proj": "attention.out",
    "layer_norm2": "norm2",
    "mlp.fc1": "up",
    "mlp.fc2": "down",
}


class TextTower:
    """A text to a vector a token; each sees those before it."""

    def __init__(self, config: TowerConfig, vocab: int, length: int) -> None:
        self.words = Embedding(vocab, config.dim)
        self.places = Embedding(length, config.dim)
        self.layers = _layers(config)
        self.norm = LayerNorm(config.dim, config.eps)

    def __call__(self, tokens: Tensor) -> Tensor:
        """(batch, tokens) → (batch, tokens, dim)."""
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, causal=True)
        return self.norm(x)


class VisionTower:
    """An image to one vector."""

    def __init__(self, config: TowerConfig, image: int, patch: int) -> None:
        self.first = Tensor.randn(config.dim)
        self.patches = Conv2d(3, config.dim, patch, stride=patch, bias=False)
        self.places = Embedding((image // patch) ** 2 + 1, config.dim)
        self.norm_before = LayerNorm(config.dim, config.eps)
        self.layers = _layers(config)
        self.norm = LayerNorm(config.dim, config.eps)

    def __call__(self, images: Tensor) -> Tensor:
        """(batch, 3, image, image) → (batch, dim)."""
        x = self.patches(images).flatten(2).transpose(1, 2)  # (batch, patches, dim)
        first = self.first.reshape(1, 1, -1).expand(x.shape[0], 1, x.shape[2])
        x = self.norm_before(first.cat(x, dim=1) + self.places.weight)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x[:, 0])


class CLIP(Pretrained):
    """Images and texts → how well each image fits each text.

    >>> tower = TowerConfig(8, 16, 1, 2)
    >>> model = CLIP(CLIPConfig(tower, tower, vocab=16, length=8, image=8, patch=4, shared=4))
    >>> model(Tensor.ones(2, 3, 8, 8), Tensor([[1, 2, 15]])).shape
    (2, 1)
    """

    ONLY: ClassVar[Only] = {"model_type": ("clip",)}
    NAMES: ClassVar[Names] = {
        "text_model.embeddings.token_embedding": "text.words",
        "text_model.embeddings.position_embedding": "text.places",
        "text_model.embeddings.position_ids": None,
        "text_model.final_layer_norm": "text.norm",
        "text_projection": "text_projection",
        "vision_model.embeddings.class_embedding": "vision.first",
        "vision_model.embeddings.patch_embedding": "vision.patches",
        "vision_model.embeddings.position_embedding": "vision.places",
        "vision_model.embeddings.position_ids": None,
        "vision_model.pre_layrnorm": "vision.norm_before",
        "vision_model.post_layernorm": "vision.norm",
        "visual_projection": "image_projection",
        "logit_scale": "scale",
        **{
            f"{side}_model.encoder.layers.{{}}.{theirs}": f"{side}.layers.{{}}.{ours}"
            for side in ("text", "vision")
            for theirs, ours in LAYER_NAMES.items()
        },
    }

    def __init__(self, config: CLIPConfig | None = None) -> None:
        self.config = config = config or CLIPConfig()
        self.text = TextTower(config.text, config.vocab, config.length)
        self.vision = VisionTower(config.vision, config.image, config.patch)
        self.text_projection = Linear(config.text.dim, config.shared, bias=False)
        self.image_projection = Linear(config.vision.dim, config.shared, bias=False)
        self.scale = Tensor(2.6592)  # of the similarities, as a logarithm

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        text, vision = (
            {**config[f"{side}_config"], **(config.get(f"{side}_config_dict") or {})}
            for side in ("text", "vision")
        )
        refuse_others(cls.__name__, vision, {"num_channels": (3,)})
        return cls(
            CLIPConfig(
                tower_config(text),
                tower_config(vision),
                text["vocab_size"],
                text["max_position_embeddings"],
                text.get("eos_token_id", 2),
                vision["image_size"],
                vision["patch_size"],
                config["projection_dim"],
            )
        )

    def tokens(self, *texts: str) -> Tensor:
        """(texts, length): the tokens of texts, by the tokenizer of the model's folder.

        Raises:
            ArgumentError: the model is not from a folder, or there is no tokenizer.
        """
        return read_tokenizer(self.loaded_from()).rows(texts, self.config.length)

    def embed_texts(self, tokens: Tensor) -> Tensor:
        """(batch, tokens) → (batch, shared): the vector of the token that ends each text."""
        end = self.config.end
        ends = tokens if end == 2 else (tokens == end).cast("int32")
        x = self.text(tokens)
        last = x[Tensor.arange(x.shape[0], device=x.device), ends.argmax(-1)]
        return self.text_projection(last)

    def embed_images(self, images: Tensor) -> Tensor:
        """(batch, 3, image, image) → (batch, shared)."""
        return self.image_projection(self.vision(images))

    def __call__(self, images: Tensor, tokens: Tensor) -> Tensor:
        """Images and texts → scores (images, texts)."""
        image, text = _unit(self.embed_images(images)), _unit(self.embed_texts(tokens))
        return image.matmul(text.T) * self.scale.exp()


def tower_config(config: Mapping[str, Any]) -> TowerConfig:
    """One side, as its part of config.json describes it."""
    return TowerConfig(
        config["hidden_size"],
        config["intermediate_size"],
        config["num_hidden_layers"],
        config["num_attention_heads"],
        config["layer_norm_eps"],
        config["hidden_act"],
    )


def _unit(x: Tensor) -> Tensor:
    return x / x.square().sum(-1, keepdim=True).sqrt()
