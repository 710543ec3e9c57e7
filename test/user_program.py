"""A program as a user writes it. It runs, and mypy --strict finds each of its types: a line that
must be an error says so with `type: ignore`, and an unused one of these is an error too."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

from tinygrad import Context, Device, GlobalCounters, Tensor, TinyJit, Variable, dtypes, fetch, nn
from tinygrad import function as pure
from tinygrad.base.dtype import DType
from tinygrad.nn.optim import Adam, OptimizerGroup
from tinygrad.nn.state import get_parameters, get_state_dict, safe_load


class Net:
    """Two layers."""

    def __init__(self, width: int = 8) -> None:
        self.first = nn.Linear(4, width)
        self.second = nn.Linear(width, 3)

    def __call__(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def types_of_tensors() -> None:
    """Methods and operators give tensors, facts give numbers."""
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert_type(x + 1, Tensor)
    assert_type(2 * x, Tensor)
    assert_type(x @ x.T, Tensor)
    assert_type(-x, Tensor)
    assert_type(x == x, Tensor)
    assert_type(x[0, None, ..., :1], Tensor)
    assert_type(x.exp().sum(axis=1).reshape(2, 1), Tensor)
    assert_type(Tensor.zeros(2, 3), Tensor)
    assert_type(Tensor.randn(2, dtype=dtypes.half), Tensor)
    assert_type(x.dtype, DType)
    assert_type(x.ndim, int)
    assert_type(x.device, str | tuple[str, ...])
    assert_type(len(x), int)
    assert_type(float(x.sum()), float)
    assert_type(x.numpy(), npt.NDArray[Any])
    assert_type(x.split(1), tuple[Tensor, ...])
    assert_type(x.chunk(2), list[Tensor])
    assert_type(x.sum().gradient(x), list[Tensor])
    assert_type(x.realize(), Tensor)
    assert_type(x.grad, Tensor | None)
    assert_type([row for row in x], list[Tensor])
    assert_type(Tensor.from_dlpack(np.zeros(2)), Tensor)
    x += 1
    assert_type(x, Tensor)


@TinyJit
def scaled(x: Tensor, by: float = 2.0) -> Tensor:
    """A captured function keeps its signature."""
    return (x * by).realize()


@pure
def shifted(x: Tensor, by: int) -> Tensor:
    """A marked one too."""
    return x + by


@Context(TRAINING=1)
def training() -> bool:
    """And one under a setting."""
    return bool(Tensor.training)


def types_of_decorated_functions() -> None:
    """Calls are checked against the function's own arguments."""
    assert_type(scaled(Tensor([1.0])), Tensor)
    assert_type(scaled(Tensor([1.0]), by=3.0), Tensor)
    assert_type(shifted(Tensor([1]), 2), Tensor)
    assert_type(training(), bool)


def errors_that_are_found() -> None:
    """Never called: what it does is wrong."""
    scaled("a tensor")  # type: ignore[arg-type]
    scaled(Tensor([1.0]), width=3)  # type: ignore[call-arg]
    shifted(Tensor([1]))  # type: ignore[call-arg]
    Tensor([1.0]).exp(3)  # type: ignore[call-arg]
    Tensor([1.0]).not_a_method()  # type: ignore[attr-defined]
    nn.Linear("4", 3)  # type: ignore[arg-type]
    Net()(3)  # type: ignore[arg-type]
    text: str = Tensor([1.0]).sum()  # type: ignore[assignment]
    print(text, fetch(3))  # type: ignore[arg-type]


def train(steps: int = 5) -> float:
    """A whole training loop; the last loss."""
    Tensor.manual_seed(0)
    net = Net()
    optimizer = Adam(get_parameters(net), lr=0.05)
    group = OptimizerGroup(optimizer)
    images, labels = Tensor.randn(16, 4), Tensor.randint(16, low=0, high=3)

    @TinyJit
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = net(images).sparse_categorical_crossentropy(labels).backward()
        group.step()
        return loss.realize()

    last = 0.0
    with Tensor.train():
        for _ in range(steps):
            last = assert_type(step(), Tensor).item()
    assert_type(get_state_dict(net), dict[str, Tensor])
    _ = safe_load
    return last


def main() -> None:
    """Run it."""
    types_of_tensors()
    types_of_decorated_functions()
    first, last = train(1), train(30)
    assert last < first, (first, last)
    size = Variable("n", 1, 8).bind(3)
    assert Tensor.ones(8)[:size].sum().item() == 3.0
    assert GlobalCounters.kernel_count > 0 and isinstance(Device.DEFAULT, str)
    print("a user's program ran")


if __name__ == "__main__":
    main()
