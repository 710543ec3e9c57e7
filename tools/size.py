"""Print the size of each floor beside its budget, and fail when one is over.

A code line is one that holds a token of code: blank lines, comments and docstrings are free, so
explaining costs nothing. Tokens are counted beside lines, so writing tighter gains nothing: golf
shows as a loss in the last column. Budgets are those of the design; change one in a commit that
says why.
"""

import ast
import io
import sys
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tinygrad"

MAX_LINES = 500  # per file: longer ones are listed
MAX_DENSITY = 11.0  # tokens a line: denser files are listed
MIN_LINES = 20  # a file shorter than this has no meaningful density

# The floors, lowest first, with their budgets in code lines. `*`: the files of that folder itself;
# each folder inside has a budget of its own: it is a driver, or beside what a Tensor is made of.
BUDGETS: dict[str, int | None] = {
    "base": 910,
    "uop": 2040,
    "simplify": 1080,
    "transforms": 435,
    "schedule": 4265,
    "loops": 5965,
    "codegen": 5730,
    "backends/*": 2985,
    "engine": 6305,
    "tensor/*": 8385,
}
CORE_BUDGET = 38_085  # all of the above: the floors that make a Tensor run, with every renderer
# Folders inside those marked `*`. The interpreter judges what the lanes of a warp, or of several,
# do together, too, and what an engine copies beside them; CUDA describes buffers to that engine.
# The CPU has no driver below it: its folder holds the object loader, the allocator and the thread
# pool that other devices find in theirs, and stops kernels that run too long, as drivers do.
INSIDE_BUDGETS = {
    "backends/cpu": 1735,
    "backends/interpreter": 775,
    "backends/cuda": 590,
    "tensor/complex": 420,
    "tensor/long_tail": 3510,
}
DRIVER_BUDGET = 350  # of any other folder of backends/

NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Size:
    """Files, code lines and tokens: of one file, or of many added up."""

    files: int = 0
    lines: int = 0
    tokens: int = 0

    def __add__(self, other: "Size") -> "Size":
        """Add up two sizes."""
        return Size(self.files + other.files, self.lines + other.lines, self.tokens + other.tokens)

    @property
    def density(self) -> float:
        """Tokens per code line."""
        return self.tokens / self.lines if self.lines else 0.0


def docstring_lines(source: str) -> set[int]:
    """Return the lines taken by docstrings and other strings that stand as statements."""
    strings = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
    return {line for node in strings for line in range(node.lineno, (node.end_lineno or 0) + 1)}


def measure(path: Path) -> Size:
    """Count the code lines and tokens of one Python file."""
    source = path.read_text(encoding="utf-8")
    free = docstring_lines(source)
    lines: set[int] = set()
    tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in NOT_CODE or token.start[0] in free:
            continue
        lines.update(range(token.start[0], token.end[0] + 1))
        tokens += 1
    return Size(1, len(lines), tokens)


def add_up(paths: Iterable[Path], sizes: dict[Path, Size]) -> Size:
    """Add up the sizes of some files."""
    return sum((sizes[path] for path in paths), Size())


def row(name: str, size: Size, budget: int | None) -> bool:
    """Print one line of the table and return whether it keeps its budget."""
    kept = budget is None or size.lines <= budget
    limit = f"{budget:7,}" if budget else "      -"
    left = "" if kept or not budget else f"  over by {size.lines - budget}"
    counts = f"{size.files:5} {size.lines:7,} {size.tokens:8,} {size.density:7.1f}"
    print(f"{name:<24} {counts} {limit}{left}")
    return kept


def group_of(path: Path) -> str:
    """Return the name of a file's row: its floor, where that is marked `*` the folder in it, or `.`
    for the package's own files."""
    floor, *inside = path.relative_to(PACKAGE).parts
    if not inside:
        return "."
    return f"{floor}/{inside[0] if inside[1:] else '*'}" if f"{floor}/*" in BUDGETS else floor


def budget_of(name: str) -> int | None:
    """Return the budget of a row below the core's."""
    driver = DRIVER_BUDGET if name.startswith("backends/") else None
    return INSIDE_BUDGETS.get(name, driver)


def table(sizes: dict[Path, Size]) -> bool:
    """Print the size table and return whether every budget is kept."""
    groups: dict[str, list[Path]] = {name: [] for name in BUDGETS}
    for path in sorted(sizes):
        groups.setdefault(group_of(path), []).append(path)

    print(f"{'folder':<24} files   lines   tokens tok/line  budget")
    kept = [row(name, add_up(groups[name], sizes), BUDGETS[name]) for name in BUDGETS]
    core = [path for name in BUDGETS for path in groups[name]]
    kept.append(row("= core and renderers", add_up(core, sizes), CORE_BUDGET))
    others = sorted(groups.keys() - BUDGETS.keys())
    kept += [row(name, add_up(groups[name], sizes), budget_of(name)) for name in others]
    row("= tinygrad", add_up(sizes, sizes), None)
    tests = {path: measure(path) for path in (ROOT / "test").rglob("*.py")}
    row("test", add_up(tests, tests), None)
    return all(kept)


def list_large(sizes: dict[Path, Size]) -> None:
    """List the files that are long or dense: not a failure, but a reason to look."""
    for path, size in sorted(sizes.items()):
        name = path.relative_to(ROOT)
        if size.lines > MAX_LINES:
            print(f"long:  {name} has {size.lines} code lines (more than {MAX_LINES})")
        if size.lines >= MIN_LINES and size.density > MAX_DENSITY:
            print(f"dense: {name} has {size.density:.1f} tokens a line (more than {MAX_DENSITY})")


def main() -> int:
    """Print the table and the large files; 1 when a budget is broken."""
    sizes = {path: measure(path) for path in PACKAGE.rglob("*.py")}
    kept = table(sizes)
    list_large(sizes)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
