"""PyTorch's files (`.pt`, `.pth`, `.bin`): a pickle and raw storages, in one of three containers.

    zip      name/data.pkl, name/data/0, ..: since PyTorch 1.6
    legacy   a magic number, a version, facts, the pickle, the storages' keys, the storages
    tar      members storages, tensors, pickle: before 0.1.10

The pickle is read by a machine that knows tensors and containers and nothing else
(`formats/pickles`), so a file can't run code. Storages are parts of the mapped file.
"""

from __future__ import annotations

import io
import math
import struct
import tarfile
import zipfile
from _compat_pickle import REVERSE_NAME_MAPPING
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from tinygrad.base.errors import FileError
from tinygrad.formats import pickled_numpy, pickles
from tinygrad.formats.mapped import Bytes, BytesFile, Source, bytes_of, name_of, tensor_of
from tinygrad.formats.pickles import Name
from tinygrad.tensor import Tensor

MAGIC = 0x1950A86A20F9469CFC6C
MAX_AXES = 64

# PyTorch's dtypes, with the class of their storages where there is one
DTYPES: Mapping[str, tuple[Any, str | None]] = {
    "float32": (np.float32, "FloatStorage"),
    "float64": (np.float64, "DoubleStorage"),
    "float16": (np.float16, "HalfStorage"),
    "bfloat16": (ml_dtypes.bfloat16, "BFloat16Storage"),
    "int64": (np.int64, "LongStorage"),
    "int32": (np.int32, "IntStorage"),
    "int16": (np.int16, "ShortStorage"),
    "int8": (np.int8, "CharStorage"),
    "uint8": (np.uint8, "ByteStorage"),
    "bool": (np.bool_, "BoolStorage"),
    "uint16": (np.uint16, None),
    "uint32": (np.uint32, None),
    "uint64": (np.uint64, None),
    "complex64": (np.complex64, "ComplexFloatStorage"),
    "complex128": (np.complex128, "ComplexDoubleStorage"),
    "float8_e4m3fn": (ml_dtypes.float8_e4m3fn, None),
    "float8_e5m2": (ml_dtypes.float8_e5m2, None),
}


class Storage:
    """The bytes that tensors share, and the dtype that they have if the storage says it."""

    def __init__(self, raw: Bytes, dtype: Any) -> None:
        self.raw = raw
        self.dtype = dtype
        self._flat: dict[str, Tensor] = {}

    def flat(self, dtype: Any) -> Tensor:
        """All elements in a row: one tensor, so that everyone who asks shares it."""
        kind = np.dtype(dtype)
        if kind.str not in self._flat:
            whole = self.raw[: len(self.raw) // kind.itemsize * kind.itemsize]
            self._flat[kind.str] = tensor_of(whole.view(kind))
        return self._flat[kind.str]


def load(source: Source) -> Any:
    """What `torch.save` wrote: tensors in containers, as it was.

    Args:
        source: a path, or the file's bytes. Tensors of a path are parts of the mapped file.

    Raises:
        FileError: the file is broken, or holds more than tensors, numbers, strings and containers:
            whole models, sparse or quantised tensors, code.
    """
    raw, where = bytes_of(source), f"torch file {name_of(source)}"
    start = raw[:4].tobytes()
    broken = (struct.error, zipfile.BadZipFile, tarfile.TarError, EOFError, OSError)
    try:
        if start == b"PK\x03\x04":
            return _load_zip(raw, where)
        if start[:1] == b"\x80":
            return _load_legacy(raw, where)
        if raw[257:262].tobytes() == b"ustar":
            return _load_tar(raw, where)
    except FileError:
        raise
    except (*broken, ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise FileError(f"{where}: broken: {error}") from error
    raise FileError(f"{where}: begins with {start!r}; legal are zip, pickle and tar files")


# ---- the three dresses ---------------------------------------------------------------------------


def _load_zip(raw: Bytes, where: str) -> Any:
    members = zip_members(raw, where)
    pickled = [name for name in members if name.rpartition("/")[2] == "data.pkl"]
    if len(pickled) != 1:
        raise FileError(f"{where}: {len(pickled)} members data.pkl; legal is one")
    folder = pickled[0].removesuffix("data.pkl")
    order = members.get(f"{folder}byteorder")
    big = order is not None and order.tobytes() == b"big"
    storages: dict[str, Storage] = {}

    def persistent(key: Any) -> Storage:
        kind, dtype, name, size = _storage_id(key)
        if name not in storages:
            found = members.get(f"{folder}data/{name}")
            if found is None:
                raise ValueError(f"no member data/{name}")
            storages[name] = _storage(found, kind, dtype, size, big)
        return storages[name]

    return pickles.load(io.BytesIO(members[pickled[0]].tobytes()), NAMES, persistent, where)


def zip_members(raw: Bytes, where: str) -> dict[str, Bytes]:
    """The members of a zip file whose bytes are stored as they are, each a part of `raw`."""
    members: dict[str, Bytes] = {}
    try:
        archive = zipfile.ZipFile(BytesFile(raw))
    except (ValueError, NotImplementedError) as error:
        raise FileError(f"{where}: {error}") from error
    with archive:
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
                raise FileError(f"{where}: {info.filename!r} is packed; legal are stored members")
            head = raw[info.header_offset : info.header_offset + 30].tobytes()
            if len(head) < 30 or head[:4] != b"PK\x03\x04":
                raise FileError(f"{where}: no member at byte {info.header_offset}")
            name, extra = struct.unpack("<HH", head[26:30])
            begin = info.header_offset + 30 + name + extra
            if begin + info.file_size > len(raw):
                raise FileError(f"{where}: {info.filename!r} ends outside the file")
            members[info.filename] = raw[begin : begin + info.file_size]
    return members


def _load_legacy(raw: Bytes, where: str) -> Any:
    file: Any = BytesFile(raw)
    storages: dict[str, tuple[str, Any, int, Storage]] = {}

    def persistent(key: Any) -> Storage:
        kind, dtype, name, size = _storage_id(key[:5])
        view = key[5] if len(key) > 5 else None
        if name not in storages:
            storages[name] = (kind, dtype, size, Storage(raw[:0], dtype))
        whole = storages[name][3]
        if view is None:
            return whole
        part_name, offset, count = view
        if str(part_name) not in storages:
            storages[str(part_name)] = ("view", dtype, count, _Part(whole, offset, count))
        return storages[str(part_name)][3]

    if pickles.load(file, {}, where=where) != MAGIC:
        raise FileError(f"{where}: a pickle, but not one of PyTorch's files")
    version = pickles.load(file, {}, where=where)
    facts = pickles.load(file, {}, where=where)
    if version != 1001 or not isinstance(facts, dict):
        raise FileError(f"{where}: version {version!r}; legal is 1001")
    big = facts.get("little_endian") is False
    # Tensors are made when their storages are known: the pickle is read twice.
    start = file.tell()
    pickles.load(file, _WITHOUT_TENSORS, persistent, where)
    keys = pickles.load(file, {}, where=where)
    if not isinstance(keys, list):
        raise FileError(f"{where}: no list of storages")
    place = file.tell()
    for key in keys:
        if str(key) not in storages:
            raise FileError(f"{where}: storage {key!r} belongs to no tensor")
        kind, dtype, size, storage = storages[str(key)]
        (count,) = struct.unpack("<q", raw[place : place + 8].tobytes())
        nbytes = count * (np.dtype(dtype).itemsize if dtype is not None else 1)
        if count != size or not 0 <= nbytes <= len(raw) - place - 8:
            raise FileError(f"{where}: storage {key} of {count} elements ends outside the file")
        found = _storage(raw[place + 8 : place + 8 + nbytes], kind, dtype, size, big)
        storage.raw, storage.dtype = found.raw, found.dtype
        place += 8 + nbytes
    file.seek(start)
    return pickles.load(file, NAMES, persistent, where)


class _Part(Storage):
    """A storage inside another, which old files have."""

    def __init__(self, whole: Storage, offset: int, count: int) -> None:
        super().__init__(whole.raw, whole.dtype)
        self.whole, self.offset, self.count = whole, offset, count

    def flat(self, dtype: Any) -> Tensor:
        whole = self.whole.flat(dtype)
        if not 0 <= self.offset <= self.offset + self.count <= whole.shape[0]:
            raise ValueError(f"a part at {self.offset} of {self.count} elements of {whole.shape}")
        return whole[self.offset : self.offset + self.count]


def _load_tar(raw: Bytes, where: str) -> Any:
    members: dict[str, Bytes] = {}
    with tarfile.open(fileobj=BytesFile(raw), mode="r:") as archive:
        for info in archive:
            if info.isreg():
                members[info.name] = raw[info.offset_data : info.offset_data + info.size]
    missing = {"storages", "tensors", "pickle"} - members.keys()
    if missing:
        raise FileError(f"{where}: a tar file without {', '.join(sorted(missing))}")
    storages: dict[Any, Storage] = {}
    file: Any = BytesFile(members["storages"])
    for _ in range(_count(pickles.load(file, {}, where=where))):
        key, _, kind = pickles.load(file, NAMES, where=where)
        dtype = kind.call() if isinstance(kind, Name) and kind.call else None
        if dtype is None:
            raise FileError(f"{where}: a storage without a dtype")
        (count,) = struct.unpack("<q", file.read(8))
        nbytes = count * np.dtype(dtype).itemsize
        if not 0 <= nbytes <= len(file.raw) - file.place:
            raise FileError(f"{where}: storage {key} of {count} elements ends outside the file")
        storages[pickles.flat(key)] = Storage(file.raw[file.place : file.place + nbytes], dtype)
        file.place += nbytes
    for target, root, offset, count in pickles.load(file, {}, where=where):
        storages[pickles.flat(target)] = _Part(storages[root], offset, count)
    tensors: dict[Any, Tensor] = {}
    file = BytesFile(members["tensors"])
    for _ in range(_count(pickles.load(file, {}, where=where))):
        key, storage, _ = pickles.load(file, NAMES, where=where)
        axes, _ = struct.unpack("<ii", file.read(8))
        if not 0 <= axes <= MAX_AXES:
            raise FileError(f"{where}: a tensor of {axes} axes")
        sizes = struct.unpack(f"<{axes}q", file.read(8 * axes))
        strides = struct.unpack(f"<{axes}q", file.read(8 * axes))
        (offset,) = struct.unpack("<q", file.read(8))
        tensors[pickles.flat(key)] = tensor_on(storages[storage], offset, sizes, strides)
    pickled = io.BytesIO(members["pickle"].tobytes())
    return pickles.load(pickled, NAMES, lambda key: tensors[int(key)], where)


def _count(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} where a count should be")
    return value


def _storage_id(key: Any) -> tuple[str, Any, str, int]:
    """(class, dtype or None, name, elements) of a storage's persistent id."""
    word, kind, name, _, size = key
    if word != "storage" or not isinstance(kind, Name) or kind.call is None:
        raise ValueError(f"a persistent id {word!r}; legal are storages")
    return kind.path, kind.call(), str(name), _count(size)


def _storage(raw: Bytes, kind: str, dtype: Any, size: int, big: bool) -> Storage:
    """`raw` as a storage, its length checked."""
    itemsize = np.dtype(dtype).itemsize if dtype is not None else 1
    if size < 0 or size * itemsize > len(raw):
        raise ValueError(f"{kind} of {size} elements in {len(raw)} bytes")
    if big and itemsize > 1:
        raw = raw[: size * itemsize].view(dtype).byteswap().view(np.uint8)
    return Storage(raw[: size * itemsize], dtype)


# ---- tensors -------------------------------------------------------------------------------------


def tensor_on(storage: Any, offset: Any, sizes: Any, strides: Any, dtype: Any = None) -> Tensor:
    """The view of a storage with these sizes and strides, which are counted in elements."""
    if not isinstance(storage, Storage):
        raise ValueError("a tensor without a storage")
    kind = storage.dtype if dtype is None else dtype
    whole = (offset, *sizes, *strides)
    if (
        len(sizes) != len(strides)
        or len(sizes) > MAX_AXES
        or any(type(n) is not int for n in whole)
    ):
        raise ValueError(f"a tensor of sizes {sizes} and strides {strides}")
    if any(n < 0 for n in whole):
        raise ValueError(f"a tensor of sizes {sizes}, strides {strides} at {offset}: below 0")
    if 0 in sizes:
        return tensor_of(np.empty(sizes, kind))
    flat = storage.flat(kind)
    last = offset + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    if last >= flat.shape[0]:
        raise ValueError(f"a tensor that ends at element {last} of a storage of {flat.shape[0]}")
    made = _strided(flat, offset, sizes, strides)
    made._enter(flat._family)  # a write to one is seen by all, also where bytes must be copied
    return made


def _strided(flat: Tensor, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """A view if the strides are those of a permuted, perhaps repeated row-major array, as nearly
    all are; else a gather."""
    axes = [i for i, n in enumerate(sizes) if n > 1 and strides[i]]
    axes.sort(key=lambda i: -strides[i])
    dense = [sizes[i] for i in axes]
    if [strides[i] for i in axes] == [math.prod(dense[k + 1 :]) for k in range(len(axes))]:
        part = flat[offset : offset + math.prod(dense)].reshape(dense)
        part = part.permute([axes.index(i) for i in sorted(axes)]) if axes else part
        return part.reshape([sizes[i] if i in axes else 1 for i in range(len(sizes))]).expand(sizes)
    places = Tensor.full((), offset, dtype="int64")
    for i, (n, step) in enumerate(zip(sizes, strides, strict=True)):
        along = [n if k == i else 1 for k in range(len(sizes))]
        places = places + (Tensor.arange(n, dtype="int64") * step).reshape(along)
    return flat[places.expand(sizes)]


def _rebuilt(storage: Any, offset: Any, sizes: Any, strides: Any, *more: Any) -> Tensor:
    return _as_read(tensor_on(storage, offset, sizes, strides), *more)


def _as_read(made: Tensor, grad: Any = False, hooks: Any = None, facts: Any = None) -> Tensor:
    """What PyTorch makes of a view's elements as it reads them."""
    bits = facts if isinstance(facts, dict) else {}
    made = made.conj() if bits.get("conj") is True else made
    return -made if bits.get("neg") is True else made


def _rebuilt_v3(
    storage: Any,
    offset: Any,
    sizes: Any,
    strides: Any,
    grad: Any,
    hooks: Any,
    kind: Any,
    *more: Any,
) -> Tensor:
    if not isinstance(kind, Kind):
        raise ValueError("a tensor without a dtype")
    return _as_read(tensor_on(storage, offset, sizes, strides, kind.numpy), grad, hooks, *more)


def _rebuilt_from_type(function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    if not isinstance(function, Name) or function.path not in _TENSORS or function.call is None:
        raise ValueError("a tensor made by what makes none")
    return function.call(*arguments)


class Kind:
    """A dtype of PyTorch's, where a file has one as a value."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.numpy = DTYPES[name][0] if name in DTYPES else None

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


# ---- what a pickle may name ----------------------------------------------------------------------


def _refused(what: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise FileError(
            f"torch file: a {what} tensor; legal are dense ones: call to_dense() or "
            "dequantize() before saving"
        )

    return refuse


def _constantly(value: Any) -> Callable[[], Any]:
    return lambda: value


def _flat_set(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda members=(): make(map(pickles.flat, _listed(members)))


def _listed(members: Any) -> Any:
    if not isinstance(members, (list, tuple, set, frozenset)):
        raise ValueError(f"members that are a {type(members).__name__}")
    return members


def _mapping(make: Callable[[], Any]) -> Callable[..., Any]:
    """A dict from pairs of key and value, or from another dict; attributes are dropped."""

    def made(*given: Any) -> Any:
        target = make()
        for pairs in given:
            items = pairs.items() if isinstance(pairs, dict) else _listed(pairs)
            for key, value in items:
                target[pickles.flat(key)] = value
        return target

    return made


def _plain_default(*_: Any) -> Any:
    return defaultdict()


def _kept(value: Any, _: Any) -> Any:
    return value


_TENSORS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _rebuilt,
    "torch._utils._rebuild_tensor_v2": _rebuilt,
    "torch._utils._rebuild_tensor_v3": _rebuilt_v3,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "torch._utils._rebuild_parameter_with_state": lambda data, *_: data,
    "torch._tensor._rebuild_from_type_v2": _rebuilt_from_type,
    "torch._utils._rebuild_sparse_tensor": _refused("sparse"),
    "torch._utils._rebuild_sparse_csr_tensor": _refused("sparse"),
    "torch._utils._rebuild_qtensor": _refused("quantised"),
    "torch._utils._rebuild_nested_tensor": _refused("nested"),
    "torch._utils._rebuild_meta_tensor_no_storage": _refused("meta"),
}
_VALUES: dict[str, Callable[..., Any]] = {
    "torch.Size": lambda sizes=(): tuple(sizes) if type(sizes) is tuple else _listed(sizes),
    "torch.device": lambda name="cpu", index=None: (
        str(name) if index is None else f"{name}:{index}"
    ),
    "torch.serialization._get_layout": lambda name: str(pickles.flat(name)),
    "_codecs.encode": pickled_numpy.encoded,
    "numpy._core.multiarray.scalar": pickled_numpy.scalar,
    "numpy._core.numeric._frombuffer": pickled_numpy.from_buffer,
    "builtins.bytes": lambda: b"",  # protocol 2 has no other word for it
    "builtins.bytearray": lambda *given: bytearray(pickled_numpy.raw_of(*given)),
    "builtins.set": _flat_set(set),
    "builtins.frozenset": _flat_set(frozenset),
    "builtins.complex": lambda real, imaginary: complex(float(real), float(imaginary)),
}
_STATEFUL = {
    "collections.OrderedDict": (_mapping(OrderedDict), _kept),
    "collections.Counter": (_mapping(Counter), _kept),
    "collections.defaultdict": (_plain_default, _kept),
    "numpy.dtype": (pickled_numpy.dtype_of, pickled_numpy.dtype_state),
    "numpy._core.multiarray._reconstruct": (lambda *_: np.empty(0), pickled_numpy.array_state),
}
_ONLY_NAMED = ("torch.Tensor", "torch.nn.parameter.Parameter", "numpy.ndarray", "builtins.list",
               "builtins.dict", "builtins.int", "builtins.float", "builtins.str")  # fmt: skip


def _names() -> dict[str, Name]:
    names = {path: Name(path) for path in _ONLY_NAMED}
    for path, call in (*_TENSORS.items(), *_VALUES.items()):
        names[path] = Name(path, call)
    for path, (make, build) in _STATEFUL.items():
        names[path] = Name(path, make, build)
    for dtype, (numpy, storage) in DTYPES.items():
        names[f"torch.{dtype}"] = Name(f"torch.{dtype}", value=Kind(dtype))
        if storage is not None:
            names[f"torch.{storage}"] = Name(f"torch.{storage}", _constantly(np.dtype(numpy)))
            tensor = f"torch.{storage.replace('Storage', 'Tensor')}"
            names[tensor] = Name(tensor)
            names[f"torch.cuda.{storage}"] = names[f"torch.{storage}"]
    for module in ("torch", "torch.storage"):
        names[f"{module}.UntypedStorage"] = Name(f"{module}.UntypedStorage", _constantly(None))
    for path in [path for path in names if path.startswith("numpy._core")]:
        names[path.replace("_core", "core")] = names[path]
    for path in [path for path in names if path.startswith("builtins.")]:
        names[path.replace("builtins", "__builtin__")] = names[path]
    for now, before in REVERSE_NAME_MAPPING.items():  # int was long
        if ".".join(now) in names:
            names[".".join(before)] = names[".".join(now)]
    return names


NAMES = _names()
_WITHOUT_TENSORS = {
    path: Name(path, lambda *_: None, name.build) if path in _TENSORS else name
    for path, name in NAMES.items()
}
