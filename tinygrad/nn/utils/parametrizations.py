"""Weights that are computed from other tensors each time they are read. The layer's `weight`
becomes a property, and the tensors that it is computed from become parameters beside it, with the
names that PyTorch's checkpoints have."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeVar

from tinygrad.base.errors import ArgumentError
from tinygrad.tensor import Tensor

__all__ = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]

Layer = TypeVar("Layer")


class Parametrization(ABC):
    """How a weight is computed from other tensors."""

    @abstractmethod
    def parts(self, weight: Tensor) -> dict[str, Tensor]:
        """The first values of the tensors that it is computed from, by the endings of their
        names."""

    @abstractmethod
    def made(self, layer: Any, name: str) -> Tensor:
        """The weight of this name, computed from what the layer holds."""


def parametrized(layer: Layer, name: str, how: Parametrization) -> Layer:
    """The layer, whose weight `name` is computed from other tensors from now on."""
    weight = vars(layer).get(name)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"{type(how).__name__}: no weight {name!r} in {layer!r}")
    for ending, part in how.parts(weight).items():
        setattr(layer, name + ending, part)
    delattr(layer, name)
    kind: Any = type(layer)
    layer.__class__ = _class_with(kind, name, how)
    return layer


@functools.cache
def _class_with(base: type[Any], name: str, how: Parametrization) -> type[Any]:
    """The layer's class, in which the weight is a property."""
    members = {
        name: property(lambda layer: how.made(layer, name)),
        "made_of": (base, name, how),
        "__reduce__": lambda layer: (_empty, (base, name, how), vars(layer)),
    }
    return type(base.__name__, (base,), members)


def _empty(base: type[Any], name: str, how: Parametrization) -> Any:
    """A layer without anything in it, to be unpickled."""
    kind: Any = base
    return object.__new__(_class_with(kind, name, how))


def _removed(layer: Layer, name: str, kind: type[Parametrization]) -> Layer:
    base, found, how = getattr(layer, "made_of", (None, None, None))
    if base is None or found != name or not isinstance(how, kind):
        raise ArgumentError(f"remove: {name!r} of {layer!r} has no {kind.__name__}")
    with Tensor.train(False):
        weight = getattr(layer, name).detach().contiguous().realize()
    for ending in how.parts(weight):
        delattr(layer, name + ending)
    layer.__class__ = base
    setattr(layer, name, weight.requires_grad_())
    return layer


# ---- length and direction ------------------------------------------------------------------------


@dataclass(frozen=True)
class WeightNorm(Parametrization):
    """A length, `_g`, and a direction, `_v`, whose own length does not matter."""

    dim: int | None

    def parts(self, weight: Tensor) -> dict[str, Tensor]:
        """At first those that make the weight that there was."""
        length = self._length(weight).detach().contiguous().requires_grad_()
        return {"_g": length, "_v": weight.detach().contiguous().requires_grad_()}

    def made(self, layer: Any, name: str) -> Tensor:
        """The direction, in that length."""
        length: Tensor = getattr(layer, f"{name}_g")
        direction: Tensor = getattr(layer, f"{name}_v")
        return direction * (length / self._length(direction))

    def _length(self, weight: Tensor) -> Tensor:
        """Of each slice along `dim`, in a shape to multiply by; of all, of shape ()."""
        if self.dim is None or self.dim == -1:
            return weight.square().sum().sqrt()
        axes = [i for i in range(weight.ndim) if i != self.dim % weight.ndim]
        return weight.square().sum(axes, keepdim=True).sqrt()


def weight_norm(layer: Layer, name: str = "weight", dim: int | None = 0) -> Layer:
    """The layer, whose weight becomes a direction, `weight_v`, and a length for each slice,
    `weight_g`.

    (Salimans and Kingma, "Weight Normalization", 2016.)

    Args:
        layer: any object that holds the weight.
        name: its name.
        dim: the axis along which slices have lengths of their own; None, or -1 as in PyTorch, for
            one length of all.

    >>> layer = weight_norm(nn.Linear(3, 4))
    >>> layer(Tensor.ones(2, 3)).shape, sorted(nn.state.get_state_dict(layer))
    ((2, 4), ['bias', 'weight_g', 'weight_v'])
    """
    return parametrized(layer, name, WeightNorm(dim))


def remove_weight_norm(layer: Layer, name: str = "weight") -> Layer:
    """The layer, whose weight is one parameter again.

    >>> sorted(nn.state.get_state_dict(remove_weight_norm(weight_norm(nn.Linear(3, 4)))))
    ['bias', 'weight']
    """
    return _removed(layer, name, WeightNorm)


# ---- the largest singular value ------------------------------------------------------------------


@dataclass(frozen=True)
class SpectralNorm(Parametrization):
    """The weight `_orig` divided by its largest singular value, which `_u` and `_v` approximate."""

    n_power_iterations: int
    eps: float
    dim: int

    def parts(self, weight: Tensor) -> dict[str, Tensor]:
        """The first u and v, after some iterations."""
        matrix = self._matrix(weight).detach()
        u, v = (self._unit(Tensor.randn(n, device=matrix.device)) for n in matrix.shape)
        u, v = self._turned(matrix, u, v, 15)
        u, v = (x.contiguous().realize() for x in (u, v))
        u.requires_grad = v.requires_grad = False
        return {"_orig": weight.detach().contiguous().requires_grad_(), "_u": u, "_v": v}

    def made(self, layer: Any, name: str) -> Tensor:
        """The weight; in training, u and v are improved first."""
        weight: Tensor = getattr(layer, f"{name}_orig")
        u, v = getattr(layer, f"{name}_u"), getattr(layer, f"{name}_v")
        matrix = self._matrix(weight)
        new_u, new_v = u, v
        if Tensor.training:
            new_u, new_v = self._turned(matrix.detach(), u, v, self.n_power_iterations)
            u.assign(new_u)
            v.assign(new_v)
        largest: Tensor = new_u.detach().dot(matrix @ new_v.detach())
        return weight / largest

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def _unit(self, x: Tensor) -> Tensor:
        return x / x.square().sum().sqrt().maximum(self.eps)

    def _turned(self, matrix: Tensor, u: Tensor, v: Tensor, turns: int) -> tuple[Tensor, Tensor]:
        for _ in range(turns):
            v = self._unit(u @ matrix)
            u = self._unit(matrix @ v)
        return u, v


def spectral_norm(
    layer: Layer,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int = 0,
) -> Layer:
    """The layer, whose weight becomes `weight_orig` divided by its largest singular value, as a
    matrix of `dim` by all other axes.

    (Miyato and others, "Spectral Normalization for Generative Adversarial Networks", 2018.)

    Args:
        layer: any object that holds the weight.
        name: its name.
        n_power_iterations: turns of the power method each time it is read in training.
        eps: the least length that vectors are divided by.
        dim: the axis of the outputs: 1 for transposed convolutions.

    >>> layer = spectral_norm(nn.Linear(3, 4))
    >>> sorted(nn.state.get_state_dict(layer))
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    if n_power_iterations < 1:
        raise ArgumentError(f"spectral_norm: {n_power_iterations=}; legal is 1 or more")
    return parametrized(layer, name, SpectralNorm(n_power_iterations, eps, dim))


def remove_spectral_norm(layer: Layer, name: str = "weight") -> Layer:
    """The layer, whose weight is one parameter again.

    >>> sorted(nn.state.get_state_dict(remove_spectral_norm(spectral_norm(nn.Linear(3, 4)))))
    ['bias', 'weight']
    """
    return _removed(layer, name, SpectralNorm)
