"""`benchmarks/gpu.py` runs from its first line to its page, on devices that every machine has and
on the emulated card; and nothing that a case does costs what the others found."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST = Path(__file__).parent
SCRIPT = TEST.parent / "benchmarks" / "gpu.py"
spec = importlib.util.spec_from_file_location("gpu", SCRIPT)
gpu = importlib.util.module_from_spec(spec)
sys.modules["gpu"] = gpu
spec.loader.exec_module(gpu)


def run(output, *arguments, change=None):
    """The script, small, beside PyTorch on the processor. `change`: what its cases' process runs
    before anything else."""
    command = [sys.executable, str(SCRIPT), "--small", "--peer", "cpu", "--output", str(output)]
    paths = [str(TEST.parent), str(TEST)]
    if change is not None:
        site = output.parent / "site"
        site.mkdir()
        guard = "import sys\nif any('gpu_cases' in x for x in sys.orig_argv):\n    "
        (site / "sitecustomize.py").write_text(guard + change)
        paths.append(str(site))
    facts = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=280, check=False, env=facts
    )


@pytest.mark.parametrize(
    ("version", "pins", "kept"),
    [
        ("0.50.3", ">=0.50,<0.51", True),
        ("0.47.0", ">=0.50,<0.51", False),
        ("0.51", ">=0.50,<0.51", False),
        ("2.11.0+cu130", "", True),
        ("2.13.0", "==2.13.0", True),
    ],
)
def test_versions_are_compared_with_what_is_asked_for(version, pins, kept):
    assert gpu.fits(version, pins) is kept


def test_the_page_is_on_the_disk_after_each_row(tmp_path):
    page = gpu.Page(tmp_path / "page.md", "title")
    page.waiting = {"a": "gemm", "b": "gemm", "c": "operations"}
    page.add("a", {"part": "gemm", "note": "SIGSEGV"})
    assert "| a | | | | | | | SIGSEGV |" in (tmp_path / "page.md").read_text()
    page.add("c", {"part": "operations", "note": ""})
    found = (tmp_path / "page.md").read_text()
    assert "1 of 1 agree" in found and "Not reached: b." in found and "| c |" not in found


def test_an_unknown_part_is_told_with_those_there_are(tmp_path):
    ran = run(tmp_path / "page.md", "--only", "nothing")
    assert ran.returncode != 0 and f"the parts are {', '.join(gpu.PARTS)}" in ran.stderr


@pytest.mark.parametrize("there", ("", "0.47.0"))
def test_what_is_not_installed_is_said_at_once_with_the_command(there, tmp_path, monkeypatch):
    def version(name):
        if name == "llvmlite" and not there:
            raise gpu.importlib.metadata.PackageNotFoundError(name)
        return there if name == "llvmlite" else "99"

    monkeypatch.setattr(gpu.importlib.metadata, "version", version)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--output", str(tmp_path / "page.md")])
    with pytest.raises(SystemExit, match=r"-m pip install 'llvmlite>=0.50,<0.51'$"):
        gpu.main()


@pytest.mark.slow
def test_every_part_gives_its_rows(tmp_path):
    ran = run(tmp_path / "page.md", "--device", "CL", "--minutes", "4")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    page = (tmp_path / "page.md").read_text()
    for word in ("op tests pass", "agree with PyTorch", "copy of", "matmul bfloat16", "attention"):
        assert word in page, page
    assert "mlp_train_step" in page and " 0 of" not in page


CRASHING = """import os, time, tinygrad
    tinygrad.Tensor.softmax = lambda x: os.abort()
    tinygrad.Tensor.layernorm = lambda x: time.sleep(1000)
"""


@pytest.mark.slow
def test_cases_that_crash_or_hang_are_rows_and_the_others_go_on(tmp_path):
    only = ("--device", "CPU", "--only", "rows,conv", "--patience", "8")
    ran = run(tmp_path / "page.md", *only, change=CRASHING)
    page = (tmp_path / "page.md").read_text()
    assert ran.returncode == 1, ran.stdout + ran.stderr
    for name, why in (("softmax", "its process: SIGABRT"), ("layernorm", "not done after 8 s")):
        for dtype in ("float32", "bfloat16"):
            assert f"| {name} {dtype} 64x64 | | | | | | | {why} |" in page
    assert "| conv 3x3 float32 2x4x9x9 to 8 | " in page and "Not reached" not in page


@pytest.mark.slow
def test_a_device_that_is_absent_is_the_reason_on_the_page(tmp_path):
    ran = run(tmp_path / "page.md", "--device", "CL:99", "--only", "copy")
    assert ran.returncode == 2, ran.stdout + ran.stderr
    words = "No case could begin: DeviceError: device CL:99: there are CL:0"
    assert words in (tmp_path / "page.md").read_text()


BROKEN = """import os, time, tinygrad
    import backends.cuda.emulated
    kept = tinygrad.Tensor.__matmul__
    without = os.environ.get("CUDA_WITHOUT", "")
    def product(a, b):
        if "box_copy" not in without:
            os.abort() if a.dtype == tinygrad.dtypes.bfloat16 else 1 / 0
        return kept(a, b)
    tinygrad.Tensor.__matmul__ = product
"""


@pytest.mark.slow
def test_what_fails_is_tried_without_what_is_a_choice_and_so_is_the_rest_of_its_part(tmp_path):
    only = ("--device", "CUDA", "--only", "copy,gemm,f32", "--minutes", "4")
    ran = run(tmp_path / "page.md", *only, change=BROKEN)
    page = (tmp_path / "page.md").read_text()
    assert ran.returncode == 1, ran.stdout + ran.stderr
    rows = [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if "| " in line]
    assert rows[1:] == [
        "copy of 1 MiB",
        *(f"matmul bfloat16 256{w}" for w in ("", ", without wgmma", ", without wgmma,box_copy")),
        *(f"matmul bfloat16 64{w}" for w in (", without wgmma,box_copy",)),
        *(f"matmul float16 64{w}" for w in (", without wgmma,box_copy",)),
        *(f"matmul float32 64{w}" for w in ("", ", without wgmma", ", without wgmma,box_copy")),
    ], page
    assert "Not reached" not in page and "ZeroDivisionError" in page and "SIGABRT" in page


@pytest.mark.slow
def test_it_runs_on_the_emulated_card(tmp_path):
    only = ("--device", "CUDA", "--only", "copy,gemm", "--minutes", "4")
    ran = run(tmp_path / "page.md", *only, change="import backends.cuda.emulated")
    page = (tmp_path / "page.md").read_text()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "code for sm_90a" in page and "| matmul bfloat16 256 | " in page
