"""The guide is run: each example of a page, in order, in one program. After a change:
python tools/guide.py"""

import doctest
import re
from pathlib import Path

import pytest

from tinygrad.engine.devices import Device

DOCS = Path(__file__).parent.parent / "docs"
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
PAGES = ("tensor", "training", "kernels", "devices")


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_shows_is_what_happens(name, monkeypatch):
    monkeypatch.setattr(Device, "_default", "CPU")
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
        code = (DOCS.parent / "tinygrad" / file).read_text()
        for name in re.findall(r"`(\w+)`", found):
            assert re.search(rf"^ *(def |class )?{name}\b", code, re.M), f"{file}: {name}"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    lost = [link for link in links if ":" not in link and not (page.parent / link).exists()]
    assert not lost
