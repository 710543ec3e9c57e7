"""The op tests on every device, each in a process of its own: what they check on the CPU in this
one must hold wherever the linear program goes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.engine.devices import Device
from tinygrad.engine.profile import GlobalCounters

TEST = Path(__file__).parent.parent


CORE = ("tensor", "elementwise", "movement", "reduction", "indexing", "conv")


def run_op_tests(device: str, every: int, files: tuple[str, ...] = ("tensor",)) -> str:
    """The last lines of the op tests on `device`: every case, or the first and each `every`th."""
    facts = {"DEV": device, "EVERY": str(every)}
    command = [sys.executable, "-m", "pytest", *files, "-q", "-x", "-p", "no:cacheprovider"]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    ran = subprocess.run(
        command, cwd=TEST, env=inherited | facts, capture_output=True, text=True, timeout=900
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "skips: 0" in ran.stdout
    return ran.stdout


@pytest.mark.parametrize(
    ("device", "every", "least"), [("PYTHON", 4, 100), ("CL", 20, 40), ("CLANG", 40, 40)]
)
def test_op_tests_pass(device, every, least):
    files = tuple(f"tensor/test_{name}.py" for name in CORE)
    passed = re.search(r"(\d+) passed", run_op_tests(device, every, files))
    assert passed and int(passed[1]) >= least


@pytest.mark.slow
def test_all_op_tests_pass_on_opencl():
    run_op_tests("CL", 1)


def test_null_compiles_a_training_step_and_runs_nothing():
    x = Tensor(np.ones((4, 8), np.float32), device="NULL")
    w = Tensor(np.ones((8, 3), np.float32), device="NULL", requires_grad=True)
    loss = (x @ w).relu().log_softmax().square().mean()
    loss.backward()
    kernels = GlobalCounters.kernels_compiled
    w.assign(w.detach() - 0.1 * w.grad).realize()
    assert GlobalCounters.kernels_compiled > kernels
    assert Device["NULL"].compiler is not None
