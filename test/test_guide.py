"""The guide is run: each example of a page, in order, in one program. After a change:
python tools/guide.py"""

import doctest
import os
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tinygrad import Tensor
from tinygrad.engine.devices import Device
from tinygrad.engine.recipes import kernel_id

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PROSE = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("examples/*.md")])
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
IGNORED = shutil.ignore_patterns("__pycache__")
PAGES = ("tensor", "training", "kernels", "devices")


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_shows_is_what_happens(name, monkeypatch):
    monkeypatch.setattr(Device, "DEFAULT", "CPU")
    path = DOCS / "guide" / f"{name}.md"
    text = re.sub(r"^```.*$", "", path.read_text(), flags=re.MULTILINE)  # fences are no output
    page = doctest.DocTestParser().get_doctest(text, {}, name, str(path), 0)
    assert len(page.examples) > 10
    report: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(page, out=report.append)
    assert not report, "".join(report)


def test_what_the_way_through_the_code_names_is_there():
    rows = re.findall(r"^\| `(\S+\.py)` \| (.+?) \|", (DOCS / "guide/reading.md").read_text(), re.M)
    assert len(rows) == 20
    for file, found in rows:
        code = (ROOT / "tinygrad" / file).read_text()
        for name in re.findall(r"`(\w+)`", found):
            assert re.search(rf"^ *(def |class )?{name}\b", code, re.M), f"{file}: {name}"


def test_the_kernel_of_the_page_on_recipes_has_the_id_that_stands_there():
    a, b = (Tensor.empty(512, 512, device="NULL") for _ in "ab")
    (step,) = (a @ b).schedule()
    ids = set(re.findall(r"[0-9a-f]{12}", (DOCS / "recipes.md").read_text()))
    assert ids == {kernel_id(step.ast)}


FLOORS = ("base", "uop", "simplify", "transforms", "schedule", "loops", "codegen", "backends")


@pytest.mark.parametrize("floor", (*FLOORS, "engine", "tensor"))
def test_a_floor_says_what_its_files_are_for(floor):
    """In its `__init__`, or in the tables of docs/architecture.md."""
    folder, page = ROOT / "tinygrad" / floor, (DOCS / "architecture.md").read_text()
    index = (folder / "__init__.py").read_text()
    stems = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    lost = [s for s in stems if not re.search(rf"\b{s}\b", index) and f"`{s}`" not in page]
    assert not lost


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    lost = [link for link in links if ":" not in link and not (page.parent / link).exists()]
    assert not lost


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_are_there(page):
    """`schedule/walk`, `tools/size.py`: below the repository, the package, or its backends."""
    named = set(re.findall(r"`(\w+(?:/\w+)+(?:\.\w+)?)`", page.read_text()))
    roots = (ROOT, ROOT / "tinygrad", ROOT / "tinygrad/backends")
    lost = [n for n in named if not any(list(root.glob(f"{n}*")) for root in roots)]
    assert page.name == "CHANGELOG.md" or not lost  # which tells of what was


@pytest.mark.slow
def test_what_the_page_on_changes_adds_does_what_it_says(tmp_path):
    text = (DOCS / "guide/changing.md").read_text()
    shutil.copytree(ROOT / "tinygrad", tmp_path / "tinygrad", ignore=IGNORED)
    for file, anchor, lines in re.findall(
        r"```python\n# (\S+), before `([^\n]+)`\n(.*?)```", text, re.S
    ):
        path = tmp_path / file
        before, found, after = path.read_text().partition(anchor)
        assert found, f"{file}: {anchor}"
        path.write_text(before + lines + found + after)
    programs = re.findall(r"```python\n# program\n(.*?)```", text, re.S)
    outputs = re.findall(r"```text\n(.*?)```", text, re.S)
    pairs = list(zip(programs, outputs, strict=True))
    for (program, printed), device in product(pairs, ("CPU", "CLANG", "PYTHON")):
        settings = {"PYTHONPATH": str(tmp_path), "TINYGRAD_CACHE": str(tmp_path), "DEV": device}
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **settings},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert run.stdout == printed, (device, run.stderr)
