"""Plain training steps beside their captured form: what a step without TinyJit costs.

    python benchmarks/plain.py
    python benchmarks/plain.py --cases mlp_adam,dropout --rounds 9

Both take the same batch in turn; processor time of one thread, the median of rounds.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from asked import matching, parser

from tinygrad import Tensor, TinyJit, nn

SECONDS = 0.15  # of a round of one form
Step = Callable[[], Any]


def network(*layers: Any) -> tuple[list[Tensor], Callable[[Tensor], Tensor]]:
    """The parameters of layers, and what these make one after the other."""

    def call(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x)
        return x

    return nn.state.get_parameters(layers), call


def mlp(between: Any = Tensor.relu) -> tuple[list[Tensor], Callable[[Tensor], Tensor]]:
    return network(nn.Linear(784, 128), between, nn.Linear(128, 10))


def cell() -> tuple[list[Tensor], Callable[[Tensor], Tensor]]:
    """Four turns of an LSTM's cell over the columns of a batch, and a layer on its last state."""
    recurrent, out = nn.LSTMCell(196, 64), nn.Linear(64, 10)

    def call(x: Tensor) -> Tensor:
        state = None
        for turn in range(4):
            state = recurrent(x[:, turn * 196 : turn * 196 + 196], state)
        assert state is not None
        return out(state[0])

    return nn.state.get_parameters((recurrent, out)), call


def sequence() -> tuple[list[Tensor], Callable[[Tensor], Tensor]]:
    """An LSTM over 16 turns of a batch, and a layer on its last state."""
    recurrent, out = nn.LSTM(49, 64), nn.Linear(64, 10)

    def call(x: Tensor) -> Tensor:
        outputs, _ = recurrent(x.reshape(32, 16, 49).transpose(0, 1))
        return out(outputs[-1])

    return nn.state.get_parameters((recurrent, out)), call


def step_of(
    make: Callable[[], tuple[list[Tensor], Callable[[Tensor], Tensor]]],
    optimizer: Callable[[list[Tensor]], Any] = lambda params: nn.optim.SGD(params, lr=0.01),
    rate: bool = False,
    after: Callable[[list[Tensor]], Callable[[], object]] | None = None,
    captured: bool = False,
) -> Step:
    """A step of training on one batch."""
    draw = np.random.default_rng(0)
    x = Tensor(draw.standard_normal((32, 784), "float32")).realize()
    y = Tensor(draw.integers(0, 10, 32).astype("int32")).realize()
    Tensor.manual_seed(0)
    params, model = make()
    moves = optimizer(params)
    follow = after(moves.params) if after else None
    number = [0]

    def train() -> Tensor:
        moves.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y)
        loss.backward()
        moves.step()
        if follow:
            follow()
        return loss.realize()

    run = TinyJit(train) if captured else train

    def step() -> Tensor:
        if rate:
            number[0] += 1
            moves.lr = 0.01 / (1 + number[0] % 7)
        return run()

    return step


class ByHand:
    """Steps written as expressions, without an optimizer; computed at once, or by the next step."""

    def __init__(self, params: list[Tensor], at_once: bool = True) -> None:
        self.params, self.at_once = params, at_once
        for param in params:
            param.requires_grad = True
            param.realize()

    def zero_grad(self) -> None:
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        with Tensor.no_grad():
            for param in self.params:
                param.assign(param - 0.01 * param.grad)  # type: ignore[operator]
            if self.at_once:
                Tensor.realize(*self.params)


class Followed:
    """Parameters with a moving average of them."""

    def __init__(self, params: list[Tensor]) -> None:
        self.average = nn.optim.EMA(params, 0.99)

    def __call__(self) -> None:
        self.average.update()


def adam(params: list[Tensor]) -> Any:
    return nn.optim.Adam(params, lr=0.001)


def group(params: list[Tensor]) -> Any:
    return nn.optim.OptimizerGroup(nn.optim.SGD(params[:2], lr=0.01), adam(params[2:]))


CASES: dict[str, dict[str, Any]] = {
    "mlp_sgd": {"make": mlp},
    "mlp_sgd_rate": {"make": mlp, "rate": True},
    "mlp_adam": {"make": mlp, "optimizer": adam},
    "mlp_adam_rate": {"make": mlp, "optimizer": adam, "rate": True},
    "batch_norm": {"make": lambda: mlp(nn.BatchNorm(128))},
    "dropout": {"make": lambda: mlp(Tensor.dropout)},
    "average": {"make": mlp, "after": Followed},
    "by_hand": {"make": mlp, "optimizer": ByHand},
    "by_hand_lazily": {"make": mlp, "optimizer": lambda params: ByHand(params, at_once=False)},
    "group": {"make": mlp, "optimizer": group},
    "lstm_cell": {"make": cell},
    "lstm": {"make": sequence},
}


def milliseconds(step: Step) -> float:
    """The median of calls for about SECONDS."""
    times: list[float] = []
    until = time.thread_time() + SECONDS
    while time.thread_time() < until or len(times) < 5:
        begin = time.thread_time()
        held = step()  # noqa: F841  as loops hold the last loss
        times.append(time.thread_time() - begin)
    return statistics.median(times) * 1e3


def main() -> None:
    options = parser(__doc__, rounds=5).parse_args()
    print("| case | plain, ms | captured, ms | ratio |\n| --- | --: | --: | --: |")
    for name in matching(options.cases, CASES):
        case = CASES[name]
        with Tensor.train():
            forms = [step_of(**case), step_of(**case, captured=True)]
            for _ in range(5):
                for form in forms:
                    form()
            pairs = [[milliseconds(form) for form in forms] for _ in range(options.rounds)]
        plain, captured = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"| {name} | {plain:.3f} | {captured:.3f} | {ratio:.2f} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
