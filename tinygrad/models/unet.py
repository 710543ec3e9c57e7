"""The U-Net of Stable Diffusion: the noise in a picture, given its step and a text.

(Ronneberger and others, "U-Net", 2015; Rombach and others, "High-Resolution Image Synthesis with
Latent Diffusion Models", 2022.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tinygrad.base.dtype import dtypes
from tinygrad.models.attention import Attention
from tinygrad.models.checkpoint import Names, Only, Pretrained
from tinygrad.models.residual import Double, Halve, ResBlock, pixels_apart, pixels_last
from tinygrad.nn import Conv2d, GroupNorm, LayerNorm, Linear
from tinygrad.nn.activations import gelu
from tinygrad.tensor import Tensor


@dataclass(frozen=True)
class UNetConfig:
    """Sizes; the defaults are those of Stable Diffusion 1."""

    channels: int = 4
    widths: tuple[int, ...] = (320, 640, 1280, 1280)
    attends: tuple[bool, ...] = (True, True, True, False)  # on each level
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    heads: tuple[int, ...] = (8, 8, 8, 8)
    context: int = 768  # features of the text
    groups: int = 32
    eps: float = 1e-5
    out: int | None = None  # channels of the result; None: of the picture


class TextLayer:
    """Pixels look at each other, then at the text, then a gated pair of linear layers."""

    def __init__(self, dim: int, heads: int, context: int) -> None:
        self.norm1 = LayerNorm(dim)
        self.own = Attention(dim, heads, qkv_bias=False)
        self.norm2 = LayerNorm(dim)
        self.across = Attention(dim, heads, context, qkv_bias=False)
        self.norm3 = LayerNorm(dim)
        self.up = Linear(dim, 8 * dim)
        self.down = Linear(4 * dim, dim)

    def __call__(self, x: Tensor, text: Tensor) -> Tensor:
        """(batch, pixels, dim) → the same."""
        x = x + self.own(self.norm1(x))
        x = x + self.across(self.norm2(x), text)
        inside, gate = self.up(self.norm3(x)).chunk(2, -1)
        return x + self.down(inside * gelu(gate))


class TextAttention:
    """A `TextLayer` between two linear layers, added to its input."""

    def __init__(self, dim: int, heads: int, config: UNetConfig) -> None:
        self.norm = GroupNorm(config.groups, dim, 1e-6)
        self.into = Linear(dim, dim)
        self.layers = [TextLayer(dim, heads, config.context)]
        self.out = Linear(dim, dim)

    def __call__(self, x: Tensor, text: Tensor) -> Tensor:
        """(batch, dim, height, width) → the same."""
        inner = self.into(pixels_last(self.norm(x)))
        for layer in self.layers:
            inner = layer(inner, text)
        return x + pixels_apart(self.out(inner), x)


class Level:
    """Blocks of one size; on the way down then halved, on the way up doubled."""

    def __init__(
        self, sizes: list[tuple[int, int]], heads: int, config: UNetConfig,
        resize: Halve | Double | None,
    ) -> None:  # fmt: skip
        time = 4 * config.widths[0]
        self.blocks = [ResBlock(a, b, time, config.groups, config.eps) for a, b in sizes]
        self.attentions = [TextAttention(b, heads, config) for _, b in sizes] if heads else []
        self.resize = resize

    def step(self, number: int, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """The block of this number, and its attention."""
        x = self.blocks[number](x, time)
        return self.attentions[number](x, text) if self.attentions else x


class Middle:
    """A block, attention, a block."""

    def __init__(self, dim: int, heads: int, config: UNetConfig) -> None:
        time = 4 * config.widths[0]
        self.blocks = [ResBlock(dim, dim, time, config.groups, config.eps) for _ in range(2)]
        self.attentions = [TextAttention(dim, heads, config)]

    def __call__(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """(batch, dim, height, width) → the same."""
        x = self.attentions[0](self.blocks[0](x, time), text)
        return self.blocks[1](x, time)


def flat(weight: Tensor) -> Tensor:
    """The weight of a 1x1 convolution as that of a linear layer."""
    return weight.reshape(*weight.shape[:2])


_ATTENTION: Names = {
    "norm": "norm",
    "proj_in.weight": ("into.weight", flat),
    "proj_in.bias": "into.bias",
    "proj_out.weight": ("out.weight", flat),
    "proj_out.bias": "out.bias",
    **{
        f"transformer_blocks.{{}}.{theirs}": f"layers.{{}}.{ours}"
        for theirs, ours in (
            ("norm1", "norm1"),
            ("norm2", "norm2"),
            ("norm3", "norm3"),
            ("ff.net.0.proj", "up"),
            ("ff.net.2", "down"),
            *(
                (f"{block}.{end}", f"{own}.{short}")
                for block, own in (("attn1", "own"), ("attn2", "across"))
                for end, short in (
                    ("to_q", "query"),
                    ("to_k", "key"),
                    ("to_v", "value"),
                    ("to_out.0", "out"),
                )
            ),
        )
    },
}
_BLOCK: Names = {
    "norm1": "norm1",
    "conv1": "conv1",
    "time_emb_proj": "time",
    "norm2": "norm2",
    "conv2": "conv2",
    "conv_shortcut": "shortcut",
}


def _under(before: str, after: str, names: Names) -> Names:
    """The table for parts that lie under these prefixes."""
    return {
        f"{before}.{theirs}": f"{after}.{ours}"
        if isinstance(ours, str)
        else (ours and (f"{after}.{ours[0]}", ours[1]))
        for theirs, ours in names.items()
    }


def _level_names(theirs: str, ours: str) -> Names:
    return {
        **_under(f"{theirs}.attentions.{{}}", f"{ours}.attentions.{{}}", _ATTENTION),
        **_under(f"{theirs}.resnets.{{}}", f"{ours}.blocks.{{}}", _BLOCK),
        f"{theirs}.downsamplers.0": f"{ours}.resize",
        f"{theirs}.upsamplers.0": f"{ours}.resize",
    }


class UNet(Pretrained):
    """A noisy picture (latents), its step, and a text → the noise in it.

    >>> config = UNetConfig(4, (8, 16), (True, False), (1, 1), (2, 2), context=6, groups=4)
    >>> UNet(config)(Tensor.ones(1, 4, 8, 8), Tensor([10]), Tensor.ones(1, 3, 6)).shape
    (1, 4, 8, 8)
    """

    ONLY: ClassVar[Only] = {
        "_class_name": ("UNet2DConditionModel",),
        "act_fn": ("silu", "swish"),
        "addition_embed_type": (None,),
        "attention_type": ("default",),
        "center_input_sample": (False,),
        "class_embed_type": (None,),
        "cross_attention_norm": (None,),
        "downsample_padding": (1,),
        "dual_cross_attention": (False,),
        "encoder_hid_dim_type": (None,),
        "flip_sin_to_cos": (True,),
        "freq_shift": (0,),
        "mid_block_only_cross_attention": (None, False),
        "mid_block_scale_factor": (1,),
        "num_class_embeds": (None,),
        "only_cross_attention": (False,),
        "resnet_out_scale_factor": (1.0,),
        "resnet_skip_time_act": (False,),
        "resnet_time_scale_shift": ("default",),
        "time_embedding_act_fn": (None,),
        "time_embedding_type": ("positional",),
        "timestep_post_act": (None,),
    }
    NAMES: ClassVar[Names] = {
        "conv_in": "into",
        "time_embedding.linear_1": "time1",
        "time_embedding.linear_2": "time2",
        **_level_names("down_blocks.{}", "down.{}"),
        **_level_names("mid_block", "middle"),
        **_level_names("up_blocks.{}", "up.{}"),
        "conv_norm_out": "norm",
        "conv_out": "out",
    }

    def __init__(self, config: UNetConfig | None = None) -> None:
        self.config = config = config or UNetConfig()
        widths = config.widths
        self.into = Conv2d(config.channels, widths[0], 3, padding=1)
        self.time1 = Linear(widths[0], 4 * widths[0])
        self.time2 = Linear(4 * widths[0], 4 * widths[0])
        heads = [
            n if attends else 0 for n, attends in zip(config.heads, config.attends, strict=True)
        ]
        self.down = []
        kept = [widths[0]]  # channels of what the way up takes back
        for number, width in enumerate(widths):
            sizes = [(kept[-1], width)] + [(width, width)] * (config.blocks[number] - 1)
            last = number == len(widths) - 1
            self.down.append(Level(sizes, heads[number], config, None if last else Halve(width)))
            kept += [width] * (config.blocks[number] + (not last))
        self.middle = Middle(widths[-1], config.heads[-1], config)
        self.up = []
        channels = widths[-1]
        for number, width in reversed(list(enumerate(widths))):
            sizes = []
            for _ in range(config.blocks[number] + 1):
                sizes.append((channels + kept.pop(), width))
                channels = width
            self.up.append(Level(sizes, heads[number], config, Double(width) if number else None))
        self.norm = GroupNorm(config.groups, widths[0], config.eps)
        self.out = Conv2d(widths[0], config.out or config.channels, 3, padding=1)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        widths = tuple(config["block_out_channels"])
        heads = config.get("num_attention_heads") or config["attention_head_dim"]

        def on_levels(said: Any) -> tuple[Any, ...]:
            """One number is for all of them."""
            return tuple(said) if isinstance(said, (list, tuple)) else (said,) * len(widths)

        return cls(
            UNetConfig(
                config["in_channels"],
                widths,
                tuple("CrossAttn" in name for name in config["down_block_types"]),
                on_levels(config["layers_per_block"]),
                on_levels(heads),
                config["cross_attention_dim"],
                config["norm_num_groups"],
                config["norm_eps"],
                config.get("out_channels"),
            )
        )

    def __call__(self, x: Tensor, step: Tensor, text: Tensor) -> Tensor:
        """x (batch, channels, height, width), step (batch,), text (batch, tokens, context) → x's
        shape."""
        time = self.time2(self.time1(step_waves(step, self.config.widths[0])).silu())
        x = self.into(x)
        kept = [x]
        for level in self.down:
            for number in range(len(level.blocks)):
                x = level.step(number, x, time, text)
                kept.append(x)
            if level.resize is not None:
                x = level.resize(x)
                kept.append(x)
        x = self.middle(x, time, text)
        for level in self.up:
            for number in range(len(level.blocks)):
                x = level.step(number, x.cat(kept.pop(), dim=1), time, text)
            if level.resize is not None:
                x = level.resize(x)
        return self.out(self.norm(x).silu())


def step_waves(step: Tensor, size: int) -> Tensor:
    """Steps (batch,) → (batch, size): cosines, then sines, of wavelengths from 1 to 10,000."""
    half = size // 2
    places = Tensor.arange(half, dtype=dtypes.float32, device=step.device)
    angles = step.cast(dtypes.float32).reshape(-1, 1) * (places * (-math.log(10000) / half)).exp()
    return angles.cos().cat(angles.sin(), dim=-1)
