"""What starting up loads. The seconds are measured by benchmarks/startup.py; here stand the facts
that make them small."""

import json
import os
import subprocess
import sys

import pytest

HEAVY = ("llvmlite", "torch", "scipy", "pyopencl", "safetensors", "tqdm", "importlib.metadata")
HEAVY += ("tempfile", "socket", "html")
MAKING = ("tinygrad.codegen", "tinygrad.loops.heuristic", "tinygrad.schedule.kernels")


def loaded(code: str, **settings: str) -> tuple[set[str], dict]:
    """The heavy modules that a program loads, and the engine's counters at its end."""
    ask = (
        "import sys, json; from tinygrad import GlobalCounters as g;"
        f"print(json.dumps([[m for m in {HEAVY + MAKING} if m in sys.modules],"
        "{k: v for k in g.__slots__ if isinstance(v := getattr(g, k), int)}]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", f"{code}\n{ask}"],
        env={**os.environ, "DEV": "CPU", **settings},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    names, counters = json.loads(found.stdout.splitlines()[-1])
    return set(names), counters


def test_import_loads_nothing_heavy():
    assert loaded("import tinygrad")[0] == set()


def test_import_opens_no_device():
    code = "import tinygrad; assert not tinygrad.Device.opened()"
    assert loaded(code)[1]["mem_used"] == 0


def test_building_expressions_loads_no_compiler():
    code = "from tinygrad import Tensor; (Tensor([1.0, 2.0]) * 2).sum().gradient"
    names, counters = loaded(code)
    assert names == set()
    assert counters["kernel_count"] == 0


def test_equal_sizes_are_one_node_in_a_process_that_made_no_plan():
    code = (
        "from tinygrad import Tensor, Variable; n, x = Variable('n', 1, 8).bind(3), Tensor.empty(9)"
    )
    loaded(f"{code}; assert x[: n + 1 + 0].shape == x[: n + 1].shape")


FIRST = "from tinygrad import Tensor; assert (Tensor([1, 2]) + 1).tolist() == [2, 3]"


def test_first_result_of_a_warm_process_loads_nothing_that_compiles(tmp_path):
    cold, made = loaded(FIRST, TINYGRAD_CACHE=str(tmp_path))
    assert cold >= {"llvmlite", *MAKING}
    assert (made["plans_made"], made["kernels_lowered"], made["kernels_compiled"]) == (1, 1, 1)
    warm, made = loaded(FIRST, TINYGRAD_CACHE=str(tmp_path))
    assert warm == set()
    assert (made["plans_made"], made["kernels_lowered"], made["kernels_compiled"]) == (0, 0, 0)
    assert made["kernel_count"] == 2


@pytest.mark.parametrize("module", ["tinygrad.nn", "tinygrad.nn.optim", "tinygrad.nn.state"])
def test_layers_load_nothing_heavy(module):
    assert loaded(f"import {module}")[0] <= {"safetensors", "tempfile"}


def test_the_interpreter_needs_no_compiler():
    assert loaded(FIRST, DEV="PYTHON", CACHELEVEL="0")[0] == set(MAKING)
