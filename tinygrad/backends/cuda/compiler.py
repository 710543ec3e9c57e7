"""LLVM IR → PTX, the assembly that every driver compiles for its own chip. Nothing of NVIDIA's is
needed to make it."""

from __future__ import annotations

from tinygrad.backends.llvm_compiler import LLVMCompiler
from tinygrad.base.target import Target


class PTXCompiler:
    """Compiles for one Target. May be called from several threads at once."""

    def __init__(self, target: Target) -> None:
        self.llvm = LLVMCompiler(target)

    @property
    def version(self) -> str:
        return f"{self.llvm.version} PTX"

    def compile(self, source: str) -> bytes:
        """The PTX of one module, as text that ends with a zero."""
        return self.llvm.assembly(source).encode() + b"\0"

    def disassemble(self, binary: bytes) -> str:
        return binary.rstrip(b"\0").decode()
