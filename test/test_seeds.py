"""The programs that describe this package's interface run as they were written."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tinygrad import Device, Tensor, TinyJit, dtypes, nn
from tinygrad.backends.cpu import host_target
from tinygrad.uop import Ops, UOp

SEEDS = Path(__file__).parent / "seeds"
COLOR = re.compile("\x1b\\[[0-9;]*m")

# ---- the tutorial --------------------------------------------------------------------------------

COPY_FORM = """\
UOp(Ops.COPY, dtypes.int, arg=None, src=(
  UOp(Ops.BUFFER, dtypes.int, arg=4, src=(
    UOp(Ops.UNIQUE, dtypes.void, arg=N, src=()),
    UOp(Ops.DEVICE, dtypes.void, arg='PYTHON', src=()),)),
  UOp(Ops.DEVICE, dtypes.void, arg='CPU', src=()),))
"""
BUFFER_FORM = """\
UOp(Ops.BUFFER, dtypes.int, arg=4, src=(
  UOp(Ops.UNIQUE, dtypes.void, arg=N, src=()),
  UOp(Ops.DEVICE, dtypes.void, arg='CPU', src=()),))
"""
SUM_FORM = """\
UOp(Ops.ADD, dtypes.int, arg=None, src=(
  x0:=UOp(Ops.CONST, dtypes.int, arg=2, src=()),
   x0,))
"""
LAZY = "<Tensor <UOp CPU (4,) int (<Ops.COPY: N>, None)> on CPU with grad None>\n"

# What each block prints, with the numbers of buffers and ops written as N. Two answers in the post
# are rounded or slips of the pen there: t + 3 + 4 is [8, 9, 10, 11], and 0.8 is a float32.
PRINTS = {
    0: LAZY + "[2, 4, 6, 8]\n[8, 9, 10, 11]\n",
    1: "CPU\n",
    2: "CPU\n",
    3: LAZY,
    4: COPY_FORM,
    5: BUFFER_FORM,
    8: "",
    9: "[4, 8, 12, 16]\n",
    10: "2.0\n11.0\n",
    11: "7.0\n",
    12: "2.0\n1.6094378232955933\n",
    13: "0.800000011920929\n",
    17: SUM_FORM,
    18: "UOp(Ops.CONST, dtypes.int, arg=4, src=())\n",
    19: "",
}


@pytest.fixture(autouse=True)
def on_the_cpu():
    """The post's answers are those of a machine whose default device is the CPU."""
    before, Device.DEFAULT = Device.DEFAULT, "CPU"
    yield
    Device.DEFAULT = before


def blocks() -> list[str]:
    text = (SEEDS / "tutorial.py").read_text()
    return re.split(r"^# %% \d+\n", text, flags=re.MULTILINE)[1:]


def without_numbers(text: str) -> str:
    return re.sub(r"(UNIQUE, dtypes.void, arg=|<Ops.COPY: )\d+", r"\1N", text)


@pytest.fixture(scope="module")
def tutorial() -> tuple[dict, list[str]]:
    """The namespace after the whole tutorial, and what each block printed."""
    names, printed = {}, []
    before, Device.DEFAULT = Device.DEFAULT, "CPU"
    for block in blocks():
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(block, names)
        printed.append(out.getvalue())
    Device.DEFAULT = before
    return names, printed


@pytest.mark.parametrize("number", PRINTS)
def test_what_a_block_prints(tutorial, number):
    assert without_numbers(tutorial[1][number]) == PRINTS[number]


def test_tutorial_has_twenty_blocks():
    assert len(blocks()) == 20


def test_scalar_is_broadcast_by_reshape_and_expand(tutorial):
    shown = re.findall(r"Ops\.(\w+)", tutorial[1][6])
    assert shown[0] == "MUL"
    assert {"BUFFER", "CONST", "RESHAPE", "EXPAND"} <= set(shown)


def test_graph_of_two_additions(tutorial):
    """Before it is scheduled, t + 3 + 4 adds twice."""
    assert tutorial[1][14].count("Ops.ADD") == 2
    assert all(f"Ops.CONST, dtypes.int, arg={n}" in tutorial[1][14] for n in (3, 4))


def test_kernelize_leaves_a_kernel_that_reads_a_copy(tutorial):
    shown = tutorial[1][15]
    assert [op for op in re.findall(r"Ops\.(\w+)", shown) if op in ("ASSIGN", "KERNEL")] == [
        "ASSIGN",
        "KERNEL",
        "ASSIGN",
        "KERNEL",
    ]
    assert "<SINK" in shown and "<COPY" in shown


def test_kernel_adds_seven_once(tutorial):
    """The kernel's graph has one addition left, and it adds 7."""
    kernel = tutorial[0]["rewritten_ast"]
    assert kernel.op is Ops.SINK
    sums = [n for n in kernel.toposort() if n.op is Ops.ADD and n.dtype is dtypes.int]
    assert len(sums) == 1 and sums[0].src[1].arg == 7


def test_kernelized_tensor_still_computes(tutorial):
    assert tutorial[0]["t_plus_3_plus_4"].tolist() == [8, 9, 10, 11]


@pytest.mark.parametrize("form", [COPY_FORM, BUFFER_FORM, SUM_FORM])
def test_printed_form_is_python(form):
    """What a node prints makes the same node again."""
    text = form.replace("arg=N,", "arg=0,").strip()
    node = eval(text, {"UOp": UOp, "Ops": Ops, "dtypes": dtypes})
    assert str(node) == text


def test_printed_form_makes_the_same_node():
    node = (Tensor([1, 2, 3, 4]) * 2).uop
    assert eval(str(node), {"UOp": UOp, "Ops": Ops, "dtypes": dtypes}) is node


def run_python(code: str, **settings: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *code.split()] if code.endswith(".py") else [sys.executable, "-c", code],
        env={**os.environ, "DEV": "CPU", **settings},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )


def test_tutorial_as_a_program():
    """The whole file in a process of its own."""
    printed = run_python(str(SEEDS / "tutorial.py")).stdout
    assert without_numbers(printed).startswith(PRINTS[0] + PRINTS[1])
    assert printed.endswith(PRINTS[18])


ADD_SEVEN = "from tinygrad import Tensor; print((Tensor([1, 2, 3, 4]) + 3 + 4).tolist())"


def test_debug_4_shows_four_unrolled_additions():
    shown = run_python(ADD_SEVEN, DEBUG="4").stderr
    (source,) = re.findall(r"^void E_.*?^}", shown, re.MULTILINE | re.DOTALL)
    assert re.match(r"void E_\w*4\(int\* restrict data0, int\* restrict data1\) {", source)
    assert "for" not in source
    if host_target().vector > 16:  # with 16-byte vectors the four numbers are one
        assert len(re.findall(r"int val\d = \*\(data1(\+\d)?\);", source)) == 4
        assert len(re.findall(r"\*\(data0(\+\d)?\) = \(val\d\+7\);", source)) == 4
    assert "define void @E_" in shown


@pytest.mark.parametrize("device", ["CPU", "CL", "WEBGPU", "PYTHON", "NULL"])
def test_debug_7_shows_every_stage_on_every_device(device):
    shown = run_python(ADD_SEVEN, DEBUG="7", DEV=device).stderr
    for part in (
        "*** ",
        "recipe:",
        "loops of E_",
        "source of E_",
        "linear program of E_",
        "Ops.SINK",
    ):
        assert part in shown, part


def test_debug_4_without_optimisation_shows_the_loop():
    shown = run_python(ADD_SEVEN, DEBUG="4", NOOPT="1").stderr
    assert (
        """\
void E_4(int* restrict data0, int* restrict data1) {
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    int val0 = *(data1+ridx0);
    *(data0+ridx0) = (val0+7);
  }
}
"""
        in shown
    )


def test_debug_2_shows_the_copy_and_one_kernel():
    """The unrolled axis is yellow; the line of the user's program stands at the end."""
    lines = run_python(ADD_SEVEN, DEBUG="2").stderr.splitlines()
    steps = [COLOR.sub("", line).split() for line in lines if "***" in line]
    assert [step[3] for step in steps] == ["copy", "E_4"]
    assert "E_\x1b[33m4\x1b[0m" in lines[-1]
    assert lines[-1].endswith("<string>:1")


def test_debug_0_shows_nothing():
    assert run_python(ADD_SEVEN, DEBUG="0").stderr == ""


# ---- the shorter texts ---------------------------------------------------------------------------


def test_backward_of_a_tensor_with_one_element():
    names = {}
    exec(
        """\
from tinygrad.tensor import Tensor

x = Tensor([2.0], requires_grad=True)

y = x * x + x.sin()
y.backward()

print(x.grad)
""",
        names,
    )
    assert names["x"].grad.tolist() == pytest.approx([4 - 0.4161468365], rel=1e-6)


def test_python_decides_on_values():
    x = Tensor([1.0, 2.0])
    names = {"x": x}
    exec(
        """\
if x.mean().item() > 0:
    y = x * x
else:
    y = -x
""",
        names,
    )
    assert names["y"].tolist() == [1.0, 4.0]


def test_product_of_two_tensors_is_a_node():
    names = {"x": Tensor([2.0]), "y": Tensor([3.0]), "w": Tensor([1.0])}
    exec("z = x * y", names)
    assert names["z"].uop.op is Ops.MUL
    exec("z = x * y + w", names)
    assert names["z"].tolist() == [7.0]


def test_broadcast_gradient_is_a_sum():
    x, b = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 2.0])
    names = {"x": x, "b": b}
    exec("y = x + b", names)
    assert names["y"].sum().gradient(b)[0].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("setting", ["DEV", "BACKEND"])
def test_device_by_setting(setting):
    code = "from tinygrad import Device; print(Device.DEFAULT)"
    settings = {"DEV": "", setting: "PYTHON"}
    assert run_python(code, **settings).stdout == "PYTHON\n"


def test_device_by_its_own_variable():
    code = "from tinygrad import Device; print(Device.DEFAULT)"
    assert run_python(code, DEV="", PYTHON="1").stdout == "PYTHON\n"
    assert run_python(code, DEV="", CPU="1").stdout == "CPU\n"


def test_names_that_programs_import():
    for path in (
        "tinygrad.tensor:Tensor",
        "tinygrad.uop:UOp",
        "tinygrad.uop.ops:UPat",
        "tinygrad.uop.ops:PatternMatcher",
        "tinygrad.uop.ops:graph_rewrite",
        "tinygrad.uop.ops:GroupOp",
        "tinygrad.codegen:full_rewrite_to_sink",
        "tinygrad.dtype:dtypes",
        "tinygrad.device:Device",
        "tinygrad.helpers:getenv",
        "tinygrad.engine.jit:TinyJit",
        "tinygrad.nn:Linear",
        "tinygrad.nn.optim:Adam",
        "tinygrad.nn.state:get_parameters",
    ):
        module, name = path.split(":")
        assert hasattr(__import__(module, fromlist=[name]), name), path
    assert TinyJit is not None and nn is not None
