"""Text from a decoder: the prompt in chunks, then token by token, each one captured step.

    for tokens in stream(model, [[1, 15, 7]], Sampler(temperature=0.8), most=100):
        print(tokenizer.decode(tokens[0]), end="")

Prompts of different lengths are padded at the front, so that all end at the same place.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.engine.jit import TinyJit
from tinygrad.models.cache import Cache, Turn
from tinygrad.models.sampling import Sampler, Scores
from tinygrad.models.states import States
from tinygrad.tensor import Tensor
from tinygrad.uop.node import UOp

Chooses = Callable[[Scores, list[list[int]]], list[int]]  # as a Sampler does

CHUNKS = (512, 64, 8)
"""Tokens of a prompt that one step takes: the longer, the more of them share reading the weights.
The rest of the last one is padding."""

CHUNK = 64  # and where states go from token to token, which is text of a kernel for each


class Decodes(Protocol):
    """A model that looks back at a cache of what it has seen."""

    def __call__(self, tokens: Tensor, turn: Turn | None = None) -> Tensor:
        """Tokens (batch, tokens) → scores (batch, tokens, vocab)."""

    @property
    def longest(self) -> int | None:
        """Tokens that a text may have; None: any number."""

    def new_cache(self, batch: int, length: int) -> Cache:
        """Room for what the sequences leave behind."""


@runtime_checkable
class Recurs(Protocol):
    """A model that keeps states of fixed size of what it has seen."""

    def advanced(self, tokens: Tensor, before: list[States]) -> tuple[Tensor, list[States]]:
        """Tokens, and the states of what came before them → scores, and the states after them."""

    def new_states(self, batch: int) -> list[States]:
        """The states of `batch` sequences before their first token."""


def generate(
    model: Decodes | Recurs,
    prompts: Sequence[Sequence[int]],
    sampler: Chooses | None = None,
    most: int = 100,
    stop: Collection[int] = (),
) -> list[list[int]]:
    """What follows each prompt, see `stream`; a sequence ends before its first `stop` token."""
    texts: list[list[int]] = [[] for _ in prompts]
    for tokens in stream(model, prompts, sampler, most, stop):
        for text, token in zip(texts, tokens, strict=True):
            if token is not None:
                text.append(token)
    return texts


def stream(
    model: Decodes | Recurs,
    prompts: Sequence[Sequence[int]],
    sampler: Chooses | None = None,
    most: int = 100,
    stop: Collection[int] = (),
) -> Iterator[list[int | None]]:
    """The next token of each sequence, as they are made; None once a sequence has ended.

    Args:
        model: a decoder.
        prompts: tokens of each sequence; lengths may differ.
        sampler: how to choose; None takes the best.
        most: how many tokens follow at most.
        stop: tokens that end a sequence; they are not given out.

    Raises:
        ArgumentError: no prompt, an empty one, or what isn't made of whole numbers.
    """
    seen, most, stop = _whole(prompts, most, stop)
    sampler = sampler or Sampler(temperature=0)
    steps: CacheSteps | StateSteps
    if isinstance(model, Recurs):
        steps = StateSteps(model, len(seen))
    else:
        steps = CacheSteps(model, len(seen), max(map(len, seen)) + most)
    scores = steps.prompts(seen)
    ended = [False] * len(seen)
    for made in range(1, most + 1):
        tokens = sampler(scores, seen)
        ended = [end or token in stop for end, token in zip(ended, tokens, strict=True)]
        if all(ended):
            return
        for text, token in zip(seen, tokens, strict=True):
            text.append(token)
        yield [None if end else token for end, token in zip(ended, tokens, strict=True)]
        if made < most:
            scores = steps.tokens(tokens)


def _whole(
    prompts: Sequence[Sequence[int]], most: int, stop: Collection[int]
) -> tuple[list[list[int]], int, Collection[int]]:
    """The same as lists, a number and a set, checked."""
    try:
        seen = [[operator.index(token) for token in prompt] for prompt in prompts]
        most, stop = operator.index(most), frozenset(map(operator.index, stop))
    except TypeError as error:
        raise ArgumentError(
            f"generate: {error}; legal are prompts that are lists of whole numbers, a whole number "
            "`most` and a collection of them to `stop` at"
        ) from error
    if not seen or not all(seen) or most < 0:
        raise ArgumentError(
            f"generate: prompts of {[len(p) for p in seen]} tokens, and {most} to follow; legal "
            "are one or more prompts of one token or more, and 0 or more to follow"
        )
    return seen, most, stop


class CacheSteps:
    """A model and its cache, captured: scores of what comes after the tokens so far.

    Args:
        model: a decoder.
        batch: sequences.
        length: tokens that each may get.
    """

    def __init__(self, model: Decodes, batch: int, length: int) -> None:
        if model.longest is not None and length > model.longest:
            raise ArgumentError(
                f"generate: {length} tokens, prompt included; the model's texts have at most "
                f"{model.longest}"
            )
        room = length + CHUNKS[-1] - 1  # the last chunk of a prompt may be padded
        self.cache = model.new_cache(batch, room)
        self._model = model
        self._place = UOp.variable("place", 0, room)
        self._whole = UOp.variable("whole", 1, room)
        self._padding: Tensor | None = None
        self._captured: dict[tuple[int, bool], Any] = {}
        self.start = 0  # tokens so far, padding included
        self.prompt = 0  # tokens of the longest prompt

    def prompts(self, prompts: Sequence[Sequence[int]]) -> Scores:
        """Takes the prompts, at the start. Returns scores (batch, vocab)."""
        self.prompt = longest = max(map(len, prompts))
        if any(len(prompt) < longest for prompt in prompts):
            missing = [longest - len(prompt) for prompt in prompts]
            self._padding = Tensor(missing, dtype=dtypes.int32, device=self.cache.device).realize()
        padded = padded_front(prompts)
        while self.start < longest:
            rest = longest - self.start
            most = min(rest * 4 // 3, self.cache.length - self.start)  # a quarter may be padding
            size = next((n for n in CHUNKS if n <= most), CHUNKS[-1])
            scores = self._step(padded[:, self.start : self.start + size], size)
        return scores

    def tokens(self, tokens: Sequence[int]) -> Scores:
        """Takes one token for each sequence. Returns scores (batch, vocab)."""
        return self._step(np.array(tokens, np.int32).reshape(-1, 1), 1)

    def _step(self, tokens: NDArray[np.int32], size: int) -> Scores:
        """The scores after `tokens`, of at most `size` each."""
        count = tokens.shape[1]
        if self.start + size > self.cache.length:
            raise ArgumentError(
                f"generate: {self.start + count} tokens; the cache has room for {self.cache.length}"
            )
        first = self.start == 0 and size > 1  # of fixed sizes: there are no other keys
        if (size, first) not in self._captured:
            last = UOp.variable("last", 0, size - 1) if size > 1 else 0
            self._captured[size, first] = TinyJit(self._scores), last
        step, last = self._captured[size, first]
        if count < size:
            tokens = np.pad(tokens, ((0, 0), (0, size - count)))
        at = last.bind(count - 1) if isinstance(last, UOp) else last
        start = 0 if first else self._place.bind(self.start)
        whole = self._whole.bind(max(self.prompt, self.start + count))
        given = Tensor(tokens, device=self.cache.device)
        found: Scores = step(given, start, at, whole).numpy()
        self.start += count
        return found

    def _scores(self, tokens: Tensor, start: int | UOp, last: int | UOp, whole: UOp) -> Tensor:
        """(batch, vocab): the scores after the token at `last`."""
        scores = self._model(tokens, Turn(start, self._padding, self.cache, whole))
        return scores[:, last].cast(dtypes.float32).realize()


class StateSteps:
    """A recurrent model and its states, captured: scores of what comes after the tokens so far.

    Args:
        model: a recurrent model.
        batch: sequences.
    """

    def __init__(self, model: Recurs, batch: int) -> None:
        self.states = [
            tuple(t.contiguous().realize() for t in layer) for layer in model.new_states(batch)
        ]
        self._model, self._batch = model, batch
        self._captured = TinyJit(self._scores)

    def prompts(self, prompts: Sequence[Sequence[int]]) -> Scores:
        """Takes the prompts, at the start. Returns scores (batch, vocab)."""
        padded = padded_front(prompts)
        length = padded.shape[1]
        padding = np.array([length - len(prompt) for prompt in prompts])
        start = 0
        while start < length:  # padding must leave the states as they are, so it goes one by one
            whole = start >= padding.max() and start + CHUNK <= length
            stop = start + (CHUNK if whole else 1)
            scores = self._step(padded[:, start:stop], start >= padding)
            start = stop
        return scores

    def tokens(self, tokens: Sequence[int]) -> Scores:
        """Takes one token for each sequence. Returns scores (batch, vocab)."""
        return self._step(np.array(tokens, np.int32).reshape(-1, 1), np.ones(self._batch, bool))

    def _step(self, tokens: NDArray[np.int32], counts: NDArray[np.bool_]) -> Scores:
        size = tokens.shape[1]  # part of the key: each size is captured for itself
        device = self.states[0][0].device
        given = Tensor(tokens, device=device), Tensor(counts, device=device)
        found: Scores = self._captured(*given, size).numpy()
        return found

    def _scores(self, tokens: Tensor, counts: Tensor, size: int) -> Tensor:
        """(batch, vocab): scores after the last token; sequences that don't count stay."""
        scores, after = self._model.advanced(tokens, self.states)
        for before, layer in zip(self.states, after, strict=True):
            for state, value in zip(before, layer, strict=True):
                own = counts.reshape(-1, *(1,) * (state.ndim - 1))
                state.assign(own.where(value, state))
        last = scores[:, size - 1].cast(dtypes.float32)
        return last.realize(*(state for layer in self.states for state in layer))


def padded_front(prompts: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    """(batch, longest): the prompts, with 0 before those that are shorter."""
    longest = max(map(len, prompts))
    return np.array([[0] * (longest - len(p)) + list(p) for p in prompts], np.int32)
