"""The autoencoder of Stable Diffusion: pictures to latents of an eighth of their size, and back.

(Kingma and Welling, "Auto-Encoding Variational Bayes", 2014; Rombach and others, 2022.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tinygrad.models.attention import Attention
from tinygrad.models.checkpoint import Names, Only, Pretrained
from tinygrad.models.residual import Double, Halve, ResBlock, pixels_apart, pixels_last
from tinygrad.nn import Conv2d, GroupNorm
from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class VAEConfig:
    """Sizes; the defaults are those of Stable Diffusion 1."""

    channels: int = 3
    latent: int = 4
    widths: tuple[int, ...] = (128, 256, 512, 512)
    blocks: int = 2
    groups: int = 32
    scale: float = 0.18215  # latents times it have about variance 1


EPS = 1e-6


class PixelAttention:
    """Pixels look at each other; added to the input."""

    def __init__(self, dim: int, groups: int) -> None:
        self.norm = GroupNorm(groups, dim, EPS)
        self.attention = Attention(dim, 1)

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, dim, height, width) → the same."""
        return x + pixels_apart(self.attention(pixels_last(self.norm(x))), x)


class Middle:
    """A block, attention, a block."""

    def __init__(self, dim: int, groups: int) -> None:
        self.blocks = [ResBlock(dim, dim, groups=groups, eps=EPS) for _ in range(2)]
        self.attention = PixelAttention(dim, groups)

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, dim, height, width) → the same."""
        return self.blocks[1](self.attention(self.blocks[0](x)))


class Level:
    """Blocks of one size, then another size."""

    def __init__(
        self, channels: int, out: int, count: int, groups: int, resize: Halve | Double | None
    ) -> None:
        sizes = [channels] + [out] * (count - 1)
        self.blocks = [ResBlock(size, out, groups=groups, eps=EPS) for size in sizes]
        self.resize = resize

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) → (batch, out, ..)."""
        x = x.sequential(self.blocks)
        return x if self.resize is None else self.resize(x)


class Encoder:
    """Pictures to mean and log-variance of their latents."""

    def __init__(self, config: VAEConfig) -> None:
        widths, groups = config.widths, config.groups
        self.into = Conv2d(config.channels, widths[0], 3, padding=1)
        self.levels = []
        for number, width in enumerate(widths):
            halve = None if number == len(widths) - 1 else Halve(width, at_end=True)
            before = widths[max(number - 1, 0)]
            self.levels.append(Level(before, width, config.blocks, groups, halve))
        self.middle = Middle(widths[-1], groups)
        self.norm = GroupNorm(groups, widths[-1], EPS)
        self.out = Conv2d(widths[-1], 2 * config.latent, 3, padding=1)

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) → (batch, 2·latent, height / 8, width / 8)."""
        x = self.middle(self.into(x).sequential(self.levels))
        return self.out(self.norm(x).silu())


class Decoder:
    """Latents to pictures."""

    def __init__(self, config: VAEConfig) -> None:
        widths, groups = config.widths[::-1], config.groups
        self.into = Conv2d(config.latent, widths[0], 3, padding=1)
        self.middle = Middle(widths[0], groups)
        self.levels = []
        for number, width in enumerate(widths):
            double = None if number == len(widths) - 1 else Double(width)
            before = widths[max(number - 1, 0)]
            self.levels.append(Level(before, width, config.blocks + 1, groups, double))
        self.norm = GroupNorm(groups, widths[-1], EPS)
        self.out = Conv2d(widths[-1], config.channels, 3, padding=1)

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, latent, height, width) → (batch, channels, 8·height, 8·width)."""
        x = self.middle(self.into(x)).sequential(self.levels)
        return self.out(self.norm(x).silu())


def _names(side: str, levels: str) -> Names:
    rows = {
        "conv_in": "into",
        f"{levels}.{{}}.resnets": "levels.{}.blocks",
        f"{levels}.{{}}.downsamplers.0": "levels.{}.resize",
        f"{levels}.{{}}.upsamplers.0": "levels.{}.resize",
        "mid_block.resnets": "middle.blocks",
        "conv_norm_out": "norm",
        "conv_out": "out",
        **{
            f"{levels}.{{}}.resnets.{{}}.conv_shortcut": "levels.{}.blocks.{}.shortcut",
            "mid_block.attentions.0.group_norm": "middle.attention.norm",
        },
        **{
            f"mid_block.attentions.0.{theirs}": f"middle.attention.attention.{ours}"
            for theirs, ours in (
                ("to_q", "query"),
                ("to_k", "key"),
                ("to_v", "value"),
                ("to_out.0", "out"),
                ("query", "query"),  # as older files have it
                ("key", "key"),
                ("value", "value"),
                ("proj_attn", "out"),
            )
        },
    }
    return {f"{side}.{theirs}": f"{side}.{ours}" for theirs, ours in rows.items()}


class VAE(Pretrained):
    """Pictures with values from -1 to 1 ↔ latents.

    >>> model = VAE(VAEConfig(widths=(8, 16), blocks=1, groups=4))
    >>> latents = model.encode(Tensor.ones(1, 3, 16, 16))
    >>> latents.shape, model.decode(latents).shape
    ((1, 4, 8, 8), (1, 3, 16, 16))
    """

    ONLY: ClassVar[Only] = {
        "_class_name": ("AutoencoderKL",),
        "act_fn": ("silu", "swish"),
        "mid_block_add_attention": (True,),
        "use_quant_conv": (True,),
        "use_post_quant_conv": (True,),
        "shift_factor": (None, 0.0),
        "latents_mean": (None,),
        "latents_std": (None,),
    }
    NAMES: ClassVar[Names] = {
        **_names("encoder", "down_blocks"),
        **_names("decoder", "up_blocks"),
        "quant_conv": "after_encoder",
        "post_quant_conv": "before_decoder",
    }

    def __init__(self, config: VAEConfig | None = None) -> None:
        self.config = config = config or VAEConfig()
        self.encoder = Encoder(config)
        self.after_encoder = Conv2d(2 * config.latent, 2 * config.latent, 1)
        self.before_decoder = Conv2d(config.latent, config.latent, 1)
        self.decoder = Decoder(config)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(
            VAEConfig(
                config["in_channels"],
                config["latent_channels"],
                tuple(config["block_out_channels"]),
                config["layers_per_block"],
                config["norm_num_groups"],
                config.get("scaling_factor", 0.18215),
            )
        )

    def moments(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, channels, height, width) → mean and log-variance of the latents."""
        mean, variance = self.after_encoder(self.encoder(images)).chunk(2, 1)
        return mean, variance.clip(-30.0, 20.0)

    def encode(self, images: Tensor) -> Tensor:
        """The latents' mean, scaled to about variance 1."""
        return self.moments(images)[0] * self.config.scale

    def decode(self, latents: Tensor) -> Tensor:
        """Latents, scaled → pictures with values from about -1 to 1."""
        return self.decoder(self.before_decoder(latents / self.config.scale))
