"""The fuzzer of graphs finds compiler bugs that were planted on purpose: each row edits one line of
the compiler, in a process of its own, and the fuzzer must say that a device is wrong before it has
tried so many programs. Without an edit it must not."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType

import pytest

HERE = Path(__file__).parent
GRAPHS = 60  # programs tried, at most
FIRST = 20_000  # a seed that no other test begins with

PLANTED = {  # name → (module, what stands there, what is planted)
    "a rule that forgets its guard": (
        "tinygrad.simplify.boolean",
        "return x.vmax < w.vmin",
        "return x.vmax <= w.vmin",
    ),
    "padding that begins one element late": (
        "tinygrad.schedule.movement",
        "conditions.append(UOp.const(dtypes.index, low - 1) < at)",
        "conditions.append(UOp.const(dtypes.index, low) < at)",
    ),
    "a last turn that is not peeled off": (
        "tinygrad.codegen.nesting",
        "last = high - peeled",
        "last = high - (peeled or high - low <= 2)",
    ),
    "readers of an old version that are not waited for": (
        "tinygrad.schedule.kernels",
        "if overwrites(node):",
        "if node.op is Ops.SCATTER:",
    ),
}


class Planter(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Loads one module with a line of it changed."""

    def __init__(self, name: str, old: str, new: str) -> None:
        spec = importlib.machinery.PathFinder.find_spec("tinygrad")
        assert spec is not None and spec.origin is not None
        path = Path(spec.origin).parent.joinpath(*name.split(".")[1:]).with_suffix(".py")
        super().__init__(name, str(path))
        self.old, self.new = old, new

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_text()
        assert self.old in text, f"{fullname} has no such line any more: {self.old}"
        return compile(text.replace(self.old, self.new), self.path, "exec")


def hunt(name: str) -> None:
    """Prints what the fuzzer finds first with this bug planted."""
    if name:
        sys.meta_path.insert(0, Planter(*PLANTED[name]))
    from fuzz_graphs import Failure, check, generate

    for seed in range(FIRST, FIRST + GRAPHS):
        program = generate(seed)
        try:
            check(program, ("CPU",))
        except Failure as failure:
            print(f"found after {seed - FIRST + 1} graphs: {failure.what}")
            return
        except Exception as error:
            print(f"found after {seed - FIRST + 1} graphs: {type(error).__name__} {error}")
            return
    print(f"nothing in {GRAPHS} graphs")


def hunted(name: str, folder: Path) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, name],
        env={**os.environ, "TINYGRAD_CACHE": str(folder), "SPEC": "0"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout.strip().split("\n")[-1]


@pytest.mark.parametrize("name", PLANTED)
def test_the_fuzzer_finds(name, tmp_path):
    assert hunted(name, tmp_path).startswith("found after")


@pytest.mark.slow
def test_it_finds_nothing_where_nothing_is_planted(tmp_path):
    assert hunted("", tmp_path) == f"nothing in {GRAPHS} graphs"


if __name__ == "__main__":
    hunt(sys.argv[1])
