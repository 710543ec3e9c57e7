"""What holds for every test: a cache of its own, strict graphs, fixed seeds, and no silent skip.

A test may skip only for a named device or driver that this machine lacks, and its reason starts
with that name: `pytest.skip("CUDA: no driver")`. Skips are counted by reason at the end; where
CI=true, a skip for anything else fails the session.
"""

import gc
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import hypothesis
import numpy as np
import pytest

# CPU, PYTHON, NULL, CL and WEBGPU are not here: they run on every machine that tests, CL through
# PoCL and WEBGPU on Mesa's Vulkan for the processor.
MAY_BE_ABSENT = {"CUDA", "NV", "AMD", "HIP", "METAL", "CLANG", "QCOM", "DSP"}

IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ

# What collecting tests makes, PyTorch's modules and ten thousand items, lives as long as the
# session: nobody looks for garbage meanwhile (`pytest_collection_finish`).
gc.disable()

# Set before any test imports tinygrad; workers and child processes inherit them. What tests and the
# compilers they call leave among temporary files goes with the session; pytest keeps its own.
if not IS_WORKER:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    SESSION = Path(tempfile.mkdtemp(prefix="tinygrad-test-"))
    for name, folder in (("TINYGRAD_CACHE", SESSION / "cache"), ("TMPDIR", SESSION / "tmp")):
        folder.mkdir()
        os.environ[name] = str(folder)
    # a hundred processes that import the package would compile it anew, a second each
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    tempfile.tempdir = os.environ["TMPDIR"]
os.environ.setdefault("SPEC", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch is the oracle, not a rival for the cores

import devices  # noqa: E402, F401  registers the tests' own; after the settings

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def alone():
    """Each test starts from the same random state, and hears of no kernel that failed in another,
    whichever tests ran before it."""
    random.seed(0)
    np.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(0)  # all devices would note who asked: 4 ms
    if tensor := getattr(sys.modules.get("tinygrad"), "Tensor", None):
        tensor.manual_seed(0)
    if faults := sys.modules.get("tinygrad.engine.faults"):
        faults.forget_faults()


@pytest.fixture
def others_are_old():
    """What other tests left isn't looked at when this one collects garbage: it is a million objects
    and more, a second or two each time."""
    gc.freeze()
    yield
    gc.unfreeze()


def pytest_collection_finish():
    """What was collected counts as old. Frozen it must not stay: `garbage_kept` would do less."""
    gc.freeze()
    gc.unfreeze()
    # a look at all objects takes a second or two, and most of what tests leave has no cycles
    gc.set_threshold(5_000, 10, 40)
    gc.enable()


def skip_reasons(config) -> Counter[str]:
    """Count the session's skips by reason; empty in a worker, whose controller counts them."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter and not IS_WORKER else []
    return Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)


def forbidden(reasons: Counter[str]) -> list[str]:
    """Return the reasons that name no device or driver that may be absent."""
    names = {reason: re.match(r"\w*", reason)[0] for reason in reasons}
    return [reason for reason, name in names.items() if name not in MAY_BE_ABSENT]


def pytest_sessionfinish(session):
    if os.environ.get("CI") == "true" and forbidden(skip_reasons(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    reasons = skip_reasons(config)
    terminalreporter.write_line(f"skips: {reasons.total()}")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"  {count:5} x {reason}")
    for reason in forbidden(reasons):
        terminalreporter.write_line(f"  not an absent device, so CI fails: {reason}", red=True)


def pytest_unconfigure():
    if not IS_WORKER:
        shutil.rmtree(SESSION, ignore_errors=True)
