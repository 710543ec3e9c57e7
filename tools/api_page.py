"""Write the page of the public API: the names in groups, a line for each, and its first example.

    python tools/api_page.py > docs/api.md

What is public is decided here, once: `test/test_docstrings.py` takes the same list to see that each
name says what it does and shows it.
"""

from __future__ import annotations

import doctest
import functools
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Title → module. Of a module with `__all__` these are the names, else those of its own package.
MODULES = {
    "The package": "tinygrad",
    "Layers and losses": "tinygrad.nn",
    "Functions of layers": "tinygrad.nn.functional",
    "Initial values": "tinygrad.nn.init",
    "Optimizers and schedules": "tinygrad.nn.optim",
    "State": "tinygrad.nn.state",
    "Around layers": "tinygrad.nn.utils",
    "Sequences of several lengths": "tinygrad.nn.utils.rnn",
    "Data sets": "tinygrad.nn.datasets",
    "Data": "tinygrad.data",
    "Linear algebra": "tinygrad.linalg",
    "Fourier transforms": "tinygrad.fft",
    "ONNX": "tinygrad.nn.onnx",
    "Helpers": "tinygrad.helpers",
    "The array API standard": "tinygrad.array_api",
    "The array API standard: linear algebra": "tinygrad.array_api.linalg",
    "The array API standard: Fourier transforms": "tinygrad.array_api.fft",
}
CLASSES = {  # whose methods the page has too; Tensor's and UOp's are in groups
    "TinyJit": "tinygrad",
    "Device": "tinygrad",
    "Generator": "tinygrad",
    "dtypes": "tinygrad",
    "Checkpoint": "tinygrad.nn",
    "Stepper": "tinygrad.nn.optim.optimizer",
    "Optimizer": "tinygrad.nn.optim",
    "Scheduler": "tinygrad.nn.optim",
    "EMA": "tinygrad.nn.optim",
    "GradScaler": "tinygrad.nn.optim",
    "LBFGS": "tinygrad.nn.optim",
    "ReduceLROnPlateau": "tinygrad.nn.optim",
    "DataLoader": "tinygrad.data",
    "OnnxRunner": "tinygrad.nn.onnx",
}

NO_EXAMPLE = {
    "mnist": "needs a network",
    "cifar": "needs a network",
    "diskcache_clear": "forgets what other programs have compiled",
    "FetchError": "an error",
    "LinAlgError": "an error",
}
"""Names that show no example, and why."""

HOOKS = {
    "rate": "what `step` asks a schedule",
    "next_rate": "what `step` asks a schedule",
    "momentum": "what `step` asks a schedule",
    "first": "what a schedule begins with",
    "lowest": "what a schedule ends at",
    "end": "`Scheduler.end` shows it",
    "lr": "`Optimizer.lr` shows it; of a group it is an error",
}
"""Methods of public classes off the page that show no example, and why."""


@dataclass(frozen=True)
class Entry:
    """One public name, as a program writes it."""

    name: str
    value: Any

    @property
    def short(self) -> str:
        """The name without what it belongs to."""
        return self.name.rpartition(".")[2]

    @property
    def doc(self) -> str:
        """The docstring, without indentation."""
        return inspect.getdoc(self.value) or ""

    @property
    def line(self) -> str:
        """Its first sentence."""
        text = " ".join(self.doc.partition("\n\n")[0].split())
        return text.partition(". ")[0].rstrip(".:") + "."

    @property
    def is_in_place(self) -> bool:
        """Whether it is another method's twin, `exp_` of `exp`, whose example serves both."""
        return "` in place: this holds its result" in self.doc

    @property
    def examples(self) -> list[doctest.Example]:
        """What the docstring shows."""
        return doctest.DocTestParser().get_examples(self.doc)


def _callable(value: Any) -> bool:
    return inspect.isroutine(value) or inspect.isclass(value)


def of_module(path: str) -> Iterator[Entry]:
    """The functions and classes that a module offers."""
    module = importlib.import_module(path)
    package = path if hasattr(module, "__path__") else path.rpartition(".")[0]
    for name in sorted(getattr(module, "__all__", None) or vars(module)):
        value = getattr(module, name)
        home = getattr(value, "__module__", None) or ""
        own = home.startswith(package) or (hasattr(module, "__all__") and home[:8] == "tinygrad")
        if not name.startswith("_") and (_callable(value) or name in CLASSES) and own:
            yield Entry(f"{path}.{name}", value)


def asked_by_the_engine() -> set[str]:
    """The methods of tensors that are no part of the public API, because they are the engine's."""
    holder = importlib.import_module("tinygrad.engine.holders").Holder
    return {name for name, value in vars(holder).items() if _is_abstract(value)} - {"uop"}


def _is_abstract(value: Any) -> bool:
    return getattr(value, "__isabstractmethod__", False)


def of_class(cls: type, name: str) -> Iterator[Entry]:
    """The public methods and properties that a class defines itself; those that it leaves to others
    are with these."""
    for each, value in sorted(vars(cls).items()):
        plain = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if each in getattr(cls, "__abstractmethods__", ()):
            continue
        if not each.startswith("_") and (isinstance(plain, property) or _callable(plain)):
            yield Entry(f"{name}.{each}", plain)


@functools.cache
def groups() -> dict[str, list[Entry]]:
    """All public names by the title of their group; each name once."""
    found: dict[str, list[Entry]] = {}
    package = importlib.import_module("tinygrad")
    tensor = package.Tensor
    seen = {f"Tensor.{name}" for name in asked_by_the_engine()}
    for cls in tensor.__mro__:
        if cls.__module__.startswith("tinygrad.tensor"):
            own = [e for e in of_class(cls, "Tensor") if e.name not in seen]
            seen.update(e.name for e in own)
            head = (inspect.getdoc(cls) or "").partition("\n")[0].rstrip(".")
            found[f"Tensor: {head[0].lower()}{head[1:]}"] = own
    for title, path in MODULES.items():
        found[title] = list(of_module(path))
    for name, path in CLASSES.items():
        value = getattr(importlib.import_module(path), name)
        found[name] = list(of_class(value if inspect.isclass(value) else type(value), name))
    of_nodes: dict[str, Entry] = {}  # a method is shown where it is defined last
    for cls in reversed(package.UOp.__mro__):
        of_nodes |= {e.name: e for e in of_class(cls, "UOp") if cls is not object}
    found["The graph: UOp"] = sorted(of_nodes.values(), key=lambda entry: entry.name)
    return {title: entries for title, entries in found.items() if entries}


def of_public_classes() -> Iterator[Entry]:
    """The methods of all classes that the page names."""
    seen = set()
    for entry in (entry for group in groups().values() for entry in group):
        if inspect.isclass(entry.value) and entry.value not in seen:
            seen.add(entry.value)
            yield from of_class(entry.value, entry.name)


def rendered(entry: Entry) -> list[str]:
    """One name on the page."""
    lines = [f"- **`{entry.name}`**: {entry.line}"]
    shown = entry.examples[:1] if len(entry.examples) == 1 else entry.examples[:4]
    if shown:
        lines += ["", "  ```python"]
        for example in shown:
            first, *more = example.source.rstrip("\n").split("\n")
            lines += [f"  >>> {first}", *(f"  ... {line}" for line in more)]
            lines += [f"  {line}" for line in example.want.rstrip("\n").split("\n") if line]
        lines += ["  ```", ""]
    return lines


def page() -> str:
    """The whole page."""
    lines = ["# The public API", ""]
    lines += [
        "Made by `python tools/api_page.py > docs/api.md`; a test sees that it is up to date.",
        "",
    ]
    for title, entries in groups().items():
        lines += [f"## {title}", ""]
        for entry in entries:
            lines += rendered(entry)
        lines.append("")
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip("\n") + "\n"


if __name__ == "__main__":
    print(page(), end="")
