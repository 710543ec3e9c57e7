"""The CPU device below the compiler: loader, memory, and the native runner of kernel lists.

The kernels are written by hand in LLVM IR, so that nothing here depends on our own compiler.
"""

import ctypes
import functools
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from interrupts import interrupted_at
from together import together

from tinygrad.backends.cpu import host_memory, host_target, open_queue, target
from tinygrad.backends.cpu.cut_files import readers
from tinygrad.backends.cpu.features import X86_FEATURES
from tinygrad.backends.cpu.loader import ElfObject, load_object
from tinygrad.backends.cpu.memory import SMALL, HostMemory, size_class
from tinygrad.backends.cpu.pages import HUGE_PAGE, PAGE
from tinygrad.backends.cpu.patience import Patience
from tinygrad.backends.cpu.pool import Pool
from tinygrad.backends.cpu.queue import LONG_WORK, CPUQueue
from tinygrad.backends.cpu.relocations import AARCH64
from tinygrad.backends.cpu.runner import load_runner
from tinygrad.backends.cpu.runner_languages import runner_source
from tinygrad.backends.cpu.runner_program import LLVM, PAUSES, WAITS
from tinygrad.backends.cpu.target import choose_core, feature_string
from tinygrad.backends.interface import Launch
from tinygrad.backends.llvm_compiler import LLVMCompiler
from tinygrad.backends.without import permitted
from tinygrad.base.errors import ArgumentError, CompileError, DeviceError, OutOfMemory
from tinygrad.base.settings import SETTINGS
from tinygrad.base.target import Target


class Entries(dict):
    put = dict.__setitem__


EMPTY = "define void @empty(ptr %args, i64 %low, i64 %high, ptr %scratch) { ret void }"

# x[task] = x[task] * factor + task, through scratch
STEP = """
define void @step(ptr %args, i64 %low, i64 %high, ptr %scratch) {
entry:
  %x = load ptr, ptr %args
  %factor_at = getelementptr i64, ptr %args, i64 1
  %factor = load i64, ptr %factor_at
  %none = icmp sge i64 %low, %high
  br i1 %none, label %exit, label %loop
loop:
  %task = phi i64 [ %low, %entry ], [ %next, %loop ]
  %at = getelementptr i64, ptr %x, i64 %task
  %old = load i64, ptr %at
  store i64 %old, ptr %scratch
  %again = load i64, ptr %scratch
  %product = mul i64 %again, %factor
  %new = add i64 %product, %task
  store i64 %new, ptr %at
  %next = add i64 %task, 1
  %more = icmp slt i64 %next, %high
  br i1 %more, label %loop, label %exit
exit:
  ret void
}
"""

# for each task: x[task] += 1, `rounds` times, one volatile store each
BURN = """
define void @burn(ptr %args, i64 %low, i64 %high, ptr %scratch) {
entry:
  %x = load ptr, ptr %args
  %rounds_at = getelementptr i64, ptr %args, i64 1
  %rounds = load i64, ptr %rounds_at
  br label %task
task:
  %number = phi i64 [ %low, %entry ], [ %number_next, %task_end ]
  %at = getelementptr i64, ptr %x, i64 %number
  br label %round
round:
  %i = phi i64 [ 0, %task ], [ %i_next, %round ]
  %old = load volatile i64, ptr %at
  %new = add i64 %old, 1
  store volatile i64 %new, ptr %at
  %i_next = add i64 %i, 1
  %more = icmp slt i64 %i_next, %rounds
  br i1 %more, label %round, label %task_end
task_end:
  %number_next = add i64 %number, 1
  %more_tasks = icmp slt i64 %number_next, %high
  br i1 %more_tasks, label %task, label %exit
exit:
  ret void
}
"""

# constants, a jump table, a call between functions, and calls of memset and memcpy
TABLES = """
@table = private unnamed_addr constant [4 x i64] [i64 3, i64 1, i64 4, i64 15], align 32
@names = internal constant [2 x ptr] [ptr @table, ptr @table]
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i64 @choose(i64 %n) noinline {
  switch i64 %n, label %other [ i64 0, label %a  i64 1, label %b  i64 2, label %c  i64 3, label %d
                                i64 4, label %e ]
a:
  ret i64 100
b:
  ret i64 7
c:
  ret i64 42
d:
  ret i64 -5
e:
  ret i64 65536
other:
  ret i64 0
}
define void @tables(ptr %args, i64 %low, i64 %high, ptr %scratch) {
  %x = load ptr, ptr %args
  %n_at = getelementptr i64, ptr %args, i64 1
  %n = load i64, ptr %n_at
  call void @llvm.memset.p0.i64(ptr %x, i8 1, i64 %n, i1 false)
  %name = getelementptr [2 x ptr], ptr @names, i64 0, i64 %low
  %where = load ptr, ptr %name
  %after = getelementptr i8, ptr %x, i64 %n
  call void @llvm.memcpy.p0.p0.i64(ptr %after, ptr %where, i64 32, i1 false)
  %chosen = call i64 @choose(i64 %high)
  %vector = load <4 x i64>, ptr @table
  %sum = call i64 @llvm.vector.reduce.add.v4i64(<4 x i64> %vector)
  %total = add i64 %chosen, %sum
  store i64 %total, ptr %x
  ret void
}
declare i64 @llvm.vector.reduce.add.v4i64(<4 x i64>)
"""


@functools.cache
def compiler():
    return LLVMCompiler(host_target())


@functools.cache
def binary(source):
    return compiler().compile(source)


@functools.cache
def queue(threads=2):
    return open_queue(compiler(), threads=threads)


def array(n):
    values = np.zeros(n, np.int64)
    return values, values.ctypes.data


def launch(q, source, name, **fields):
    return Launch(q.load(binary(source), name), **fields)


def step_reference(n, factors):
    x, tasks = np.zeros(n, np.int64), np.arange(n)
    for factor in factors:
        x = x * factor + tasks
    return x


# ---- runner ----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("tasks", [1, 2, 7, 64, 1000])
def test_a_list_of_kernels_gives_the_same_result_on_any_number_of_threads(threads, tasks):
    q = queue(threads)
    x, at = array(tasks)
    factors = [1, 3, -2, 5]
    kernels = [
        launch(q, STEP, "step", buffers=(0,), values=(i,), grid=(tasks, 1, 1), scratch=64)
        for i in range(4)
    ]
    q.segment(kernels).run([at], factors)
    assert (x == step_reference(tasks, factors)).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_thousand_kernels_run_in_order(threads):
    q = queue(threads)
    x, at = array(5)
    kernels = [
        launch(q, STEP, "step", buffers=(0,), values=(i % 2,), grid=(5, 1, 1), scratch=8)
        for i in range(1000)
    ]
    q.segment(kernels).run([at], [3, -1])
    with np.errstate(over="ignore"):
        assert (x == step_reference(5, [3, -1] * 500)).all()


def test_a_segment_runs_again_with_other_tables():
    q = queue()
    segment = q.segment([launch(q, STEP, "step", buffers=(1,), values=(1,), scratch=8)])
    (a, at_a), (b, at_b) = array(1), array(1)
    a[:], b[:] = 10, 20
    segment.run([0, at_a], [0, 2])
    segment.run([0, at_b], [0, 7])
    segment.run([0, at_b, 0, 0], [0, 1, 0])
    assert (a[0], b[0]) == (20, 140)


def test_a_table_that_is_too_short_is_an_error():
    q = queue()
    segment = q.segment([launch(q, STEP, "step", buffers=(1,), values=(0,), scratch=8)])
    with pytest.raises(ArgumentError, match="needs 2 buffers, not 1"):
        segment.run([0], [0])
    with pytest.raises(ArgumentError, match="needs 1 values, not 0"):
        segment.run([0, 0], [])


def test_an_empty_segment_runs():
    assert queue().segment([]).run([], []) == []


def test_a_timed_run_gives_a_time_for_each_kernel():
    q = queue()
    x, at = array(4)
    fields = dict(buffers=(0,), values=(0,), grid=(4, 1, 1))
    segment = q.segment([launch(q, BURN, "burn", **fields), launch(q, EMPTY, "empty", buffers=())])
    burn, empty = segment.run([at], [100_000], timed=True)
    assert (x == 100_000).all() and burn > empty > 0
    print(f"burn {burn * 1e6:.0f} us, empty {empty * 1e6:.2f} us")


def test_a_long_segment_is_timed_only_if_asked():
    q = queue()
    x, at = array(4)
    burn = launch(q, BURN, "burn", buffers=(0,), values=(0,), grid=(4, 1, 1), work=LONG_WORK)
    segment = q.segment([burn, burn])
    assert segment.is_long and segment.run([at], [1000]) == []
    assert (x == 2000).all() and len(segment.run([at], [1000], timed=True)) == 2


def test_small_work_is_not_shared_and_wakes_nobody():
    q = queue(2)
    make = functools.partial(launch, q, BURN, "burn", buffers=(0,), values=(0,), grid=(4, 1, 1))
    assert not q.segment([make(work=500)]).shares
    some = q.segment([make(work=5000)])
    assert some.shares and not some.wakes
    assert q.segment([make(work=5000)] * 12).wakes
    assert q.segment([make()]).wakes
    assert not queue(1).segment([make()]).shares


def test_helpers_share_the_work_and_sleep_when_idle():
    q = queue(2)
    x, at = array(16)
    burn = q.segment([launch(q, BURN, "burn", buffers=(0,), values=(0,), grid=(16, 1, 1))])
    burn.run([at], [1])
    before = time.process_time()
    time.sleep(0.3)
    idle = time.process_time() - before
    start, own = time.perf_counter(), time.thread_time()
    burn.run([at], [1_000_000])
    wall, mine, every = (
        time.perf_counter() - start,
        time.thread_time() - own,
        time.process_time() - before - idle,
    )
    print(f"wall {wall * 1e3:.1f} ms; caller {mine * 1e3:.1f} ms; all {every * 1e3:.1f} ms")
    assert (x == 1_000_001).all()
    assert idle < 0.15


def test_two_python_threads_run_segments_at_once():
    q = queue(2)

    def work(_):
        x, at = array(32)
        segment = q.segment(
            [launch(q, STEP, "step", buffers=(0,), values=(0,), grid=(32, 1, 1), scratch=8)] * 20
        )
        for _ in range(50):
            segment.run([at], [1])
        return (x == 1000 * np.arange(32)).all()

    with ThreadPoolExecutor(4) as executor:
        assert all(executor.map(work, range(8)))


def test_two_queues_share_one_pool():
    runner = queue(2).pool
    queues = [CPUQueue(runner), CPUQueue(runner)]

    def work(q):
        x, at = array(8)
        burn = q.segment([launch(q, BURN, "burn", buffers=(0,), values=(0,), grid=(8, 1, 1))])
        for _ in range(200):
            burn.run([at], [100])
        return (x == 20_000).all()

    with ThreadPoolExecutor(2) as executor:
        assert all(executor.map(work, queues))


def test_the_pool_stops_and_starts_again():
    pool = Pool(queue(2).pool.runner, 3)
    q = CPUQueue(pool)
    x, at = array(6)
    segment = q.segment([launch(q, BURN, "burn", buffers=(0,), values=(0,), grid=(6, 1, 1))])
    for _ in range(20):
        segment.run([at], [10])
        pool.stop()
    assert (x == 200).all()
    assert not pool._helpers


def test_a_pool_whose_user_was_interrupted_anywhere_is_free():
    """The next run has its help again, and it stops, as at the end of the process: a pool that
    stayed taken was one that the end waited for, for ever."""
    pool, number = Pool(queue(2).pool.runner, 2), 0
    q = CPUQueue(pool)
    x, at = array(6)
    segment = q.segment([launch(q, BURN, "burn", buffers=(0,), values=(0,), grid=(6, 1, 1))])
    while interrupted_at(number, lambda: segment.run([at], [10])):
        number += 1
        if number % 2:
            together(pool.stop, patience=20)
        segment.run([at], [10])
        assert pool._words and len(pool._helpers) == 1
        assert pool._user is None
        assert not readers
    together(pool.stop, patience=20)
    assert number > 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="CPU: no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_has_helpers_of_its_own():
    q = queue(2)
    x, at = array(64)
    segment = q.segment([launch(q, BURN, "burn", buffers=(0,), values=(0,), grid=(64, 1, 1))])
    segment.run([at], [10])
    q.lock.now.acquire()  # as if another thread were running a segment at that moment
    q.pool.borrow(q.lock, 0)
    q.pool._lock.now.acquire()
    child = os.fork()
    if child == 0:
        good = q.segment(segment.launches) is not None
        segment.run([at], [10_000])
        os._exit(0 if good and (x == 10_010).all() and len(q.pool._helpers) == 1 else 1)
    q.pool._lock.now.release()
    q.pool.give_back(q.lock)
    q.lock.now.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    segment.run([at], [10])
    assert (x == 20).all()


def test_an_interrupt_in_the_middle_leaves_a_working_queue():
    program = """
    import os, signal, threading
    from backends import test_cpu_runtime as t
    q = t.queue(2)
    x, at = t.array(8)
    burn = q.segment([t.launch(q, t.BURN, "burn", buffers=(0,), values=(0,), grid=(8, 1, 1))])
    burn.run([at], [1])
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        for _ in range(10_000):
            burn.run([at], [1_000_000])
        print("not interrupted")
    except KeyboardInterrupt:
        x[:] = 0
        burn.run([at], [1000])
        print("works" if (x == 1000).all() else "broken")
    """
    assert run_python(program) == "works"


def run_python(program):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize("machine", PAUSES)
@pytest.mark.parametrize("system", WAITS)
def test_the_runner_compiles_for_every_system(system, machine):
    triples = {"linux": "unknown-linux-gnu", "darwin": "apple-darwin", "win32": "pc-windows-msvc"}
    # in a process of its own, which a failed assertion of LLVM would end
    program = """
    from tinygrad.backends.llvm_compiler import LLVMCompiler
    from tinygrad.base.target import Target
    print(len(LLVMCompiler(Target("CPU", triple={triple!r})).compile({source!r})) > 1000)
    """
    triple, source = f"{machine}-{triples[system]}", runner_source(LLVM, system, machine)
    assert run_python(program.format(triple=triple, source=source)) == "True"


def test_the_runner_of_another_processor_is_compiled_anew():
    cache = Entries()
    for cpu in ("x86-64-v2", "x86-64-v3"):
        load_runner(LLVM, compiler(), replace(host_target(), cpu=cpu), cache)
    assert len(cache) == 2


# ---- compiler and loader ---------------------------------------------------------------------


def test_a_warm_process_runs_kernels_without_llvm(tmp_path):
    cache = Entries()
    load_runner(LLVM, compiler(), host_target(), cache)
    (key,) = cache
    (tmp_path / "runner").write_bytes(cache[key])
    (tmp_path / "step").write_bytes(binary(STEP))
    program = """
    import ctypes, sys
    from pathlib import Path
    from tinygrad.backends.cpu import LLVMCompiler, host_target, open_queue
    from tinygrad.backends.llvm_compiler import llvm_loaded
    from tinygrad.backends.interface import Launch
    folder = Path({folder!r})
    class Cache:
        def get(self, key):
            assert key == {key!r}
            return (folder / "runner").read_bytes()
        def put(self, key, value):
            raise AssertionError("compiled again")
    q = open_queue(LLVMCompiler(host_target()), Cache(), threads=2)
    step = q.load((folder / "step").read_bytes(), "step")
    x = (ctypes.c_int64 * 10)()
    launch = Launch(step, buffers=(0,), values=(0,), grid=(10, 1, 1), scratch=8)
    q.segment([launch, launch]).run([ctypes.addressof(x)], [2])
    assert list(x) == [3 * i for i in range(10)], list(x)
    print("llvmlite" in sys.modules, llvm_loaded())
    """
    assert run_python(program.format(folder=str(tmp_path), key=key)) == "False False"


def use_tables(load):
    """Of a loaded object: numbers that it holds, a table of jumps, calls of the C library."""
    code = load(binary(TABLES), ("tables", "choose"))
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    tables = ctypes.CFUNCTYPE(None, pointer, integer, integer, pointer)
    for high, expected in enumerate([123, 30, 65, 18, 65559, 23]):
        x = np.zeros(100, np.uint8)
        args = (ctypes.c_int64 * 2)(x.ctypes.data, 64)
        tables(code.address("tables"))(args, 1, high, None)
        assert x[:8].view(np.int64)[0] == expected
        assert (x[8:64] == 1).all() and (x[96:] == 0).all()
        assert x[64:96].view(np.int64).tolist() == [3, 1, 4, 15]


def test_constants_jump_tables_and_library_calls_are_linked():
    use_tables(load_object)


def test_constants_jump_tables_and_library_calls_are_linked_by_llvm():
    """In a process of its own: LLVM's linker, which Linux doesn't need, ends the process where it
    places sections further from each other than code reaches."""
    code = (
        "from backends import test_cpu_runtime as own; from tinygrad.backends.cpu import loader; "
    )
    assert run_python(code + "print(own.use_tables(loader.link_with_llvm))") == "None"


def test_a_call_of_an_unknown_function_names_it():
    source = "declare float @fmodf(float, float)\n" + EMPTY.replace(
        "ret void", "%r = call float @fmodf(float 1.0, float 2.0)\n ret void"
    )
    with pytest.raises(DeviceError, match="'fmodf'"):
        load_object(binary(source), ("empty",))


def test_writable_data_is_refused():
    body = "store i64 1, ptr @counter ret void"
    source = "@counter = global i64 0\n" + EMPTY.replace("ret void", body)
    with pytest.raises(DeviceError, match="writable data"):
        load_object(binary(source), ("empty",))


def test_a_missing_function_is_an_error_that_lists_the_others():
    with pytest.raises(DeviceError, match="no function 'full'.* there is empty"):
        queue().load(binary(EMPTY), "full")


def test_the_same_object_is_placed_once():
    q = queue()
    first, second = q.load(binary(TABLES), "tables"), q.load(binary(TABLES), "choose")
    assert first.code is second.code


def test_arm_code_is_relocated_as_its_instructions_say():
    arm = LLVMCompiler(Target("CPU", triple="aarch64-unknown-linux-gnu"))
    elf = ElfObject(arm.compile(TABLES))
    assert elf.machine == AARCH64
    base, memset = 0x7F0000123000, 0x7FFFF7001230
    image = elf.link(base, lambda name: memset)
    words = np.frombuffer(bytes(image[: len(image) // 4 * 4]), np.uint32)
    calls = [i for i, word in enumerate(words) if word >> 26 == 0b100101]
    targets = {4 * (i + signed(words[i], 26)) for i in calls}
    slots = set(elf.slots.values())
    assert slots & targets == slots
    for slot in slots:
        assert image[slot + 8 : slot + 16] == memset.to_bytes(8, "little")


def signed(word, bits):
    value = int(word) & ((1 << bits) - 1)
    return value - (1 << bits) if value >> (bits - 1) else value


def test_llvm_errors_are_compile_errors():
    with pytest.raises(CompileError, match="expected"):
        compiler().compile("define void @k( { ret void }")
    with pytest.raises(CompileError, match="dominate"):
        compiler().compile(
            "define void @k() {\n %b = add i64 %c, 1\n %c = add i64 %b, 1\n ret void\n}"
        )


def test_several_threads_compile_at_once():
    sources = [STEP.replace("@step", f"@step{i}") for i in range(16)]
    with ThreadPoolExecutor(4) as executor:
        assert list(executor.map(compiler().compile, sources)) == [binary(s) for s in sources]


def test_disassembly_shows_the_function():
    assert "step:" in compiler().disassemble(binary(STEP))


# ---- memory ----------------------------------------------------------------------------------


def test_size_classes_waste_little():
    for n in [1, 64, 65, 100, 1000, 4097, SMALL, SMALL + 1, 10**6, 10**9]:
        size = size_class(n)
        unit = 64 if size <= SMALL else PAGE
        assert n <= size < max(n * 9 / 8 + unit, 65) and size % unit == 0
        assert size_class(size) == size


def test_blocks_are_aligned_and_apart():
    memory = HostMemory()
    sizes = [1, 60, 64, 65, 1000, 5000, SMALL, SMALL + 1, 3 << 20] * 5
    blocks = sorted((memory.allocate(n), n) for n in sizes)
    assert all(at % 64 == 0 and (n <= SMALL or at % PAGE == 0) for at, n in blocks)
    assert all(a + n <= b for (a, n), (b, _) in zip(blocks, blocks[1:], strict=False))
    for at, n in blocks:
        memory.free(at, n)
    memory.trim()
    assert memory.live == 0


@pytest.mark.parametrize("nbytes", [100, 5 << 20])
def test_a_freed_block_is_used_again(nbytes):
    memory = HostMemory()
    first = memory.allocate(nbytes)
    memory.free(first, nbytes)
    assert memory.allocate(nbytes - 10) == first


def test_write_and_read_without_a_copy():
    memory = host_memory()
    block = memory.allocate(1000)
    memory.write(block, memoryview(np.arange(10, dtype=np.int32)), offset=40)
    view = memory.read(memory.view(block, 40), 40)
    assert np.frombuffer(view, np.int32).tolist() == list(range(10))
    memory.write(block, memoryview(b"\x07"), offset=40)
    assert view[0] == 7 == memory.read(memory.address(block), 41)[40]
    memory.write(block, memoryview(b""))
    assert len(memory.read(block, 0)) == 0
    memory.free(block, 1000)


def test_what_is_kept_is_bounded_oldest_first():
    memory = HostMemory(capacity=64 << 20, keep_fraction=0.25)
    blocks = [memory.allocate(4 << 20) for _ in range(8)]
    for block in blocks:
        memory.free(block, 4 << 20)
    assert memory.kept == 16 << 20
    assert sorted(memory._oldest) == sorted(blocks[4:])
    memory.trim()
    assert memory.kept == 0


def test_blocks_shorter_than_a_huge_page_share_them_and_their_memory_is_given_back():
    memory = HostMemory()
    blocks = [memory.allocate(1 << 20) for _ in range(4)]
    assert np.diff(blocks).tolist() == [1 << 20] * 3 and blocks[0] % HUGE_PAGE == 0
    for block in blocks:
        memory.write(block, memoryview(b"\1" * (1 << 20)))
        memory.free(block, 1 << 20)
    assert memory.kept == 4 << 20
    memory.trim()
    assert memory.kept == 0
    again = sorted(memory.allocate(1 << 20) for _ in range(4))
    assert again == blocks and not any(memory.read(blocks[0], 4 << 20))


@pytest.mark.parametrize("limit", [0, 64 << 20])
def test_ctrl_c_while_blocks_are_freed_leaves_memory_to_be_had(limit):
    """Its lock stayed taken, so that the next one waited for ever; or what lies there was counted
    twice."""
    number, comes = 0, True
    while comes:
        memory = HostMemory(64 << 20, keep_fraction=limit / (64 << 20))
        handles = [memory.allocate(n) for n in (1 << 20, 4 << 20, 4 << 20)]

        def free(memory=memory, handles=handles) -> None:
            for handle in handles:
                memory.free(handle, 4 << 20)

        comes = interrupted_at(number, free)
        together(lambda memory=memory: memory.allocate(4 << 20), patience=20)
        memory.trim(0)
        assert memory.kept == 0
        number += 1
    assert number > 10


def test_out_of_memory_says_how_much():
    memory = HostMemory(capacity=10 << 20)
    block = memory.allocate(8 << 20)
    with pytest.raises(OutOfMemory, match=r"5,242,880 bytes.*8,388,608 bytes are in use"):
        memory.allocate(5 << 20)
    memory.free(block, 8 << 20)
    memory.allocate(9 << 20)
    with pytest.raises(OutOfMemory):
        HostMemory().allocate(1 << 50)
    with pytest.raises(OutOfMemory):
        HostMemory(capacity=1 << 62).allocate(1 << 60)


def test_a_block_freed_twice_is_an_error():
    memory = HostMemory()
    block = memory.allocate(64)
    memory.free(block, 64)
    memory.free(block, 64)
    with pytest.raises(ArgumentError, match="freed twice"):
        memory.allocate(64)


# ---- target ----------------------------------------------------------------------------------


def test_this_machine_is_described_as_llvm_would():
    import llvmlite.binding as llvm

    said = llvm.get_host_cpu_features()  # on ARM not all that there is
    have = permitted({name for name in said if said[name]}, SETTINGS["CPU_WITHOUT"].value)
    ours = dict((name[1:], name[0] == "+") for name in host_target().features.split(","))
    differs = {name for name in ours if name in said and ours[name] != (name in have)}
    assert {name for name in differs if not name.startswith("amx-")} == set()


@pytest.mark.parametrize(
    ("without", "left"),
    [
        ("", {"avx", "avx2", "avx512f", "avx512bw", "fma"}),
        ("avx512", {"avx", "avx2", "fma"}),
        ("avx2, avx512 fma", {"avx"}),
        ("avx", {"fma"}),
    ],
)
def test_features_can_be_left_unused(without, left):
    assert permitted({"avx", "avx2", "avx512f", "avx512bw", "fma"}, without) == left


def test_an_older_processor_can_be_had_here():
    code = "from tinygrad import Tensor, Device; import numpy as np;"
    code += "print((Tensor.arange(70).float() * 2).sum().item(), Device['CPU'].target.vector)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "DEV": "CPU", "CPU_WITHOUT": "avx"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.stdout.split() == ["4830.0", "16"], found.stderr


@pytest.mark.parametrize("without", ["", "avx512", "avx"])
def test_nothing_is_read_beyond_what_is_lent(without):
    program = Path(__file__).parent / "page_ends.py"
    found = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "DEV": "CPU", "CPU_WITHOUT": without},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.stdout.endswith("all\n"), (found.stdout[-60:], found.stderr)


def test_cores_are_chosen_by_ability():
    every = set(X86_FEATURES.values())
    assert choose_core("x86_64", "GenuineIntel", every).cpu == "sapphirerapids"
    assert choose_core("x86_64", "Unknown", every).cpu == "x86-64-v4"
    assert choose_core("x86_64", "Unknown", set()).cpu == "x86-64"
    assert choose_core("aarch64", "", {"neon"}).registers == 32
    assert choose_core("riscv64", "", set()).vector == 0
    assert "+avx2" in feature_string("x86_64", {"avx2"}).split(",")
    assert "-avx512f" in feature_string("x86_64", {"avx2"}).split(",")


def test_what_every_processor_has_needs_no_listing(monkeypatch):
    """Emulators and containers may show another machine's /proc/cpuinfo, or none."""
    monkeypatch.setattr(target, "cpu_facts", dict)
    for machine, feature, width in (("aarch64", "+neon", 16), ("x86_64", "+sse2", 16)):
        monkeypatch.setattr(target.platform, "machine", lambda machine=machine: machine)
        found = target.host_target.__wrapped__()
        assert (feature in found.features.split(","), found.vector) == (True, width)


def test_signals_that_come_meanwhile_reach_the_event_loop_that_waits_for_them():
    heard, told = socket.socketpair()
    told.setblocking(False)
    before = signal.set_wakeup_fd(told.fileno())
    handler = signal.signal(signal.SIGTERM, lambda *_: None)
    stop = ctypes.c_int32(0)
    try:
        with Patience(stop):
            os.kill(os.getpid(), signal.SIGTERM)
            heard.settimeout(20)
            assert heard.recv(1)[0] == signal.SIGTERM and stop.value == 0
        threads = threading.active_count()
        with Patience(stop):  # the same thread listens; the signal before was not for this call
            assert threading.active_count() == threads and stop.value == 0
    finally:
        signal.signal(signal.SIGTERM, handler)
        assert signal.set_wakeup_fd(before) == told.fileno()
        heard.close()
        told.close()
