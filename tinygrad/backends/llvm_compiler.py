"""LLVM IR text → object code, through llvmlite.

No IR passes: our own compiler has already vectorised, unrolled and tiled, so LLVM only selects
instructions and assigns registers. llvmlite is imported by the first compile and not before: a
process that finds its kernels in the cache never loads LLVM.

llvmlite serialises every call with one lock. LLVM itself needs none as long as each thread has its
own context and target machine, and ctypes drops the GIL during a call; so the three slow calls
(parse, verify, emit) go to the same library by a second handle, without that lock. Two threads
compile 1.8 times as fast as one.

The wheel's LLVM has assertions on: IR that breaks a rule the verifier does not know ends the
process.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import threading
from pathlib import Path
from typing import Any

from tinygrad.base.errors import CompileError
from tinygrad.base.helpers import Recent
from tinygrad.base.later import later
from tinygrad.base.target import Target

shutil, subprocess, tempfile = later("shutil"), later("subprocess"), later("tempfile")

CODEGEN_LEVEL = 1  # 0 makes matrix products 4 times slower; 2 takes 5 to 20 percent longer
NO_STRENGTH_REDUCTION = "-disable-lsr"
"""It takes a third of LLVM's time; addresses already advance by one addition a turn."""

LISTINGS = 64  # sources remembered for `disassemble`


class LLVMCompiler:
    """Compiles for one Target. May be called from several threads at once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._sources: Recent[bytes, str] = Recent(LISTINGS)
        self._machines = threading.local()

    @property
    def version(self) -> str:
        """Part of every cache key; found without importing llvmlite."""
        return f"llvmlite {llvmlite_version()} level {CODEGEN_LEVEL}"

    def compile(self, source: str) -> bytes:
        """The object file of one module. Raises `CompileError` with LLVM's message."""
        binary = self._emit(source, as_object=True)
        self._sources[binary] = source
        return binary

    def assembly(self, source: str) -> str:
        """The assembly text of one module."""
        return self._emit(source, as_object=False).decode()

    def disassemble(self, binary: bytes) -> str:
        """The assembly of an object: LLVM's own if this process compiled it (llvmlite has no
        disassembler), else that of `objdump` if the machine has one."""
        source = self._sources.get(binary)
        return objdump(binary) if source is None else self.assembly(source)

    def _emit(self, source: str, as_object: bool) -> bytes:
        llvm = _llvm()
        context = llvm.create_context()
        module = _parse(source, context)
        try:
            module.triple = self.target.triple
            machine = self._machine()
            module.data_layout = str(machine.target_data)
            _verify(module)
            return _emit_to_memory(machine, module, as_object)
        finally:
            module.close()

    def _machine(self) -> Any:
        """One for each thread: making one takes as long as a small kernel."""
        made = getattr(self._machines, "machine", None)
        if made is None:
            made = self._machines.machine = self._new_machine()
        return made

    def _new_machine(self) -> Any:
        try:
            llvm_target = _llvm().Target.from_triple(self.target.triple)
        except RuntimeError as error:
            raise CompileError(f"[compile] triple {self.target.triple!r}: {error}") from error
        return llvm_target.create_target_machine(
            cpu=self.target.cpu,
            features=self.target.features,
            opt=CODEGEN_LEVEL,
            reloc="pic",
            codemodel="small",
        )


def llvm_loaded() -> bool:
    """Whether this process has loaded LLVM; a warm start should not."""
    return _llvm.cache_info().currsize > 0


@functools.cache
def llvmlite_version() -> str:
    """The version according to the package's folder: reading a file name is 20 ms faster than
    `importlib.metadata`, which is used only if there is no such folder."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        raise CompileError("LLVM comes with llvmlite: pip install llvmlite")
    installed = list(Path(spec.origin).parent.parent.glob("llvmlite-*.dist-info"))
    if len(installed) == 1:
        return installed[0].name.removeprefix("llvmlite-").removesuffix(".dist-info")
    from importlib.metadata import version

    return version("llvmlite")


@functools.cache
def _llvm() -> Any:
    """llvmlite's binding, with every target initialised."""
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise CompileError(f"LLVM comes with llvmlite: {error}") from error
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # for inline assembly
    llvm.set_option("tinygrad", NO_STRENGTH_REDUCTION)
    return llvm


@functools.cache
def _unlocked(name: str) -> Any:
    """A function of llvmlite's library that does not take llvmlite's lock."""
    from llvmlite.binding import ffi

    locked = getattr(ffi.lib, name)
    function = getattr(ctypes.CDLL(ffi.lib._name), name)
    function.argtypes, function.restype = locked.argtypes, locked.restype
    return function


def _parse(source: str, context: Any) -> Any:
    from llvmlite.binding import ffi
    from llvmlite.binding.module import ModuleRef

    with ffi.OutputString() as message:
        pointer = _unlocked("LLVMPY_ParseAssembly")(context, source.encode(), message)
        if not pointer:
            raise CompileError(f"[compile] LLVM can't parse this IR: {message}\n{source}")
        return ModuleRef(pointer, context)


def _verify(module: Any) -> None:
    from llvmlite.binding import ffi

    with ffi.OutputString() as message:
        if _unlocked("LLVMPY_VerifyModule")(module, message):
            raise CompileError(f"[compile] LLVM's verifier: {message}\n{module}")


def _emit_to_memory(machine: Any, module: Any, as_object: bool) -> bytes:
    from llvmlite.binding import ffi

    with ffi.OutputString() as message:
        emit = _unlocked("LLVMPY_TargetMachineEmitToMemory")
        buffer = emit(machine, module, int(as_object), message)
        if not buffer:
            raise CompileError(f"[compile] LLVM: {message}")
    try:
        start = ffi.lib.LLVMPY_GetBufferStart(buffer)
        return ctypes.string_at(start, ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def objdump(binary: bytes) -> str:
    """The assembly of an object or a shared object, if this machine has a disassembler."""
    program = shutil.which("llvm-objdump") or shutil.which("objdump")
    if program is None:
        return "(no listing: the object comes from the cache, and there is no objdump here)"
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(binary)
        file.flush()
        command = [program, "--disassemble", "--no-show-raw-insn", file.name]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout or f"(no listing: {result.stderr.strip()})"
