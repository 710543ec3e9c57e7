"""Calls with arguments of all kinds, right and wrong: of every public method of a tensor, function,
layer, optimizer, schedule, data set and loader. Each gives a result or an error that was raised on
purpose; Python's own, from inside the package (TypeError, IndexError, KeyError, AttributeError,
AssertionError, ..), is a find. Results are not computed, but a loader's batches are.

    python test/fuzz_misuse.py --minutes 2 --seed 1 [--only pad,sum]
"""

from __future__ import annotations

import argparse
import inspect
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import tinygrad
from tinygrad import Tensor, data, nn
from tinygrad.base.errors import TinygradError
from tinygrad.engine.holders import Holder

PACKAGE = str(Path(tinygrad.__file__).parent)

TENSORS: tuple[Callable[[], Any], ...] = (  # made anew for each call, so that none remembers
    lambda: Tensor([1.0, -2.0, 3.0]),
    lambda: Tensor([[1.0, 2.0], [3.0, 4.0]]),
    lambda: Tensor([[1, 2, 3], [4, 5, 6]]),
    lambda: Tensor.ones(2, 3, 4),
    lambda: Tensor.ones(1, 2, 5, 5),
    lambda: Tensor(2.0),
    lambda: Tensor(3),
    lambda: Tensor([0, 1]),
    lambda: Tensor([0, 9]),
    lambda: Tensor([True, False, True]),
    lambda: Tensor([]),
    lambda: Tensor.ones(0, 3),
    lambda: Tensor([1, 2], dtype="uint8"),
    lambda: Tensor([1.0, 2.0], dtype="float16"),
    lambda: Tensor([1 + 2j, 3]),
)
WRONG: tuple[Any, ...] = (None, "a", 1.5, -100, 100, [], (), {}, object(), True, float("nan"))
WRONG += ([1, 2], (0, 0), (1, -1), [None], "sum", -1, 0, 1, 2, 3, np.float32(2), np.array([1, 0]))
LIKELY: dict[str, tuple[Any, ...]] = {  # by the name of a parameter
    "dim": (0, -1, 1, None, (0, 1)),
    "axis": (0, -1, 1, None, (0, 1)),
    "dtype": ("float32", "int32", "bool", "nonsense", 3),
    "shape": (2, (2, 3), (-1,), ("a",), (1.5,), -3),
    "mode": ("constant", "reflect", "nearest", "nonsense"),
    "reduce": ("sum", "amax", "mean", "nonsense"),
    "reduction": ("mean", "sum", "none", "nonsense"),
    "device": ("CPU", "NOWHERE", 3),
    "kernel_size": (1, 2, (2, 2), 0, -1, 9),
    "stride": (1, 2, 0, -1, (1, 1, 1, 1)),
    "size": (2, (2, 2), -1),
    "dataset": ([1, 2, 3], [(1, 2.0), (3, 4.0)], np.arange(4), [], 3),
    "batch_size": (1, 2, 9, 0, -1, "a"),
}
TENSOR_WORDS = "Tensor Self"
LEFT = {  # what talks to the world, ends or measures something, or is a class to inherit from
    *("from_url", "from_blob", "from_dlpack", "kernelize", "explain", "train", "manual_seed"),
    *("schedule", "schedule_linear", "schedule_with_vars", "shard", "shard_", "to", "to_"),
    *("held", "spell", "with_node"),
    *(name for name, of in vars(Holder).items() if getattr(of, "__isabstractmethod__", False)),
    *("Checkpoint", "Optimizer", "Scheduler", "Dataset", "FetchError", "fetch", "TextLines"),
    "collate",
}
SIGNATURE = re.compile(r"(\(\)|:) (missing|takes|got|too many|multiple)|no argument|twice in")

SAID = (
    "__bool__",
    "__iter__",
    "__int__",
    "__index__",
    "__float__",
)  # Python's errors are told there


class Draw(Random):
    """Arguments of a call."""

    def value(self, name: str, annotation: str) -> Any:
        """Likely or wrong, for a parameter of this name."""
        if self.random() < 0.3:
            return self.choice(WRONG)
        if name in LIKELY and self.random() < 0.8:
            return self.choice(LIKELY[name])
        if any(word in annotation for word in TENSOR_WORDS.split()) or annotation == "Any":
            return self.choice(TENSORS)() if self.random() < 0.8 else self.choice(WRONG)
        for word, values in (
            ("bool", (True, False)),
            ("str", ("mean", "a", "")),
            ("float", (0.5, 0, -1.0, 2)),
            ("int", (0, 1, 2, -1, 5)),
        ):
            if word in annotation and self.random() < 0.8:
                return self.choice(values)
        return self.choice(WRONG)

    def arguments(
        self, function: Callable[..., Any], bound: bool
    ) -> tuple[list[Any], dict[str, Any]]:
        """For all parameters without a default, and some of the others."""
        given: list[Any] = []
        named: dict[str, Any] = {}
        parameters = list(inspect.signature(function).parameters.values())
        for parameter in parameters[1:] if bound else parameters:
            value = self.value(parameter.name, str(parameter.annotation))
            if parameter.kind is parameter.VAR_POSITIONAL:
                given += [value] * self.randrange(3) if not named else []
            elif parameter.kind is parameter.VAR_KEYWORD:
                continue
            elif parameter.default is parameter.empty:
                given.append(value)
            elif self.random() < 0.35:
                named[parameter.name] = value
        if self.random() < 0.03:
            named["unknown"] = 1
        if given and not named and self.random() < 0.03:
            given.pop()
        return given, named


def public(owner: Any) -> list[str]:
    """Names that a program may use."""
    return [name for name in dir(owner) if not name.startswith("_") and name not in LEFT]


def calls() -> dict[str, Callable[[Draw], str]]:
    """What is called, by name; each tells what it called."""
    found: dict[str, Callable[[Draw], str]] = {}
    for name in public(Tensor):
        if callable(getattr(Tensor, name)):
            found[f"Tensor.{name}"] = method(name)
    for space, module in (
        ("functional", nn.functional),
        ("optim", nn.optim),
        ("nn", nn),
        ("data", data),
    ):
        for name in module.__all__:
            thing = getattr(module, name)
            if (
                callable(thing)
                and name not in LEFT
                and not name.startswith("_")
                and getattr(thing, "__module__", "").startswith("tinygrad")
            ):
                found[f"{space}.{name}"] = made(thing)
    return found


Call = Callable[[Draw], tuple[Callable[[], Any], str]]


def method(name: str) -> Any:
    def call(draw: Draw) -> tuple[Callable[[], Any], str]:
        attribute = inspect.getattr_static(Tensor, name)
        owner = (
            Tensor if isinstance(attribute, (classmethod, staticmethod)) else draw.choice(TENSORS)()
        )
        function = getattr(owner, name)
        given, named = draw.arguments(function, False)
        return lambda: function(*given, **named), f"{owner!r:.60}.{name} {shown(given, named)}"

    return call


def made(thing: Any) -> Any:
    def call(draw: Draw) -> tuple[Callable[[], Any], str]:
        given, named = draw.arguments(thing, False)
        inputs = [draw.choice(TENSORS)() for _ in range(draw.randrange(3))]

        def run() -> Any:
            result = thing(*given, **named)
            if isinstance(result, data.DataLoader):
                return list(result)
            return result(*inputs) if inspect.isclass(thing) and callable(result) else result

        return run, f"{thing.__name__} {shown(given, named)} on {inputs}"

    return call


def shown(given: list[Any], named: dict[str, Any]) -> str:
    def one(value: Any) -> str:
        return f"T{value.shape}{value.dtype.name}" if isinstance(value, Tensor) else repr(value)

    return ", ".join([*map(one, given), *(f"{name}={one(v)}" for name, v in named.items())])


def wrong(run: Callable[[], Any]) -> tuple[str, str] | None:
    """What was wrong about a call: where, and the error; None for a result, or an error or a
    warning of ours."""
    try:
        run()
    except (TinygradError, UserWarning):
        return None
    except (BufferError, NotImplementedError) as error:
        return None if isinstance(error, BufferError) else ("", repr(error))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if frame.filename.startswith(PACKAGE)]
        if not inside or (SIGNATURE.search(str(error)) and isinstance(error, TypeError)):
            return None
        last = inside[-1]
        if last.name in SAID:
            return None
        place = f"{last.filename.removeprefix(PACKAGE)}:{last.lineno}"
        return place, f"{type(error).__name__}: {error}"
    return None


def finds(seed: int, rounds: int, only: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Name, what was called, place and error of each find."""
    draw = Draw(seed)
    for _ in range(rounds):
        for name, call in calls().items():
            if only and not re.search(only, name):
                continue
            with Tensor.train():
                run, said = call(draw)
                found = wrong(run)
            if found:
                yield name, said, *found


def main() -> None:
    """Looks for finds, and prints one a place."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=1)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default="")
    given = options.parse_args()
    end, seen, seed = time.monotonic() + 60 * given.minutes, Counter[tuple[str, str]](), given.seed
    while time.monotonic() < end:
        for name, said, place, error in finds(seed, 1, given.only):
            seen[name, place] += 1
            if seen[name, place] == 1:
                print(f"{name} at {place}\n    {said}\n    {error:.200}", flush=True)
        seed += 1
    print(f"{len(seen)} finds in {seed - given.seed} rounds of {len(calls())} calls")


if __name__ == "__main__":
    main()
