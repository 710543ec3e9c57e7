"""The tensors of a model, or of any object, by name; saving them to files and loading them back.

A name is the path to the tensor through attributes, keys and positions: `layers.0.weight`.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any

from tinygrad.backends import keeps
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import prod
from tinygrad.engine.jit import TinyJit
from tinygrad.engine.realize import read
from tinygrad.engine.storage import Buffer, bind, is_borrowed
from tinygrad.formats import archives, gguf, safetensors, torch_files
from tinygrad.formats.archives import TensorIO
from tinygrad.formats.mapped import tensor_of
from tinygrad.schedule.shard_rules import placement_of
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_types
from tinygrad.tensor.spellings import spell_functions
from tinygrad.uop.node import UOp

PARAMETRIZED = {"original0": "_g", "original1": "_v", "original": "_orig", r"0\._(u|v)": r"_\2"}
"""How the names of what a weight is computed from end here, by how they do in the files of
PyTorch's `parametrizations`, behind the weight's own. Its older files have the names from here."""

Path = str | os.PathLike[str]

__all__ = [
    "TensorIO",
    "get_parameters",
    "get_state_dict",
    "gguf_load",
    "load_state_dict",
    "own_copy",
    "safe_load",
    "safe_load_metadata",
    "safe_save",
    "tar_extract",
    "torch_load",
    "zip_extract",
]


class Unmade:
    """A layer that will have tensors, and has none yet: who asks for them is told `why`."""

    why: str


# ---- what an object holds ------------------------------------------------------------------------


def get_state_dict(
    obj: Any, prefix: str = "", tensor_type: type[Tensor] = Tensor
) -> dict[str, Tensor]:
    """The tensors in `obj` by name: through dicts, lists, tuples, deques and attributes of objects
    (of those in `__slots__` the public ones).

    Args:
        obj: a tensor, a container, or an object with attributes.
        prefix: what all names begin with.
        tensor_type: what counts as a tensor.

    Raises:
        ArgumentError: two tensors have one name, as of the keys "a.b", and "a" with "b" inside; or
            they lie in a set.

    >>> class Net:
    ...     def __init__(self): self.layers = [Tensor([1.0]), Tensor([2.0])]
    >>> list(get_state_dict(Net()))
    ['layers.0', 'layers.1']
    """
    return by_name(found_in(obj, prefix, lambda each: isinstance(each, tensor_type)))


def get_parameters(obj: Any) -> list[Tensor]:
    """The tensors in `obj`, in order of `get_state_dict`.

    >>> [t.item() for t in get_parameters({"a": Tensor([1.0]), "b": [Tensor([2.0])]})]
    [1.0, 2.0]
    """
    return list(get_state_dict(obj).values())


def by_name(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """These by their names; ArgumentError if two have one name."""
    found: dict[str, Any] = {}
    for name, each in pairs:
        if found.setdefault(name, each) is not each:
            raise ArgumentError(
                f"get_state_dict: two have the name {name!r}; legal are keys and attributes that "
                "make different paths"
            )
    return found


def found_in(
    obj: Any, prefix: str, is_sought: Callable[[Any], bool], above: tuple[int, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """Name and value of each that is sought in `obj`, which lies in the objects `above`."""
    if isinstance(obj, Unmade):
        raise ArgumentError(obj.why)
    if is_sought(obj):
        yield prefix.strip("."), obj
    elif isinstance(obj, (set, frozenset)):
        if any(map(is_sought, obj)):
            where = prefix.strip(".")
            raise ArgumentError(
                f"get_state_dict: a set of tensors, {where!r}; legal are lists, which have an order"
            )
    elif id(obj) not in above:  # an object that leads back to itself holds nothing new
        for name, part in _parts(obj):
            yield from found_in(part, f"{prefix}{name}.", is_sought, (*above, id(obj)))


def _parts(obj: Any) -> Iterator[tuple[str, Any]]:
    """Name and value of what `obj` consists of; nothing for what is no container."""
    if isinstance(obj, tuple) and (names := getattr(obj, "_fields", None)):  # a named tuple
        yield from zip(names, obj, strict=True)
    elif isinstance(obj, (list, tuple, deque)):
        yield from ((str(i), part) for i, part in enumerate(obj))
    elif isinstance(obj, (dict, MappingProxyType)):
        yield from ((str(name), part) for name, part in obj.items())
    if not isinstance(obj, (type, TinyJit)):  # classes and captured steps are no models
        yield from getattr(obj, "__dict__", {}).items()
        for name in _slots(obj.__class__):
            if hasattr(obj, name):
                yield name, getattr(obj, name)


@lru_cache(1024)
def _slots(kind: type) -> tuple[str, ...]:
    """The public attributes that a class has without a dict of them."""
    given = [each.__dict__.get("__slots__", ()) for each in kind.__mro__]
    names = chain(*((names,) if isinstance(names, str) else names for names in given))
    return tuple(name for name in names if not name.startswith("_"))


# ---- putting values in ---------------------------------------------------------------------------


def load_state_dict(
    model: Any,
    state_dict: dict[str, Any],
    strict: bool = True,
    verbose: bool = True,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """Gives the tensors of `model` the values in `state_dict` that have their names.

    Computed tensors of the same dtype are written in place, so optimizers and captured steps see
    the new values. Others become the loaded tensor, with its dtype, on their own device.

    Args:
        model: any object, see `get_state_dict`.
        state_dict: tensors by name, as `get_state_dict` or `safe_load` give them; or arrays, as
            other libraries do.
        strict: whether each tensor of the model must get a value.
        verbose: whether to warn of values that the model has no place for.
        consume: whether to take what was used out of `state_dict`, so that it can be freed.
        realize: whether to compute now. If not, tensors that were not computed become the given
            expressions: quantised weights stay quantised.

    Returns:
        The model's tensors that got a value.

    Raises:
        ArgumentError: names are missing; the message lists them, and those without a place.
        ShapeError: a value has another shape. Nothing was loaded then.

    >>> net = {"w": Tensor([0.0, 0.0])}
    >>> _ = load_state_dict(net, {"w": Tensor([1.0, 2.0])})
    >>> net["w"].tolist()
    [1.0, 2.0]
    """
    places = get_state_dict(model)
    given: dict[str, str] = {}
    for name in state_dict:
        if (same := given.setdefault(_name_here(name, places), name)) is not name:
            raise ArgumentError(
                f"load_state_dict: {same} and {name} are two names of one tensor; legal is one"
            )
    _check_names(list(places), list(given), strict, verbose)
    found = {name: place for name, place in places.items() if name in given}
    values = {name: fitting(name, place, state_dict[given[name]]) for name, place in found.items()}
    computed = {name: place.uop.realized is not None for name, place in found.items()}
    for name, place in found.items():  # that of two names is asked about before it is written
        _put(place, values[name], realize, computed[name])
        if consume:
            del state_dict[given[name]]
    loaded = list(found.values())
    if realize and loaded:
        Tensor.realize(*loaded)
    return loaded


def _name_here(name: str, places: dict[str, Tensor]) -> str:
    """The name in the model of a value that a file names so."""
    for pattern, ending in PARAMETRIZED.items() if name not in places else ():
        here = re.sub(rf"parametrizations\.(\w+)\.{pattern}$", rf"\1{ending}", name)
        if here in places:
            return here
    return name


def _check_names(wanted: list[str], given: list[str], strict: bool, verbose: bool) -> None:
    missing = [name for name in wanted if name not in set(given)]
    unused = [name for name in given if name not in set(wanted)]
    if missing and strict:
        raise ArgumentError(
            f"load_state_dict: no value for {_listed(missing)}; values without a place: "
            f"{_listed(unused)}; legal are all names of the model, or strict=False"
        )
    if unused and verbose:
        warnings.warn(f"load_state_dict: no place for {_listed(unused)}", stacklevel=3)


def _listed(names: list[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


def fitting(name: str, place: Tensor, given: Any) -> Tensor:
    """What was given on the device of `place`, with its shape, no gradient following it."""
    value = given if isinstance(given, Tensor) else Tensor(given)
    if place.shape != value.shape:
        if {place.shape, value.shape} != {(), (1,)}:
            raise ShapeError(
                f"load_state_dict: {name} has shape {place.shape} in the model and {value.shape} "
                "in the values; legal is the same"
            )
        value = value.reshape(place.shape)
    return (value.detach() if value.requires_grad else value).shard_like(place)


def _put(place: Tensor, value: Tensor, realize: bool, is_computed: bool) -> None:
    is_result = place._taped  # of what was loaded it is none
    is_seen = is_computed or place.has_views
    if place.dtype is value.dtype and is_seen and not is_result:
        place.assign(value)
    elif is_borrowed(value.uop.base) or not realize:  # a mapped file is copied only by who writes
        place.replace(value)
    else:
        place.replace(own_copy(value))


def own_copy(tensor: Tensor) -> Tensor:
    """The same values in storage that no other tensor shares; computed when it is realized.

    Equal expressions are one node, and have one storage once they are computed. So two tensors that
    are written in place (parameters, an optimizer's state) must not be equal expressions.

    >>> own_copy(Tensor([1, 2])).tolist()
    [1, 2]
    """
    if 0 in tensor.shape:
        return tensor
    like = tensor._held
    size, dtype = prod(like.shape), like.dtype
    device = placement_of(like) if isinstance(tensor.device, tuple) else tensor.device
    node = bind(UOp.new_buffer(device, size, dtype), Buffer(device, size * dtype.itemsize))
    fresh = tensor.with_node(node.reshape(like.shape))
    fresh.requires_grad = tensor.requires_grad
    return fresh.assign(tensor.detach())


# ---- files ---------------------------------------------------------------------------------------


def safe_save(tensors: dict[str, Tensor], fn: Path, metadata: dict[str, str] | None = None) -> None:
    """Writes tensors to a safetensors file, whole or not at all.

    Args:
        tensors: by name.
        fn: the path.
        metadata: strings by name, kept beside them.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "net.safetensors")
    >>> safe_save({"w": Tensor([1.0, 2.0])}, path)
    >>> safe_load(path)["w"].tolist()
    [1.0, 2.0]
    """
    values = list(tensors.values())
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise ArgumentError(
                f"safe_save: {name!r} is a {type(value).__name__}; legal are Tensors"
            )
    if values:
        Tensor.realize(*values)
    safetensors.write(fn, {name: t.numpy() for name, t in tensors.items()}, metadata)


def safe_load(fn: Path | Tensor) -> dict[str, Tensor]:
    """The tensors of a safetensors file (a path, or its bytes as a tensor), by name; also of a
    folder with a model, or an index of several files.

    The file is mapped into memory: what is never used is never read, and on a CPU the tensors are
    the file's bytes. A write to one makes a copy first.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "weights.safetensors")
    >>> safe_save({"w": Tensor([1.0, 2.0])}, path)
    >>> safe_load(path)["w"].tolist()
    [1.0, 2.0]
    """
    arrays, _ = safetensors.read(_source(fn))
    return {name: tensor_of(array) for name, array in arrays.items()}


def safe_load_metadata(fn: Path | Tensor) -> dict[str, Any]:
    """The header of a safetensors file: dtype and shape of each tensor, and `__metadata__`.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "weights.safetensors")
    >>> safe_save({"w": Tensor([1.0, 2.0])}, path, {"step": "7"})
    >>> safe_load_metadata(path)["__metadata__"]
    {'step': '7'}
    """
    return safetensors.read_metadata(_source(fn))


def _source(fn: Path | Tensor) -> Path | bytes | memoryview:
    check_types("load", [fn], (str, os.PathLike, Tensor), "paths, and tensors of bytes")
    if not isinstance(fn, Tensor):
        return fn
    if keeps(fn.device):  # a file's bytes stay where they are
        return read(fn.uop, copy=False).reshape(-1).data
    return fn.tobytes()


def torch_load(fn: Path | Tensor) -> Any:
    """What `torch.save` wrote to a file (a path, or its bytes as a tensor): tensors in containers.

    Nothing in the file is run: a file that names anything but tensors, numbers, strings and
    containers raises FileError. The file is mapped, as by `safe_load`.

    >>> import os, tempfile, torch
    >>> path = os.path.join(tempfile.mkdtemp(), "weights.pt")
    >>> torch.save({"w": torch.tensor([1.0, 2.0])}, path)
    >>> torch_load(path)["w"].tolist()
    [1.0, 2.0]
    """
    return torch_files.load(_source(fn))


def gguf_load(fn: Path | Tensor) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The facts and the tensors of a GGUF file (a path, or its bytes as a tensor), by name.

    Quantised tensors are expressions over the mapped file, dequantised inside the products that
    use them: `load_state_dict(model, weights, realize=False)` keeps them so.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "weights.gguf")
    >>> gguf.save(path, {"w": Tensor([[1.0, 2.0]])})
    >>> gguf_load(path)[1]["w"].tolist()
    [[1.0, 2.0]]
    """
    return gguf.load(_source(fn))


def tar_extract(fn: Path | Tensor) -> dict[str, Tensor]:
    """The files in a tar file (a path, or its bytes as a tensor) by name, as tensors of bytes.

    >>> import io, os, tarfile, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "texts.tar")
    >>> with tarfile.open(path, "w") as tar:
    ...     entry = tarfile.TarInfo("a.txt")
    ...     entry.size = 2
    ...     tar.addfile(entry, io.BytesIO(b"hi"))
    >>> {name: bytes(t.tolist()) for name, t in tar_extract(path).items()}
    {'a.txt': b'hi'}
    """
    return archives.extract(fn)


def zip_extract(fn: Path | Tensor) -> dict[str, Tensor]:
    """The files in a zip file (a path, or its bytes as a tensor) by name, as tensors of bytes.

    >>> import os, tempfile, zipfile
    >>> path = os.path.join(tempfile.mkdtemp(), "texts.zip")
    >>> with zipfile.ZipFile(path, "w") as archive:
    ...     archive.writestr("a.txt", "hi")
    >>> {name: bytes(t.tolist()) for name, t in zip_extract(path).items()}
    {'a.txt': b'hi'}
    """
    return archives.extract(fn)


spell_functions(globals())
