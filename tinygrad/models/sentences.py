"""Sentences to vectors, whose dot product says how alike two of them are.

    sentences = Sentences.from_pretrained("all-MiniLM-L6-v2")
    a, b = sentences(["A cat sleeps.", "The animal is resting."])
    a @ b

(Reimers and Gurevych, "Sentence-BERT", 2019.) The `tokenizers` library cuts texts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.dtype import dtypes
from tinygrad.engine.jit import TinyJit
from tinygrad.models.bert import SentenceEncoder
from tinygrad.tensor import Tensor

STEP = 16  # lengths are padded to multiples of it, so that few sizes are captured
BATCH = 32  # sentences in one call


class Sentences:
    """A tokenizer and an encoder.

    Args:
        encoder: tokens to vectors.
        tokenizer: a `tokenizers.Tokenizer`.
        longest: tokens of a text; what comes after them doesn't count.
    """

    def __init__(self, encoder: SentenceEncoder, tokenizer: Any, longest: int = 256) -> None:
        self.encoder, self.tokenizer = encoder, tokenizer
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(longest)
        self._steps: dict[tuple[int, int], Any] = {}

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """The model in a folder with config.json, model.safetensors and tokenizer.json."""
        from tokenizers import Tokenizer  # an extra: only who reads texts needs it

        folder = Path(folder)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        settings = folder / "sentence_bert_config.json"
        longest = 256
        if settings.exists():
            longest = json.loads(settings.read_bytes()).get("max_seq_length", longest)
        return cls(SentenceEncoder.from_pretrained(folder), tokenizer, longest)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Texts → vectors of length 1, (texts, dim)."""
        found = np.empty((len(texts), self.encoder.config.dim), np.float32)
        pieces = [piece.ids for piece in self.tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(texts)), key=lambda i: len(pieces[i]))  # alike beside each other
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            found[part] = self._vectors([pieces[i] for i in part])
        return found

    def _vectors(self, pieces: list[list[int]]) -> NDArray[np.float32]:
        longest = max(map(len, pieces))
        length = min(-(-longest // STEP) * STEP, self.encoder.config.length)
        tokens, mask = np.zeros((2, len(pieces), length), np.int32)
        for row, ids in enumerate(pieces):
            tokens[row, : len(ids)] = ids
            mask[row, : len(ids)] = 1
        step = self._steps.get(tokens.shape)
        if step is None:
            step = TinyJit(lambda t, m: self.encoder.embed(t, m).realize())
            self._steps[tokens.shape] = step
        device = self.encoder.words.weight.device
        given = (Tensor(x, dtype=dtypes.int32, device=device).realize() for x in (tokens, mask))
        return np.asarray(step(*given).numpy())
