"""`python -m tinygrad`: what it prints, and its exit codes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tinygrad.base import settings
from tinygrad.base.settings import TABLE, Context, ContextVar
from tinygrad.cli import main


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "tinygrad", *arguments],
        env={**os.environ, "DEV": "", **settings},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_doctor_tells_of_every_part(tmp_path):
    found = run("doctor", TINYGRAD_CACHE=str(tmp_path / "kept"), VIZ="0", NOOPT="1", CPU="1")
    assert found.returncode == 0, found.stderr
    for part in (
        "versions",
        "LLVM",
        "CPU: ",
        "from CPU=1",
        f"{tmp_path}/kept",
        "writable",
        "NOOPT=1  (1: no recipe, the plain loops)",
        "VIZ=0  (1: when the program ends, a page with every stage of what it computed)",
        "CPU=1  (chooses the device)",
    ):
        assert part in found.stdout, part


def test_doctor_fails_if_the_default_device_is_absent():
    found = run("doctor", DEV="METAL")
    assert found.returncode == 1
    assert "from DEV=METAL" in found.stdout
    assert "problem: the default device METAL can't be used" in found.stdout


def test_doctor_says_that_nothing_can_be_written():
    assert "not writable" in run("doctor", TINYGRAD_CACHE="/proc/none").stdout
    assert "in memory only" in run("doctor", CACHELEVEL="0").stdout


@pytest.mark.parametrize("words", ["tinygrad doctor", "tinygrad settings", "tinygrad.tour"])
def test_a_pipe_that_is_closed_ends_a_command_quietly(words):
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", *words.split()]
    found = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, timeout=300)
    os.close(writes)
    assert (found.returncode, found.stderr) == (141, b"")


def test_settings_lists_the_table(capsys):
    assert main(["settings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [row.name for row in TABLE]


IDLE = [row for row in TABLE if not row.effect]


@pytest.mark.parametrize("row", IDLE, ids=[row.name for row in IDLE])
def test_a_setting_without_effect_says_so(row):
    with pytest.warns(UserWarning, match=f"{row.name}=3 has no effect: {row.meaning[:20]}"):
        Context(**{row.name: 3})
    assert f"{row.name}=3 has no effect" in run("settings", **{row.name: "3"}).stderr
    assert not run("settings", **{row.name: str(row.default)}).stderr


def test_every_other_setting_is_read_somewhere():
    exported = {v.name: k for k, v in vars(settings).items() if isinstance(v, ContextVar)}
    files = Path(settings.__file__).parents[1].rglob("*.py")
    text = "\n".join(p.read_text() for p in files if p.name != "settings.py")
    told = [row.name for row in TABLE if row.effect and row.name not in ("DEV", "BACKEND")]
    unread = [n for n in told if not re.search(rf'\b{exported.get(n, n)}\b|"{n}"', text)]
    assert unread == []


def test_default_dtypes_are_those_of_the_environment():
    code = "from tinygrad import Tensor; print(Tensor([1.0]).dtype, Tensor([1]).dtype)"
    names = {"DEFAULT_FLOAT": "HALF", "DEFAULT_INT": "int64"}
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **names}, capture_output=True, text=True
    )
    assert found.stdout == "dtypes.half dtypes.long\n"
    with pytest.warns(UserWarning, match="no effect: .* assign dtypes.default_float"):
        Context(DEFAULT_FLOAT="float16")
    assert "DEFAULT_INT=half; legal are uchar" in run("settings", DEFAULT_INT="half").stderr


def test_cache_clear_removes_what_was_compiled(tmp_path):
    code = "from tinygrad import Tensor; (Tensor([1, 2]) + 1).tolist()"
    settings = {**os.environ, "TINYGRAD_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=settings, check=True, timeout=300)
    assert any(path.is_file() for path in tmp_path.rglob("*"))
    assert "removed" in run("cache", "clear", TINYGRAD_CACHE=str(tmp_path)).stdout
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_without_a_command_it_says_which_there_are():
    found = run()
    assert found.returncode == 2
    assert "usage" in found.stderr
    assert all(name in found.stderr for name in ("doctor", "settings", "cache clear", "generate"))
