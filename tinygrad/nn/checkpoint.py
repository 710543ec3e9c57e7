"""A training run in one file: weights, optimizer, schedules, averages, loss scale, random streams
and the position in the data. A killed process loses only what it did since the last save.

The file is a safetensors file. Tensors are named by the path to them (`model.layers.0.weight`), and
everything else is JSON in the metadata. So other programs can read the weights.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tinygrad.base.errors import ArgumentError
from tinygrad.data.printed import print_as_described
from tinygrad.formats import safetensors
from tinygrad.nn.state import by_name, fitting, found_in, get_state_dict, load_state_dict
from tinygrad.tensor import Tensor
from tinygrad.tensor.generator import default_generator

_KEY = "tinygrad.run"
_VERSION = 2
_FIRST = 1
"""The version in which only whole parts gave a state of their own."""
_RANDOM = "random"


class Checkpoint:
    """What a run consists of, and the file that keeps it.

    Args:
        path: the file. One process writes it; `path` with `.part` behind is used while it does.
        parts: by name. Of an object with `state_dict` and `load_state_dict` (a data loader, a
            generator, an optimizer), also inside lists, dicts and other objects, what these give
            and take: numbers, strings and tensors in dicts and lists. Of all else its tensors
            (`get_state_dict`). The stream that `Tensor.rand` draws from is always a part.

    >>> import os, tempfile
    >>> net = {"w": Tensor([1.0, 2.0])}
    >>> run = Checkpoint(os.path.join(tempfile.mkdtemp(), "run.safetensors"), model=net)
    >>> run.load() is None
    True
    >>> run.save(step=3)
    >>> _ = net["w"].assign(Tensor([0.0, 0.0])).realize()
    >>> run.load(), net["w"].tolist()
    ({'step': 3}, [1.0, 2.0])
    """

    def __init__(self, path: str | os.PathLike[str], **parts: Any) -> None:
        if _RANDOM in parts:
            raise ArgumentError(f"Checkpoint: a part named {_RANDOM!r} is there already; rename it")
        self.path = Path(path)
        self.parts = {_RANDOM: default_generator, **parts}

    def _shown(self) -> dict[str, Any]:
        return {"path": self.path, **self.parts}

    def save(self, **notes: Any) -> None:
        """Writes the file, whole or not at all, so that it outlives the process and the power.

        Args:
            notes: what else to keep: numbers, strings, None, and lists and dicts of them.

        Raises:
            ArgumentError: a part holds something that is neither a tensor nor of JSON, or nothing
                that could be kept.

        >>> from pathlib import Path; from tempfile import mkdtemp
        >>> run = Checkpoint(Path(mkdtemp()) / "run.safetensors", weight=[Tensor([1.0])])
        >>> run.save(turn=7); run.load()
        {'turn': 7}
        """
        self._check_parts()
        speaking, tensors = self._pieces()
        states = {name: part.state_dict() for name, part in speaking.items()}
        plain = {name: _taken_apart(state, name, tensors) for name, state in states.items()}
        for name, each in [*states.items(), *notes.items()]:
            _check_keys(each, name)
        first: dict[int, str] = {}  # a tensor that several parts hold is written once
        same = {n: first[id(t)] for n, t in tensors.items() if first.setdefault(id(t), n) != n}
        kept = {name: tensor for name, tensor in tensors.items() if name not in same}
        try:
            header = {"version": _VERSION, "plain": plain, "same": same, "notes": notes}
            text = json.dumps(header, allow_nan=True)
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"Checkpoint.save: {error}; legal are tensors, numbers, strings, None, and lists "
                "and dicts of them"
            ) from error
        values = list(kept.values())
        if values:
            Tensor.realize(*values)
        arrays = {name: tensor.numpy() for name, tensor in kept.items()}
        safetensors.write(self.path, arrays, {_KEY: text}, self.path.name + ".part")

    def load(self) -> dict[str, Any] | None:
        """Puts everything back where it was when `save` was called.

        Returns:
            The notes given to `save`, or None if there is no file: a run that begins.

        Raises:
            ArgumentError: the file is of other parts, or of none: a name is missing or too many.
            ShapeError: a tensor has another shape now.

        After an error nothing has moved: parts are where they were.

        >>> print(Checkpoint("there/is/none", weight=[Tensor([1.0])]).load())
        None
        """
        if not self.path.exists():
            return None
        arrays, metadata = safetensors.read(self.path)
        if _KEY not in metadata:
            raise ArgumentError(f"Checkpoint.load: {self.path} holds no run, only tensors")
        header = json.loads(metadata[_KEY])
        if header["version"] not in (_FIRST, _VERSION):
            raise ArgumentError(
                f"Checkpoint.load: {self.path} is of version {header['version']}; this reads "
                f"{_FIRST} and {_VERSION}"
            )
        arrays |= {name: arrays[first] for name, first in header["same"].items()}
        speaking, places = self._places(header, arrays)
        values = {name: fitting(name, place, arrays[name]) for name, place in places.items()}
        plain = {name: _put_together(part, arrays) for name, part in header["plain"].items()}
        _tell(speaking, plain)
        if places:
            load_state_dict(places, values)
        notes: dict[str, Any] = header["notes"]
        return notes

    def _pieces(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What speaks for itself, each once, and all other tensors, by their paths."""
        speaking: dict[str, Any] = {}
        tensors: dict[str, Tensor] = {}
        for name, piece in by_name(found_in(self.parts, "", _is_kept)).items():
            if isinstance(piece, Tensor):
                tensors[name] = piece
            elif not any(piece is each for each in speaking.values()):
                speaking[name] = piece
        return speaking, tensors

    def _check_parts(self) -> None:
        """ArgumentError for a part, as a number or an array, of which nothing would be kept."""
        for name, part in self.parts.items():
            is_empty = isinstance(part, (list, tuple, dict)) and not part
            if not is_empty and next(found_in(part, "", _is_kept), None) is None:
                raise ArgumentError(
                    f"Checkpoint.save: {name!r} of type {type(part).__name__} holds no tensors, "
                    "and has no state_dict; legal are parts that do, and save(name=value) for "
                    "numbers, strings, and lists and dicts of them"
                )

    def _places(
        self, header: dict[str, Any], arrays: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What to tell its state, and the tensors to put values into."""
        if header["version"] == _FIRST:
            speaking = {n: part for n, part in self.parts.items() if n in header["plain"]}
            rest = {n: part for n, part in self.parts.items() if n not in speaking}
            places = get_state_dict(rest)
        else:
            speaking, places = self._pieces()
        told = set(_named_in(header["plain"]))
        own = speaking.keys() | places.keys()
        known = header["plain"].keys() | (arrays.keys() - told)
        if own != known:
            missing, extra = sorted(own - known), sorted(known - own)
            raise ArgumentError(
                f"Checkpoint.load: {self.path} lacks {missing[:5]} and has {extra[:5]} besides; "
                "legal is the run that was saved"
            )
        _check_ties(places, header["same"])
        return speaking, places


def _check_ties(places: dict[str, Tensor], same: dict[str, str]) -> None:
    """ArgumentError if one tensor would get the values of several."""
    first: dict[int, str] = {}
    for name, place in places.items():
        other = first.setdefault(id(place), name)
        if same.get(name, name) != same.get(other, other):
            raise ArgumentError(
                f"Checkpoint.load: {other} and {name} are one tensor, and two in the file; legal "
                "is the run that was saved"
            )


def _tell(parts: dict[str, Any], states: dict[str, Any]) -> None:
    """Gives each part that speaks its state. If one refuses, all get back those they had."""
    before: dict[str, tuple[tuple[Any, dict[str, Any]], dict[str, Any]]] = {}
    try:
        for name, state in states.items():
            before[name] = _copied(parts[name].state_dict()), _plain_in(parts[name])
            parts[name].load_state_dict(state)
    except BaseException:
        for name, (was, held) in before.items():
            if not _are_same(was, _copied(parts[name].state_dict())):
                parts[name].load_state_dict(_put_together(*was))
            if held:
                vars(parts[name]).update(held)
        raise


def _plain_in(part: Any) -> dict[str, Any]:
    """What a part holds that can't have changed in place: a loader's next epoch, which it doesn't
    speak of."""
    held = getattr(part, "__dict__", {})
    return {name: x for name, x in held.items() if x is None or isinstance(x, (int, float, str))}


def _speaks(part: Any) -> bool:
    """Whether a part says itself what its state is."""
    both = (getattr(part, name, None) for name in ("state_dict", "load_state_dict"))
    return not isinstance(part, type) and all(map(callable, both))


print_as_described([Checkpoint])


def _is_kept(part: Any) -> bool:
    return isinstance(part, Tensor) or _speaks(part)


_TENSOR = "tensor of the file"


def _taken_apart(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A nested state with its tensors put into `tensors`, and their names where they were."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {_TENSOR: name}
    if isinstance(value, dict):
        return {key: _taken_apart(v, f"{name}.{key}", tensors) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_taken_apart(v, f"{name}.{i}", tensors) for i, v in enumerate(value)]
    return value


def _check_keys(value: Any, name: str) -> None:
    """ArgumentError for keys that JSON would turn into strings."""
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise ArgumentError(
                f"Checkpoint.save: {name}: a dict with the key {wrong[0]!r}; legal are strings"
            )
        for key, part in value.items():
            _check_keys(part, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            _check_keys(part, f"{name}.{i}")


def _named_in(value: Any) -> Iterator[str]:
    """The tensors of the file that are named in a nested state."""
    if isinstance(value, dict) and _TENSOR in value:
        yield value[_TENSOR]
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _named_in(part)


def _copied(state: Any) -> tuple[Any, dict[str, Any]]:
    """A nested state taken apart, and its tensors as arrays that nobody else writes."""
    tensors: dict[str, Tensor] = {}
    plain = _taken_apart(state, "", tensors)
    return plain, {name: tensor.numpy().copy() for name, tensor in tensors.items()}


def _are_same(was: tuple[Any, dict[str, Any]], now: tuple[Any, dict[str, Any]]) -> bool:
    """Bit for bit."""
    return was[0] == now[0] and all(
        array.tobytes() == now[1][name].tobytes() for name, array in was[1].items()
    )


def _put_together(value: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        if _TENSOR in value:
            return Tensor(arrays[value[_TENSOR]]).realize()
        return {name: _put_together(part, arrays) for name, part in value.items()}
    if isinstance(value, list):
        return [_put_together(part, arrays) for part in value]
    return value
