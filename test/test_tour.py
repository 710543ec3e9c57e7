"""The tour is a page of documentation that cannot go stale: its program is run and compared."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "tour" / "tour.txt"

HEADINGS = [
    "The program",
    "The tensor's graph",
    "Its structure",
    "The plan",
    "The kernel before its loops are arranged",
    "The recipe",
    "The kernel with its recipe",
    "The loop nest",
    "The linear program",
    "The same as C",
    "The same as LLVM IR",
    "Machine code",
    "The result",
    "The gradient's graph",
    "The gradient's plan",
    "The gradient's loops",
    "The gradient",
]


@pytest.fixture(scope="module")
def printed() -> str:
    command = [sys.executable, "-m", "tinygrad.tour"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def test_every_stage_is_there(printed):
    assert re.findall(r"^\d+\. (.*)$", printed, re.MULTILINE) == HEADINGS


def test_the_result_is_right(printed):
    """Computed here with Python's own numbers."""
    a = [[i - k for k in range(4)] for i in range(8)]
    b = [[(k + j) % 5 - 2 for j in range(16)] for k in range(4)]
    product = [[sum(x * b[k][j] for k, x in enumerate(row)) for j in range(16)] for row in a]
    total = sum(max(x, 0) for row in product for x in row)
    first = [sum(b[k][j] for j in range(16) if product[0][j] > 0) for k in range(4)]
    assert f"result.numpy() = {float(total)}\n" in printed
    assert f"derivative.numpy()[0] = {[float(x) for x in first]}\n" in printed


def test_the_committed_page_is_what_is_printed(printed):
    """After a change: python -m tinygrad.tour > docs/tour/tour.txt"""
    assert printed == PAGE.read_text()


def test_the_tour_of_this_machine():
    command = [sys.executable, "-m", "tinygrad.tour", "--here"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    assert re.findall(r"^\d+\. (.*)$", shown, re.MULTILINE) == HEADINGS
