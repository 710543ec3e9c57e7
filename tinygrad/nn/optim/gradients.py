"""Operations on gradients between `backward` and `step`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tinygrad.base.dtype import compute_dtype, dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.data.printed import made_with
from tinygrad.nn.optim.optimizer import Optimizer, Stepper, step_again, with_gradients
from tinygrad.nn.optim.options import (
    PREFIX,
    as_number,
    options_in,
    options_state,
    own_number,
    restored,
    stored,
    take_options,
)
from tinygrad.nn.state import load_state_dict
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_types
from tinygrad.tensor.spellings import spell_functions


def clip_grad_norm_(
    params: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    eps: float = 1e-6,
    *,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scales all gradients down by one factor, so that their total norm is at most `max_norm`.

    (Pascanu, Mikolov and Bengio, "On the difficulty of training RNNs", 2013.)

    Args:
        params: tensors with gradients, or one; those without are left out.
        max_norm: the longest that all of them together may be.
        norm_type: 2 for the Euclidean norm, inf for the largest absolute value, p for the p-th
            root of the sum of p-th powers.
        eps: added to the norm before dividing by it.
        error_if_nonfinite: look at the norm now, which a captured step can't.

    Returns:
        The norm that the gradients had, shape ().

    Raises:
        ArgumentError: the norm is infinite or NaN, and error_if_nonfinite. Nothing has changed.

    >>> x = Tensor([3.0, 4.0], requires_grad=True)
    >>> _ = (x * x).sum().backward()
    >>> clip_grad_norm_([x], 5.0).item(), [round(g, 3) for g in x.grad.tolist()]
    (10.0, [3.0, 4.0])
    """
    moved = with_gradients(_several("clip_grad_norm_", params))
    total = get_total_norm([grad for _, grad in moved], norm_type)
    if error_if_nonfinite and not math.isfinite(norm := total.item()):
        raise ArgumentError(
            f"clip_grad_norm_: a norm of {norm}; legal are finite ones, or error_if_nonfinite=False"
        )
    _scale(moved, (max_norm / (total + eps)).minimum(1.0))
    return total


def clip_grads_with_norm_(
    params: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor
) -> None:
    """The second half of `clip_grad_norm_`: scales gradients whose norm is `total_norm`, of these
    or of more.

    >>> x = Tensor([3.0, 4.0], requires_grad=True)
    >>> _ = (x * x).sum().backward()
    >>> clip_grads_with_norm_([x], 5.0, Tensor(10.0)); [round(g, 3) for g in x.grad.tolist()]
    [3.0, 4.0]
    """
    several = _several("clip_grads_with_norm_", params)
    _scale(with_gradients(several), (max_norm / (total_norm + 1e-6)).minimum(1.0))


def _scale(moved: list[tuple[Tensor, Tensor]], scale: Tensor) -> None:
    with Tensor.no_grad():
        for _, grad in moved:
            grad.copy_(grad * scale.to(grad.device).cast(grad.dtype))


def get_total_norm(tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
    """The norm of all tensors together, as of one vector: a tensor of shape ().

    >>> get_total_norm([Tensor([3.0]), Tensor([[4.0]])]).item()
    5.0
    """
    given = _several("get_total_norm", tensors)
    if not given:
        return Tensor(0.0)
    sizes = [_norm(each, norm_type).to(given[0].device) for each in given]
    return _norm(Tensor.stack(*sizes), norm_type)


def clip_grad_value_(params: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Cuts each element of each gradient to -clip_value..clip_value.

    >>> x = Tensor([3.0, -4.0], requires_grad=True)
    >>> _ = (x * x).sum().backward()
    >>> clip_grad_value_([x], 7.0)
    >>> x.grad.tolist()
    [6.0, -7.0]
    """
    with Tensor.no_grad():
        for _, grad in with_gradients(_several("clip_grad_value_", params)):
            grad.copy_(grad.clamp(-clip_value, clip_value))


def _several(who: str, given: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """The tensors as a list: one is no list of its rows."""
    several = [given] if isinstance(given, Tensor) else list(given)
    check_types(who, several, Tensor, "tensors")
    return several


def _norm(x: Tensor, kind: float) -> Tensor:
    wide = x.detach().float() if x.dtype in (dtypes.half, dtypes.bfloat16) else x.detach()
    if kind == float("inf"):
        return wide.abs().max()
    if kind <= 0:
        raise ArgumentError(f"clip_grad_norm_: norm_type={kind}; legal are numbers above 0")
    return wide.square().sum().sqrt() if kind == 2 else wide.abs().pow(kind).sum().pow(1 / kind)


class GradScaler:
    """Loss scaling, for gradients in half precision that would otherwise be too small to represent.

    The loss is multiplied by a scale before `backward`, and the gradients are divided by it before
    the step. If a gradient is not finite, the step changes nothing and the scale shrinks; after
    `growth_interval` good steps in a row it grows. All optimizers that step in one turn share the
    scale, which changes by `update`, or, in programs that never call that, before the next loss is
    scaled. All of these are tensors, so a captured step does the same. (Micikevicius and others,
    "Mixed Precision Training", 2017.)

    Args:
        init_scale: the first scale.
        growth_factor: what the scale is multiplied by when it grows.
        backoff_factor: what it is multiplied by after a step that did not count.
        growth_interval: how many good steps make it grow.
        enabled: False scales nothing and looks at nothing: `step` is the optimizer's.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> from tinygrad.nn.optim import SGD
    >>> optimizer, scaler = SGD([w], lr=0.5), GradScaler(init_scale=1024.0)
    >>> with Tensor.train():
    ...     _ = scaler.scale((w * w).sum()).backward()
    ...     scaler.step(optimizer)
    >>> w.item()
    0.0
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self.enabled = enabled
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self.growth_interval = growth_interval
        self.factor = own_number(init_scale)
        self.good_steps = own_number(0, dtypes.int32)
        # since the last change: 0 no step, 1 only steps by finite gradients, -1 others
        self.found = own_number(0, dtypes.int32)
        self.is_told = False
        self._unscaled: set[int] = set()

    def _shown(self) -> dict[str, Any]:
        return {"scale": as_number(self.factor), **made_with(self)}

    def get_scale(self) -> float:
        """The scale now, as a number of Python.

        >>> GradScaler(init_scale=8.0).get_scale()
        8.0
        """
        return float(self.factor.item()) if self.enabled else 1.0

    def state_dict(self) -> dict[str, Tensor]:
        """What the next step depends on, by name.

        >>> list(GradScaler().state_dict())[:3]
        ['factor', 'good_steps', 'found']
        """
        told = {"is_told": stored(self.is_told)}
        return self._tensors() | told | options_state(self)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resumes from where `state` was taken, with the options that were in use there.

        >>> scaler, other = GradScaler(init_scale=8.0), GradScaler()
        >>> other.load_state_dict(scaler.state_dict())
        >>> other.get_scale()
        8.0
        """
        plain = options_in(state, self)
        if "is_told" in state:
            plain["is_told"] = restored(state["is_told"], self.is_told)
        tensors = {n: t for n, t in state.items() if not n.startswith((PREFIX, "is_told"))}
        load_state_dict(self._tensors(), tensors)
        take_options(plain, self)

    def _tensors(self) -> dict[str, Tensor]:
        return {"factor": self.factor, "good_steps": self.good_steps, "found": self.found}

    def scale(self, loss: Tensor) -> Tensor:
        """The loss to call `backward` on.

        >>> scaler = GradScaler(init_scale=1024.0)
        >>> scaler.scale(Tensor(0.5)).item()
        512.0
        """
        if not self.enabled:
            return loss
        if not self.is_told:
            self._change()
        return loss * self.factor.to(loss.device).reshape(()).cast(loss.dtype)

    def unscale_(self, optimizer: Stepper) -> None:
        """Divides the gradients by the scale before `step`, for example to clip them.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> optimizer, scaler = nn.optim.SGD([w], lr=0.5), GradScaler(init_scale=1024.0)
        >>> _ = scaler.scale((w * w).sum()).backward()
        >>> scaler.unscale_(optimizer)
        >>> w.grad.tolist()
        [2.0]
        """
        if not self.enabled:
            return
        if id(optimizer) in self._unscaled:
            raise ArgumentError("GradScaler.unscale_: twice before a step; legal is once")
        with Tensor.no_grad():
            for param, grad in with_gradients(optimizer.params):
                kind = compute_dtype(grad.dtype)
                value = grad.cast(kind) / self.factor.to(grad.device).cast(kind)
                # halves would lose what is small
                param.grad = value if kind is not grad.dtype else grad.copy_(value)
        self._unscaled.add(id(optimizer))

    def update(self) -> None:
        """Changes the scale by what the steps since the last change found.

        >>> scaler = GradScaler(init_scale=1024.0)
        >>> scaler.update()
        """
        self.is_told = True
        if self.enabled:
            self._change()

    def _change(self) -> None:
        stepped, finite = self.found != 0, self.found > 0
        good = self.good_steps + 1
        grows = finite & (good >= self.growth_interval)
        shrinks = stepped & ~finite
        by = grows.where(self.growth_factor, shrinks.where(self.backoff_factor, 1.0))
        self.factor.assign(self.factor * by)
        self.good_steps.assign((finite & ~grows).where(good, stepped.where(0, self.good_steps)))
        self.found.assign(self.found * 0).realize(self.factor, self.good_steps)

    def step(self, optimizer: Stepper) -> None:
        """A step of the optimizer by the gradients of the unscaled loss, if they are finite.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> optimizer, scaler = nn.optim.SGD([w], lr=0.5), GradScaler(init_scale=1024.0)
        >>> with Tensor.train():
        ...     _ = scaler.scale((w * w).sum()).backward()
        ...     scaler.step(optimizer)
        >>> w.item()
        0.0
        """
        if not self.enabled:
            optimizer.step()
            return
        if type(self) is not GradScaler:  # of which nothing is known
            changed = self.schedule_step(optimizer)
            Tensor.realize(*changed)
            return
        self._unscale_once(optimizer)
        movers, moved = optimizers_of(optimizer), lambda: self._moved(optimizer)
        step_again(movers, moved, ("scaled",), [self.found])

    def schedule_step(self, optimizer: Stepper) -> list[Tensor]:
        """The same, not computed yet: all tensors that change.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> optimizer, scaler = nn.optim.SGD([w], lr=0.5), GradScaler(init_scale=1024.0)
        >>> with Tensor.train():
        ...     _ = scaler.scale((w * w).sum()).backward()
        ...     changed = scaler.schedule_step(optimizer)
        >>> any(t is w for t in changed)
        True
        """
        if not self.enabled:
            return optimizer.schedule_step()
        self._unscale_once(optimizer)
        return self._moved(optimizer)

    def _unscale_once(self, optimizer: Stepper) -> None:
        if id(optimizer) not in self._unscaled:
            self.unscale_(optimizer)
        self._unscaled.remove(id(optimizer))

    def _moved(self, optimizer: Stepper) -> list[Tensor]:
        """What changes by a step whose gradients are those of the loss."""
        finite: Tensor = self.found == self.found  # true
        for _, grad in with_gradients(optimizer.params):
            finite = finite & grad.isfinite().all().to(finite.device)
        for one in optimizers_of(optimizer):
            one.applies = finite
        try:
            changed = optimizer.schedule_step()
        finally:
            for one in optimizers_of(optimizer):
                del one.applies
        found = self.found.assign((finite & (self.found >= 0)).where(1, -1))
        return [*changed, found]


def optimizers_of(stepper: Stepper) -> list[Optimizer]:
    """The optimizers in a group of them, or the one itself."""
    if not isinstance(stepper, Stepper):
        raise ArgumentError(f"{stepper!r} of type {type(stepper).__name__}; legal are optimizers")
    return stepper._alone


spell_functions(globals())
