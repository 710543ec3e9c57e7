"""The annotations are complete for users: their program passes mypy --strict, and runs."""

import subprocess
import sys
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "test" / "user_program.py"


def test_a_users_program_type_checks():
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", ROOT / "pyproject.toml"]
    run = subprocess.run([*command, PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_users_program_runs():
    run = subprocess.run([sys.executable, PROGRAM], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout == "a user's program ran\n", run.stderr


def test_the_package_says_that_it_is_typed():
    assert resources.files("tinygrad").joinpath("py.typed").is_file()
