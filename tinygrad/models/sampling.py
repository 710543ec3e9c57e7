"""Which token comes next, from the scores of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.errors import ArgumentError

Scores = NDArray[np.float32]


LEGAL: dict[str, tuple[type, Callable[[Any], bool]]] = {
    "repetition_penalty": (Real, lambda number: number > 0),
    "temperature": (Real, lambda number: number >= 0),
    "top_k": (Integral, lambda number: number >= 0),
    "top_p": (Real, lambda number: 0 < number <= 1),
    "min_p": (Real, lambda number: 0 <= number <= 1),
    "seed": (Integral, lambda number: number >= 0),
}


@dataclass
class Sampler:
    """Draws a token for each sequence; the filters apply in the order of the arguments.

    Args:
        repetition_penalty: scores of tokens seen before are made so many times worse.
            (Keskar and others, "CTRL", 2019.)
        temperature: the scores are divided by it; 0 takes the best.
        top_k: only the best so many; 0: all.
        top_p: only the likeliest that together have this probability. (Holtzman and others, "The
            Curious Case of Neural Text Degeneration", 2020.)
        min_p: only those at least so likely, relative to the likeliest. (Nguyen and others,
            "Turning Up the Heat", 2024.)
        seed: of the draws.

    Raises:
        ArgumentError: an argument out of its range.

    >>> Sampler(temperature=0)(np.float32([[0.1, 0.7, 0.2]]), [[]])
    [1]
    """

    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    random: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name, (kind, is_legal) in LEGAL.items():
            value = getattr(self, name)
            if name == "seed" and value is None:
                continue
            if not isinstance(value, kind) or isinstance(value, bool) or not is_legal(value):
                raise ArgumentError(
                    f"Sampler: {name} is {value!r}; legal are repetition_penalty > 0, temperature "
                    "≥ 0, whole numbers top_k ≥ 0 and seed ≥ 0, 0 < top_p ≤ 1, 0 ≤ min_p ≤ 1"
                )
        self.random = np.random.default_rng(self.seed)

    def __call__(self, scores: Scores, seen: list[list[int]]) -> list[int]:
        """One token for each row of scores (batch, vocab), where `seen` are the rows' tokens.

        Raises:
            ArgumentError: a row has scores that are NaN or infinite, or none that is not -inf.
        """
        scores = penalised(scores, seen, self.repetition_penalty)
        best = scores.max(-1, keepdims=True)
        if not np.isfinite(best).all():
            raise ArgumentError(
                f"Sampler: the best scores are {best[:, 0].tolist()}; legal are finite ones"
            )
        if self.temperature == 0:
            return [int(i) for i in scores.argmax(-1)]
        with np.errstate(over="ignore"):  # a small temperature leaves the best alone
            scores = (scores - best) / self.temperature
        shares = probabilities(self.filtered(scores))
        return [self._draw(row) for row in shares]

    def filtered(self, scores: Scores) -> Scores:
        """The scores, with -inf for what may not be drawn."""
        if 0 < self.top_k < scores.shape[-1]:
            least = np.partition(scores, -self.top_k, -1)[:, -self.top_k, None]
            scores = np.where(scores < least, -np.inf, scores)
        if self.top_p < 1:
            kept = np.stack([self._nucleus(shares) for shares in probabilities(scores)])
            scores = np.where(kept, scores, -np.inf)
        if self.min_p > 0:
            shares = probabilities(scores)
            scores = np.where(shares < self.min_p * shares.max(-1, keepdims=True), -np.inf, scores)
        return scores

    def _nucleus(self, shares: NDArray[Any]) -> NDArray[np.bool_]:
        """(vocab,): the fewest of the likeliest that together have `top_p`; of equals the last."""
        ordered = np.sort(shares)[::-1]
        count = int((ordered.cumsum() - ordered < self.top_p).sum())
        least = ordered[count - 1]
        kept = np.asarray(shares > least)
        equal = np.flatnonzero(shares == least)
        kept[equal[len(equal) - (count - kept.sum()) :]] = True
        return kept

    def _draw(self, shares: NDArray[Any]) -> int:
        totals = shares.astype(np.float64).cumsum()
        return int(np.searchsorted(totals, self.random.random() * totals[-1], "right"))


def probabilities(scores: Scores) -> NDArray[Any]:
    """The softmax of each row."""
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def penalised(scores: Scores, seen: list[list[int]], penalty: float) -> Scores:
    """Scores of tokens seen before, divided by `penalty` if positive, else multiplied."""
    if penalty == 1:
        return scores
    scores = scores.copy()
    for row, tokens in zip(scores, seen, strict=True):
        of = row[tokens]
        row[tokens] = np.where(of > 0, of / penalty, of * penalty)
    return scores
