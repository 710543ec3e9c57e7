"""What a formula of einops says of a shape: axes taken apart, put in another order, and merged."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import prod
from tinygrad.tensor.shapes import Shape, Sint
from tinygrad.uop.infer import settled


def steps_of(
    formula: str, shape: Shape, sizes: Mapping[str, Sint]
) -> tuple[Shape, tuple[int, ...], Shape]:
    """The shape with an axis for each name, the order of these axes, and the shape of the result.

    >>> steps_of("b (h w) -> w b h", (2, 12), {"h": 3})
    ((2, 3, 4), (2, 0, 1), (4, 2, 3))
    """
    left, arrow, right = formula.partition("->")
    before, after = _groups(left), _groups(right)
    if not arrow:
        raise ArgumentError(f"rearrange: {formula!r} lacks ->")
    _check_formula(formula, left, right, sizes)
    dots = len(shape) - sum(group is not DOTS for group in before)
    spread = [f"...{i}" for i in range(dots)] if any(group is DOTS for group in before) else []
    before = _without_dots(before, spread)
    after = _without_dots(after, spread)
    if len(before) != len(shape):
        raise ShapeError(
            f"rearrange: {formula!r} names {len(before)} axes of {shape}; legal is each"
        )
    names = [name for group in before for name in group]
    if sorted(names) != sorted(n for group in after for n in group) or len(set(names)) < len(names):
        raise ArgumentError(f"rearrange: {formula!r} must name each axis once on both sides")
    apart: list[Sint] = []
    for group, total in zip(before, shape, strict=True):
        known = settled(prod(sizes.get(name, 1) for name in group))
        own = [sizes.get(n, total if len(group) == 1 else settled(total // known)) for n in group]
        if settled(prod(own)) != total:
            legal = "" if isinstance(total, int) else "; legal are parts for each size"
            raise ShapeError(
                f"rearrange: ({' '.join(group)}) is {tuple(own)}, the axis has size {total}{legal}"
            )
        apart.extend(own)
    size = dict(zip(names, apart, strict=True))
    order = tuple(names.index(name) for group in after for name in group)
    final = tuple(settled(prod(size[name] for name in group)) for group in after)
    return tuple(apart), order, final


def _check_formula(formula: str, left: str, right: str, sizes: Mapping[str, Sint]) -> None:
    """ArgumentError for what einops refuses: sizes without an axis, brackets that don't match or
    stand in each other, and `...` where it has no meaning."""
    for side in (left, right):
        depths = [side[:i].count("(") - side[:i].count(")") for i in range(len(side) + 1)]
        if depths[-1] or not set(depths) <= {0, 1}:
            raise ArgumentError(f"rearrange: {formula!r}: parentheses of {side.strip()!r}")
    if any("..." in group for group in _groups(left) if group is not DOTS):
        raise ArgumentError(f"rearrange: {formula!r}: ... stands in parentheses on the left")
    if ("..." in left) != ("..." in right) or left.count("...") > 1 or right.count("...") > 1:
        raise ArgumentError(
            f"rearrange: {formula!r}: ... must stand once on both sides, or nowhere"
        )
    if unused := sorted(set(sizes) - {name for group in _groups(left) for name in group}):
        raise ArgumentError(f"rearrange: {formula!r} has no axis {', '.join(unused)}")


DOTS = ["..."]  # the group that `...` outside parentheses is


def _groups(side: str) -> list[list[str]]:
    """`"b (h w)"` as [["b"], ["h", "w"]]; `1` is an axis without a name."""
    groups: list[list[str]] = []
    for group, alone in re.findall(r"\(([^)]*)\)|([^\s()]+)", side):
        if alone == "...":
            groups.append(DOTS)
        else:
            groups.append([name for name in (alone or group).split() if name != "1"])
    return groups


def _without_dots(groups: list[list[str]], spread: list[str]) -> list[list[str]]:
    """`...` as the axes that it stands for: one group each, or all in the group that holds it."""
    out: list[list[str]] = []
    for group in groups:
        if group is DOTS:
            out.extend([name] for name in spread)
        else:
            out.append([n for word in group for n in (spread if word == "..." else [word])])
    return out
