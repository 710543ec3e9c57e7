"""Calls with one thing wrong, on both: what PyTorch refuses, and what it gives, is looked at.

`CALLS` holds legal programs of one line, which mean the same in both systems. A mutant is one of
them with one argument replaced by a value of another type, sign, size or spelling, or with one too
many. Where PyTorch gives a value ours should give that, or an error; where PyTorch refuses it
ours does, too, unless what it gives is meant: `ACCEPTED`.

    python test/fuzz_silent.py --minutes 10 --seed 1 [--only Linear,cross_entropy]
"""

from __future__ import annotations

import argparse
import ast
import re
import resource
import time
import warnings
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import torch
from silent_calls import CALLS

from tinygrad import Tensor, nn
from tinygrad.base.errors import TinygradError

NUMBERS = ("-1", "0", "1", "2", "7", "1.5", "-0.5", "True", "None", "'a'", "nan", "inf", "1e9")
NUMBERS += ("-100", "(1, 2)", "()", "[1]", "x(3)", "(1, -1)", "(1, 1, 1, 1)", "i(2)")
TENSORS = (
    "x()",
    "x(0)",
    "x(1)",
    "x(3)",
    "x(7)",
    "x(2, 3)",
    "x(3, 2)",
    "x(2, 4, 5)",
    "x(1, 4, 6, 5)",
)
TENSORS += ("i(3)", "i(2, 3)", "far(3)", "negative(3)", "b(3)", "b(2, 3)", "half(2, 3)", "None")
TENSORS += ("2", "2.5", "'a'", "[1.0, 2.0]", "True", "x(0, 3)", "x(2, 0)", "x(5, 4, 3, 2, 1)")
WORDS = (
    "'a'",
    "''",
    "None",
    "1",
    "True",
    "'Mean'",
    "'mean '",
    "[]",
    "'none'",
    "'same'",
    "'reflect'",
)
PAIRS = ("1", "-1", "(1,)", "(1, 2)", "(0, 0)", "(-1, 1)", "(1, 2, 3)", "()", "1.5", "(1.5, 2)")
PAIRS += ("None", "'a'", "'same'", "True", "[2, 2]", "(9, 9)", "(True, 1)")


def arrays(library: Any) -> dict[str, Any]:
    """The words of the programs: tensors of a library."""

    def made(values: Any) -> Any:
        return library.tensor(values) if library is torch else Tensor(values)

    def numbers(*shape: int) -> Any:
        return np.cos(np.arange(np.prod(shape, dtype=int)) * 1.7 + 0.3).reshape(shape)

    def whole(*shape: int) -> Any:
        return (np.arange(np.prod(shape, dtype=int)) % 3).reshape(shape)

    def wanting(*shape: int) -> Any:
        tensor = made(numbers(*shape).astype("float32"))
        return tensor.requires_grad_()

    return {
        "x": lambda *shape: made(numbers(*shape).astype("float32")),
        "pos": lambda *shape: made(np.abs(numbers(*shape)).astype("float32")),
        "w": wanting,
        "half": lambda *shape: made(numbers(*shape).astype("float16")),
        "double": lambda *shape: made(numbers(*shape)),
        "i": lambda *shape: made(whole(*shape)),
        "far": lambda *shape: made(whole(*shape) + 50),
        "negative": lambda *shape: made(whole(*shape) - 2),
        "b": lambda *shape: made(whole(*shape) > 0),
        "moved": lambda made, *after: moved(library, made, after),
        "nan": float("nan"),
        "inf": float("inf"),
        "square": made(np.eye(3, dtype="float32") * 2 + 0.5),
    }


def moved(library: Any, make: Any, schedules: Any) -> Any:
    """A parameter after three steps of an optimizer, and of schedules of its rate."""
    param = arrays(library)["w"](2, 3)
    optimizer = make([param])
    every = [schedule(optimizer) for schedule in schedules]
    for _ in range(3):
        optimizer.zero_grad()
        (param * param * param).sum().backward()
        optimizer.step()
        for each in every:
            each.step()
    return param.detach()


OURS = {**arrays(Tensor), "F": nn.functional, "nn": nn, "optim": nn.optim, "sched": nn.optim}
OURS |= {"T": Tensor, "init": nn.init}
THEIRS = {**arrays(torch), "F": torch.nn.functional, "nn": torch.nn, "optim": torch.optim}
THEIRS |= {"T": torch, "init": torch.nn.init, "sched": torch.optim.lr_scheduler}


def instead_of(node: ast.expr) -> tuple[str, ...]:
    """What may stand where this argument stands."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return WORDS
    if isinstance(node, ast.Tuple):
        return PAIRS
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return TENSORS
    if isinstance(node, (ast.Constant, ast.UnaryOp)):
        return NUMBERS
    return ()


def mutants(call: str) -> Iterator[str]:
    """The program with one argument replaced, one at a time, or with one more."""
    tree = ast.parse(call, mode="eval")
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id != "moved":
            continue
        for at, argument in enumerate(node.args):
            for text in instead_of(argument):
                node.args[at] = ast.parse(text, mode="eval").body
                yield ast.unparse(tree)
            node.args[at] = argument
        for keyword in node.keywords:
            kept = keyword.value
            for text in instead_of(kept):
                keyword.value = ast.parse(text, mode="eval").body
                yield ast.unparse(tree)
            keyword.value = kept
        node.keywords.append(ast.keyword("nonsense", ast.Constant(1)))
        yield ast.unparse(tree)
        node.keywords.pop()


MEMORY = 6 << 30
"""Bytes: a mutant that asks for a billion elements is an error, and doesn't end the run."""

REFUSALS = (TinygradError, TypeError)

ACCEPTED = {
    "ints and bools become floats, and of two dtypes the wider counts": "not implemented for|"
    "not supported.*(bool|Bool|Integral)|bool tensor|Bool |Integral|dtype|did not match|promot|"
    "expected scalar type|can't be cast|bool is not|Boolean inputs|should be the same|a floating",
    "a condition is true where it isn't 0, as in NumPy": "boolean (tensor|masks)",
    "a number or a list is a tensor where a method takes one": "must be (a )?(Tensor|Number), not|"
    "Boolean alpha|(addmm|bucketize|searchsorted|clamp_?|fill_|lerp|pow|quantile)\\(\\) received|"
    "!(list|tuple) of|any\\(\\) received",
    "0 and 1 are bools": "bool, (but found type |not |got: )int|align_corners|float, not int",
    "None for training is the mode of all, and for a size what there is": "not NoneType|"
    "got NoneType|!NoneType!|expand\\(\\) takes",
    "a size alone is a tuple of it, and no axis means all": "must be tuple of ints, not|'dim'",
    "no axes are none, as in NumPy": "output with shape \\[\\] doesn't match",
    "layers and padding take any number of axes, and pairs": "input tensor. Support|"
    "output_size|list of \\d values|padding equals|negative padding|padding.*non-negative|"
    "Padding size|subscriptable|mode needs 4D|expected \\w+ equals|1D tensors expected|"
    "not enough values to unpack",
    "empty where NumPy's is": "upper bound and lower|0D or 1D|at least [12] at dimension 0|"
    "optional 0 dim|primitive descriptor|must be greater than zero",
    "what is never computed isn't checked": "index (\\d+ )?out of range|index_size|"
    "not in the valid range|INDICES element|Expected idx",
    "negative places count from the end": "id=-|index -\\d+ is out of bounds",
    "a limit that the functions take, if not the layers": "max_val|float between 0 and 1|"
    "eps must be positive|betas must be either|Nesterov momentum requires",
    "values are looked at only where they are numbers": "q values|negative entr|elements of target",
    "shapes broadcast": "var is of incorrect size|number of sizes provided|0-dimension|"
    "Dimension (specified as|out of range \\(expected to be in range of \\[-1, 0\\], but got) -2",
    "a schedule stays where it ends": "Tried to step",
    "what overflows is infinite": "without overflow|out of range'|float division|allocate memory",
}
"""What PyTorch refuses and is taken here on purpose: why, and what PyTorch says then."""

UNLIKE = {
    "whole numbers become floats": "(hreshold|ardtanh|pad|Pad1d|pool1d)\\(.*(i|far|negative|b)\\(",
    "random numbers are others": "dropout\\(|init.uniform_",
    "no axes are none, as in NumPy": "\\(\\(\\)|=\\(\\)|combinations",
    "what overflows does so elsewhere": "moved.*1000000000|trapezoid.*inf|scale=inf|"
    "linspace.*(inf|nan)|margin=nan",
    "a momentum of 0 keeps the last gradient, not an older direction": "_momentum=0[,)]",
    "outside its domain it is NaN": "mvlgamma",
    "a blank among the labels means nothing": "ctc_loss",
    "halves are added up in floats": "(pos_weight=|osine.*)half\\(",
}
"""What is another value here on purpose: why, and the calls."""


def run(call: str, words: dict[str, Any]) -> Any:
    """The values of its results as arrays, or the error."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), Tensor.train():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            Tensor.manual_seed(0)
            result = eval(call, dict(words))
            several = result if isinstance(result, (tuple, list)) else (result,)
            return [plain(each) for each in several]
    except Exception as error:  # whatever it is: that is what is compared
        return error


def plain(value: Any) -> Any:
    """A result as an array."""
    if isinstance(value, torch.Tensor):
        return value.detach().numpy() if value.dtype != torch.bfloat16 else value.float().numpy()
    if isinstance(value, Tensor):
        return value.detach().numpy()
    return value


def verdict(call: str) -> tuple[str, str] | None:
    """What is unlike, and how."""
    wanted, found = run(call, THEIRS), run(call, OURS)
    if isinstance(found, Exception):
        if not isinstance(found, REFUSALS) and type(found).__module__ == "builtins":
            return "python", f"{type(found).__name__}: {found}"
        if isinstance(wanted, Exception):
            return None
        return "refused", f"{type(found).__name__}: {found}"
    if isinstance(wanted, Exception):
        said = f"{type(wanted).__name__}: {wanted}"
        if any(re.search(words, said) for words in ACCEPTED.values()):
            return None
        return "silent", f"{shown(found)}; PyTorch: {type(wanted).__name__}: {wanted}"
    if unlike(found, wanted) and not any(re.search(words, call) for words in UNLIKE.values()):
        return "unlike", f"{shown(found)}; PyTorch: {shown(wanted)}"
    return None


def shown(values: list[Any]) -> str:
    return ", ".join(
        f"{v.shape} {v.ravel()[:4]}" if hasattr(v, "ravel") else repr(v) for v in values
    )


def unlike(found: list[Any], wanted: list[Any]) -> bool:
    if len(found) != len(wanted):
        return True
    for a, b in zip(found, wanted, strict=True):
        if not isinstance(a, (np.ndarray, np.generic, int, float, bool)):
            continue
        if np.shape(a) != np.shape(b):
            return True
        x, y = np.asarray(a, complex), np.asarray(b, complex)
        if not np.allclose(x, y, 1e-3, 1e-4, equal_nan=True):
            return True
    return False


def finds(calls: list[str]) -> Iterator[tuple[str, str, str]]:
    """Of these programs those that are unlike and not meant."""
    for call in calls:
        found = verdict(call)
        if found:
            yield call, *found


def drawn(seed: int, count: int, only: str = "") -> list[str]:
    """So many mutants."""
    every = [m for call in CALLS if any(o in call for o in only.split(",")) for m in mutants(call)]
    return Random(seed).sample(every, min(count, len(every)))


def main() -> None:
    """Looks for finds, and prints them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for call in CALLS:
        if found := verdict(call):
            print("LEGAL", call, *found, flush=True)
    end, count = time.monotonic() + 60 * given.minutes, 0
    for call in drawn(given.seed, 10**6, given.only):
        if time.monotonic() > end:
            break
        count += 1
        for name, kind, how in finds([call]):
            print(f"{kind}: {name}\n    {how:.300}", flush=True)
    print(f"{count} mutants of {len(CALLS)} calls")


if __name__ == "__main__":
    main()
