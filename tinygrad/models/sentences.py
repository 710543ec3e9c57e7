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
from tinygrad.base.errors import ArgumentError
from tinygrad.engine.jit import TinyJit
from tinygrad.models.bert import SentenceEncoder
from tinygrad.models.checkpoint import read_json, refuse_others
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

    prompt = ""  # what stands before each text

    def __init__(self, encoder: SentenceEncoder, tokenizer: Any, longest: int = 256) -> None:
        self.encoder, self.tokenizer = encoder, tokenizer
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(longest)
        self._steps: dict[tuple[int, int], Any] = {}

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """The model in a folder with config.json, model.safetensors and tokenizer.json.

        Raises:
            ArgumentError: the files beside it say that vectors are made in another way.
        """
        from tokenizers import Tokenizer  # an extra: only who reads texts needs it

        folder = Path(folder)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        said = _said(folder, "sentence_bert_config.json")
        refuse_others("Sentences", said, {"do_lower_case": (False,)})
        first, prompt = _is_first(folder), _prompt(folder)
        made = cls(
            SentenceEncoder.from_pretrained(folder), tokenizer, said.get("max_seq_length") or 256
        )
        made.encoder.first, made.prompt = first, prompt
        return made

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Texts → vectors of length 1, (texts, dim)."""
        found = np.empty((len(texts), self.encoder.config.dim), np.float32)
        whole = [self.prompt + text for text in texts]
        pieces = [piece.ids for piece in self.tokenizer.encode_batch(whole)]
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


# ---- what sentence-transformers writes beside a model --------------------------------------------

POOLS = {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
"""How a sentence's vector is made of its tokens': whether it is the first."""

STEPS = ("Transformer", "Pooling", "Normalize")


def _said(folder: Path, name: str) -> dict[str, Any]:
    return read_json(folder, name) if (folder / name).is_file() else {}


def _is_first(folder: Path) -> bool:
    """Whether a sentence's vector is that of its first token, not the mean of all."""
    file = folder / "modules.json"
    steps = json.loads(file.read_bytes()) if file.is_file() else []
    kinds = [step["type"].rpartition(".")[2] for step in steps]
    if others := [kind for kind in kinds if kind not in STEPS]:
        raise ArgumentError(f"Sentences: modules.json has {others[0]}; legal are {STEPS}")
    paths = [step["path"] for step, kind in zip(steps, kinds, strict=True) if kind == "Pooling"]
    said = _said(folder, f"{paths[0] if paths else '1_Pooling'}/config.json")
    chosen = [name for name, on in said.items() if name.startswith("pooling_mode") and on]
    if not chosen:
        return False
    if len(chosen) > 1 or chosen[0] not in POOLS:
        raise ArgumentError(
            f"Sentences: {' and '.join(chosen)}; legal is one of {', '.join(POOLS)}"
        )
    return POOLS[chosen[0]]


def _prompt(folder: Path) -> str:
    """What stands before each text unless its user says something else."""
    said = _said(folder, "config_sentence_transformers.json")
    name = said.get("default_prompt_name")
    return "" if name is None else str(said["prompts"][name])
