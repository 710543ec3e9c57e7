"""Mamba: a recurrence whose weights follow from its input.

    state = exp(Δ·A)·state + Δ·B·x        y = C·state + D·x

(Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tinygrad.base.dtype import dtypes
from tinygrad.models.checkpoint import Names, Only
from tinygrad.models.states import Recurrent, States
from tinygrad.nn import Conv1d, Linear, RMSNorm
from tinygrad.tensor import Tensor
from tinygrad.tensor.scan import scan


@dataclass(frozen=True)
class MambaConfig:
    """Sizes; the defaults are those of the model of 130 million parameters."""

    vocab: int = 50280
    dim: int = 768
    layers: int = 24
    state: int = 16
    kernel: int = 4
    expand: int = 2
    rank: int | None = None  # of Δ; None: dim / 16
    eps: float = 1e-5
    bias: bool = False
    conv_bias: bool = True
    tied: bool = True

    @property
    def inner(self) -> int:
        """Channels of the recurrence."""
        return self.expand * self.dim

    @property
    def step_rank(self) -> int:
        """Features that Δ is made of."""
        return self.rank or math.ceil(self.dim / 16)


class Mixer:
    """A short convolution along the text, then the recurrence, gated."""

    def __init__(self, config: MambaConfig) -> None:
        inner, state, rank = config.inner, config.state, config.step_rank
        self.into = Linear(config.dim, 2 * inner, config.bias)
        self.conv = Conv1d(inner, inner, config.kernel, groups=inner, bias=config.conv_bias)
        self.select = Linear(inner, rank + 2 * state, bias=False)
        self.step = Linear(rank, inner)
        rates = Tensor.arange(1, state + 1, dtype=dtypes.float32).log()
        self.rates = rates.reshape(1, state).expand(inner, state).contiguous()  # log(-A)
        self.skip = Tensor.ones(inner)  # D
        self.out = Linear(inner, config.dim, config.bias)
        self._config = config

    def __call__(self, x: Tensor, before: States) -> tuple[Tensor, States]:
        """x (batch, tokens, dim) → the same, and the states after it.

        The states are the last inputs of the convolution (batch, inner, kernel - 1), and the
        recurrence's (batch, inner, state).
        """
        config = self._config
        last, state = before
        x, gate = self.into(x).chunk(2, -1)  # (batch, tokens, inner) each
        given = last.cat(x.transpose(1, 2), dim=-1)
        after = given[:, :, given.shape[2] - (config.kernel - 1) :]
        x = self.conv(given).silu().transpose(1, 2)
        sizes = [config.step_rank, config.state, config.state]
        step, into, outof = self.select(x).split(sizes, dim=-1)
        step = self.step(step).softplus()  # (batch, tokens, inner)
        rates = -self.rates.exp()  # (inner, state)

        def turn(state: Tensor, x: Tensor, step: Tensor, into: Tensor, outof: Tensor) -> Any:
            kept = (step.unsqueeze(-1) * rates).exp() * state
            state = kept + (step * x).unsqueeze(-1) * into.unsqueeze(1)
            return [state], [(state * outof.unsqueeze(1)).sum(-1)]

        along = [t.transpose(0, 1).contiguous() for t in (x, step, into, outof)]
        (state,), (seen,) = scan(turn, [state], along)
        y = (seen.transpose(0, 1) + x * self.skip) * gate.silu()
        return self.out(y), (after, state)


class Layer:
    """The mixer of the normalized input, added to it."""

    def __init__(self, config: MambaConfig) -> None:
        self.norm = RMSNorm(config.dim, config.eps)
        self.mixer = Mixer(config)

    def __call__(self, x: Tensor, before: States) -> tuple[Tensor, States]:
        """(batch, tokens, dim) → the same, and the states after it."""
        mixed, after = self.mixer(self.norm(x), before)
        return x + mixed, after


class Mamba(Recurrent):
    """Tokens to the scores of what comes next.

    >>> model = Mamba(MambaConfig(vocab=16, dim=8, layers=1, state=4))
    >>> model(Tensor([[1, 2, 3]])).shape
    (1, 3, 16)
    """

    ONLY: ClassVar[Only] = {"model_type": ("mamba",), "hidden_act": ("silu", "swish")}
    NAMES: ClassVar[Names] = {
        "backbone.embeddings": "embed",
        "backbone.embedding": "embed",  # the authors' own files
        "backbone.layers.{}.norm": "layers.{}.norm",
        "backbone.layers.{}.mixer.A_log": "layers.{}.mixer.rates",
        "backbone.layers.{}.mixer.D": "layers.{}.mixer.skip",
        "backbone.layers.{}.mixer.conv1d": "layers.{}.mixer.conv",
        "backbone.layers.{}.mixer.in_proj": "layers.{}.mixer.into",
        "backbone.layers.{}.mixer.x_proj": "layers.{}.mixer.select",
        "backbone.layers.{}.mixer.dt_proj": "layers.{}.mixer.step",
        "backbone.layers.{}.mixer.out_proj": "layers.{}.mixer.out",
        "backbone.norm_f": "norm",
        "lm_head": "head",
    }

    def __init__(self, config: MambaConfig | None = None) -> None:
        self.config = config = config or MambaConfig()
        super().__init__(config.vocab, config.dim, config.tied)
        self.layers = [Layer(config) for _ in range(config.layers)]
        self.norm = RMSNorm(config.dim, config.eps)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        rank = config.get("time_step_rank")
        return cls(
            MambaConfig(
                config["vocab_size"],
                config["hidden_size"],
                config["num_hidden_layers"],
                config["state_size"],
                config["conv_kernel"],
                config["expand"],
                rank if isinstance(rank, int) else None,
                config["layer_norm_epsilon"],
                config["use_bias"],
                config["use_conv_bias"],
                config.get("tie_word_embeddings", True),
            )
        )

    def new_states(self, batch: int) -> list[States]:
        """The states of `batch` sequences before their first token."""
        config = self.config
        device = self.embed.weight.device
        shapes = ((batch, config.inner, config.kernel - 1), (batch, config.inner, config.state))
        return [tuple(Tensor.zeros(*shape, device=device) for shape in shapes) for _ in self.layers]
