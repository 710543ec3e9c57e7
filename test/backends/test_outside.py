"""Which device a program gets: names, the environment, and devices of other distributions."""

import os
import subprocess
import sys
import textwrap

import pytest

from tinygrad.backends import ALIASES, DEVICES, canonicalize, default_device
from tinygrad.base.errors import DeviceError
from tinygrad.base.settings import DEVICE_NAMES, SETTINGS

GOOD = """
from dataclasses import replace
from tinygrad.backends.interpreter import open_device as interpreter
def open_device(index=0, cache=None):
    made = interpreter(index, cache)
    return replace(made, target=replace(made.target, device="ABACUS"))
"""
POINTS = """
[tinygrad.backends]
abacus = good_backend
FAILS = failing_backend
RAISES = raising_backend:open_device
EMPTY = empty_backend
CPU = failing_backend
GPU = failing_backend
"""
MODULES = {
    "good_backend": GOOD,
    "failing_backend": "import no_such_library",
    "raising_backend": "def open_device(index, cache): raise OSError('no beads')",
    "empty_backend": "def open_device(index, cache): return 5",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a distribution in it."""
    folder = tmp_path_factory.mktemp("packages")
    for name, source in MODULES.items():
        (folder / f"{name}.py").write_text(source)
    _distribution(folder, "abacus-backend", "1.5", POINTS)
    return folder


def _distribution(folder, name, version, points):
    facts = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (facts / "entry_points.txt").write_text(points)


def run(code, folder=None, **environment):
    """What a program prints in a process of its own, and the last line of its error."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("DEV", "BACKEND", *DEVICE_NAMES)}
    path = os.pathsep.join(filter(None, [str(folder or ""), *sys.path]))
    done = subprocess.run(
        [sys.executable, *(["-c", textwrap.dedent(code)] if "\n" in code else code.split())],
        capture_output=True,
        text=True,
        env=inherited | {"PYTHONPATH": path} | environment,
        timeout=300,
    )
    return (done.stdout + (done.stderr.strip().splitlines() or [""])[-1]).strip()


SUM = """
from tinygrad import Device, Tensor
print(Device.DEFAULT, (Tensor([1, 2]) + 1).tolist())
"""

# ---- devices of other distributions --------------------------------------------------------------


def test_a_device_of_another_distribution_computes(folder):
    assert run(SUM, folder, DEV="abacus") == "ABACUS [2, 3]"
    assert run(SUM, folder, BACKEND="ABACUS:1") == "ABACUS:1 [2, 3]"


def test_ours_are_never_replaced(folder):
    assert run(SUM, folder, DEV="CPU") == "CPU [2, 3]"
    assert run(SUM, folder) == "CPU [2, 3]"


@pytest.mark.parametrize(
    ("name", "words"),
    (
        ("FAILS", "ModuleNotFoundError(\"No module named 'no_such_library'\")"),
        ("RAISES", "OSError('no beads')"),
        ("EMPTY", "open_device gave 5; legal is a tinygrad.backends.interface.Backend"),
    ),
)
def test_a_broken_one_names_its_distribution(name, words, folder):
    found = run(SUM, folder, DEV=name)
    assert f"DeviceError: device {name}, which is abacus-backend 1.5's: {words}" in found


def test_one_name_in_two_distributions_is_an_error(folder, tmp_path):
    _distribution(tmp_path, "another", "0.1", "[tinygrad.backends]\nABACUS = good_backend\n")
    found = run(SUM, os.pathsep.join((str(folder), str(tmp_path))), DEV="ABACUS")
    assert "device ABACUS: offered by" in found and "legal is one of them" in found
    assert "abacus-backend 1.5" in found and "another 0.1" in found


def test_doctor_lists_them(folder):
    found = run("-m tinygrad doctor", folder)
    assert "ABACUS: 1 core, scalars, from abacus-backend 1.5" in found
    assert "FAILS: absent: device FAILS, which is abacus-backend 1.5's: Module" in found
    assert "CPU of abacus-backend 1.5: ignored: the name is one of ours" in found
    assert "GPU of abacus-backend 1.5: ignored: the name is one of ours" in found


def test_an_unknown_name_lists_theirs_too(folder):
    found = run(SUM, folder, DEV="ABACUSES")
    assert "device 'ABACUSES' is not known; there are CPU, " in found
    assert "ABACUS, FAILS" in found and "DeviceError" in found


# ---- the environment -----------------------------------------------------------------------------

ASKED = {
    "nothing": ({}, "CPU"),
    "DEV": ({"DEV": "python"}, "PYTHON"),
    "BACKEND, as tinygrad says": ({"BACKEND": "CUDA"}, "CUDA"),
    "a name that is another's": ({"NV": "1"}, "CUDA"),
    "the old name of the CPU": ({"LLVM": "1"}, "CPU"),
    "the old name of OpenCL": ({"GPU": "1"}, "CL"),
    "a flag": ({"CLANG": "1"}, "CLANG"),
    "a flag that is off": ({"CL": "0"}, "CPU"),
    "DEV wins over BACKEND": ({"DEV": "CL", "BACKEND": "CUDA"}, "CL"),
    "DEV wins over a flag": ({"DEV": "CL", "NULL": "1"}, "CL"),
    "BACKEND wins over a flag": ({"BACKEND": "CL", "NULL": "1"}, "CL"),
    "two flags": (
        {"CL": "1", "NULL": "1"},
        "the environment says CL=1 and NULL=1; legal is one of them, or DEV=CL",
    ),
}


@pytest.mark.parametrize("case", ASKED)
def test_the_environment_chooses_the_device(case, monkeypatch):
    environment, expected = ASKED[case]
    for name in DEVICE_NAMES:
        monkeypatch.setenv(name, environment.get(name, ""))
    for name in ("DEV", "BACKEND"):
        monkeypatch.setattr(SETTINGS[name], "value", environment.get(name, ""))
    try:
        assert default_device() == expected
    except DeviceError as error:
        assert str(error) == expected


def test_doctor_says_why_the_environment_chooses_none():
    assert "problem: the default device can't be used: the environment says CL=1 and NULL=1" in run(
        "-m tinygrad doctor", CL="1", NULL="1"
    )


def test_every_device_can_be_asked_for_by_a_flag():
    ours = {name for name, module in DEVICES.items() if module.startswith("tinygrad.")}
    assert {canonicalize(name) for name in DEVICE_NAMES} == ours - {"DISK"}
    assert {name for name, means in ALIASES.items() if means != "CL"} <= set(DEVICE_NAMES)
