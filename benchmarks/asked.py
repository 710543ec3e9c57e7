"""The cases of a benchmark that its command line asks for."""

from __future__ import annotations

import argparse
import fnmatch
from collections.abc import Iterable


def parser(page: str | None, rounds: int) -> argparse.ArgumentParser:
    """Of the command line that most of them have; `page` is the file's own text."""
    made = argparse.ArgumentParser(description=(page or "").splitlines()[0])
    made.add_argument("--cases", default="*", help="names or patterns, with commas")
    made.add_argument("--rounds", type=int, default=rounds)
    return made


def matching(patterns: str, names: Iterable[str]) -> list[str]:
    """The names that match one of the patterns, which stand between commas. SystemExit with all
    names if none does."""
    names, wanted = list(names), patterns.split(",")
    found = [name for name in names if any(fnmatch.fnmatch(name, each) for each in wanted)]
    if not found:
        raise SystemExit(f"no case {patterns}; there are {', '.join(names)}")
    return found
