"""Where a kernel's recipe comes from: pins, the search in a process of its own, its cache."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tinygrad import Context, Tensor
from tinygrad.base.errors import ArgumentError
from tinygrad.codegen.pipeline import lower
from tinygrad.engine import recipes, stopwatch
from tinygrad.engine.devices import Device
from tinygrad.engine.recipes import kernel_id, lower_kernel
from tinygrad.engine.stopwatch import Child, Stopwatch
from tinygrad.engine.structure import structure_of
from tinygrad.engine.trial import Trial, answer
from tinygrad.loops import search
from tinygrad.loops.heuristic import schedule, schedule_scalars, schedule_small
from tinygrad.loops.recipe import to_text
from tinygrad.schedule.kernels import plan


def kernel_of(tensor):
    """The last kernel that computing it takes."""
    return [s.ast for s in plan(structure_of([tensor.uop]).sink).steps if s.ast is not None][-1]


def product(m=70, n=50, k=30):
    return Tensor.ones(m, k).contiguous().realize() @ Tensor.ones(k, n).contiguous().realize()


def heuristic(ast):
    return schedule(ast, Device["CPU"].target)[1]


def test_a_long_text_is_vectors_as_long_as_llvm_takes_it(monkeypatch):
    """Attention's gradients of (8, 1, 750, 80) were 5,004 instructions with the smaller tiles, and
    scalars therefore: 40 times as slow."""
    assert recipes.CHOICES[1][1] > 5083  # those of 749
    ast, target = kernel_of(product()), Device["CPU"].target
    longest = lower(schedule_small(ast, target)[0], target).instructions
    for accepted, choice in ((longest, schedule_small), (longest - 1, schedule_scalars)):
        choices = ((schedule, 0), (schedule_small, accepted), (schedule_scalars, 1 << 20))
        monkeypatch.setattr(recipes, "CHOICES", choices)
        assert lower_kernel(ast, Device["CPU"])[1] == choice(ast, target)[1]


# ---- pins ----------------------------------------------------------------------------------------


def test_a_pinned_recipe_is_used(tmp_path):
    (tmp_path / f"{kernel_id(kernel_of(product()))}.recipe").write_text(
        "# rows as tasks\n\x1b[31msplit('i0', 7, 'mine', 'PARALLEL', 'LOOP')\x1b[0m\n"
    )
    with Context(RECIPES=str(tmp_path), DEV="CPU"):
        lowered, recipe = lower_kernel(kernel_of(product()), Device["CPU"])
        assert recipe == (("split", "i0", 7, "mine", "PARALLEL", "LOOP"),)
        assert lowered.name == "r_10_7_50_30"
        np.testing.assert_array_equal(product().numpy(), np.full((70, 50), 30.0))


def test_other_kernels_keep_theirs(tmp_path):
    (tmp_path / "0123456789ab.recipe").write_text("role('i0', 'PARALLEL')")
    with Context(RECIPES=str(tmp_path)):
        ast = kernel_of(product())
        assert lower_kernel(ast, Device["CPU"])[1] == heuristic(ast)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fly('i0')", "not a step of a recipe"),
        ("split('nothing', 4, 'x')", "step 0, split('nothing', 4, 'x')"),
        ("role('k0', 'PARALLEL')", "legal: "),
    ],
)
def test_a_pin_that_is_not_legal_says_so(tmp_path, text, words):
    ast = kernel_of(product())
    (tmp_path / f"{kernel_id(ast)}.recipe").write_text(text)
    with Context(RECIPES=str(tmp_path)), pytest.raises(ArgumentError) as caught:
        lower_kernel(ast, Device["CPU"])
    assert words in str(caught.value) and kernel_id(ast) in str(caught.value)


def test_pins_of_no_folder_are_an_error(tmp_path):
    with Context(RECIPES=str(tmp_path / "typo")), pytest.raises(ArgumentError, match="a folder"):
        product().realize()


# ---- a process that may fail ---------------------------------------------------------------------

SAY = "import sys, time, json\nfor line in sys.stdin:\n    asked = json.loads(line)\n"
BAD = {
    "crash": SAY + "    print('{}' if 'kernel' in asked else sys.exit(1), flush=True)",
    "hang": SAY + "    print('{}', flush=True) if 'kernel' in asked else time.sleep(60)",
    "nonsense": SAY + "    print('{}' if 'kernel' in asked else '[1,', flush=True)",
    "silence": SAY + "    print('{}', flush=True)",
    "stillborn": "raise SystemExit(3)",
}


@pytest.mark.parametrize("way", BAD)
def test_a_process_that_fails_costs_a_candidate(way, monkeypatch):
    child = Child((sys.executable, "-c", BAD[way]))
    monkeypatch.setattr(stopwatch, "_child", child)
    monkeypatch.setattr(stopwatch, "CANDIDATE", 0.5)
    ast = kernel_of(product())
    watch = Stopwatch(ast, "CPU", heuristic(ast))
    assert watch.usable == (way != "stillborn")
    for _ in range(2):
        assert watch.seconds(heuristic(ast), 1.0) == float("inf")
    child.stop()


def test_a_process_is_started_again(monkeypatch):
    child = Child()
    monkeypatch.setattr(stopwatch, "_child", child)
    ast = kernel_of(product())
    watch = Stopwatch(ast, "CPU", heuristic(ast))
    assert 0 < watch.seconds(heuristic(ast), 1.0) < 1
    child.process.kill()
    child.process.wait()
    assert watch.seconds(heuristic(ast), 1.0) == float("inf")
    assert 0 < watch.seconds(heuristic(ast), 1.0) < 1
    assert 0 < watch.ratio(heuristic(ast)) < 10
    child.stop()


def test_a_forked_process_asks_one_of_its_own(monkeypatch):
    child, number = stopwatch._child, "import os\n" + SAY + "    print(os.getpid(), flush=True)"
    monkeypatch.setattr(child, "command", (sys.executable, "-c", number))
    child.stop()
    mine = child.ask({}, 60.0)
    reading, writing = os.pipe()
    if (forked := os.fork()) == 0:
        os.write(writing, str(child.ask({}, 10.0)).encode())
        child.stop()
        os._exit(0)
    os.waitpid(forked, 0)
    assert int(os.read(reading, 99)) != mine == child.ask({}, 60.0)
    child.stop()
    os.close(reading)
    os.close(writing)


# ---- what runs there -----------------------------------------------------------------------------


def test_another_result_is_no_candidate():
    ast = kernel_of(product())
    trial = Trial(ast, "CPU", to_text(heuristic(ast)))
    assert trial.seconds(to_text(heuristic(ast)), 1.0) > 0
    trial.expected[0][7] += 1
    with pytest.raises(Exception, match="another result"):
        trial.seconds(to_text(heuristic(ast)), 1.0)


def test_a_kernel_that_overwrites_its_input_can_be_timed():
    state = Tensor.ones(5000).contiguous().realize()
    ast = kernel_of(state.assign(state * 0.5 + 1))
    trial = Trial(ast, "CPU", to_text(heuristic(ast)))
    assert trial.seconds(to_text(heuristic(ast)), 1.0) > 0


def test_too_few_tasks_are_no_candidate():
    ast = kernel_of(Tensor.ones(2000, 2000).contiguous().realize() + 1)
    trial = Trial(ast, "CPU", to_text(heuristic(ast)))
    with pytest.raises(Exception, match="1 tasks"):
        trial.seconds("", 1.0)


def test_requests_and_answers():
    ast = kernel_of(product())
    request = Stopwatch.request(ast, "CPU", heuristic(ast))
    trial, said = answer(request, None)
    assert said == {}
    assert answer({"recipe": request["recipe"], "limit": 1.0}, trial)[1]["seconds"] > 0
    assert answer({"race": request["recipe"], "rounds": 3}, trial)[1]["ratio"] > 0


# ---- the search ----------------------------------------------------------------------------------


def test_what_a_search_found_is_kept(monkeypatch):
    monkeypatch.setattr(search, "TRIES", 4)
    monkeypatch.setattr(recipes, "SHORT", 0.0)
    ast = kernel_of(product(71, 53, 31))
    with Context(BEAM=1):
        first = lower_kernel(ast, Device["CPU"])[1]
        monkeypatch.setattr(recipes, "Stopwatch", None)
        assert lower_kernel(ast, Device["CPU"])[1] == first


def test_what_reads_where_numbers_in_memory_say_is_not_searched(monkeypatch):
    monkeypatch.setattr(recipes, "Stopwatch", None)
    rows = Tensor.ones(300, 64).contiguous().realize()[Tensor([5, 299, 7, 1]).realize()]
    ast = kernel_of(rows + 1)
    with Context(BEAM=1):
        assert lower_kernel(ast, Device["CPU"])[1] == heuristic(ast)


def test_a_kernel_is_found_again_in_other_processes():
    code = "from tinygrad import Tensor; from test_recipes import *; print(kernel_id(kernel_of("
    code += "product())))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": os.pathsep.join((os.path.dirname(__file__), *sys.path)),
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {kernel_id(kernel_of(product())) + "\n"}


PROGRAM = """
import numpy as np
from tinygrad import Tensor
a = Tensor(np.arange(128 * 96, dtype=np.float32).reshape(128, 96) % 7).realize()
print(int((a @ a.T).sum().item()))
"""


@pytest.mark.slow
def test_a_search_is_done_once(tmp_path):
    def run(**settings):
        environment = {**os.environ, "TINYGRAD_CACHE": str(tmp_path), "DEV": "CPU", **settings}
        return subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )

    plain = run()
    first = run(BEAM="1", DEBUG="2", PYTHONHASHSEED="1")
    second = run(BEAM="1", DEBUG="2", PYTHONHASHSEED="2")
    third = run(BEAM="1", DEBUG="3", PYTHONHASHSEED="3")  # lowers again, by the recipe kept
    assert plain.stdout == first.stdout == second.stdout == third.stdout
    assert "BEAM" in first.stderr and "recipes timed in" in first.stderr
    assert "BEAM" not in plain.stderr + second.stderr + third.stderr


@pytest.mark.slow
def test_recipes_for_groups_are_searched():
    code = (
        "import numpy as np; from tinygrad import Tensor\n"
        "x = Tensor(np.ones((256, 2048), np.float32), device='CL')\n"
        "assert ((x.exp() + x).numpy() == (x.exp() + x).numpy()).all()"
    )
    environment = os.environ | {"BEAM": "1", "DEBUG": "2"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"[1-9]\d+ recipes timed in|[2-9] recipes timed in", ran.stderr), ran.stderr
