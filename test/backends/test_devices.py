"""The op tests on every device, each in a process of its own: what they check on the CPU in this
one must hold wherever the linear program goes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from devices import BUILT, SUITE

from tinygrad import Tensor
from tinygrad.backends import DEVICES, why_absent
from tinygrad.engine.devices import Device
from tinygrad.engine.profile import GlobalCounters

TEST = Path(__file__).parent.parent


CORE = ("tensor", "elementwise", "movement", "reduction", "indexing", "conv")


def run_op_tests(device: str, tests: int = 1, cases: int = 1, options: tuple[str, ...] = ()) -> int:
    """How many of the core op tests pass on `device`: each `tests`th, and of its cases the first
    and each `cases`th. None may fail, or be skipped but for what its Target says it hasn't.
    `options` are of pytest."""
    facts = {"DEV": device, "TESTS": str(tests), "EVERY": str(cases)}
    files = [f"tensor/test_{name}.py" for name in CORE]
    command = [sys.executable, "-m", "pytest", *files, "-q", "-x", "-p", "no:cacheprovider"]
    command += options
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    inherited["PYTHONPATH"] = str(TEST.parent)  # this checkout, whichever is installed
    ran = subprocess.run(
        command, cwd=TEST, env=inherited | facts, capture_output=True, text=True, timeout=1800
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    skips = re.findall(r"^ +\d+ x (.*)$", ran.stdout, re.M)
    assert all(re.match(rf"{device}: no \w+$", reason) for reason in skips), skips
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed
    return int(passed[1])


@pytest.fixture(params=[name for name in BUILT if name != "CPU"])  # which this process tests
def device(request):
    reason = why_absent(request.param)
    if reason:
        pytest.skip(f"{request.param}: {reason}")
    return request.param


def test_op_tests_pass(device):
    assert run_op_tests(device, *SUITE[device]) >= 20


@pytest.mark.slow
def test_all_op_tests_pass(device):
    assert run_op_tests(device) > 500


def test_a_device_that_the_table_names_is_in_the_suite():
    """But for those that keep arrays and compute nothing, and drivers of whole platforms."""
    elsewhere = {"CUDA", "AMD", "METAL", "QCOM", "NPY", "DISK"}
    assert set(DEVICES) - elsewhere == set(SUITE)


def test_null_compiles_a_training_step_and_runs_nothing():
    x = Tensor(np.ones((4, 8), np.float32), device="NULL")
    w = Tensor(np.ones((8, 3), np.float32), device="NULL", requires_grad=True)
    loss = (x @ w).relu().log_softmax().square().mean()
    loss.backward()
    kernels = GlobalCounters.kernels_compiled
    w.assign(w.detach() - 0.1 * w.grad).realize()
    assert GlobalCounters.kernels_compiled > kernels
    assert Device["NULL"].compiler is not None
