"""The domain ai.onnx.ml as far as the standard's tests cover it (features, labels, trees), what
scales columns, a linear regression, and the optimizer steps of the training domain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad.base.errors import ArgumentError
from tinygrad.formats.onnx.registry import Array, Row, Table, Value, on_host, one
from tinygrad.tensor import Tensor


def _extract(x: Tensor, indices: Array) -> Tensor:
    places = np.asarray(indices).reshape(-1)
    out = x[..., Tensor(places, device=x.device)]
    return out.reshape(*(x.shape[:-1] if x.ndim > 1 else (1,)), len(places))


def _binarize(x: Tensor, threshold: float = 0.0) -> Tensor:
    return (x > threshold).cast(x.dtype)


def _scaled(x: Tensor, offset: list[float], scale: list[float]) -> Tensor:
    made: Tensor = (x.float() - Tensor(offset, device=x.device)) * Tensor(scale, device=x.device)
    return made


def _normed(x: Tensor, norm: str = "MAX") -> Tensor:
    """Each row over its size; a row of zeros stays."""
    wide = x.float()
    sizes = {
        "L1": lambda: wide.abs().sum(-1, keepdim=True),
        "L2": lambda: wide.square().sum(-1, keepdim=True).sqrt(),
    }
    if norm not in sizes:  # whether MAX takes signs is read both ways
        raise ArgumentError(f"norm {norm!r}; legal are {', '.join(sizes)}")
    size = sizes[norm]()
    return wide / size.eq(0).where(1.0, size)


def _imputed(x: Tensor, **given: Any) -> Tensor:
    """Other values, one for all or one a column, where `x` is the one that stands for none."""
    _, values = _first(given, ("imputed_value_floats", "imputed_value_int64s"))
    whole = "imputed_value_int64s" in given
    none = given.get("replaced_value_int64" if whole else "replaced_value_float", 0)
    is_none = x.isnan() if none != none else x.eq(none)
    return is_none.where(Tensor(values, dtype=x.dtype, device=x.device), x)


def _side_by_side(*columns: Tensor, inputdimensions: list[int] | None = None) -> Tensor:
    """Rows of several tensors as one."""
    rows = [each.reshape(-1, each.shape[-1]).float() for each in columns]
    return rows[0].cat(*rows[1:], dim=1)


def _regressed(
    x: Tensor,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    targets: int = 1,
    post_transform: str = "NONE",
) -> Tensor:
    if post_transform != "NONE":
        raise ArgumentError(f"post_transform {post_transform!r}; legal is 'NONE'")
    weights = Tensor(coefficients, device=x.device).reshape(targets, -1)
    out: Tensor = x.float() @ weights.T
    return out if intercepts is None else out + Tensor(intercepts, device=x.device)


def _first(given: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if name in given and np.size(given[name]):
            return name, np.asarray(given[name])
    raise ArgumentError(f"none of {', '.join(names)} is given")


def _encode(x: Array, **given: Any) -> Array:
    """Each label by the value that stands at its place among the keys."""
    _, keys = _first(given, ("keys_floats", "keys_int64s", "keys_strings", "keys_tensor"))
    values = ("values_floats", "values_int64s", "values_strings", "values_tensor")
    name, found = _first(given, values)
    defaults = {
        "values_floats": (given.get("default_float", 0.0), np.float32),
        "values_int64s": (given.get("default_int64", -1), np.int64),
        "values_strings": (given.get("default_string", "_Unused"), object),
    }
    if name == "values_tensor":
        default = given["default_tensor"].reshape(-1)[0]
        kind: Any = given["default_tensor"].dtype
    else:
        default, kind = defaults[name]
    pairs = zip(keys.reshape(-1).tolist(), found.reshape(-1).tolist(), strict=True)
    table = {_key(key): value for key, value in pairs}
    made = [table.get(_key(key), default) for key in x.reshape(-1).tolist()]
    return np.array(made, object).astype(kind).reshape(x.shape)


def _key(value: Any) -> Any:
    return "nan" if isinstance(value, float) and value != value else value


COMPARE: tuple[Callable[[Array, Any], Array], ...] = (
    np.less_equal,
    np.less,
    np.greater_equal,
    np.greater,
    np.equal,
    np.not_equal,
    lambda x, members: np.isin(x, members),
)
GATHER: tuple[Callable[..., Any], ...] = (np.mean, np.sum, np.min, np.max)


def _trees(
    x: Array,
    aggregate_function: int = 1,
    n_targets: int = 1,
    tree_roots: Any = (),
    post_transform: int = 0,
    membership_values: Any = None,
    **nodes: Any,
) -> Array:
    """The leaves that each row reaches, one a tree, added up by target."""
    if post_transform:
        raise ArgumentError(f"post_transform {post_transform}; legal is 0 (none)")
    modes = np.asarray(nodes["nodes_modes"]).reshape(-1)
    members = _memberships(membership_values, modes)
    leaves: list[list[list[float]]] = [[[] for _ in range(n_targets)] for _ in x]
    for root in tree_roots:
        for row, targets in zip(x, leaves, strict=True):
            place, leaf = int(root), False
            for _ in range(len(modes) + 1):  # a circle ends here
                if leaf:
                    break
                place, leaf = _next(row, place, modes, members, nodes)
            if not leaf:
                raise ArgumentError(f"tree with root {root} goes round in circles")
            targets[int(nodes["leaf_targetids"][place])].append(nodes["leaf_weights"][place])
    gather = GATHER[aggregate_function]
    made = [[gather(target) if target else 0 for target in row] for row in leaves]
    return np.array(made, x.dtype).reshape(len(x), n_targets)


def _memberships(values: Any, modes: Array) -> dict[int, Array]:
    """The members of each node that asks for membership; NaN ends a list."""
    if values is None:
        return {}
    flat = np.asarray(values).reshape(-1)
    ends = np.nonzero(np.isnan(flat))[0]
    lists = np.split(flat, ends + 1)
    places = np.nonzero(modes == 6)[0]
    return {int(p): part[~np.isnan(part)] for p, part in zip(places, lists, strict=False)}


def _next(
    row: Array, place: int, modes: Array, members: dict[int, Array], nodes: dict[str, Any]
) -> tuple[int, bool]:
    value = row[nodes["nodes_featureids"][place]]
    against = members.get(place, np.asarray(nodes["nodes_splits"]).reshape(-1)[place])
    tracks = nodes.get("nodes_missing_value_tracks_true")
    goes = bool(COMPARE[int(modes[place])](value, against))
    goes = goes or (tracks is not None and bool(tracks[place]) and bool(np.isnan(value)))
    side = "true" if goes else "false"
    leaf = bool(nodes[f"nodes_{side}leafs"][place])
    return int(nodes[f"nodes_{side}nodeids"][place]), leaf


ROWS: Table = {
    "ArrayFeatureExtractor": Row(_extract, (1,)),
    "Binarizer": _binarize,
    "FeatureVectorizer": _side_by_side,
    "Imputer": _imputed,
    "LabelEncoder": on_host(_encode),
    "LinearRegressor": _regressed,
    "Normalizer": _normed,
    "Scaler": _scaled,
    "TreeEnsemble": on_host(_trees),
}


# ---- steps of optimizers -------------------------------------------------------------------------


def _each(step: Callable[..., tuple[Tensor, ...]], kinds: int) -> Callable[..., tuple[Value, ...]]:
    """`step` for each parameter: the inputs are rate, turn, and `kinds` groups of as many; the
    results are grouped likewise."""

    def run(rate: Any, turn: Any, *values: Tensor, **options: Any) -> tuple[Value, ...]:
        count = len(values) // kinds
        r, t = (one(v) for v in (rate, turn))
        made = [step(r, t, *values[i::count], **options) for i in range(count)]
        return tuple(value for group in zip(*made, strict=True) for value in group)

    return run


def _adagrad(
    r: float, t: int, x: Tensor, g: Tensor, h: Tensor, decay_factor: float = 0.0,
    epsilon: float = 1e-6, norm_coefficient: float = 0.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    g = x * norm_coefficient + g
    h = h + g.square()
    return x - (r / (1 + t * decay_factor)) * g / (h.sqrt() + epsilon), h


def _adam(
    r: float, t: int, x: Tensor, g: Tensor, v: Tensor, h: Tensor, alpha: float = 0.9,
    beta: float = 0.999, epsilon: float = 1e-6, norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    g = x * norm_coefficient + g
    v, h = v * alpha + g * (1 - alpha), h * beta + g.square() * (1 - beta)
    rate = r * (1 - beta**t) ** 0.5 / (1 - alpha**t) if t > 0 else r
    return (x - rate * v / (h.sqrt() + epsilon)) * (1 - norm_coefficient_post), v, h


def _momentum(
    r: float, t: int, x: Tensor, g: Tensor, v: Tensor, alpha: float, beta: float,
    norm_coefficient: float, mode: str,
) -> tuple[Tensor, ...]:  # fmt: skip
    g = x * norm_coefficient + g
    v = v * alpha + g * (beta if t > 0 else 1.0)
    return x - r * (g + alpha * v if mode == "nesterov" else v), v


TRAINING: Table = {
    "Adagrad": Row(_each(_adagrad, 3), (0, 1)),
    "Adam": Row(_each(_adam, 4), (0, 1)),
    "Momentum": Row(_each(_momentum, 3), (0, 1)),
}
