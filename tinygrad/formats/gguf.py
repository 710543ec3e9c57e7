"""GGUF files: facts (metadata) by name, then tensors, many of them quantised in blocks.

    "GGUF"  version (2 or 3)  number of tensors  number of facts
    facts    name, type, value; arrays have a type and a length
    tensors  name, number of axes, sizes (last axis first), type, place in the data
    data     from the next multiple of `general.alignment` (32)

(Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.) The file is mapped, and a
quantised tensor is an expression over its blocks in the file (`formats/quants`). In a big-endian
file the bytes of each word in a block are swapped, so its tensors are copies.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, FileError
from tinygrad.base.replacing import replacing
from tinygrad.engine.storage import is_borrowed
from tinygrad.formats.mapped import Bytes, Source, bytes_of, name_of, tensor_of
from tinygrad.formats.quants import FORMATS, dequantise
from tinygrad.tensor import Tensor

SCALARS: Mapping[int, str] = {  # letters of struct and NumPy
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
STRING, ARRAY = 8, 9
PLAIN: Mapping[int, Any] = {
    0: np.float32,
    1: np.float16,
    24: np.int8,
    25: np.int16,
    26: np.int32,
    27: np.int64,
    28: np.float64,
    30: ml_dtypes.bfloat16,
}
BLOCKS = {row.number: name for name, row in FORMATS.items()}
MAX_AXES = 8
DEEPEST = 4  # arrays in arrays


class _Reader:
    """The head of a file, read from its beginning; never beyond its end."""

    def __init__(self, raw: Bytes, where: str) -> None:
        self.raw, self.where, self.place = raw, where, 0
        self.order = "<"

    def take(self, nbytes: int) -> bytes:
        """The next bytes."""
        if nbytes > len(self.raw) - self.place:
            raise FileError(f"{self.where}: cut short at byte {len(self.raw)}")
        self.place += nbytes
        return self.raw[self.place - nbytes : self.place].tobytes()

    def number(self, kind: str) -> Any:
        """The next number, of a struct letter."""
        layout = self.order + kind
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def count(self, smallest: int) -> int:
        """How many things of at least `smallest` bytes follow; no more than there is room for."""
        count = int(self.number("Q"))
        if count * smallest > len(self.raw) - self.place:
            raise FileError(
                f"{self.where}: {count} values of {smallest} bytes and more at byte {self.place} "
                f"of {len(self.raw)}"
            )
        return count

    def text(self) -> str:
        """The next string."""
        return self.take(self.count(1)).decode("utf-8", "replace")

    def texts(self, count: int) -> list[str]:
        """The next strings: a vocabulary has hundreds of thousands."""
        size, data, found = struct.Struct(self.order + "Q"), self.raw.data, []
        place, end = self.place, len(data)
        for _ in range(count):
            begin = place + size.size
            place = begin + size.unpack_from(data, place)[0] if begin <= end else end + 1
            if place > end:
                raise FileError(f"{self.where}: cut short at byte {end}")
            found.append(str(data[begin:place], "utf-8", "replace"))
        self.place = place
        return found

    def value(self, kind: int, depth: int = 0) -> Any:
        """The next value of a type."""
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.text()
        if kind != ARRAY or depth >= DEEPEST:
            raise FileError(f"{self.where}: type {kind} of a value; legal are 0 to 12")
        kind = self.number("I")
        if kind in SCALARS:
            dtype = np.dtype(self.order + SCALARS[kind])
            return np.frombuffer(
                self.take(self.count(dtype.itemsize) * dtype.itemsize), dtype
            ).tolist()
        if kind == STRING:
            return self.texts(self.count(8))
        return [self.value(kind, depth + 1) for _ in range(self.count(12))]


def load(source: Source) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The facts and the tensors by name.

    Args:
        source: a path, or the file's bytes. Tensors are parts of the mapped file; quantised ones
            are float32 expressions over it, so memory holds the blocks.

    Raises:
        FileError: the file is not what the format says.
    """
    reader, tensors, facts = _begun(source)
    raw, where = reader.raw, reader.where
    rows = [_row(reader) for _ in range(tensors)]
    alignment = facts.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        raise FileError(f"{where}: alignment {alignment!r}; legal are powers of two")
    begin = -(-reader.place // alignment) * alignment
    weights: dict[str, Tensor] = {}
    for row in rows:
        if row.name in weights:
            raise FileError(f"{where}: {row.name!r} stands twice")
        weights[row.name] = _tensor(raw[begin:], row, reader.order, f"{where}, {row.name!r}")
    return facts, weights


def facts_of(source: Source) -> dict[str, Any]:
    """The facts alone, as `load` gives them.

    Args:
        source: a path, or the file's bytes.

    Raises:
        FileError: the file is not what the format says.
    """
    return _begun(source)[2]


def _begun(source: Source) -> tuple[_Reader, int, dict[str, Any]]:
    """The reader behind the facts, the number of tensors, the facts."""
    raw, where = bytes_of(source), f"gguf file {name_of(source)}"
    reader = _Reader(raw, where)
    magic, version = reader.take(4), reader.number("I")
    if version & 0xFFFF == 0:
        reader.order, version = ">", int.from_bytes(version.to_bytes(4, "little"), "big")
    if magic != b"GGUF" or version not in (2, 3):
        raise FileError(f"{where}: begins {magic!r}, version {version}; legal are GGUF, 2 and 3")
    tensors = reader.count(24)
    facts: dict[str, Any] = {}
    for _ in range(reader.count(13)):
        name = reader.text()
        if name in facts:
            raise FileError(f"{where}: {name!r} stands twice")
        facts[name] = reader.value(reader.number("I"))
    return reader, tensors, facts


class _Row(NamedTuple):
    """What the head says of a tensor."""

    name: str
    shape: tuple[int, ...]
    kind: int
    place: int


def _row(reader: _Reader) -> _Row:
    name, axes = reader.text(), reader.number("I")
    if axes > MAX_AXES:
        raise FileError(f"{reader.where}: {name!r} has {axes} axes; legal are up to {MAX_AXES}")
    sizes = [reader.number("Q") for _ in range(axes)]
    return _Row(name, tuple(reversed(sizes)), reader.number("I"), reader.number("Q"))


def _tensor(data: Bytes, row: _Row, order: str, where: str) -> Tensor:
    dtype, name = PLAIN.get(row.kind), BLOCKS.get(row.kind)
    if dtype is None and name is None:
        raise FileError(f"{where}: type {row.kind}; legal are {sorted({*PLAIN, *BLOCKS})}")
    form = FORMATS[name] if name is not None else None
    elements, nbytes = (form.elements, form.nbytes) if form else (1, np.dtype(dtype).itemsize)
    shape, place = row.shape, row.place
    last = shape[-1] if shape else 1
    total = math.prod(shape) // elements * nbytes
    if last % elements or place + total > len(data):
        raise FileError(
            f"{where}: {name or np.dtype(dtype)} of shape {shape} at byte {place} of {len(data)}; "
            "the file is cut short or its head is wrong"
        )
    part = data[place : place + total]
    if order == ">":
        words = part.reshape(-1, nbytes)[:, ::-1]
        part = form.turned(part) if form else np.ascontiguousarray(words).reshape(-1)
    if math.prod(n or 1 for n in shape) >= 1 << 59:  # also beside a size of 0
        raise FileError(f"{where}: shape {shape}; legal are sizes that memory can have")
    if name is None:
        return tensor_of(part.view(dtype).reshape(shape))
    if not total:
        return Tensor.zeros(shape)
    blocks = tensor_of(part)
    if not is_borrowed(blocks.uop.base):
        blocks.realize()  # a device with memory of its own gets the blocks, once
    return dequantise(blocks, name, shape)


# ---- writing -------------------------------------------------------------------------------------

WHOLE = {dtypes.int8: "I8", dtypes.int16: "I16", dtypes.int32: "I32", dtypes.int64: "I64"}
INTEGERS = (
    ("UINT32", (0, 2**32 - 1)),
    ("INT32", (-(2**31), 2**31 - 1)),
    ("INT64", (-(2**63), 2**63 - 1)),
    ("UINT64", (0, 2**64 - 1)),
)
LARGEST = float(np.finfo(np.float32).max)
WRITABLE = ("F32", "F16", "BF16", "Q8_0", "Q4_0")


def save(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any] | None = None,
    kinds: str | Mapping[str, str] = "F16",
) -> None:
    """Writes a GGUF file, whole or not at all, by the package `gguf`.

    Args:
        path: where to.
        tensors: by name.
        facts: numbers, strings and lists of them by name. `general.architecture` is "unknown"
            unless given.
        kinds: F32, F16, BF16, Q8_0 or Q4_0, for all tensors or by name. Tensors of less than two
            axes, or whose last axis is no whole number of blocks, are F32 where nothing is said by
            name; tensors of whole numbers stay so.

    Raises:
        ArgumentError: another kind, a shape or a dtype that it can't have, or another fact.
    """
    try:
        import gguf
    except ImportError as error:
        raise ArgumentError("gguf: writing needs the package: pip install gguf") from error
    facts = dict(facts or {})
    with replacing(path) as part:
        writer = gguf.GGUFWriter(part, str(facts.pop("general.architecture", "unknown")))
        for name, value in facts.items():
            several = isinstance(value, list)
            kind = gguf.GGUFValueType[_kind_of_fact(name, value if several else [value], several)]
            whole = (gguf.GGUFValueType.ARRAY, kind) if several else (kind, None)
            writer.add_key_value(name, value, *whole)
        for name, tensor in tensors.items():
            number = gguf.GGMLQuantizationType[_kind_of(name, tensor, kinds)]
            if number.name in WHOLE.values():
                writer.add_tensor(name, tensor.numpy())
            else:
                packed = gguf.quants.quantize(tensor.float().numpy(), number)
                writer.add_tensor(name, packed, raw_dtype=number)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _kind_of(name: str, tensor: Tensor, kinds: str | Mapping[str, str]) -> str:
    said = None if isinstance(kinds, str) else kinds.get(name)
    if said is None and not dtypes.is_float(tensor.dtype):
        if tensor.dtype not in WHOLE:
            raise ArgumentError(
                f"gguf: {name!r} of {tensor.dtype!r}; legal are floats and signed whole numbers"
            )
        return WHOLE[tensor.dtype]
    kind = said or (kinds if isinstance(kinds, str) else "F16")
    if kind not in WRITABLE:
        raise ArgumentError(f"gguf: {name!r} as {kind}; legal are {', '.join(WRITABLE)}")
    elements = FORMATS[kind].elements if kind in FORMATS else 1
    fits = tensor.ndim > 0 and tensor.numel() > 0 and tensor.shape[-1] % elements == 0
    if said is None and (tensor.ndim < 2 or not fits):
        return "F32"
    if not fits and elements > 1:
        raise ArgumentError(
            f"gguf: {name!r} of shape {tensor.shape} as {kind}: its last axis must be a multiple "
            f"of {elements}"
        )
    return kind


def _kind_of_fact(name: Any, values: list[Any], several: bool) -> str:
    """The type of a fact's values: that of llama.cpp's writers, or wider where one is too large."""
    found = {type(value) for value in values}
    if isinstance(name, str) and len(found) == 1:
        (python,) = found
        if python in (bool, str):
            return {bool: "BOOL", str: "STRING"}[python]
        if python is float:
            fits = all(abs(v) <= LARGEST or not math.isfinite(v) for v in values)
            return "FLOAT32" if fits else "FLOAT64"
        if python is int:
            legal = INTEGERS[1:] if several or min(values) < 0 else INTEGERS
            for kind, (least, most) in legal:
                if least <= min(values) and max(values) <= most:
                    return kind
    raise ArgumentError(
        f"gguf: fact {name!r} of {'[]' if not values else values[0]!r:.80}; legal are bools, "
        "numbers of 64 bits, strings, and lists of one of these kinds, not empty"
    )
