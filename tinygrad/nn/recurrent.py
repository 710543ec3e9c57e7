"""Recurrent networks: a state that passes through a sequence.

A sequence is one loop in the graph (`tensor.scan`), so only one turn is compiled, whatever the
length. The product with the inputs does not depend on the state, so it is computed for all turns at
once. Weights have PyTorch's names, shapes and order of gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from tinygrad.base.errors import ShapeError
from tinygrad.nn.layers import linear, uniform_weight
from tinygrad.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_choice, check_number_from
from tinygrad.tensor.scan import scan
from tinygrad.tensor.template import expression

State = tuple[Tensor, ...]
Rule = Callable[[Tensor, Tensor, State], State]
"""The next state, from the products with the input and with the hidden state before."""

Input = Tensor | PackedSequence


# ---- one step ------------------------------------------------------------------------------------


class Cell:
    """One step: from a slice of the input and the previous state to the next state.

    In each weight, `gates` matrices of hidden_size rows are stacked.
    """

    gates = 1
    states = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        rows = self.gates * hidden_size
        self.input_size, self.hidden_size = input_size, hidden_size
        self.weight_ih = uniform_weight((rows, input_size), hidden_size)
        self.weight_hh = uniform_weight((rows, hidden_size), hidden_size)
        self.bias_ih = uniform_weight((rows,), hidden_size) if bias else None
        self.bias_hh = uniform_weight((rows,), hidden_size) if bias else None

    def _stepped(self, x: Tensor, state: State | None) -> State:
        size = self.weight_hh.shape[1]
        if x.ndim not in (1, 2) or x.shape[-1] != self.weight_ih.shape[1]:
            raise ShapeError(
                f"{type(self).__name__}: x has shape {x.shape}; legal is (batch, "
                f"{self.weight_ih.shape[1]}), or without batch"
            )
        if state is None:
            zeros = Tensor.zeros(*x.shape[:-1], size, dtype=x.dtype, device=x.device)
            state = (zeros,) * self.states
        given = linear(x, self.weight_ih, self.bias_ih)
        kept = linear(state[0], self.weight_hh, self.bias_hh)
        return tuple(part.contiguous() for part in self.next(given, kept, state))

    @staticmethod
    def next(given: Tensor, kept: Tensor, state: State) -> State:
        """The new state, from the products with the input and with the hidden state before."""
        raise NotImplementedError


class CellOfOneState(Cell):
    """Whose state is one tensor."""

    def __call__(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
        """x and the state of the step before, zeros if None → the new state."""
        return self._stepped(x, None if hidden is None else (hidden,))[0]


class RNNCell(CellOfOneState):
    """One step of the simplest recurrent network: tanh of two products. (Elman, 1990.)

    Args:
        input_size: features of x, (batch, input_size).
        hidden_size: features of the state, (batch, hidden_size).
        bias: whether to add one.
        nonlinearity: "tanh" or "relu".

    >>> RNNCell(3, 5)(Tensor.ones(2, 3)).shape
    (2, 5)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"
    ) -> None:
        super().__init__(input_size, hidden_size, bias)
        self.nonlinearity = _nonlinearity(nonlinearity)

    def next(self, given: Tensor, kept: Tensor, state: State) -> State:  # type: ignore[override]
        """f(given + kept), f being tanh or relu; all (batch, hidden_size).

        >>> given = Tensor.ones(2, 5)
        >>> RNNCell(3, 5).next(given, given, (given,))[0].shape
        (2, 5)
        """
        return RULES[self.nonlinearity](given, kept, state)


class GRUCell(CellOfOneState):
    """One step of a gated recurrent unit. (Cho and others, 2014.)

    Args:
        input_size: features of x, (batch, input_size).
        hidden_size: features of the state, (batch, hidden_size).
        bias: whether to add one.

    >>> GRUCell(3, 5)(Tensor.ones(2, 3)).shape
    (2, 5)
    """

    gates = 3

    @staticmethod
    @expression
    def next(given: Tensor, kept: Tensor, state: State) -> State:
        """A weighted mean of the old state and of a candidate, which uses only a part of the old
        state; (batch, hidden_size), of products (batch, 3 * hidden_size).

        >>> gates, state = Tensor.ones(2, 15), Tensor.ones(2, 5)
        >>> GRUCell.next(gates, gates, (state,))[0].shape
        (2, 5)
        """
        forget, keep, news = given.chunk(3, dim=-1)
        forget_kept, keep_kept, news_kept = kept.chunk(3, dim=-1)
        new = (news + (forget + forget_kept).sigmoid() * news_kept).tanh()
        return (new + (keep + keep_kept).sigmoid() * (state[0] - new),)


class LSTMCell(Cell):
    """One step of a long short-term memory. (Hochreiter and Schmidhuber, 1997.)

    Args:
        input_size: features of x, (batch, input_size).
        hidden_size: features of the state, two tensors (batch, hidden_size).
        bias: whether to add one.

    >>> hidden, cell = LSTMCell(3, 5)(Tensor.ones(2, 3))
    >>> hidden.shape, cell.shape
    ((2, 5), (2, 5))
    """

    gates = 4
    states = 2

    def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """x and the state (hidden, cell) of the step before, zeros if None → the new state."""
        hidden, cell = self._stepped(x, hc)
        return hidden, cell

    @staticmethod
    @expression
    def next(given: Tensor, kept: Tensor, state: State) -> State:
        """The memory cell keeps a part of its value and adds new values; the hidden state shows a
        part of it. Both (batch, hidden_size), of products (batch, 4 * hidden_size).

        >>> gates, state = Tensor.ones(2, 20), Tensor.ones(2, 5)
        >>> [part.shape for part in LSTMCell.next(gates, gates, (state, state))]
        [(2, 5), (2, 5)]
        """
        write, keep, news, show = (given + kept).chunk(4, dim=-1)
        cell = keep.sigmoid() * state[1] + write.sigmoid() * news.tanh()
        return show.sigmoid() * cell.tanh(), cell


# ---- whole sequences -----------------------------------------------------------------------------


class Recurrent:
    """Layers of cells over a sequence; the base of `RNN`, `GRU` and `LSTM`."""

    cell: type[Cell]
    proj_size = 0

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        check_number_from(self._name, "num_layers", num_layers, 1)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.suffixes = ("", "_reverse") if bidirectional else ("",)
        rows = self.cell.gates * hidden_size
        shown = self.proj_size or hidden_size
        for layer in range(num_layers):
            width = shown * len(self.suffixes) if layer else input_size
            for suffix in self.suffixes:
                shapes: dict[str, tuple[int, ...]]
                shapes = {"weight_ih": (rows, width), "weight_hh": (rows, shown)}
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if self.proj_size:
                    shapes["weight_hr"] = (self.proj_size, hidden_size)
                for name, shape in shapes.items():
                    weight = uniform_weight(shape, hidden_size)
                    setattr(self, f"{name}_l{layer}{suffix}", weight)

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def _rule(self) -> str | Rule:
        """What makes the next state; by its name, if it has one in `RULES`."""
        rule: Rule = self.cell.next
        return next((name for name, known in RULES.items() if known is rule), rule)

    def _run(self, x: Input, first: Sequence[Tensor] | None) -> tuple[Any, State]:
        """The outputs of the last layer, and the last states, (layers·directions, N, hidden)."""
        if not isinstance(x, PackedSequence):
            return self._padded(x, first)
        padded, lengths = pad_packed_sequence(x, self.batch_first)
        turns = Tensor.arange(max(x.lengths)).reshape(-1, 1, 1)
        alive = turns < lengths.reshape(1, -1, 1)  # (length, N, 1)
        outputs, last = self._padded(padded, first, alive.to(padded.device))
        is_sorted = x.sorted_indices is None
        data = pack_padded_sequence(outputs, lengths, self.batch_first, is_sorted).data
        return x._replace(data=data), last

    def _padded(
        self, x: Tensor, first: Sequence[Tensor] | None, alive: Tensor | None = None
    ) -> tuple[Tensor, State]:
        batched = x.ndim == 3
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size or 0 in x.shape[:-1]:
            raise ShapeError(
                f"{self._name}: x has shape {x.shape}; legal are at least one turn of "
                f"{self.input_size} features: (length, batch, {self.input_size}), batch first "
                f"with batch_first=True, or without batch"
            )
        if not batched:
            x, first = x.unsqueeze(1), None if first is None else [s.unsqueeze(1) for s in first]
        elif self.batch_first:
            x = x.transpose(0, 1)
        count = self.num_layers * len(self.suffixes)
        start = self._first_states(x, first, count)
        lasts: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = x.dropout(self.dropout)
            sides = []
            for suffix in self.suffixes:
                state = tuple(s[len(lasts)] for s in start)
                last, outputs = self._direction(x, f"l{layer}{suffix}", state, alive)
                lasts.append(last)
                sides.append(outputs)
            x = Tensor.cat(*sides, dim=-1) if len(sides) > 1 else sides[0]
        finals = tuple(map(_stacked, zip(*lasts, strict=True)))
        if not batched:
            return x.squeeze(1), tuple(s.squeeze(1) for s in finals)
        return (x.transpose(0, 1) if self.batch_first else x), finals

    def _first_states(self, x: Tensor, first: Sequence[Tensor] | None, count: int) -> State:
        widths = [self.proj_size or self.hidden_size, self.hidden_size][: self.cell.states]
        shapes = [(count, x.shape[1], width) for width in widths]
        if first is None:
            zeros = [
                Tensor.zeros(*s, dtype=x.dtype, device=x.device) for s in dict.fromkeys(shapes)
            ]
            return (zeros[0], zeros[-1])[: self.cell.states]
        if len(first) != len(shapes):
            raise ShapeError(f"{self._name}: {len(first)} states; legal are {len(shapes)}")
        for state, shape in zip(first, shapes, strict=True):
            if state.shape != shape:
                raise ShapeError(f"{self._name}: a state has shape {state.shape}; legal is {shape}")
        return tuple(first)

    def _direction(
        self, x: Tensor, name: str, first: State, alive: Tensor | None
    ) -> tuple[State, Tensor]:
        """One layer in one direction over x (length, N, features). Where a sequence has not begun
        yet, or has ended, its state stays the same."""
        weight_ih, weight_hh = (getattr(self, f"weight_{k}_{name}") for k in ("ih", "hh"))
        bias_ih, bias_hh = (getattr(self, f"bias_{k}_{name}", None) for k in ("ih", "hh"))
        shown = getattr(self, f"weight_hr_{name}", None)
        given = x.linear(weight_ih.T, bias_ih)  # (length, N, gates·hidden)
        backwards = name.endswith("_reverse")
        *last, outputs = _sequence(
            self._rule, given, weight_hh, bias_hh, first, alive, backwards, shown
        )
        return tuple(last), outputs


class OfOneState(Recurrent):
    """Whose state is one tensor."""

    @overload
    def __call__(self, x: Tensor, hidden: Tensor | None = None) -> tuple[Tensor, Tensor]: ...

    @overload
    def __call__(
        self, x: PackedSequence, hidden: Tensor | None = None
    ) -> tuple[PackedSequence, Tensor]: ...

    def __call__(self, x: Input, hidden: Tensor | None = None) -> tuple[Any, Tensor]:
        """x and the first state, zeros if None → outputs (length, batch, hidden·directions) and
        the last state (layers·directions, batch, hidden)."""
        outputs, last = self._run(x, None if hidden is None else [hidden])
        return outputs, last[0]


class RNN(OfOneState):
    """Layers of `RNNCell` over a sequence.

    Args:
        input_size: features of x, (length, batch, input_size).
        hidden_size: features of the state.
        num_layers: each takes the outputs of the one below.
        nonlinearity: "tanh" or "relu".
        bias: whether to add one.
        batch_first: x is (batch, length, input_size), and so are the outputs.
        dropout: between layers, while training.
        bidirectional: a second network goes from the end to the start; outputs lie side by side.

    >>> outputs, last = RNN(3, 5)(Tensor.ones(7, 2, 3))
    >>> outputs.shape, last.shape
    ((7, 2, 5), (1, 2, 5))
    """

    cell = RNNCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )
        self.nonlinearity = _nonlinearity(nonlinearity)

    @property
    def _rule(self) -> str:
        return self.nonlinearity


class GRU(OfOneState):
    """Layers of `GRUCell` over a sequence. Arguments as for `RNN`.

    >>> outputs, last = GRU(3, 5, bidirectional=True)(Tensor.ones(7, 2, 3))
    >>> outputs.shape, last.shape
    ((7, 2, 10), (2, 2, 5))
    """

    cell = GRUCell


class LSTM(Recurrent):
    """Layers of `LSTMCell` over a sequence. Arguments as for `RNN`, and

    Args:
        proj_size: what a cell shows is this many sums of its hidden features, by a weight that is
            learnt, and so are outputs and hidden states; 0 for the features themselves. (Sak,
            Senior and Beaufays, "Long Short-Term Memory Based Recurrent Neural Network
            Architectures", 2014.)

    >>> outputs, (hidden, cell) = LSTM(3, 5, num_layers=2)(Tensor.ones(7, 2, 3))
    >>> outputs.shape, hidden.shape, cell.shape
    ((7, 2, 5), (2, 2, 5), (2, 2, 5))
    """

    cell = LSTMCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
    ) -> None:
        check_number_from("LSTM", "proj_size", proj_size, 0, hidden_size - 1)
        self.proj_size = proj_size
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )

    @overload
    def __call__(
        self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...

    @overload
    def __call__(
        self, x: PackedSequence, hc: tuple[Tensor, Tensor] | None = None
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]: ...

    def __call__(
        self, x: Input, hc: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Any, tuple[Tensor, Tensor]]:
        """x and the first state (hidden, cell), zeros if None → outputs (length, batch,
        hidden·directions) and the last state, (layers·directions, batch, hidden) twice."""
        outputs, (hidden, cell) = self._run(x, hc)
        return outputs, (hidden, cell)


RULES: dict[str, Rule] = {
    "tanh": lambda given, kept, state: ((given + kept).tanh(),),
    "relu": lambda given, kept, state: ((given + kept).relu(),),
    "GRU": GRUCell.next,
    "LSTM": LSTMCell.next,
}
"""Those of this file, by names: what a sequence makes by one of them is remembered."""


def _stacked(states: State) -> Tensor:
    """The last states one beside another; of a single one, which is nobody's, a view."""
    return Tensor.stack(*states) if len(states) > 1 else states[0].unsqueeze(0)


@expression
def _sequence(
    rule: str | Rule,
    given: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    first: State,
    alive: Tensor | None,
    backwards: bool,
    shown: Tensor | None,
) -> tuple[Tensor, ...]:
    """The last states, and the hidden ones of all turns; these as `shown` projects them."""
    step = RULES[rule] if isinstance(rule, str) else rule

    def turn(*parts: Tensor) -> tuple[State, tuple[Tensor]]:
        state, (slice_, *is_alive) = parts[: len(first)], parts[len(first) :]
        new = step(slice_, state[0].linear(weight.T, bias), state)
        if shown is not None:
            new = (new[0].linear(shown.T), *new[1:])
        for mask in is_alive:
            new = tuple(mask.where(a, b) for a, b in zip(new, state, strict=True))
        return new, (new[0],)

    inputs = [given] if alive is None else [given, alive]
    last, outputs = scan(turn, first, inputs, reverse=backwards)
    return (*last, *outputs)


def _nonlinearity(name: str) -> str:
    check_choice("RNN", "nonlinearity", name, ("tanh", "relu"))
    return name
