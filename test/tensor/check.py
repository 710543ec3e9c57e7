"""One fact on one line: what a function of tensors gives is what PyTorch's gives, and so is its
gradient. Runs on the device that the environment names (DEV), and asks of its numbers what its
`Target.numerics` promises; with ORACLE=1 values come from the NumPy evaluator of graphs instead, so
that the front end is tested without a compiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensor_reference
import torch

from tinygrad.base.errors import DTypeError
from tinygrad.base.target import Numerics
from tinygrad.engine.devices import Device
from tinygrad.tensor import Tensor

ORACLE = os.environ.get("ORACLE", "0") == "1"
TOLERANCES = {  # dtype of the result: relative, absolute
    "float16": (2e-3, 2e-3),
    "bfloat16": (2e-2, 2e-2),
    "float32": (2e-5, 2e-6),
    "float64": (1e-6, 1e-7),
}


def value(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The tensor's value."""
    return tensor_reference.evaluate(tensor._node) if ORACLE else tensor.numpy()


def inputs(shapes: tuple[Any, ...], low: float, high: float, dtype: str) -> list[Any]:
    """An array for each shape, the same each time; arrays and lists stay as they are."""
    draw = np.random.default_rng(0)
    out = []
    for shape in shapes:
        if isinstance(shape, tuple):
            out.append((draw.random(shape) * (high - low) + low).astype(dtype))
        else:
            out.append(np.array(shape, dtype if isinstance(shape, list) else None))
    return out


INEXACT_DIVISION = 4
"""So many times the tolerance where quotients and square roots are not correctly rounded."""


class Unlike(Exception):
    """A shape or a dtype is another one: wrong on any device, whatever its numbers."""


def numerics() -> Numerics:
    """What numbers mean on the default device."""
    found = Numerics() if ORACLE else Device.default.target.numerics
    assert isinstance(found, Numerics)
    return found


def has_large_sizes() -> bool:
    """Whether facts about large arrays are for this device: what it runs is its own code, with the
    recipes of a processor."""
    target = Device.default.target
    return bool(target.vector and not target.has_groups and target.numerics.values)


def lacks(dtype: str) -> bool:
    """Whether the device has no such numbers, and can't make them of others."""
    return dtype == "float64" and not ORACLE and dtype not in Device.default.target.dtypes


def refused(function: Callable[[], Any]) -> None:
    """The device says that it lacks float64, and what is legal."""
    with pytest.raises(DTypeError, match=r"float64: .*legal are .*float32"):
        function()


def close(ours: Any, theirs: Any, rtol: float | None = None, atol: float | None = None) -> None:
    """Same shape, kind of dtype, and values within the tolerance of the dtype, as far as the device
    promises any."""
    if ours.shape != theirs.shape:
        raise Unlike(f"shape {ours.shape}, PyTorch has {theirs.shape}")
    promised = numerics()
    if not promised.values:
        return
    own = TOLERANCES.get(str(ours.dtype), (0, 0))
    kind = np.float64 if ours.dtype.name in TOLERANCES else ours.dtype
    found, wanted = ours.astype(kind), theirs.astype(kind)
    if not promised.nan and kind is np.float64:
        found, wanted = (np.where(np.isfinite(wanted), x, 0) for x in (found, wanted))
    looser = 1 if promised.exact_division else INEXACT_DIVISION
    tiny = 0 if promised.subnormals or kind is not np.float64 else 2.0**-126
    np.testing.assert_allclose(
        found,
        wanted,
        rtol=looser * (own[0] if rtol is None else rtol),
        atol=looser * (own[1] if atol is None else atol) + tiny,
    )


def to_numpy(x: Any) -> Any:
    x = x.detach()
    return x.float().numpy() if x.dtype is torch.bfloat16 else x.numpy()


def check(
    ours: Callable[..., Any],
    theirs: Callable[..., Any] | None = None,
    *shapes: Any,
    low: float = -2,
    high: float = 2,
    dtype: str = "float32",
    grad: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    same_dtype: bool = True,
) -> None:
    """`ours(*tensors)` is `theirs(*tensors)` (`ours` too unless given), and so are the gradients
    of its sum, weighted so that no two elements count the same. A device without such numbers
    must say so."""
    theirs = theirs or ours
    arrays = inputs(shapes, low, high, dtype)
    floats = grad and all(a.dtype.kind == "f" for a in arrays)
    xs = [Tensor(a, requires_grad=floats) for a in arrays]
    ts = [torch.tensor(a, requires_grad=floats) for a in arrays]
    if lacks(dtype):
        refused(lambda: value(ours(*xs)))
        return
    mine, wanted = ours(*xs), theirs(*ts)
    several = isinstance(mine, (tuple, list))
    for one, other in zip(mine, wanted, strict=True) if several else [(mine, wanted)]:
        close(value(one), to_numpy(other), rtol, atol)
        kind, wanted_kind = value(one).dtype.name, str(other.dtype).removeprefix("torch.")
        if same_dtype and kind != wanted_kind:
            raise Unlike(f"dtype {kind}, PyTorch has {wanted_kind}")
    if not floats:
        return
    mine, wanted = (mine[0], wanted[0]) if several else (mine, wanted)
    weights = np.cos(np.arange(int(np.prod(mine.shape)))).astype(dtype).reshape(mine.shape)
    found = (mine * Tensor(weights)).sum().gradient(*xs, materialize_grads=True)
    if not ORACLE:
        Tensor.realize(*found)  # as a step wants them: all at once
    (wanted * torch.tensor(weights)).sum().backward()
    for ours_, x in zip(found, ts, strict=True):
        assert x.grad is not None
        scale = float(x.grad.abs().nan_to_num(0, 0, 0).max()) if x.grad.numel() else 1.0
        close(value(ours_), to_numpy(x.grad), rtol or 1e-4, atol or 1e-5 * max(1.0, scale))
