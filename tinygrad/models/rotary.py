"""Rotary positions: each pair of a head's numbers is turned by an angle that grows with the place.

    angle = place · rate        rates from 1 down to about 1 / theta, one for each pair

(Su and others, "RoFormer", 2021.) How the rates change for texts longer than those of the training
is a row of `SCALINGS`, by the names that config.json has for them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import Devices
from tinygrad.uop.node import UOp

Rates = list[float]  # one for each pair of a head's numbers


@dataclass(frozen=True)
class Rotary:
    """How a head's numbers are turned.

    Args:
        size: numbers a head.
        theta: base of the wavelengths.
        length: tokens that texts may have; of the training, unless `scaling` says another number.
        scaling: of the rates, as config.json says it; `rope_type` is a row of SCALINGS.

    Raises:
        ArgumentError: there is no such scaling, or it lacks a number.
    """

    size: int
    theta: float = 10000.0
    length: int = 2048
    scaling: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kind, said = self.kind, self.scaling
        if kind not in SCALINGS:
            raise ArgumentError(f"rope_scaling {kind!r}; legal are {', '.join(SCALINGS)}")
        missing = [name for name in SCALINGS[kind].needs if said.get(name) is None]
        if missing:
            raise ArgumentError(f"rope_scaling {kind!r} without {missing[0]}; it has {dict(said)}")
        if said.get("partial_rotary_factor", 1.0) != 1.0:
            raise ArgumentError(
                f"partial_rotary_factor {said['partial_rotary_factor']}; legal is 1.0: all numbers "
                "of a head are turned"
            )

    @property
    def kind(self) -> str:
        """What the scaling is called."""
        kind: str = self.scaling.get("rope_type", self.scaling.get("type", "default"))
        return kind

    @property
    def plain(self) -> Rates:
        """The rates without scaling."""
        return [self.theta ** (-2 * i / self.size) for i in range(self.size // 2)]

    @property
    def trained(self) -> int:
        """Tokens of the texts that it was trained for."""
        return int(self.scaling.get("original_max_position_embeddings") or self.length)

    @property
    def factor(self) -> float:
        """How many times as long texts may be."""
        factor = self.scaling.get("factor")
        return float(self.length / self.trained if factor is None else factor)

    def angles(self, places: Tensor, length: int | UOp) -> tuple[Tensor, Tensor]:
        """Places (batch or 1, tokens) → cosines and sines (batch or 1, 1, tokens, size / 2).

        Args:
            places: of the tokens, each in its text.
            length: tokens of the texts, for scalings that ask.
        """
        row = SCALINGS[self.kind]
        rates = _on_device(tuple(row.rates(self)), places.device)
        if row.longer is not None:
            tokens = Tensor.arange(1, device=places.device) + length
            rates = row.longer(self, rates, tokens.cast(dtypes.float32))
        angle = (places.unsqueeze(-1) * rates).unsqueeze(1)
        height = row.height(self)
        return (angle.cos() * height).contiguous(), (angle.sin() * height).contiguous()


@functools.cache
def _on_device(rates: tuple[float, ...], device: Devices) -> Tensor:
    """Brought there once, and not at each step."""
    return Tensor(list(rates), device=device).realize()


def turned(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Each pair (i, i + size/2) of x (batch, heads, tokens, size) turned by its angle."""
    cos, sin = angles  # (batch or 1, 1, tokens, size / 2) each
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return (a * cos - b * sin).cat(b * cos + a * sin, dim=-1).cast(x.dtype)


# ---- scalings for longer texts -------------------------------------------------------------------


def _linear(rotary: Rotary) -> Rates:
    """All waves are slowed alike."""
    return [rate / rotary.factor for rate in rotary.plain]


def _llama3(rotary: Rotary) -> Rates:
    """Long waves are slowed by `factor`, short ones stay; between them, some of both."""
    low, high = (float(rotary.scaling[f"{end}_freq_factor"]) for end in ("low", "high"))

    def slowed(rate: float) -> float:
        turns = rotary.trained * rate / (2 * math.pi)
        share = min(max((turns - low) / (high - low), 0.0), 1.0)
        return rate * share + rate / rotary.factor * (1 - share)

    return [slowed(rate) for rate in rotary.plain]


def _yarn(rotary: Rotary) -> Rates:
    """Waves that turn seldom within the texts of the training are slowed by `factor`, those that
    turn often stay; between them, some of both. (Peng and others, "YaRN", 2023.)"""
    scaling, size = rotary.scaling, rotary.size

    def pair_that_turns(times: float) -> float:
        waves = math.log(rotary.trained / (times * 2 * math.pi)) / math.log(rotary.theta)
        return size * waves / 2

    first = pair_that_turns(scaling.get("beta_fast") or 32)
    last = pair_that_turns(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    last += 0.001 * (first == last)
    slow = [min(max((i - first) / (last - first), 0.0), 1.0) for i in range(size // 2)]
    return [r * (1 - s) + r / rotary.factor * s for r, s in zip(rotary.plain, slow, strict=True)]


def _yarn_height(rotary: Rotary) -> float:
    """Sharpens the scores of long texts."""
    scaling, factor = rotary.scaling, rotary.factor
    if (given := scaling.get("attention_factor")) is not None:
        return float(given)

    def height(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    weight, over = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return height(weight) / height(over) if weight and over else height(1.0)


def _stretched(rotary: Rotary, rates: Tensor, length: Tensor) -> Tensor:
    """The base grows with the text, so that the longest wave spans it and the shortest stays.
    ("NTK-aware" scaling; Peng and others, "YaRN", 2023, section 3.)"""
    size, most = rotary.size, rotary.length
    over = length.maximum(most) * (rotary.factor / most) - (rotary.factor - 1)  # 1 up to `most`
    powers = Tensor([-2 * i / (size - 2) for i in range(size // 2)], device=rates.device)
    return rates * (over.log() * powers).exp()


def _divided(name: str) -> Callable[[Rotary], Rates]:
    """Each rate by a number of its own, which the scaling has by this name."""

    def rates(rotary: Rotary) -> Rates:
        return [r / by for r, by in zip(rotary.plain, rotary.scaling[name], strict=True)]

    return rates


def _long_factors(rotary: Rotary, rates: Tensor, length: Tensor) -> Tensor:
    """Texts longer than those of the training divide by numbers of their own.
    (Ding and others, "LongRoPE", 2024.)"""
    longer = _on_device(tuple(_divided("long_factor")(rotary)), rates.device)
    return (length > rotary.trained).where(longer, rates)


def _long_height(rotary: Rotary) -> float:
    if (given := rotary.scaling.get("attention_factor")) is not None:
        return float(given)
    return math.sqrt(1 + math.log(max(rotary.factor, 1.0)) / math.log(rotary.trained))


@dataclass(frozen=True)
class Scaling:
    """How rates change, the numbers of config.json that this needs, what the rates are in texts of
    a length (1,), and what cosines and sines are multiplied by."""

    rates: Callable[[Rotary], Rates]
    needs: tuple[str, ...] = ()
    longer: Callable[[Rotary, Tensor, Tensor], Tensor] | None = None
    height: Callable[[Rotary], float] = lambda rotary: 1.0


LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
SCALINGS: Mapping[str, Scaling] = {
    "default": Scaling(lambda rotary: rotary.plain),
    "linear": Scaling(_linear, ("factor",)),
    "dynamic": Scaling(lambda rotary: rotary.plain, ("factor",), _stretched),
    "llama3": Scaling(_llama3, LLAMA3),
    "yarn": Scaling(_yarn, (), height=_yarn_height),
    "longrope": Scaling(
        _divided("short_factor"), ("short_factor", "long_factor"), _long_factors, _long_height
    ),
    "divided": Scaling(_divided("factors"), ("factors",)),  # as GGUF files have it
}
