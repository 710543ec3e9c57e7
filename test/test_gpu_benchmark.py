"""`benchmarks/gpu.py` runs from its first line to its page, on a device that every machine has."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "gpu.py"
PARTS = ("copy", "gemm", "f32", "attention", "rows", "conv", "training")


def run(output, *arguments):
    command = [sys.executable, str(SCRIPT), "--small", "--output", str(output), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.slow
def test_every_part_gives_its_rows(tmp_path):
    ran = run(tmp_path / "page.md", "--device", "CL", "--minutes", "4")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    page = (tmp_path / "page.md").read_text()
    for word in ("agree with PyTorch", "copy of", "matmul bfloat16", "attention", "training step"):
        assert word in page, page
    assert "Not reached" not in page


@pytest.mark.slow
def test_what_is_not_reached_is_said(tmp_path):
    ran = run(tmp_path / "page.md", "--device", "CPU", "--minutes", "0", "--only", "rows,conv")
    assert ran.returncode == 0, ran.stderr
    assert "Not reached: rows, conv." in (tmp_path / "page.md").read_text()


@pytest.mark.slow
def test_an_unknown_part_is_told_with_those_there_are(tmp_path):
    ran = run(tmp_path / "page.md", "--only", "nothing")
    assert ran.returncode != 0 and f"the parts are check, {', '.join(PARTS)}" in ran.stderr
