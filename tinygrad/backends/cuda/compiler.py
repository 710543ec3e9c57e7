"""LLVM IR → PTX, the assembly that every driver compiles for its own chip.

Nothing of NVIDIA's is needed to make it. Where the toolkit's `ptxas` and `nvdisasm` happen to be
installed, a listing shows the chip's own instructions.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tinygrad.backends.llvm_compiler import LLVMCompiler
from tinygrad.base.errors import CompileError
from tinygrad.base.target import Target


class PTXCompiler:
    """Compiles for one Target. May be called from several threads at once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.llvm = LLVMCompiler(target)

    @property
    def version(self) -> str:
        return f"{self.llvm.version} PTX"

    def compile(self, source: str) -> bytes:
        """The PTX of one module, as text that ends with a zero."""
        return self.llvm.assembly(source).encode() + b"\0"

    def disassemble(self, binary: bytes) -> str:
        """The PTX, then the chip's instructions where the tools for that are installed."""
        ptx = binary.rstrip(b"\0").decode()
        if shutil.which("ptxas") is None or shutil.which("nvdisasm") is None:
            return ptx
        return f"{ptx}\n{sass(ptx, self.target.cpu)}"


def assemble(ptx: str, chip: str, folder: Path) -> Path:
    """The chip's code, in a file. Raises `CompileError` with the words of `ptxas`."""
    source, made = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_text(ptx)
    command = ["ptxas", f"--gpu-name={chip}", "--output-file", str(made), str(source)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise CompileError(f"[compile] ptxas: {ran.stdout}{ran.stderr}\n{ptx}")
    return made


def sass(ptx: str, chip: str) -> str:
    """The chip's instructions, without their addresses."""
    with tempfile.TemporaryDirectory() as folder:
        made = assemble(ptx, chip, Path(folder))
        command = ["nvdisasm", "--print-code", str(made)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return re.sub(r"/\*[0-9a-f]{4,}\*/", "", ran.stdout)
