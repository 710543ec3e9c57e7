"""Random numbers as promises: a distribution is a template whose inputs are the position and the
seed of a stream. So a plain step that draws random numbers can be done again without a graph
(`tensor/again`), and gets the same numbers as by a graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tinygrad.backends import keeps
from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import prod
from tinygrad.base.settings import SPEC
from tinygrad.engine.realize import capturing
from tinygrad.tensor.core import Core
from tinygrad.tensor.generator import POSITION_LIMIT, SEED_LIMIT, Generator, bits_from
from tinygrad.tensor.looks import Look, look_at, look_of_number, stand_in
from tinygrad.tensor.origin import user_line
from tinygrad.tensor.promise import Expression, Promise, Template, write_down
from tinygrad.tensor.version import Bound
from tinygrad.uop.infer import most, settled
from tinygrad.uop.node import UOp

C = TypeVar("C", bound=Core)
Rule = Callable[..., UOp]
"""What a distribution makes of 64 bits for each element, and of more arguments."""

MOST = 256  # templates that are kept; the least recently used goes first
_LIMITS = POSITION_LIMIT, SEED_LIMIT
_bound = functools.lru_cache(MOST)(Bound)


def drawn(
    kind: type[C], generator: Generator, shape: tuple[Any, ...], device: Any, rule: Rule, *args: Any
) -> C:
    """A tensor of what `rule` makes of fresh bits."""
    numbers = generator.draw(prod(map(most, shape)))
    if (
        capturing()
        or type(device) is not str
        or keeps(device)
        or not all([type(n) is int for n in shape])
    ):
        return kind._wrap(_made(numbers, shape, device, rule, *args))
    template, look, looks = _template(kind, shape, device, rule, *args)  # type: ignore[arg-type]
    sources = [_bound(node, each) for node, each in zip(numbers, looks, strict=True)]
    expression = Expression(template, sources, user_line())
    assert not SPEC or _is_right(expression, _made(numbers, shape, device, rule, *args))
    return kind._promised(Promise(expression, 0, look, None))


@functools.lru_cache(MOST, typed=True)
def _template(
    kind: type[C], shape: tuple[int, ...], device: str, rule: Rule, *args: Any
) -> tuple[Template, Look | None, list[Look]]:
    looks = [look_of_number(0, limit, dtypes.int64, device) for limit in _LIMITS]
    holes = [stand_in(look)[0] for look in looks]
    root = _made(holes, shape, device, rule, *args)
    return Template(holes, [root]), look_at(kind, None, root), looks


def _made(numbers: Any, shape: tuple[Any, ...], device: Any, rule: Rule, *args: Any) -> UOp:
    position, seed = numbers
    return rule(bits_from(position, seed, settled(prod(shape)), device).reshape(shape), *args)


def _is_right(expression: Expression, node: UOp) -> bool:
    """Whether what is promised is what the rule makes."""
    return write_down(expression, {})[expression][0] is node
