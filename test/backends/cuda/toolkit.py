"""NVIDIA's own tools, where a machine has them: they judge what is made; running needs none."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest


def tool(name: str) -> str:
    """A program of NVIDIA's toolkit: on PATH, or in the wheel of `triton`."""
    found = shutil.which(name)
    if found is None and (spec := importlib.util.find_spec("triton")) is not None:
        wheel = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / name
        found = str(wheel) if wheel.exists() else None
    if found is None:
        pytest.skip(f"CUDA: no {name} on PATH")
    return found


def assemble(ptx: str, chip: str, folder: Path) -> tuple[Path, str]:
    """The file of the chip's code, and what the assembler says if it refuses, or has to wait for a
    matrix unit where it wasn't told to (its remarks C75..)."""
    source, made = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_text(ptx)
    command = [tool("ptxas"), f"--gpu-name={chip}", "--output-file", str(made), str(source)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    words = f"{ran.stdout}{ran.stderr}"
    return made, f"{words}\n{ptx}" if ran.returncode or "(C75" in words else ""


def instructions(ptx: str, chip: str, folder: Path) -> str:
    """The chip's instructions (SASS)."""
    made, problem = assemble(ptx, chip, folder)
    assert not problem, problem
    command = [tool("nvdisasm"), "--print-code", str(made)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
