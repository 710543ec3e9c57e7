"""docs/new_backend.md is true: its code is a backend, short, and right. Its machine is honest."""

import doctest
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from backends import toy_device, toy_emulator
from backends.toy_emulator import AssemblyError, Machine, Trap, assemble

from tinygrad import Tensor
from tinygrad.backends import DEVICES, open_device
from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, CompileError, DeviceError, OutOfMemory
from tinygrad.engine.devices import Device
from tinygrad.loops.matrix_units import UNITS, MatrixUnit, register
from tinygrad.uop.instructions import CORE, INSTRUCTIONS, listing

PAGE = toy_device.PAGE.read_text()


def machine():
    return Device["TOY"].backend.queue.machine


def products(function):
    """What it gives, and how many matrix instructions ran."""
    before = machine().count["mma"]
    return function(), machine().count["mma"] - before


# ---- the page ------------------------------------------------------------------------------------


def test_the_backend_is_under_150_lines():
    lines = [line for line in toy_device.SOURCE.splitlines() if line.strip()]
    assert len(lines) < 150
    assert max(map(len, lines)) <= 100


def test_the_listing_is_the_table():
    assert f"```text\n{listing()}\n```" in PAGE


def test_the_page_names_the_lines_of_each_part():
    said = {part: int(n) for part, n in re.findall(r"^\| (\w+) \|.*\| (\d+) lines \|$", PAGE, re.M)}
    counts = {}
    for title, text in re.findall(r"^## The (\w+)\n(.*?)(?=^## )", PAGE, re.M | re.S):
        blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
        counts[title] = sum(1 for line in "".join(blocks).splitlines() if line.strip())
    for part in ("renderer", "compiler", "memory", "queue"):
        assert said[part.title()] == counts[part]


def test_it_writes_the_core_and_what_its_target_brings():
    brought = {op for op, row in INSTRUCTIONS.items() if row.brought in ("vector", "unit")}
    assert set(toy_device.RULES) == CORE | brought
    assert not toy_device.TARGET.native


def test_what_the_page_shows_is_what_happens(monkeypatch):
    monkeypatch.setitem(DEVICES, "TOY", DEVICES["TOY"])
    monkeypatch.setitem(sys.modules, "toy", toy_device)
    monkeypatch.setitem(Device._open, "TOY", None)
    examples = doctest.DocTestParser().get_doctest(PAGE, {}, "page", None, 0)
    assert len(examples.examples) > 5
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(examples, out=report.append)
    assert not report, "".join(report)


# ---- the matrix unit -----------------------------------------------------------------------------


@pytest.mark.parametrize("at", [False, True])
@pytest.mark.parametrize("bt", [False, True])
@pytest.mark.parametrize("sizes", [(8, 8, 8), (16, 24, 32), (13, 33, 17)])
def test_products_take_the_unit_and_are_exact(sizes, at, bt):
    m, n, k = sizes
    draw = np.random.default_rng(sum(sizes)).integers
    a, b = draw(-8, 8, (m, k)).astype(np.float32), draw(-8, 8, (k, n)).astype(np.float32)
    x, y = (Tensor(v.T.copy() if t else v, device="TOY") for v, t in ((a, at), (b, bt)))
    found, count = products(lambda: ((x.T if at else x) @ (y.T if bt else y)).numpy())
    np.testing.assert_array_equal(found, a @ b)
    assert count == -(-m // 8) * -(-n // 8) * -(-k // 8)


def test_a_product_of_narrow_factors_takes_it_too():
    a = np.random.default_rng(0).integers(-8, 8, (16, 16))
    x = Tensor(a.astype(np.int8), device="TOY").cast("float32")
    found, count = products(lambda: (x @ x).numpy())
    np.testing.assert_array_equal(found, a @ a)
    assert count == 8


def test_a_product_of_integers_does_not():
    a = np.arange(256, dtype=np.int32).reshape(16, 16)
    found, count = products(lambda: (Tensor(a, device="TOY") @ Tensor(a, device="TOY")).numpy())
    np.testing.assert_array_equal(found, a @ a)
    assert count == 0


def test_a_training_step_runs_on_it():
    x = np.random.default_rng(0).standard_normal((16, 12)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((12, 8)).astype(np.float32)

    def step(device):
        weights = Tensor(w, device=device, requires_grad=True)
        loss = (Tensor(x, device=device) @ weights).relu().log_softmax().square().mean()
        loss.backward()
        return weights.grad.numpy()

    found, count = products(lambda: step("TOY"))
    np.testing.assert_allclose(found, step("CPU"), rtol=1e-4, atol=1e-6)
    assert count > 0


def test_a_unit_is_registered_once():
    register(UNITS["toy.mma"])
    with pytest.raises(ArgumentError, match="'toy.mma' is there already"):
        register(MatrixUnit("toy.mma", "x", *[dtypes.float32] * 3, 4, 4, 4, 1))
    with pytest.raises(ArgumentError, match="legal is a depth that `pack` divides"):
        register(MatrixUnit("toy.odd", "x", *[dtypes.float32] * 3, 4, 4, 3, 2))


# ---- the machine ---------------------------------------------------------------------------------

COPY = """
kernel copy
    a = arg 0
    b = arg 1
    v = load.f32 4 b
    store.f32 a v
"""


def run(text, *arguments, target=None):
    target = target or Machine(1 << 16, patience=1000)
    target.run(target.load(assemble(text)), arguments, 1, 64)
    return target


def test_a_program_runs():
    target = Machine(1 << 16)
    a, b = target.allocate(16), target.allocate(16)
    target.write(b, np.arange(4, dtype=np.float32).tobytes())
    run(COPY, a, b, target=target)
    assert np.frombuffer(target.read(a, 16), np.float32).tolist() == [0, 1, 2, 3]
    assert target.count == {"arg": 2, "load": 1, "store": 1}


@pytest.mark.parametrize(
    "text, message",
    [
        ("v = load.f32 1 i64:4", "bytes 4 to 8 are not allocated"),
        ("s = scratch 2\nv = load.f32 1 s", "no multiple of 4"),
        ("s = scratch 60\nstore.f64 s f64:1.0", "are not allocated"),
        ("s = scratch -4\nv = load.i8 1 s", "are not allocated"),
        ("a = idiv.i32 i32:1 i32:0", "a division by zero"),
        ("a = cast.f32.i8 f32:300.0", "does not fit int8"),
        ("a = cast.f32.i32 f32:nan", "does not fit int32"),
        ("a = add.i32 f32:1.0 f32:1.0", "holds float32, not int32"),
        ("a = repeat 65 f32:1.0", "260 bytes don't fit a register"),
        ("L:\nbranch bool:1 L", "1001 turns, and no end"),
        ("skip bool:0 L\na = task\nL:\nb = add.i64 a a", "a register is not set"),
    ],
)
def test_what_the_machine_does_not_do_is_a_trap(text, message):
    with pytest.raises(Trap, match=message):
        run(f"kernel k\n{text}")


@pytest.mark.parametrize(
    "text, message",
    [
        ("frob r1", "line 2"),
        ("a = add.f32 f32:1.0", "add takes 2 to 2 operands"),
        ("a = add.f16 b c", "add takes 1 kinds"),
        ("a = move b", "nothing sets b"),
        ("branch bool:1 L", "no label L"),
    ],
)
def test_what_is_no_program_is_an_assembly_error(text, message):
    with pytest.raises(AssemblyError, match=message):
        assemble(f"kernel k\n{text}")


def test_freed_memory_is_nobodys():
    target = Machine(1 << 16)
    block = target.allocate(8)
    target.free(block, 8)
    with pytest.raises(Trap, match="not allocated"):
        target.read(block, 8)
    assert target.allocate(8) == block


def test_the_backends_errors_are_ours():
    device = open_device("TOY")
    with pytest.raises(OutOfMemory, match="bytes on TOY"):
        device.memory.allocate(1 << 40)
    with pytest.raises(CompileError, match="TOY: line 1"):
        device.compiler.compile("frob")
    binary = device.compiler.compile("kernel k\na = load.f32 1 i64:0")
    function = device.queue.load(binary, "k")
    launch = toy_device.Launch(function, ())
    with pytest.raises(DeviceError, match="device TOY: k, instruction 0"):
        device.queue.segment([launch]).run([], [])


def test_the_emulator_knows_nothing_of_tinygrad():
    source = Path(toy_emulator.__file__).read_text()
    assert not re.search(r"^(from|import) tinygrad", source, re.M)
