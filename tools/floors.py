"""Check what the import linter can't: no import of the package is hidden or goes over the roof.

Three rules for every file of a floor:
- an import of tinygrad stands at the top of its file, where a reader looks for it (a heavy
  third-party library may be imported on first use, the package's own floors may not);
- a file names the floor that it needs, never `tinygrad` itself, which sees all of them;
- under `if TYPE_CHECKING`, where the linter doesn't look, a file names only its own folder.
The linter's contracts, in pyproject.toml, check the order of the floors and that none is missing.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tinygrad"


def imported(node: ast.AST) -> list[str]:
    """Return the tinygrad modules that a node imports, [] for any other node."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module == "tinygrad":
        names = [f"tinygrad.{alias.name}" for alias in node.names]
        names = [name if is_module(name) else "tinygrad" for name in names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    else:
        names = []
    return [name for name in names if name.split(".")[0] == "tinygrad"]


def is_module(name: str) -> bool:
    """Return whether a dotted name is a folder or file of the package."""
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def inside(tree: ast.AST, kinds: tuple[type[ast.AST], ...], test: str = "") -> set[ast.AST]:
    """Return the nodes within functions, or within `if test`."""
    outer = (node for node in ast.walk(tree) if isinstance(node, kinds))
    chosen = (n for n in outer if not isinstance(n, ast.If) or ast.unparse(n.test).endswith(test))
    return {inner for node in chosen for inner in ast.walk(node)}


def faults(path: Path) -> Iterator[str]:
    """Yield a line for each import in a file that breaks a rule."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    place = path.relative_to(ROOT)
    own_folder = f"tinygrad.{place.parts[1]}."
    hidden = inside(tree, (ast.FunctionDef, ast.AsyncFunctionDef))
    for_types = inside(tree, (ast.If,), "TYPE_CHECKING")
    for node in ast.walk(tree):
        for name in imported(node):
            where = f"{place}:{getattr(node, 'lineno', 0)}: imports {name}"
            if node in hidden:
                yield f"{where} inside a function; move it to the top of the file"
            if name == "tinygrad":
                yield f"{where} itself; name the floor that has what it needs"
            if node in for_types and not f"{name}.".startswith(own_folder):
                yield f"{where} for its types only; only the own folder may be named so"


def main() -> int:
    """Print every fault; 1 when there is one."""
    # The files right under tinygrad/ are its roof: they may import anything, when they like.
    found = [fault for path in sorted(PACKAGE.glob("*/**/*.py")) for fault in faults(path)]
    print("\n".join(found) or "no hidden import, none of the roof")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
