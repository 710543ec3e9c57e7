"""NVIDIA's own tools, where a machine has them: they judge what is made; running needs none."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

WHEELS = {"ptxas": "nvidia-cuda-nvcc", "nvdisasm": "nvidia-cuda-nvdisasm"}


def tool(name: str) -> str:
    """A program of NVIDIA's toolkit: on PATH, in its own wheel, or in that of `triton`. The
    disassembler must be no older than the assembler, so NVIDIA's newer wheel is looked at first."""
    found = next(filter(None, (shutil.which(name), in_wheel(name), in_triton(name))), None)
    if found is None:
        pytest.skip(f"CUDA: no {name} on PATH, and {WHEELS[name]} isn't installed")
    return found


def in_wheel(name: str) -> str | None:
    """The program in NVIDIA's wheel for it."""
    try:
        files = importlib.metadata.files(WHEELS[name]) or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((runnable(f.locate()) for f in files if f.parts[-2:] == ("bin", name)), None)


def in_triton(name: str) -> str | None:
    """The program that `triton` brings."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return None
    return runnable(Path(spec.origin).parent / "backends" / "nvidia" / "bin" / name)


def runnable(program: Path) -> str | None:
    return str(program) if os.access(program, os.X_OK) else None


def assemble(ptx: str, chip: str, folder: Path) -> tuple[Path, str]:
    """The file of the chip's code, and what the assembler says if it refuses, or has to wait for a
    matrix unit where it wasn't told to (its remarks C75..)."""
    source, made = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_text(ptx)
    command = [tool("ptxas"), f"--gpu-name={chip}", "--output-file", str(made), str(source)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    words = f"{ran.stdout}{ran.stderr}"
    return made, f"{words}\n{ptx}" if ran.returncode or "(C75" in words else ""


def instructions(kernels: list[str], chip: str, folder: Path) -> list[str]:
    """The chip's instructions (SASS) of each kernel. They are assembled as one module, for the
    disassembler takes half a second to begin."""
    made, problem = assemble(as_one_module(kernels), chip, folder)
    assert not problem, problem
    command = [tool("nvdisasm"), "--print-code", str(made)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    parts = re.split(r"^//-+ \.text\.kernel(\d+)_", ran.stdout, flags=re.MULTILINE)
    texts = dict(zip(map(int, parts[1::2]), parts[2::2], strict=True))
    return [texts[number] for number in range(len(kernels))]


def as_one_module(kernels: list[str]) -> str:
    """PTX with all of the kernels, which have their numbers in their names."""
    heads, bodies = {}, []
    for number, ptx in enumerate(kernels):
        head, _, body = ptx.partition(".visible .entry ")
        heads |= dict.fromkeys(head.splitlines())  # what all say is said once
        bodies.append(f".visible .entry kernel{number}_{body}")
    return "\n".join([*heads, *bodies])
