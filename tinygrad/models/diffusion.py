"""Stable Diffusion: a picture from noise, step by step, so that it fits a text.

    pipe = StableDiffusion.from_pretrained("folder")
    picture = pipe(pipe.tokens("a mountain lake"), seed=1)        # (1, 3, 512, 512), 0 to 1

(Rombach and others, "High-Resolution Image Synthesis with Latent Diffusion Models", 2022; Song and
others, "Denoising Diffusion Implicit Models", 2021; Ho and Salimans, "Classifier-Free Diffusion
Guidance", 2022.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.engine.jit import TinyJit
from tinygrad.models.checkpoint import Only, read_folder, read_json, reading, refuse_others
from tinygrad.models.checkpoint import load as load_weights
from tinygrad.models.clip import CLIP, TextTower, tower_config
from tinygrad.models.tokenizer import read_tokenizer
from tinygrad.models.unet import UNet
from tinygrad.models.vae import VAE
from tinygrad.tensor import Tensor

ONLY: Only = {  # of scheduler_config.json
    "beta_schedule": ("scaled_linear",),
    "clip_sample": (False,),
    "prediction_type": ("epsilon", "v_prediction"),
    "rescale_betas_zero_snr": (False,),
    "thresholding": (False,),
    "timestep_spacing": ("leading",),
    "trained_betas": (None,),
}


@dataclass(frozen=True)
class Schedule:
    """How much of a picture is left after each of the steps that noise was added in.

    Args:
        steps: of training.
        first: the variance that the first step adds; between it and `last` the square roots are
            evenly spaced.
        last: the variance that the last step adds.
        offset: of the steps that are used.
        final: whether the picture before step 0 is taken to be clean; else as noisy as at step 0.
        kind: what the net predicts: the noise ("epsilon"), or "v_prediction"
            (Salimans and Ho, "Progressive Distillation", 2022).
    """

    steps: int = 1000
    first: float = 0.00085
    last: float = 0.012
    offset: int = 1
    final: bool = False
    kind: str = "epsilon"

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """As scheduler_config.json describes it."""
        refuse_others("diffusion", {"beta_schedule": "linear", **config}, ONLY)
        return cls(
            config.get("num_train_timesteps", 1000),
            config.get("beta_start", 0.0001),
            config.get("beta_end", 0.02),
            config.get("steps_offset", 0),
            config.get("set_alpha_to_one", False),
            config.get("prediction_type", "epsilon"),
        )

    def remaining(self) -> NDArray[np.float64]:
        """(steps,): the share of the picture's variance that is left after each step."""
        roots = np.linspace(self.first**0.5, self.last**0.5, self.steps)
        return np.cumprod(1 - roots**2)

    def used(self, count: int) -> list[int]:
        """The steps that `count` turns go through, noisiest first."""
        every = self.steps // count
        return [i * every + self.offset for i in reversed(range(count))]

    def shares(self, step: int, count: int) -> tuple[float, float]:
        """What is left at `step`, and at the one that follows it."""
        left = self.remaining()
        after = step - self.steps // count
        return float(left[step]), float(
            left[after] if after >= 0 else 1.0 if self.final else left[0]
        )


def cleaned(x: Tensor, predicted: Tensor, now: Tensor, then: Tensor, kind: str) -> Tensor:
    """One step of DDIM: from what is left `now` to `then`, each one number."""
    noise_now = (1 - now).sqrt()
    if kind == "epsilon":
        noise = predicted
        picture = (x - noise_now * noise) / now.sqrt()
    else:
        picture = now.sqrt() * x - noise_now * predicted
        noise = now.sqrt() * predicted + noise_now * x
    return then.sqrt() * picture + (1 - then).sqrt() * noise


class StableDiffusion:
    """Text to image with the weights of Stable Diffusion 1 or 2, in diffusers' layout.

    Args:
        text: the text side of CLIP.
        unet: finds the noise in latents.
        vae: latents to pictures.
        schedule: the steps.
    """

    def __init__(self, text: TextTower, unet: UNet, vae: VAE, schedule: Schedule) -> None:
        self.text, self.unet, self.vae, self.schedule = text, unet, vae, schedule
        self._tokenizer: Path | None = None
        self._step = TinyJit(self._one_step)

    @classmethod
    def from_pretrained(cls, folder: str | Path, dtype: DType | None = None) -> Self:
        """A folder with text_encoder, unet, vae, scheduler and, for `tokens`, tokenizer.

        Raises:
            ArgumentError: files or weights are missing.
        """
        folder = Path(folder)
        config, state = read_folder(folder / "text_encoder")
        refuse_others(
            "StableDiffusion's text_encoder", config, {"model_type": ("clip_text_model",)}
        )
        with reading("StableDiffusion's text_encoder"):
            tower = tower_config(config)
            text = TextTower(tower, config["vocab_size"], config["max_position_embeddings"])
        names = {  # only the text side is there; some files leave its prefix out
            theirs.removeprefix("text_model."): ours and str(ours).removeprefix("text.")
            for theirs, ours in CLIP.NAMES.items()
            if theirs.startswith("text_model.")
        }
        state = {name.removeprefix("text_model."): tensor for name, tensor in state.items()}
        load_weights(text, state, names)
        with reading("Schedule"):
            said = read_json(folder / "scheduler", "scheduler_config.json")
            schedule = Schedule.from_config(said)
        made = cls(
            text,
            UNet.from_pretrained(folder / "unet", dtype=dtype),
            VAE.from_pretrained(folder / "vae"),
            schedule,
        )
        made._tokenizer = folder / "tokenizer"
        return made

    def tokens(self, *texts: str) -> Tensor:
        """(texts, length): numbers of each text's parts, as CLIP's tokenizer makes them."""
        if self._tokenizer is None:
            raise ArgumentError("StableDiffusion: no tokenizer; legal is from_pretrained's folder")
        length = self.text.places.weight.shape[0]
        return read_tokenizer(self._tokenizer).rows(texts, length)

    def __call__(
        self,
        tokens: Tensor,
        without: Tensor | None = None,
        steps: int = 50,
        guidance: float = 7.5,
        height: int = 512,
        width: int = 512,
        seed: int = 0,
    ) -> Tensor:
        """Pictures (batch, 3, height, width) from 0 to 1 that fit the texts (batch, tokens)."""
        *_, latents = self.stream(tokens, without, steps, guidance, height, width, seed)
        return (self.vae.decode(latents) / 2 + 0.5).clip(0, 1).realize()

    def stream(
        self,
        tokens: Tensor,
        without: Tensor | None = None,
        steps: int = 50,
        guidance: float = 7.5,
        height: int = 512,
        width: int = 512,
        seed: int = 0,
        start: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """The latents (batch, 4, height / 8, width / 8) after each step.

        Args:
            tokens: of the texts (batch, length).
            without: of texts that the pictures shall not fit; None: token 0 throughout.
            steps: more are slower and better.
            guidance: how far to go from what fits `without` to what fits the text.
            height: of the picture, a multiple of 64.
            width: of the picture, a multiple of 64.
            seed: of the noise at the begin.
            start: that noise itself, instead.
        """
        if height % 64 or width % 64:
            raise ArgumentError(f"StableDiffusion: {height} x {width}; legal are multiples of 64")
        if not 0 < steps <= self.schedule.steps:
            raise ArgumentError(
                f"StableDiffusion: {steps} steps; legal are 1 to {self.schedule.steps}"
            )
        without = tokens.zeros_like() if without is None else without
        text = self.text(without.cat(tokens)).realize()  # (2·batch, length, features)
        shape = (tokens.shape[0], self.unet.config.channels, height // 8, width // 8)
        if start is None:
            noise = np.random.default_rng(seed).standard_normal(shape, np.float32)
            start = Tensor(noise, device=text.device)
        x = start.realize()
        for step in self.schedule.used(steps):
            now, then = self.schedule.shares(step, steps)
            numbers = Tensor(
                [step, now, then, guidance], dtype=dtypes.float32, device=text.device
            ).realize()
            x = self._step(x, text, numbers)
            yield x

    def _one_step(self, x: Tensor, text: Tensor, numbers: Tensor) -> Tensor:
        """Latents after a step; numbers: the step, what is left now and then, guidance."""
        step, now, then, guidance = (numbers[i] for i in range(4))
        both = x.cat(x)
        without, fitting = self.unet(both, step.expand(both.shape[0]), text).chunk(2)
        predicted = without + (fitting - without) * guidance
        return cleaned(x, predicted, now, then, self.schedule.kind).realize()
