"""Layers made of layers, and layers that only move elements, for use in lists of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.base.errors import ArgumentError
from tinygrad.nn.held import held
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_types

Sizes = int | tuple[int, ...]


class Sequential(list[Callable[..., Any]]):
    """A list of layers that is called as one. Its tensors are named by their positions: "0.weight".

    >>> Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))(Tensor.ones(5, 2)).shape
    (5, 1)
    """

    def __init__(self, *layers: Callable[..., Any]) -> None:
        legal = "layers one by one: Sequential(*list)"
        check_types("Sequential", layers, Callable, legal, ArgumentError)
        super().__init__(layers)

    def __call__(self, x: Any) -> Any:
        """Each layer applied to the result of the one before."""
        for layer in self:
            x = layer(x)
        return x


# ---- that move elements --------------------------------------------------------------------------


def _flat(x: Tensor, start_dim: int = 1, end_dim: int = -1) -> Tensor:
    """The axes from start_dim to end_dim as one.

    >>> nn.Flatten()(Tensor.ones(2, 3, 4)).shape
    (2, 12)
    """
    return x.flatten(start_dim, end_dim)


def _parted(x: Tensor, dim: int, unflattened_size: tuple[int, ...]) -> Tensor:
    """One axis as several.

    >>> nn.Unflatten(1, (2, 3))(Tensor.ones(2, 6)).shape
    (2, 2, 3)
    """
    return x.unflatten(dim, tuple(unflattened_size))


def _padded(axes: int, mode: str, x: Tensor, padding: Sizes, value: float = 0.0) -> Tensor:
    """Pads the last axes: `padding` elements on each side, or a number for each side, the last axis
    first. The name says what the elements are, like the modes of `Tensor.pad`.

    >>> nn.ZeroPad2d(1)(Tensor.ones(1, 1, 2, 2)).shape
    (1, 1, 4, 4)
    """
    sides = (padding,) * (2 * axes) if isinstance(padding, int) else tuple(padding)
    if len(sides) != 2 * axes:
        raise ArgumentError(f"pad: {padding}; legal is a number, or {2 * axes} of them")
    return x.pad(sides, mode, value)


def _pad(name: str, axes: int, mode: str) -> Any:
    def pad(x: Tensor, padding: Sizes) -> Tensor:
        return _padded(axes, mode, x, padding)

    pad.__doc__ = _padded.__doc__
    return held(name, pad)


def _pad_by(name: str, axes: int) -> Any:
    def pad(x: Tensor, padding: Sizes, value: float) -> Tensor:
        return _padded(axes, "constant", x, padding, value)

    pad.__doc__ = _padded.__doc__
    return held(name, pad)


Flatten = held("Flatten", _flat)
Unflatten = held("Unflatten", _parted)
ZeroPad1d = _pad("ZeroPad1d", 1, "constant")
ZeroPad2d = _pad("ZeroPad2d", 2, "constant")
ZeroPad3d = _pad("ZeroPad3d", 3, "constant")
ReflectionPad1d = _pad("ReflectionPad1d", 1, "reflect")
ReflectionPad2d = _pad("ReflectionPad2d", 2, "reflect")
ReflectionPad3d = _pad("ReflectionPad3d", 3, "reflect")
ReplicationPad1d = _pad("ReplicationPad1d", 1, "replicate")
ReplicationPad2d = _pad("ReplicationPad2d", 2, "replicate")
ReplicationPad3d = _pad("ReplicationPad3d", 3, "replicate")
CircularPad1d = _pad("CircularPad1d", 1, "circular")
CircularPad2d = _pad("CircularPad2d", 2, "circular")
CircularPad3d = _pad("CircularPad3d", 3, "circular")
ConstantPad1d = _pad_by("ConstantPad1d", 1)
ConstantPad2d = _pad_by("ConstantPad2d", 2)
ConstantPad3d = _pad_by("ConstantPad3d", 3)
