"""Recurrent layers: RNN, GRU and LSTM as the standard defines them, in one or both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinygrad.base.errors import ArgumentError
from tinygrad.formats.onnx.registry import Function, Row, Table
from tinygrad.tensor import Tensor

Gate = Callable[[Tensor], Tensor]
States = list[Tensor]
Step = Callable[[Tensor, States], States]

GATES: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "sigmoid": lambda x, a, b: x.sigmoid(),
    "tanh": lambda x, a, b: x.tanh(),
    "relu": lambda x, a, b: x.relu(),
    "affine": lambda x, a, b: x * a + b,
    "leakyrelu": lambda x, a, b: (x < 0).where(x * a, x),
    "thresholdedrelu": lambda x, a, b: (x > a).where(x, 0),
    "scaledtanh": lambda x, a, b: (x * b).tanh() * a,
    "hardsigmoid": lambda x, a, b: (x * a + b).clamp(0, 1),
    "elu": lambda x, a, b: (x < 0).where((x.exp() - 1) * a, x),
    "softsign": lambda x, a, b: x.softsign(),
    "softplus": lambda x, a, b: x.softplus(),
}
DEFAULTS = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, 0.0),
    "thresholdedrelu": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, 0.0),
}


def _gates(
    names: Sequence[str], alphas: list[float] | None, betas: list[float] | None, clip: float | None
) -> list[Gate]:
    """The activations in order, each after clipping."""
    made: list[Gate] = []
    first, second = iter(alphas or ()), iter(betas or ())
    for name in names:
        key = name.lower()
        if key not in GATES:
            raise ArgumentError(f"activation {name!r}; legal are {', '.join(GATES)}")
        a, b = DEFAULTS.get(key, (0.0, 0.0))
        if key in DEFAULTS:
            a, b = next(first, a), next(second, b)
        made.append(_clipped(GATES[key], a, b, clip))
    return made


def _clipped(
    function: Callable[[Tensor, float, float], Tensor], a: float, b: float, clip: float | None
) -> Gate:
    if clip is None:
        return lambda x: function(x, a, b)
    return lambda x: function(x.clamp(-clip, clip), a, b)


def _layer(names: tuple[str, ...], make: Callable[..., Step], states: int) -> Function:
    """A recurrent layer of gates `names`; `make` gives the step of one direction."""

    def run(
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        lengths: Any = None,
        initial_h: Tensor | None = None,
        initial_c: Tensor | None = None,
        peepholes: Tensor | None = None,
        activations: list[str] | None = None,
        activation_alpha: list[float] | None = None,
        activation_beta: list[float] | None = None,
        clip: float | None = None,
        direction: str = "forward",
        hidden_size: int | None = None,
        layout: int = 0,
        **options: int,
    ) -> tuple[Tensor, ...]:
        first = [initial_h, initial_c][:states]
        if layout:
            x = x.permute(1, 0, 2)
            first = [None if s is None else s.permute(1, 0, 2) for s in first]
        directions, width = w.shape[0], r.shape[2]
        gates = _gates(activations or names * directions, activation_alpha, activation_beta, clip)
        zeros = Tensor.zeros(x.shape[1], width, dtype=x.dtype, device=x.device)
        outs: list[Tensor] = []
        lasts: list[States] = []
        for d in range(directions):
            start = [zeros if state is None else state[d] for state in first]
            weights = [None if each is None else each[d] for each in (w, r, b, peepholes)]
            own = gates[d * len(names) : (d + 1) * len(names)]
            step = make(*weights, own, width, **options)
            backward = direction == "reverse" or d == 1
            out, last = _walk(x, step, start, lengths, backward)
            outs.append(out)
            lasts.append(last)
        y = outs[0].stack(*outs[1:], dim=1)
        ends = [group[0].stack(*group[1:]) for group in zip(*lasts, strict=True)]
        if layout:
            y, ends = y.permute(2, 0, 1, 3), [end.permute(1, 0, 2) for end in ends]
        return (y, *ends)

    return run


def _walk(
    x: Tensor, step: Step, states: States, lengths: Any, backward: bool
) -> tuple[Tensor, States]:
    """All steps of one direction. What lies behind a sequence's end changes nothing and gives
    zeros; backward begins at each one's end."""
    size = x.shape[0]
    ends = None if lengths is None else np.asarray(lengths)
    ragged = ends is not None and bool((ends < size).any())
    outs: list[Tensor] = [states[0]] * size
    for turn in range(size):
        t = size - 1 - turn if backward else turn
        after = step(x[t], states)
        if ragged and ends is not None:
            alive = Tensor((t < ends).reshape(-1, 1), device=x.device)
            after = [alive.where(new, old) for new, old in zip(after, states, strict=True)]
            outs[t] = alive.where(after[0], 0.0)
        else:
            outs[t] = after[0]
        states = after
    return outs[0].stack(*outs[1:], dim=0), states


def _split(b: Tensor | None, count: int, width: int) -> tuple[Any, Any]:
    """The biases of the input and of the state, (count * width) each, or 0."""
    return (0, 0) if b is None else (b[: count * width], b[count * width :])


def _rnn(w: Tensor, r: Tensor, b: Any, _: Any, gates: list[Gate], width: int) -> Step:
    own, state = _split(b, 1, width)

    def step(x: Tensor, states: States) -> States:
        return [gates[0](x @ w.T + states[0] @ r.T + own + state)]

    return step


def _gru(
    w: Tensor,
    r: Tensor,
    b: Any,
    _: Any,
    gates: list[Gate],
    width: int,
    linear_before_reset: int = 0,
) -> Step:
    own, state = _split(b, 3, width)
    f, g = gates

    def step(x: Tensor, states: States) -> States:
        h = states[0]
        inputs = x @ w.T + own  # (batch, 3 * width): update, reset, hidden
        seen = h @ r[: 2 * width].T
        seen = seen if b is None else seen + state[: 2 * width]
        z = f(inputs[:, :width] + seen[:, :width])
        reset = f(inputs[:, width : 2 * width] + seen[:, width:])
        bias = 0 if b is None else state[2 * width :]
        if linear_before_reset:
            hidden = reset * (h @ r[2 * width :].T + bias)
        else:
            hidden = (reset * h) @ r[2 * width :].T + bias
        fresh = g(inputs[:, 2 * width :] + hidden)
        return [(1 - z) * fresh + z * h]

    return step


def _lstm(
    w: Tensor,
    r: Tensor,
    b: Any,
    peepholes: Any,
    gates: list[Gate],
    width: int,
    input_forget: int = 0,
) -> Step:
    own, state = _split(b, 4, width)
    f, g, h = gates

    def step(x: Tensor, states: States) -> States:
        hidden, cell = states
        mixed = x @ w.T + hidden @ r.T + own + state  # input, output, forget, cell
        i, o, forget, c = mixed.chunk(4, dim=1)
        if peepholes is not None:
            i = i + peepholes[:width] * cell
            forget = forget + peepholes[2 * width :] * cell
        i = f(i)
        forget = 1 - i if input_forget else f(forget)
        fresh = forget * cell + i * g(c)
        if peepholes is not None:
            o = o + peepholes[width : 2 * width] * fresh
        return [f(o) * h(fresh), fresh]

    return step


ROWS: Table = {
    "GRU": Row(_layer(("Sigmoid", "Tanh"), _gru, 1), (4,)),
    "LSTM": Row(_layer(("Sigmoid", "Tanh", "Tanh"), _lstm, 2), (4,)),
    "RNN": Row(_layer(("Tanh",), _rnn, 1), (4,)),
}
