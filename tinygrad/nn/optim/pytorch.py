"""PyTorch's form of an optimizer's state: its tensors by number of the parameter, beside groups of
options and of these numbers. What they are called there is a table here; a step goes on with the
same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinygrad.base.dtype import dtypes, least_upper_dtype
from tinygrad.base.errors import ArgumentError
from tinygrad.nn.optim.options import PREFIX, options_of, stored
from tinygrad.tensor import Tensor

SGDS = {"momentum_buffer": "b"}
ADAMS = {"exp_avg": "m", "exp_avg_sq": "v"}
TENSORS: dict[str, dict[str, str]] = {
    "SGD": SGDS,
    "Adam": ADAMS | {"max_exp_avg_sq": "largest"},
    "SparseAdam": ADAMS,
    "NAdam": ADAMS,
    "RAdam": ADAMS,
    "Adamax": {"exp_avg": "m", "exp_inf": "v"},
    "RMSprop": SGDS | {"square_avg": "v", "grad_avg": "mean"},
    "Adagrad": {"sum": "sum"},
    "Adadelta": {"square_avg": "v", "acc_delta": "steps"},
    "Rprop": {"prev": "before", "step_size": "sizes"},
    "Adafactor": {"row_var": "rows", "col_var": "columns", "variance": "rows"},
}
"""The names there, and here, of the tensors that each parameter has, by kind of optimizer."""

COUNTS = ("step", "mu_product")
"""What else a parameter has there: numbers."""

ELSEWHERE = (
    "params",
    "param_names",
    "foreach",
    "fused",
    "capturable",
    "differentiable",
    *("initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr"),
)
"""What groups hold besides options: how steps are computed there, and what schedules keep."""


Its = Mapping[str, Any]
"""What there is of one parameter, or of one group, by name."""


def is_pytorchs(state: Its) -> bool:
    """Whether a state has that form."""
    return isinstance(state.get("state"), dict) and isinstance(state.get("param_groups"), list)


def from_pytorch(named: list[tuple[str, Any]], state: Its) -> dict[str, Tensor]:
    """A state of PyTorch's as it would be here.

    Args:
        named: the optimizers, one for each group, behind what their names in a state begin with.
            They have the options of the state from now on, which say what else they have.
        state: what `torch.optim.Optimizer.state_dict` returned, or `torch_load` of its file.

    Raises:
        ArgumentError: it is of an optimizer of another kind, or of other groups or parameters.
    """
    groups = state["param_groups"]
    if len(groups) != len(named):
        raise ArgumentError(
            f"load_state_dict: PyTorch's state of {len(groups)} groups; legal are {len(named)}"
        )
    here: dict[str, Tensor] = {}
    for (begin, one), group in zip(named, groups, strict=True):
        several = [state["state"].get(i, {}) for i in group["params"]]
        names = _check_kind(one, several)
        own = _options(one, group)
        one._take(own)
        own |= _tensors(one, names, several, float(group["lr"])) | _numbers(one, several)
        here |= {begin + name: tensor for name, tensor in own.items()}
    return here


def _check_kind(one: Any, several: list[Its]) -> dict[str, str]:
    """The row of the table; ArgumentError if the parameters have what it doesn't name."""
    kinds = [kind.__name__ for kind in type(one).__mro__ if kind.__name__ in TENSORS]
    if not kinds:
        raise ArgumentError(
            f"load_state_dict: {one._name} takes no state of PyTorch's; legal is one that its own "
            "state_dict() made"
        )
    if len(several) != len(one.params):
        raise ArgumentError(
            f"load_state_dict: PyTorch's state is of {len(several)} parameters; legal are the "
            f"{len(one.params)} that {one._name} moves, in that order"
        )
    names = TENSORS[kinds[0]]
    found = {name: None for its in several for name in its}
    if unknown := [name for name in found if name not in (*names, *COUNTS)]:
        raise ArgumentError(
            f"load_state_dict: PyTorch's state has {', '.join(unknown)}; those of {one._name} have "
            f"{', '.join(names)}"
        )
    return names


def _options(one: Any, group: Its) -> dict[str, Tensor]:
    """The options of a group by their names in a state."""
    given = {name: value for name, value in group.items() if name not in ELSEWHERE}
    if "betas" in given:
        given["b1"], given["b2"] = given.pop("betas")
    known, held = options_of(one), vars(one)
    for name, value in given.items():
        if name not in known and not (name in held and held[name] == value):
            raise ArgumentError(
                f"load_state_dict: PyTorch's state says {name}={value!r}, which {one._name} has "
                f"not; legal is the state of an optimizer of this kind"
            )
    rate = float(given.pop("lr"))
    given["base_lr"] = float(group.get("initial_lr", rate))
    kept = {n: x for n, x in given.items() if n in held and n in known}
    state = {PREFIX + name: stored(value, one.device) for name, value in kept.items()}
    return state | {"lr": Tensor([rate], device=one.device)}


def _tensors(one: Any, names: Its, several: list[Its], rate: float) -> dict[str, Tensor]:
    """What parameters have by the names here: as it begins of those that have nothing there."""
    state = {}
    for mine in dict.fromkeys(names.values()):
        theirs = [name for name, here in names.items() if here == mine]
        values = [
            next((x for n in theirs if (x := its.get(n)) is not None), None) for its in several
        ]
        places = getattr(one, mine)
        if not places and all(value is None for value in values):
            continue
        for i, (value, param) in enumerate(zip(values, one.params, strict=True)):
            if value is None:
                begin = rate if mine == "sizes" else 0.0
                value = (places[i] if places else param).full_like(begin, requires_grad=False)
            kept = value if isinstance(value, Tensor) else Tensor(value, requires_grad=False)
            state[f"{mine}.{i}"] = kept.detach().cast(
                least_upper_dtype(param.dtype, dtypes.float32)
            )
    return state


def _numbers(one: Any, several: list[Its]) -> dict[str, Tensor]:
    """The numbers that go on with the steps: those of the parameters that made the most for all,
    and for each that made fewer its own."""
    if not one.numbers:
        return {}
    steps = [float(its.get("step", its.get("momentum_buffer") is not None)) for its in several]
    each = [_numbers_after(one, t, its) for t, its in zip(steps, several, strict=True)]
    most = each[steps.index(max(steps))]
    state = {name: one._number(value) for name, value in most.items()}
    for i, own in enumerate(each):
        if own != most:
            state |= {f"late.{i}.{name}": one._number(value) for name, value in own.items()}
    return state


def _numbers_after(one: Any, steps: float, its: Its) -> dict[str, float]:
    known = {"t": steps, "mu_product": float(its.get("mu_product", 1.0))}
    for name in ("b1", "b2"):
        if hasattr(one, name):
            known[f"{name}_t"] = float(np.float32(getattr(one, name))) ** steps
    return {name: known[name] for name in one.numbers}
