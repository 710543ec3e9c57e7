"""Random streams that programs hold: a seed, and how far one has drawn from it."""

from __future__ import annotations

import itertools
import time
from typing import Any, Self

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, JitError
from tinygrad.base.helpers import plain
from tinygrad.engine.realize import computing
from tinygrad.engine.streams import Stream
from tinygrad.tensor.modes import recording
from tinygrad.uop.node import UOp
from tinygrad.uop.op import threefry

POSITION_LIMIT = 2**62
SEED_LIMIT = 2**63 - 1
_uint64 = dtypes.uint64


class Generator:
    """A stream of random numbers of its own: what others draw changes nothing in it.

    Give it to `rand`, `randn`, `randint` and the like as `generator=`. Its numbers follow from its
    seed and from how many were drawn, on every device, also in captured steps.

    Args:
        seed: whole; a new one each time unless given.

    >>> g = Generator(7)
    >>> first = Tensor.rand(2, generator=g).tolist()
    >>> _ = Tensor.rand(100)
    >>> g.manual_seed(7) is g and Tensor.rand(2, generator=g).tolist() == first
    True
    """

    _numbers = itertools.count()

    def __init__(self, seed: int | None = None) -> None:
        start = time.time_ns() if seed is None else seed
        self._stream = Stream(f"random{next(Generator._numbers)}", _checked(start))

    def __repr__(self) -> str:
        return f"Generator(seed={self._stream.seed}, position={self._stream.position})"

    def initial_seed(self) -> int:
        """The seed that it draws from.

        >>> Generator(7).initial_seed()
        7
        """
        return self._stream.seed

    def manual_seed(self, seed: int) -> Self:
        """Starts anew from `seed`; returns this.

        >>> Generator(7).manual_seed(8)
        Generator(seed=8, position=0)
        """
        self._stream.restart(_checked(seed))
        return self

    def state_dict(self) -> dict[str, int]:
        """The seed and how far it has drawn: all that its next numbers depend on.

        >>> g = Generator(7)
        >>> state, number = g.state_dict(), Tensor.rand(1, generator=g).item()
        >>> g.load_state_dict(state)
        >>> Tensor.rand(1, generator=g).item() == number
        True
        """
        return {"seed": self._stream.seed, "position": self._stream.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on where `state` was taken.

        >>> g = Generator()
        >>> g.load_state_dict({"seed": 7, "position": 3})
        >>> g
        Generator(seed=7, position=3)
        """
        self._stream.restart(_checked(state["seed"]), int(state["position"]))

    def fork(self) -> Generator:
        """A generator whose stream has nothing to do with this one, seeded by this one's next
        number.

        >>> Generator(7).fork().initial_seed() == Generator(7).fork().initial_seed() != 7
        True
        """
        return self.split(1)[0]

    def split(self, count: int) -> list[Generator]:
        """`count` forks.

        >>> a, b = Generator(7).split(2)
        >>> a.initial_seed() == b.initial_seed()
        False
        """
        if computing.recorder is not None:
            raise JitError(
                f"{computing.recorder.name}: forks a generator inside, whose seed replays would "
                "keep; fork it outside"
            )
        first, key = self._stream.take(count), self._stream.seed
        return [Generator(threefry(first + i, key) & SEED_LIMIT) for i in range(count)]

    def draw(self, room: int) -> tuple[UOp, UOp]:
        """Where the numbers of up to `room` elements begin, and the seed, as bound variables.

        >>> position, seed = Generator(7).draw(5)
        >>> position.val, seed.val
        (0, 7)
        """
        if recording.inside:
            raise JitError("an expression draws random numbers, so it can't be remembered")
        position = UOp.variable(self._stream.name, 0, POSITION_LIMIT, dtypes.int64)
        seed = UOp.variable(self._stream.seed_name, 0, SEED_LIMIT, dtypes.int64)
        return position.bind(self._stream.take(room)), seed.bind(self._stream.seed)


def bits_from(position: UOp, seed: UOp, size: Any, device: str) -> UOp:
    """64 bits for each of `size` elements of the stream of a seed, as uint64."""
    start, key = (n.cast(_uint64).broadcast_to((size,)) for n in (position, seed))
    return (UOp.arange(size, device, _uint64) + start).threefry(key)


def _checked(seed: Any) -> int:
    seed = plain(seed)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ArgumentError(f"seed: {seed!r}; legal are whole numbers")
    return seed & SEED_LIMIT


default_generator = Generator(int(time.time()))
"""What `Tensor.rand` and the like draw from when they are given none."""
