"""What absent backends are given is what it was, and their languages' checkers take it."""

import shutil
import subprocess

import pytest
from backends import fake_metal, golden

SOURCES = dict(golden.sources())


@pytest.mark.parametrize("file", SOURCES)
def test_sources_are_those_of_the_files(file):
    path = golden.FOLDER / file
    assert SOURCES[file] == path.read_text(), "on purpose? python test/backends/golden.py"


def test_no_file_is_left_over():
    files = {str(p.relative_to(golden.FOLDER)) for p in golden.FOLDER.rglob("*.txt")}
    assert files == set(SOURCES)


@pytest.mark.parametrize("file", [file for file in SOURCES if file.startswith("metal/")])
def test_metal_sources_are_right_by_the_shim(file):
    if fake_metal.compiler() is None:
        pytest.skip("METAL: no clang++ of 16 or later to read its sources")
    assert not fake_metal.check_syntax(SOURCES[file])


@pytest.mark.parametrize("file", [file for file in SOURCES if file.startswith("qcom/")])
def test_adrenos_sources_are_right_opencl(file):
    """With half, without double: OpenCL C 2.0, by a compiler for a device of 64-bit addresses."""
    clang = next(filter(None, map(shutil.which, ("clang", "clang-19", "clang-15"))), None)
    if clang is None:
        pytest.skip("QCOM: no clang here to read OpenCL C")
    extensions = "-Xclang", "-cl-ext=-all,+cl_khr_fp16"
    command = [clang, "-x", "cl", "-cl-std=CL2.0", "-target", "spir64", *extensions]
    ran = subprocess.run(
        [*command, "-fsyntax-only", "-"], input=SOURCES[file], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


def test_the_shim_refuses_what_metal_has_not():
    assert fake_metal.check_syntax(
        "#include <metal_stdlib>\n[[kernel]] void f(device nothing* x) {}"
    )
