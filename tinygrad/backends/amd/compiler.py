"""LLVM IR → the code object that AMD's driver loads."""

from __future__ import annotations

from tinygrad.backends.amd.linker import link
from tinygrad.backends.llvm_compiler import LISTINGS, LLVMCompiler
from tinygrad.base.helpers import Recent
from tinygrad.base.target import Target


class AMDCompiler:
    """Compiles for one Target. May be called from several threads at once."""

    def __init__(self, target: Target) -> None:
        self.llvm = LLVMCompiler(target)
        self._objects: Recent[bytes, bytes] = Recent(LISTINGS)  # by what was linked from them

    @property
    def version(self) -> str:
        return f"{self.llvm.version} code object 5"

    def compile(self, source: str) -> bytes:
        made = self.llvm.compile(source)
        linked = link(made)
        self._objects[linked] = made
        return linked

    def disassemble(self, binary: bytes) -> str:
        """The assembly, where this process compiled it, else that of `objdump`."""
        return self.llvm.disassemble(self._objects.get(binary, binary))
