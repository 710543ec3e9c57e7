"""Texts in and out of models that were loaded from a folder, whose tokenizer is there too.

model = Llama.from_pretrained("llama-3/")
for piece in write(model, "Once upon a time"):
    print(piece, end="", flush=True)
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygrad.models.generate import Chooses, Decodes, Recurs, stream
from tinygrad.models.sampling import Sampler, Scores
from tinygrad.models.t5 import T5
from tinygrad.models.tokenizer import Tokenizer, read_tokenizer
from tinygrad.models.whisper import RATE, Whisper, log_mel
from tinygrad.tensor import Tensor

Writes = Decodes | Recurs | T5


def write(
    model: Writes,
    text: str,
    sampler: Sampler | None = None,
    most: int = 100,
    tokenizer: Tokenizer | None = None,
) -> Iterator[str]:
    """What follows a text, or answers it, piece by piece as it is made.

    Args:
        model: a decoder, or a T5.
        text: the prompt; of one token at least.
        sampler: how to choose; None takes the best.
        most: how many tokens follow at most.
        tokenizer: None: that of the folder, or GGUF file, that the model is from.

    Raises:
        ArgumentError: there is no tokenizer, or the text has no token.
    """
    tokenizer = tokenizer or tokenizer_of(model)
    tokens = tokenizer.encode(text)
    if isinstance(model, T5):
        reading = model.read(Tensor([tokens], dtype="int32", device=model.embed.weight.device))
        made = stream(reading, [[model.config.start]], sampler, most, tokenizer.stop)
        tokens = []
    else:
        made = stream(model, [tokens], sampler, most, tokenizer.stop)
    yield from tokenizer.pieces((token for (token,) in made if token is not None), tokens)


def tokenizer_of(model: Any) -> Tokenizer:
    """The tokenizer beside the weights that a model was loaded from.

    Raises:
        ArgumentError: the model is not from a folder, or there is no tokenizer.
    """
    return read_tokenizer(model.loaded_from())


# ---- sound ---------------------------------------------------------------------------------------


def transcribe(
    model: Whisper,
    sound: NDArray[Any],
    language: str = "en",
    task: str = "transcribe",
    sampler: Sampler | None = None,
    tokenizer: Tokenizer | None = None,
) -> Iterator[str]:
    """What is said, piece by piece; a long sound in parts of 30 seconds, each for itself.

    Args:
        model: a Whisper.
        sound: one channel (samples,), 16,000 a second, from -1 to 1.
        language: a word of Whisper's, such as "en"; models of English alone don't look at it.
        task: "transcribe", or "translate" into English.
        sampler: how to choose; None takes the best.
        tokenizer: None: that of the folder that the model is from.

    Raises:
        ArgumentError: there is no tokenizer, or no such language or task.
    """
    tokenizer = tokenizer or tokenizer_of(model)
    facts = _generation_facts(model)
    start = [facts.get("decoder_start_token_id", tokenizer.number("<|startoftranscript|>"))]
    if facts.get("is_multilingual", True):
        start += [tokenizer.number(f"<|{language}|>"), tokenizer.number(f"<|{task}|>")]
    start.append(tokenizer.number("<|notimestamps|>"))
    chooses = _Silenced(
        sampler or Sampler(temperature=0),
        facts.get("suppress_tokens") or (),
        facts.get("begin_suppress_tokens") or (),
        len(start),
    )
    seconds = model.config.frames / 50
    part = round(seconds * RATE)
    most = model.config.length - len(start)
    device = model.decoder.embed.weight.device
    for begin in range(0, max(len(sound), 1), part):
        mels = log_mel(sound[begin : begin + part], model.config.mels, seconds)
        heard = model.heard(Tensor(mels, device=device).unsqueeze(0))
        made = stream(heard, [start], chooses, most, tokenizer.stop)
        yield from tokenizer.pieces(token for (token,) in made if token is not None)


def _generation_facts(model: Whisper) -> dict[str, Any]:
    file = model.loaded_from() / "generation_config.json"
    found: dict[str, Any] = json.loads(file.read_bytes()) if file.is_file() else {}
    return found


@dataclass(frozen=True)
class _Silenced:
    """A sampler that never draws some tokens, and some not as the first of a text."""

    sampler: Chooses
    never: Collection[int]
    not_first: Collection[int]
    begin: int  # tokens before the first

    def __call__(self, scores: Scores, seen: list[list[int]]) -> list[int]:
        scores = scores.copy()
        scores[:, list(self.never)] = -np.inf
        for row, tokens in zip(scores, seen, strict=True):
            if len(tokens) == self.begin:
                row[list(self.not_first)] = -np.inf
        return self.sampler(scores, seen)
