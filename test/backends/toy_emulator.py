"""The TOY accelerator, which exists only here: a small machine with a memory of its own, registers
of up to 256 bytes, and a matrix unit. It knows nothing of tinygrad. docs/new_backend.md is its
manual, and builds the backend that drives it.

A program is text, one instruction a line; `assemble` checks it and gives bytecode. An operand is a
register (`r7`) or a number with its kind (`f32:1.5`); a kind is `bool`, `i8` to `i64`, `u8` to
`u64`, `f32` or `f64`. What a program must not do ends in a Trap: an access outside of what was
allocated or off its alignment, an integer divided by zero, a float that fits no integer, a register
that nobody set, a loop without an end.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

KINDS = {
    "bool": np.bool_,
    **{f"i{bits}": np.dtype(f"i{bits // 8}").type for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"u{bits // 8}").type for bits in (8, 16, 32, 64)},
    "f32": np.float32,
    "f64": np.float64,
}
REGISTER = 256  # bytes
GAP = 64  # bytes that belong to nobody, between two blocks
SIZE = 8  # of the matrix unit

# name → (kinds after the name, whole numbers, registers at least and at most, sets a register)
FORMS: dict[str, tuple[int, int, int, int, bool]] = {
    "arg": (0, 1, 0, 0, True),
    "task": (0, 0, 0, 0, True),
    "scratch": (0, 1, 0, 0, True),
    "move": (0, 0, 1, 1, True),
    "element": (1, 0, 2, 2, True),
    "load": (1, 1, 1, 2, True),
    "store": (1, 0, 2, 3, False),
    **dict.fromkeys(("add", "mul", "div", "idiv", "lt", "ne", "and", "xor"), (1, 0, 2, 2, True)),
    "sqrt": (1, 0, 1, 1, True),
    "cast": (2, 0, 1, 1, True),
    "bits": (2, 0, 1, 1, True),
    "select": (0, 0, 3, 3, True),
    "repeat": (0, 1, 1, 1, True),
    "lanes": (0, 0, 1, REGISTER, True),
    "lane": (0, 1, 1, 1, True),
    "pick": (0, -1, 2, 2, True),
    "mma": (0, 0, 3, 3, True),
    "branch": (0, 0, 1, 1, False),
    "skip": (0, 0, 1, 1, False),
}
JUMPS = ("branch", "skip")


class Trap(Exception):
    """The program did what this machine doesn't do."""


class AssemblyError(Exception):
    """The text is no program; says which line."""


def assemble(text: str) -> bytes:
    """Text → bytecode: registers and constants by number, labels as positions."""
    registers: dict[str, int] = {}
    constants: dict[int, tuple[str, str]] = {}
    labels: dict[str, int] = {}
    code: list[list[Any]] = []
    name = ""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        try:
            if not words:
                continue
            if words[0] == "kernel":
                (name,) = words[1:]
            elif words[0].endswith(":"):
                labels[words[0][:-1]] = len(code)
            else:
                code.append(_instruction(words, registers, constants))
        except (KeyError, ValueError, IndexError) as error:
            raise AssemblyError(f"line {number}: {line.strip()!r}: {error!r}") from error
    for instruction in code:
        if instruction[0] in JUMPS:
            label = instruction[3].pop()
            if label not in labels:
                raise AssemblyError(f"no label {label}")
            instruction[3].append(labels[label])
    unset = {i for op in code for i in op[4]} - {op[1] for op in code} - set(constants)
    if unset:
        names = [name for name, i in registers.items() if i in unset]
        raise AssemblyError(f"nothing sets {', '.join(names)}")
    program = {"name": name, "size": len(registers), "constants": constants, "code": code}
    return json.dumps(program).encode()


def _instruction(words: list[str], registers: dict[str, int], constants: dict) -> list[Any]:
    """[name, destination or -1, kinds, numbers, sources]."""

    def register(word: str) -> int:
        at = registers.setdefault(word, len(registers))
        if ":" in word:
            kind, value = word.split(":")
            KINDS[kind](_number(kind, value))
            constants[at] = (kind, value)
        return at

    destination = -1
    if words[1:2] == ["="]:
        destination, words = register(words[0]), words[2:]
    name, *kinds = words[0].split(".")
    count, numbers, least, most, sets = FORMS[name]
    rest = words[1:]
    if name in JUMPS:
        *rest, label = rest
        plain: list[Any] = [label]
    elif numbers < 0:
        plain, rest = [int(word) for word in rest[most:]], rest[:most]
    else:
        plain, rest = [int(word) for word in rest[:numbers]], rest[numbers:]
    if len(kinds) != count or not set(kinds) <= set(KINDS):
        raise ValueError(f"{name} takes {count} kinds of {', '.join(KINDS)}")
    if not least <= len(rest) <= most or sets != (destination >= 0):
        raise ValueError(f"{name} takes {least} to {most} operands")
    return [name, destination, kinds, plain, [register(word) for word in rest]]


def _number(kind: str, text: str) -> Any:
    return float(text) if kind.startswith("f") else int(text)


class Machine:
    """One accelerator. `count` counts the instructions that it has executed, by name."""

    def __init__(self, nbytes: int = 64 << 20, patience: int = 100_000_000) -> None:
        self.memory = np.zeros(nbytes, np.uint8)
        self.live = bytearray(nbytes)  # 1 where a byte is allocated
        self.free_blocks: dict[int, list[int]] = {}
        self.top = GAP
        self.patience = patience  # instructions that one task may take
        self.count: Counter[str] = Counter()
        self.lock = threading.RLock()  # one host thread at a time
        self.views = {k: self.memory.view(d) for k, d in KINDS.items() if k != "bool"}
        self.views["bool"] = self.memory.view(np.bool_)

    # ---- memory, as the host sees it -------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """The address of a block, 64-byte aligned and full of ones; MemoryError if none is left."""
        size = -(-max(nbytes, 1) // 64) * 64
        with self.lock:
            blocks = self.free_blocks.get(size)
            address = blocks.pop() if blocks else self.top
            if address + size + GAP > len(self.memory):
                raise MemoryError(f"{nbytes} bytes; {len(self.memory) - self.top} are left")
            self.top = max(self.top, address + size + GAP)
            self.live[address : address + nbytes] = b"\1" * nbytes
            self.memory[address : address + nbytes] = 0xFF
            return address

    def free(self, address: int, nbytes: int) -> None:
        with self.lock:
            self.live[address : address + nbytes] = bytes(nbytes)
            self.free_blocks.setdefault(-(-max(nbytes, 1) // 64) * 64, []).append(address)

    def write(self, address: int, data: Any) -> None:
        source = np.frombuffer(data, np.uint8)
        self.check(address, len(source))
        self.memory[address : address + len(source)] = source

    def read(self, address: int, nbytes: int) -> bytearray:
        self.check(address, nbytes)
        return bytearray(self.memory[address : address + nbytes])

    def check(self, address: int, nbytes: int, align: int = 1) -> None:
        """Trap unless all these bytes are allocated."""
        end = address + nbytes
        if address < 0 or end > len(self.live) or self.live.find(0, address, end) >= 0:
            raise Trap(f"bytes {address} to {end} are not allocated")
        if address % align:
            raise Trap(f"address {address} is no multiple of {align}")

    # ---- programs --------------------------------------------------------------------------------

    def load(self, binary: bytes) -> Program:
        """Bytecode, decoded."""
        return Program(self, json.loads(binary))

    def run(self, program: Program, arguments: Sequence[int], tasks: int, scratch: int) -> None:
        """Tasks 0 to `tasks` - 1, one after the other; `scratch` bytes are lent to each."""
        with self.lock, np.errstate(all="ignore"):
            place = self.allocate(scratch)
            try:
                for task in range(tasks):
                    program.run(list(arguments), task, place)
            finally:
                self.free(place, scratch)


Step = Callable[[list[Any]], "int | None"]


class Program:
    """One function on a machine: a step an instruction, over a list of registers."""

    def __init__(self, machine: Machine, text: dict[str, Any]) -> None:
        self.machine, self.name = machine, text["name"]
        self.registers: list[Any] = [None] * text["size"]
        for at, (kind, value) in text["constants"].items():
            self.registers[int(at)] = np.array([_number(kind, value)], KINDS[kind])
        self.arguments: list[int] = []
        self.task = self.scratch = 0
        self.names = [instruction[0] for instruction in text["code"]]
        self.steps: list[Step] = [self._decode(*instruction) for instruction in text["code"]]

    def run(self, arguments: list[int], task: int, scratch: int) -> None:
        self.arguments, self.task, self.scratch = arguments, task, scratch
        steps, r, end = self.steps, self.registers.copy(), len(self.steps)
        hits = [0] * end
        at = turns = 0
        try:
            while at < end:
                hits[at] += 1
                jump = steps[at](r)
                if jump is None:
                    at += 1
                    continue
                at, turns = jump, turns + 1
                if turns > self.machine.patience:
                    raise Trap(f"{turns} turns, and no end")
        except Trap as trap:
            raise Trap(f"{self.name}, instruction {at} ({self.names[at]}): {trap}") from None
        except (TypeError, AttributeError) as error:  # None has no arithmetic
            raise Trap(f"{self.name}, instruction {at}: a register is not set: {error}") from error
        finally:
            for name, count in zip(self.names, hits, strict=True):
                self.machine.count[name] += count

    def _decode(
        self, name: str, d: int, kinds: list[str], numbers: list[int], s: list[int]
    ) -> Step:
        if name in OPERATIONS:
            return self._arithmetic(OPERATIONS[name], d, kinds, s)
        return getattr(self, f"_{name}")(d, kinds, numbers, s)  # type: ignore[no-any-return]

    def _arithmetic(self, function: Any, d: int, kinds: list[str], s: list[int]) -> Step:
        want = [np.dtype(KINDS[kind]) for kind in kinds]

        def step(r: list[Any]) -> None:
            sources = [r[i] for i in s]
            if want and sources[-1].dtype != want[0]:
                raise Trap(f"a register holds {sources[-1].dtype}, not {want[0]}")
            r[d] = function(*sources, *want[1:])
            if r[d].nbytes > REGISTER:
                raise Trap(f"{r[d].nbytes} bytes don't fit a register")

        return step

    def _put(self, d: int, value: Callable[[], int]) -> Step:
        def step(r: list[Any]) -> None:
            r[d] = np.array([value()], np.int64)

        return step

    def _arg(self, d: int, kinds: list[str], numbers: list[int], s: list[int]) -> Step:
        return self._put(d, lambda: self.arguments[numbers[0]])

    def _task(self, d: int, kinds: list[str], numbers: list[int], s: list[int]) -> Step:
        return self._put(d, lambda: self.task)

    def _scratch(self, d: int, kinds: list[str], numbers: list[int], s: list[int]) -> Step:
        return self._put(d, lambda: self.scratch + numbers[0])

    def _element(self, d: int, kinds: list[str], numbers: list[int], s: list[int]) -> Step:
        size = np.int64(np.dtype(KINDS[kinds[0]]).itemsize)

        def step(r: list[Any]) -> None:
            r[d] = r[s[0]] + r[s[1]] * size

        return step

    def _load(self, d: int, kinds: list[str], numbers: list[int], s: list[int]) -> Step:
        machine, view, lanes = self.machine, self.machine.views[kinds[0]], numbers[0]
        size = view.itemsize

        def step(r: list[Any]) -> None:
            address = int(r[s[0]][0])
            mask = r[s[1]] if len(s) > 1 else None
            if mask is None or mask.all():
                machine.check(address, lanes * size, size)
                start = address // size
                r[d] = view[start : start + lanes].copy()
                return
            r[d] = np.zeros(lanes, view.dtype)
            for i in np.flatnonzero(np.broadcast_to(mask, lanes)):
                machine.check(address + int(i) * size, size, size)
                r[d][i] = view[address // size + i]

        return step

    def _store(self, d: int, kinds: list[str], numbers: list[int], s: list[int]) -> Step:
        machine, view = self.machine, self.machine.views[kinds[0]]
        size = view.itemsize

        def step(r: list[Any]) -> None:
            address, value = int(r[s[0]][0]), r[s[1]]
            if value.dtype != view.dtype:
                raise Trap(f"a register holds {value.dtype}, not {view.dtype}")
            mask = r[s[2]] if len(s) > 2 else None
            if mask is None or mask.all():
                machine.check(address, value.nbytes, size)
                start = address // size
                view[start : start + len(value)] = value
                return
            for i in np.flatnonzero(np.broadcast_to(mask, len(value))):
                machine.check(address + int(i) * size, size, size)
                view[address // size + i] = value[i]

        return step

    def _repeat(self, d: int, kinds: list[str], numbers: list[int], s: list[int]) -> Step:
        return self._arithmetic(lambda a: a.repeat(numbers[0]), d, kinds, s)

    def _lane(self, d: int, kinds: list[str], numbers: list[int], s: list[int]) -> Step:
        return self._arithmetic(lambda a: a[numbers[0] :][:1], d, kinds, s)

    def _pick(self, d: int, kinds: list[str], numbers: list[int], s: list[int]) -> Step:
        return self._arithmetic(lambda a, b: np.concatenate((a, b))[numbers], d, kinds, s)

    def _branch(self, d: int, kinds: list[str], numbers: list[int], s: list[int]) -> Step:
        return lambda r: numbers[0] if r[s[0]][0] else None

    def _skip(self, d: int, kinds: list[str], numbers: list[int], s: list[int]) -> Step:
        return lambda r: None if r[s[0]][0] else numbers[0]


def _divide(a: Any, b: Any) -> Any:
    """Toward zero."""
    if not b.all():
        raise Trap("a division by zero")
    quotient = a // b
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0))).astype(a.dtype)


def _cast(a: Any, kind: Any) -> Any:
    if a.dtype.kind == "f" and kind.kind in "iu":
        limits, whole = np.iinfo(kind), np.trunc(a)
        if not ((whole >= float(limits.min)) & (whole < float(limits.max) + 1)).all():
            raise Trap(f"{a} does not fit {kind}")
    return a.astype(kind)


def _multiply(a: Any, b: Any, c: Any) -> Any:
    """c + a·b of 8x8 matrices of f32, given as their bits; each addition rounds."""
    left, right, total = (x.view(np.float32).reshape(SIZE, SIZE).copy() for x in (a, b, c))
    for k in range(SIZE):
        total += left[:, k : k + 1] * right[k : k + 1]
    return total.reshape(-1)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "move": lambda a: a,
    "add": np.add,
    "mul": np.multiply,
    "div": np.divide,
    "idiv": _divide,
    "sqrt": np.sqrt,
    "lt": np.less,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "xor": np.bitwise_xor,
    "cast": _cast,
    "bits": lambda a, kind: a.view(kind),
    "select": np.where,
    "lanes": lambda *values: np.concatenate(values),
    "mma": _multiply,
}
