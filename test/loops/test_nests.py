"""The recipes and nests of the kernels that matter most stay as they are written down."""

from pathlib import Path

import pytest
from loops import nests

KEPT = Path(__file__).with_name("nests.txt").read_text().split("=== ")[1:]
MADE = [one.removeprefix("=== ") for one in nests.sections()]


@pytest.mark.parametrize("made", MADE, ids=[one.partition("\n")[0] for one in MADE])
def test_a_nest_is_as_written_down(made):
    title = made.partition("\n")[0]
    kept = next((one for one in KEPT if one.startswith(title + "\n")), "")
    assert made.strip() == kept.strip(), "on purpose? python test/loops/nests.py > nests.txt"


def test_nothing_else_is_written_down():
    assert [one.partition("\n")[0] for one in KEPT] == [one.partition("\n")[0] for one in MADE]
