"""Kernel replay on a tiny suite: nothing differs from itself, and a planted change shows."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tinygrad import Tensor
from tinygrad.base.settings import Context
from tinygrad.engine.devices import Device
from tinygrad.engine.gallery import made_again, read_target
from tinygrad.uop.text import parse

ROOT = Path(__file__).parent.parent

SUITE = """
from tinygrad import Tensor

def test_two_shapes_of_one_sum():
    for size in (3, 5):
        assert (Tensor.ones(size, 4) + 1).contiguous().sum().item() == 8 * size

def test_a_maximum():
    assert Tensor([1.0, 3.0, 2.0]).max().item() == 3.0

def test_rows_of_what_was_turned():  # whose sums were first built in another order of their terms
    turned = Tensor.ones(6, 5, 4).contiguous().transpose(0, 1).reshape(10, 12)
    assert turned[1:9].contiguous().sum().item() == 96.0
"""


def git(tree, *words):
    who = ["-c", "user.name=replay", "-c", "user.email=replay@example.com"]
    subprocess.run(["git", *who, *words], cwd=tree, check=True, capture_output=True)


def replay(tree, tests="test"):
    facts = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    # TESTS: as make hands it on
    facts |= {"PYTHONPATH": str(tree), "DEV": "PYTHON", "CAPTURE_KERNELS": "", "TESTS": tests}
    command = [sys.executable, "tools/replay.py", "HEAD", tests, "--jobs", "2"]
    return subprocess.run(
        command, cwd=tree, env=facts, capture_output=True, text=True, timeout=300, check=False
    )


def change(tree, path, before, after):
    text = (tree / path).read_text()
    assert before in text
    (tree / path).write_text(text.replace(before, after))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A repository of the package and a tiny suite."""
    place = tmp_path_factory.mktemp("replay")
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("tinygrad", "tools"):
        shutil.copytree(ROOT / folder, place / folder, ignore=ignored)
    shutil.copy(ROOT / ".gitignore", place)
    (place / "test").mkdir()
    (place / "test" / "test_tiny.py").write_text(SUITE)
    (place / "test" / "conftest.py").write_text("import os; int(os.environ.get('TESTS', '1'))")
    git(place, "init", "--quiet")
    git(place, "add", ".")
    git(place, "commit", "--quiet", "-m", "then")
    return place


def test_a_change_shows_in_the_kernels_that_it_changes(tree):
    first = replay(tree)
    assert first.returncode == 0, first.stdout + first.stderr
    count = int(first.stdout.split()[0])
    assert count >= 3 and f"{count} same, 0 changed, 0 failed, 0 skipped" in first.stdout

    renderer = "tinygrad/backends/interpreter/renderer.py"
    change(tree, renderer, 'return plain if exact else f"', 'return plain if exact else f" ')
    planted = replay(tree)
    assert planted.returncode == 1
    assert "-- way 1 of" in planted.stdout and "\n-" in planted.stdout and "\n+" in planted.stdout
    assert " same, 0 changed" not in planted.stdout

    change(tree, renderer, "def expression(self", "def expressions(self")
    broken = replay(tree)
    assert broken.returncode == 1 and f"0 same, 0 changed, {count} failed" in broken.stdout
    assert "failed: AttributeError" in broken.stdout.replace("\n   failed\n", " failed: ")


def test_what_git_does_not_know_is_said(tree):
    done = replay(tree, "no-such-file")
    assert done.returncode == 2 and "no kernels: HEAD has no no-such-file" in done.stdout


# ---- pictures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["CPU", "PYTHON", "NULL"])
def test_a_picture_gives_the_same_source(name, tmp_path):
    with Context(CAPTURE_KERNELS=str(tmp_path)):
        ((Tensor.ones(7, 5, device=name) * 3).contiguous().softmax() + 1).numpy()
    pictures = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert pictures
    for picture in pictures:
        assert read_target(picture["target"]) == Device[name].target
        assert made_again(picture, Device[name]) == picture["sources"]


def test_a_picture_of_another_version_is_read_as_far_as_it_goes(tmp_path):
    with Context(CAPTURE_KERNELS=str(tmp_path)):
        (Tensor.ones(11, device="PYTHON") * 3).contiguous().numpy()
    picture = json.loads(next(tmp_path.glob("*.json")).read_text())
    picture["target"]["wings"] = 2
    picture["target"]["numerics"]["feathers"] = True
    del picture["target"]["registers"]
    assert made_again(picture, Device["PYTHON"]) == picture["sources"]
    with pytest.raises(ValueError, match="not a line of a graph"):
        parse(picture["kernel"].replace("SINK", "SOUP"))
