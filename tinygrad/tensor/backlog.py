"""What a program puts off, and puts off again: values that a loop makes and nobody reads before its
end, as `right = right + (guess == label).sum()`, a norm's averages, `guesses.append(...)`. Each
waits with all that it is made of, batches among it, and the end would compute them in one plan,
which no other time needs.

So they are computed once a line has made a few of them, if they are small and no gradient can be
asked through them: whoever looks can't tell."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from math import prod
from operator import attrgetter
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import Recent
from tinygrad.engine.holders import Promised, holders
from tinygrad.tensor.looks import Look
from tinygrad.tensor.promise import Promise, Template

MOST = 8
"""Values of one line that may wait."""

MOST_ELEMENTS = 1 << 12
"""Larger ones wait as long as they like: they could take more than what they are made of."""


def may_be_put_off(look: Look | None, wants: bool | None) -> bool:
    """Whether this is about values that look so, and want a gradient or not."""
    is_asked = wants is not False and (look is None or dtypes.is_float(look.dtype))
    return not is_asked and look is not None and prod(look.shape) <= MOST_ELEMENTS


_put_off: Recent[Hashable, bool] = Recent(256)
"""The lines, each with what it makes, whose values are put off: from then on each is computed when
it is used once more, so that all turns of a loop have one plan."""


def is_put_off(tensor: Any, promise: Promise) -> bool:
    """Whether the line that makes a value makes it of what it made before, again and again, and of
    storage that is newer than that each time: the next batch, not the next layer. What was made
    just now may be about to be written, after which this is asked again."""
    made = promise.expression
    if (made.depth < MOST and not _put_off) or tensor.serial == holders.newest:
        return False
    if not may_be_put_off(promise.look, promise.wants):
        return False
    line = made.template, made.origin
    if line in _put_off:
        return True
    if made.depth // MOST == max([source.depth for source in made.sources], default=0) // MOST:
        return False  # so the others are looked for once in a few times
    alike = [each for each in made.below() if (each.template, each.origin) == line]
    turns = pairwise(sorted(alike, key=attrgetter("depth"), reverse=True))
    if sum([later.newest > earlier.serial for later, earlier in turns]) < MOST - 1:
        return False
    _put_off[line] = True
    return True


def compute_backlog(template: Template) -> None:
    """Computes, one by one, the values of a template that are held and wait, if they are many. It
    has made another one."""
    template.made += 1
    if template.made % MOST or holders.are_apart:
        return
    living: list[Any] = Promised.holders.living()
    waiting = [each for each in living if _is_of(template, each._source)]
    for tensor in waiting if len(waiting) >= MOST else ():
        tensor._compute_now()


def _is_of(template: Template, source: Any) -> bool:
    is_open = type(source) is Promise and not source.is_computed
    return is_open and source.expression.template is template
