"""Whisper: speech to text.

(Radford and others, "Robust Speech Recognition via Large-Scale Weak Supervision", 2022.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.errors import ShapeError
from tinygrad.models.attention import Attention
from tinygrad.models.cache import Cache, Turn
from tinygrad.models.checkpoint import Names, Only, Pretrained
from tinygrad.nn import Conv1d, Embedding, LayerNorm, Linear
from tinygrad.nn.activations import gelu
from tinygrad.tensor import Tensor

RATE = 16_000  # samples of sound a second
WINDOW, HOP = 400, 160  # samples of a frame, and from one to the next


@dataclass(frozen=True)
class WhisperConfig:
    """Sizes; the defaults are those of whisper-tiny."""

    vocab: int = 51865
    mels: int = 80
    frames: int = 1500  # of the encoder: half of those given, 30 seconds
    length: int = 448  # tokens of a text
    dim: int = 384
    encoder_layers: int = 4
    encoder_heads: int = 6
    encoder_hidden: int = 1536
    decoder_layers: int = 4
    decoder_heads: int = 6
    decoder_hidden: int = 1536


class EncoderLayer:
    """Attention, then two linear layers; each of the normalized input, added to it."""

    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        self.norm1 = LayerNorm(dim)
        self.attention = Attention(dim, heads, key_bias=False)
        self.norm3 = LayerNorm(dim)
        self.up = Linear(dim, hidden)
        self.down = Linear(hidden, dim)

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, frames, dim) → the same."""
        x = x + self.attention(self.norm1(x))
        return x + self.down(gelu(self.up(self.norm3(x))))


class DecoderLayer(EncoderLayer):
    """An encoder's layer that also looks at the encoder's result."""

    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__(dim, heads, hidden)
        self.norm2 = LayerNorm(dim)
        self.across = Attention(dim, heads, key_bias=False)

    def decoded(
        self, x: Tensor, heard: tuple[Tensor, Tensor], layer: int, turn: Turn, mask: Tensor | None
    ) -> Tensor:
        """x (batch, tokens, dim) → the same; `heard` are keys and values of the sound."""
        own, given = self.attention, self.norm1(x)
        key, value = turn.kept(layer, own.split(own.key(given)), own.split(own.value(given)))
        causal = mask is None and turn.cache is None
        x = x + own.mixed(given, key, value, mask, causal)
        x = x + self.across.mixed(self.norm2(x), *heard, None)
        return x + self.down(gelu(self.up(self.norm3(x))))


class Encoder:
    """Two convolutions, the second halving the frames, then layers of attention."""

    def __init__(self, config: WhisperConfig) -> None:
        self.conv1 = Conv1d(config.mels, config.dim, 3, padding=1)
        self.conv2 = Conv1d(config.dim, config.dim, 3, stride=2, padding=1)
        self.places = Embedding(config.frames, config.dim)
        self.layers = [
            EncoderLayer(config.dim, config.encoder_heads, config.encoder_hidden)
            for _ in range(config.encoder_layers)
        ]
        self.norm = LayerNorm(config.dim)

    def __call__(self, mels: Tensor) -> Tensor:
        """(batch, mels, 2·frames) → (batch, frames, dim)."""
        x = gelu(self.conv2(gelu(self.conv1(mels)))).transpose(1, 2)
        if x.shape[1:] != self.places.weight.shape:
            raise ShapeError(
                f"Whisper: {mels.shape[2]} frames; legal are {2 * self.places.weight.shape[0]}, "
                "see log_mel"
            )
        x = x + self.places.weight
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Decoder:
    """Tokens so far, and the sound, to the scores of what comes next."""

    def __init__(self, config: WhisperConfig) -> None:
        self.embed = Embedding(config.vocab, config.dim)
        self.places = Embedding(config.length, config.dim)
        self.layers = [
            DecoderLayer(config.dim, config.decoder_heads, config.decoder_hidden)
            for _ in range(config.decoder_layers)
        ]
        self.norm = LayerNorm(config.dim)

    def __call__(self, tokens: Tensor, heard: list[tuple[Tensor, Tensor]], turn: Turn) -> Tensor:
        """(batch, tokens) → (batch, tokens, vocab)."""
        places = turn.positions(tokens, self.places.weight.shape[0])
        x = self.embed(tokens) + self.places(places)
        mask = turn.mask(tokens)
        for number, (layer, sound) in enumerate(zip(self.layers, heard, strict=True)):
            x = layer.decoded(x, sound, number, turn, mask)
        return self.norm(x).linear(self.embed.weight.T)


_SHARED = {
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.out_proj": "attention.out",
    "self_attn_layer_norm": "norm1",
    "encoder_attn.q_proj": "across.query",
    "encoder_attn.k_proj": "across.key",
    "encoder_attn.v_proj": "across.value",
    "encoder_attn.out_proj": "across.out",
    "encoder_attn_layer_norm": "norm2",
    "fc1": "up",
    "fc2": "down",
    "final_layer_norm": "norm3",
}


class Whisper(Pretrained):
    """Sound, as `log_mel` makes it, and the text so far → the scores of what comes next.

    >>> config = WhisperConfig(16, 8, 10, 12, 8, 1, 2, 16, 1, 2, 16)
    >>> Whisper(config)(Tensor.ones(1, 8, 20), Tensor([[1, 2]])).shape
    (1, 2, 16)
    """

    ONLY: ClassVar[Only] = {
        "model_type": ("whisper",),
        "activation_function": ("gelu",),
        "scale_embedding": (False,),
        "tie_word_embeddings": (True,),
    }
    NAMES: ClassVar[Names] = {
        "model.encoder.conv1": "encoder.conv1",
        "model.encoder.conv2": "encoder.conv2",
        "model.encoder.embed_positions": "encoder.places",
        "model.encoder.layer_norm": "encoder.norm",
        "model.decoder.embed_tokens": "decoder.embed",
        "model.decoder.embed_positions": "decoder.places",
        "model.decoder.layer_norm": "decoder.norm",
        "proj_out": None,
        **{
            f"model.{side}.layers.{{}}.{theirs}": f"{side}.layers.{{}}.{ours}"
            for side in ("encoder", "decoder")
            for theirs, ours in _SHARED.items()
        },
    }

    def __init__(self, config: WhisperConfig | None = None) -> None:
        self.config = config = config or WhisperConfig()
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(
            WhisperConfig(
                config["vocab_size"],
                config["num_mel_bins"],
                config["max_source_positions"],
                config["max_target_positions"],
                config["d_model"],
                config["encoder_layers"],
                config["encoder_attention_heads"],
                config["encoder_ffn_dim"],
                config["decoder_layers"],
                config["decoder_attention_heads"],
                config["decoder_ffn_dim"],
            )
        )

    def __call__(self, mels: Tensor, tokens: Tensor) -> Tensor:
        """(batch, mels, 2·frames), (batch, tokens) → scores (batch, tokens, vocab)."""
        return self.heard(mels)(tokens)

    def heard(self, mels: Tensor) -> Transcription:
        """What text is made from with `generate`: the sound, encoded once."""
        return Transcription(self, self.encoder(mels))


class Transcription:
    """A sound that was heard: `generate(model.heard(mels), [[start, language, task]])`."""

    def __init__(self, model: Whisper, sound: Tensor) -> None:
        self._model = model
        looks = [layer.across for layer in model.decoder.layers]
        keys = [look.split(look.key(sound)).contiguous() for look in looks]
        values = [look.split(look.value(sound)).contiguous() for look in looks]
        sound.realize(*keys, *values)
        self._heard = list(zip(keys, values, strict=True))

    def __call__(self, tokens: Tensor, turn: Turn | None = None) -> Tensor:
        """Tokens (batch, tokens) → scores (batch, tokens, vocab)."""
        return self._model.decoder(tokens, self._heard, turn or Turn())

    @property
    def longest(self) -> int:
        """Tokens that a text may have."""
        return self._model.config.length

    def new_cache(self, batch: int, length: int) -> Cache:
        """Room for what `batch` texts of up to `length` tokens leave behind."""
        config = self._model.config
        heads = config.decoder_heads
        size, device = config.dim // heads, self._model.decoder.embed.weight.device
        return Cache(config.decoder_layers, batch, heads, length, size, device=device)


# ---- sound ---------------------------------------------------------------------------------------


def log_mel(
    sound: NDArray[Any], mels: int = 80, seconds: float | None = 30.0
) -> NDArray[np.float32]:
    """Sound (samples,), 16,000 a second, from -1 to 1 → (mels, frames), 100 frames a second.

    Args:
        sound: one channel.
        mels: bands of frequency.
        seconds: cut or filled with silence to this length; None: left as it is.
    """
    sound = np.asarray(sound, np.float32)
    if seconds is not None:
        samples = int(seconds * RATE)
        sound = np.pad(sound[:samples], (0, max(0, samples - len(sound))))
    around = np.pad(sound, WINDOW // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(around, WINDOW)[::HOP][:-1]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    power = np.abs(np.fft.rfft(frames * window)) ** 2  # (frames, 201)
    levels = np.log10(np.maximum(mel_filters(mels) @ power.T, 1e-10))
    levels = np.maximum(levels, levels.max() - 8)
    return np.asarray((levels + 4) / 4, np.float32)


def mel_filters(mels: int) -> NDArray[np.float64]:
    """(mels, 201): triangles over frequency, evenly spaced on Slaney's scale, of equal area."""
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    corners = _hertz(np.linspace(_mel(0.0), _mel(RATE / 2), mels + 2))
    widths = np.diff(corners)
    away = corners[:, None] - frequencies[None, :]
    rising, falling = -away[:-2] / widths[:-1, None], away[2:] / widths[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    return np.asarray(triangles * (2 / (corners[2:] - corners[:-2]))[:, None])


_STEP = 200 / 3  # hertz a mel below 1000
_RATIO = math.log(6.4) / 27  # logarithm of the ratio a mel above


def _mel(hertz: float) -> float:
    return hertz / _STEP if hertz < 1000 else 15 + math.log(hertz / 1000) / _RATIO


def _hertz(mel: NDArray[Any]) -> NDArray[Any]:
    return np.where(mel < 15, mel * _STEP, 1000 * np.exp(_RATIO * (mel - 15)))
