"""Run the examples of the guide and write what they print into its pages.

    python tools/guide.py            # renews docs/guide/*.md

What is there already stays if it is still right, so that an `...` written by hand is kept.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import sys
from pathlib import Path
from typing import Any

PAGES = ("tensor", "training", "kernels", "devices")
FOLDER = Path(__file__).resolve().parent.parent / "docs" / "guide"
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def examples(text: str) -> doctest.DocTest:
    """The examples of a page; the fences around them are no output."""
    plain = re.sub(r"^```.*$", "", text, flags=re.MULTILINE)
    return doctest.DocTestParser().get_doctest(plain, {}, "page", None, 0)


def output(source: str, names: dict[str, Any]) -> str:
    """What a statement prints, as doctest wants it."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(source, "<page>", "single"), names)
    except Exception as error:
        kind = type(error)
        where = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        return f"Traceback (most recent call last):\n    ...\n{where}{kind.__qualname__}: {error}\n"
    return re.sub(r"^\s*$(?!\Z)", "<BLANKLINE>", printed.getvalue(), flags=re.MULTILINE)


def renewed(text: str) -> str:
    """A page with the output of today."""
    lines = text.split("\n")
    names: dict[str, Any] = {}
    check = doctest.OutputChecker().check_output
    changes: list[tuple[int, int, list[str]]] = []
    for example in examples(text).examples:
        got = output(example.source, names)
        if example.exc_msg is not None:
            right = check(example.exc_msg, got.split("    ...\n")[-1], FLAGS)
        else:
            right = check(example.want, got, FLAGS)
        if not right:
            start = example.lineno + example.source.count("\n")
            changes.append((start, example.want.count("\n"), got.rstrip("\n").split("\n")))
    for start, count, new in reversed(changes):
        lines[start : start + count] = new
    return "\n".join(lines)


def main() -> int:
    """Renew all pages; says which changed."""
    sys.displayhook = lambda value: None if value is None else print(repr(value))
    for name in PAGES:
        path = FOLDER / f"{name}.md"
        before = path.read_text()
        after = renewed(before)
        if after != before:
            path.write_text(after)
            print(f"renewed {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
