"""The CLANG device: C by the system's compiler. What it computes is tested with the other devices
(`test_renderers`, `test_devices`); here is what only it has: compilers, files, loading."""

import ctypes
import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.backends import open_device, why_absent
from tinygrad.backends.clang import compiler as c
from tinygrad.backends.clang import load_c_runner
from tinygrad.backends.cpu.pool import Pool
from tinygrad.backends.cpu.queue import CPUQueue
from tinygrad.backends.cpu.runner_languages import runner_source
from tinygrad.backends.cpu.runner_program import WAITS, C
from tinygrad.backends.interface import Launch
from tinygrad.base.errors import CompileError, DeviceError

if (problem := why_absent("CLANG")) is not None:
    pytest.skip(f"CLANG: {problem}", allow_module_level=True)

HERE = [name for name in c.COMPILERS if shutil.which(name)]

PROGRAM = """
import sys
sys.modules["llvmlite"] = None
import numpy as np
from tinygrad import Tensor
x = np.arange(300000, dtype=np.float32).reshape(300, 1000) / 1e5
got = Tensor(x).exp().sum(1).numpy()
want = np.exp(x.astype(np.float64)).sum(1)
assert np.allclose(got, want, rtol=1e-5), abs(got - want).max()
assert Tensor([1.0, 65519.0, 65520.0]).half().tolist() == [1.0, 65504.0, float("inf")]
print("good")
"""


def in_process(code, **environment):
    """The output of a program in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    facts = {k: v for k, v in os.environ.items() if k not in ("CC", "DEV")} | environment
    done = subprocess.run(command, capture_output=True, text=True, env=facts, timeout=300)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", HERE)
def test_it_computes_without_llvmlite_by_every_compiler_that_is_here(name):
    found = in_process(PROGRAM, DEV="CLANG", CC=name, CPU_COUNT="2")
    assert found.strip() == "good"


def test_nothing_stays_in_the_folder_of_temporary_files(tmp_path):
    found = in_process(PROGRAM, DEV="CLANG", TMPDIR=str(tmp_path), CACHELEVEL="0")
    assert found.strip() == "good"
    assert not list(tmp_path.iterdir())


def test_the_two_devices_read_the_same_memory():
    cpu, clang = open_device("CPU"), open_device("CLANG")
    assert cpu.memory is clang.memory
    assert (Tensor([1, 2], device="CPU").to("CLANG") + 1).tolist() == [2, 3]


# ---- compilers -----------------------------------------------------------------------------------


def test_without_a_compiler_one_sentence_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CC", raising=False)
    words = "clang is not there, gcc is not there, cc is not there"
    with pytest.raises(DeviceError, match=words) as error:
        open_device("CLANG")
    assert "DEV=CPU" in str(error.value)


def test_a_compiler_that_was_named_is_the_only_one_asked(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler -O3")
    with pytest.raises(DeviceError, match="no-such-compiler is not there"):
        open_device("CLANG")


def test_a_compiler_that_is_none_says_what_it_said(monkeypatch):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(DeviceError, match="no C compiler answers .false says"):
        open_device("CLANG")


def test_words_after_the_compiler_are_its_arguments(monkeypatch):
    monkeypatch.setenv("CC", f"{HERE[0]} -DTHING=5")
    made = c.CCompiler(c.find_compiler())
    code = c.load_shared(made.compile("int seven(void) { return THING + 2; }"), ("seven",))
    assert ctypes.CFUNCTYPE(ctypes.c_int)(code.address("seven"))() == 7


def test_a_refused_source_is_shown_with_the_compilers_words():
    with pytest.raises(CompileError, match="error: (?s:.*)int oops") as error:
        c.CCompiler(c.find_compiler()).compile("int oops")
    assert c.COMPILERS[0] in str(error.value) or HERE[0] in str(error.value)


def test_a_flag_or_another_compiler_is_another_version(monkeypatch):
    versions = set()
    for chosen in (*HERE, f"{HERE[0]} -DX=1"):
        monkeypatch.setenv("CC", chosen)
        versions.add(c.CCompiler(c.find_compiler()).version)
    assert len(versions) == len(HERE) + 1


# ---- loading -------------------------------------------------------------------------------------


def test_an_object_leaves_the_process_when_nobody_holds_it():
    made = c.CCompiler(c.find_compiler())
    name = "leaves_when_free"
    code = c.load_shared(made.compile(f"int {name}(void) {{ return 1; }}"), (name,))
    address = code.address(name)
    assert mapped(address)
    del code
    assert not mapped(address)


def mapped(address):
    with open("/proc/self/maps") as lines:
        spans = (line.split(maxsplit=1)[0].split("-") for line in lines)
        return any(int(low, 16) <= address < int(high, 16) for low, high in spans)


def test_a_folder_that_may_not_hold_programs_is_named(monkeypatch):
    binary = c.CCompiler(c.find_compiler()).compile("int one(void) { return 1; }")
    with pytest.raises(DeviceError, match="does not load what was compiled.*TMPDIR"):
        c.load_shared(binary[:100], ("one",))


# ---- the runner ----------------------------------------------------------------------------------

COUNTING = """
void count_run(void** args, long long lo, long long hi, char* scratch) {
  for (long long task = lo; task < hi; task++) { ((int*)args[0])[task] += 1; scratch[0] = 1; }
}
"""


@pytest.mark.parametrize("threads", (1, 2, 4))
def test_the_runner_in_c_runs_each_task_once(threads):
    made = c.CCompiler(c.find_compiler())
    queue = CPUQueue(Pool(load_c_runner(made), threads), c.load_shared)
    function = queue.load(made.compile(COUNTING), "count")
    memory = open_device("CLANG").memory
    tasks, turns = 37, 500
    handle = memory.allocate(4 * tasks)
    memory.write(handle, memoryview(bytes(4 * tasks)))
    segment = queue.segment([Launch(function, (0,), (), (tasks, 1, 1), scratch=64)] * 3)
    for _ in range(turns):
        segment.run([handle], [])
    found = np.frombuffer(bytes(memory.read(handle, 4 * tasks)), np.int32)
    assert (found == 3 * turns).all()
    memory.free(handle, 4 * tasks)
    queue.pool.stop()


@pytest.mark.parametrize("system", [name for name in WAITS if name != "linux"])
def test_the_runner_of_other_systems_is_c(system):
    """As far as a compiler of this system can tell."""
    source = runner_source(C, system, "x86_64").replace("__declspec(dllexport)", "")
    command = [HERE[0], "-fsyntax-only", "-w", "-x", "c", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_one_half_may_fill_a_vector():
    """Where the processor has no instructions of half, GCC made a float of it on the way."""
    at = (Tensor(np.arange(5, dtype=np.int32), device="CLANG") % 2 - 1) % 1
    one = Tensor(np.array([1.5], np.float16), device="CLANG")
    assert one.gather(0, at).tolist() == [1.5] * 5


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.int64])
def test_extremes_of_vectors_of_integers_are_numpys(dtype):
    """Written as loops over lanes, which GCC knows as one instruction each."""
    a, b = (np.random.default_rng(n).integers(-99, 99, 1000).astype(dtype) for n in (1, 2))
    ours, other = (Tensor(x, device="CLANG") for x in (a, b))
    np.testing.assert_array_equal(ours.maximum(other).numpy(), np.maximum(a, b))
    np.testing.assert_array_equal(ours.minimum(other).numpy(), np.minimum(a, b))
