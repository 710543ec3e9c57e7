"""Every setting of the package: one table. A setting is an environment variable, and `Context`
changes it for a while. Reading one costs an attribute access, so hot paths may."""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tinygrad.base.endings import Action, Ending, call
from tinygrad.base.errors import ArgumentError, DeviceError


@dataclass(frozen=True)
class Row:
    """One row of the table. `effect` False: the setting is accepted for programs that use it, but
    any other value than the default has no effect, which is a warning."""

    name: str
    default: int | str
    meaning: str
    effect: bool = True


TABLE = (
    Row("DEBUG", 0, "1 devices · 2 each kernel · 3 recipe · 4 source · 5 graph · 6 linear · 7 asm"),
    Row("DEV", "", "the default device: CPU, CL, PYTHON, ... (also CL=1); wins over BACKEND"),
    Row("BACKEND", "", "another name of DEV; wins over CL=1 and the like"),
    Row("NOOPT", 0, "1: no recipe, the plain loops"),
    Row("BEAM", 0, "n: search each kernel's recipe, n kept a round; see docs/recipes.md"),
    Row("IGNORE_BEAM_CACHE", 0, "1: search again"),
    Row("RECIPES", "", "folder of pinned recipes: <kernel id>.recipe, see docs/recipes.md"),
    Row(
        "CAPTURE_KERNELS", "", "folder: kernels as they are made, with source; see tools/replay.py"
    ),
    Row("SPEC", 0, "1: verify every graph; scratch memory begins as NaNs, so a stray read shows"),
    Row("JIT", 1, "0: TinyJit calls its function each time"),
    Row(
        "CACHELEVEL", 2, "the disk has 0: nothing · 1: compiled code · 2: plans too; memory has all"
    ),
    Row("TINYGRAD_CACHE", "", "folder of the disk cache; empty: the user's cache folder"),
    Row("CACHE_LIMIT_MB", 512, "the disk cache is kept under this size"),
    Row("CPU_COUNT", 0, "threads of the CPU device; 0: all cores"),
    Row("CPU_WITHOUT", "", "processor features not to use, by prefix: avx512 · avx512,vaes · avx"),
    Row("CUDA_WITHOUT", "", "features of a card not to use, the same way: wgmma,box_copy · mma"),
    Row("ALLOW_TF32", 0, "1: a card multiplies float32 with mantissas of 10 bits, by its units"),
    Row("DEVICE_TIMEOUT", 0, "seconds to wait for kernels of a device; 0: as long as it takes"),
    Row("TRAINING", 0, "1: dropout drops and batch norm learns; also Tensor.train()"),
    Row("ANY_SIZE", 0, "1: one plan where the sizes in a loop change each turn"),
    Row("FUSE_OPS", 400, "a kernel holds at most about this many operations"),
    Row(
        "RING", 1, "sums over several devices go 0: in trees · 1: large ones around rings · 2: all"
    ),
    Row("RING_BYTES", 1 << 18, "what is large, of three devices or more"),
    Row("DEFAULT_FLOAT", "float32", "dtype of float literals and random numbers, from the start"),
    Row("DEFAULT_INT", "int32", "dtype of int literals, from the start"),
    Row("LRU", 1, "0: freed buffers go back to the system at once"),
    Row("TRACEMETA", 1, "0: don't remember the user's source lines"),
    Row("VIZ", 0, "1: when the program ends, a page with every stage of what it computed"),
    Row("CHECK_OOB", 0, "indices are always checked, where bounds don't prove them", effect=False),
    Row("IMAGE", 0, "buffers are never image textures", effect=False),
    Row("PROFILE", 0, "DEBUG=2 tells the time of every kernel", effect=False),
    Row("TRANSCENDENTAL", 1, "sin, exp2 and log2 are always our own, to a few ulp", effect=False),
)


def parse(text: str, default: int | str) -> int | str:
    """An environment string, converted to the type of the default."""
    if isinstance(default, str):
        return text
    return int(float(text)) if text else 0


class ContextVar:
    """One setting: it compares, adds and tests like its value.

    >>> DEBUG >= 9
    False
    """

    _all: ClassVar[dict[str, ContextVar]] = {}
    name: str
    value: Any  # the last of what is said
    said: dict[object, Any]  # outside of any `with`, and by each that lasts, in order

    def __new__(cls, key: str, default_value: int | str) -> ContextVar:
        if key in cls._all:
            return cls._all[key]
        made = cls._all[key] = super().__new__(cls)
        made.name, text, made.said = key, os.environ.get(key, str(default_value)), {None: None}
        try:
            made.value = parse(text, default_value)
        except (ValueError, OverflowError):
            raise ArgumentError(f"the environment says {key}={text}; legal are numbers") from None
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "value" and len(self.said) == 1:
            self.said[None] = value

    def say(self, action: Callable[..., Any], *args: Any) -> list[Action]:
        """What changes `said` by `action`, and then the value to the last that is said. Those of
        several threads may end in any order.

        >>> before, mine = DEBUG.value, object()
        >>> begin, end = DEBUG.say(dict.__setitem__, mine, 2), DEBUG.say(dict.pop, mine)
        >>> _ = [*map(call, begin)]; DEBUG.value
        2
        >>> _ = [*map(call, end)]; DEBUG.value == before
        True
        """
        last = map(next, map(reversed, map(dict.values, [self.said])))
        told = map(vars(self).__setitem__, ["value"], last)
        return [functools.partial(action, self.said, *args), functools.partial(next, told)]

    def __repr__(self) -> str:
        return f"ContextVar({self.name!r}, {self.value!r})"

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __ge__(self, other: Any) -> bool:
        return bool(self.value >= other)

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > other)

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < other)

    def __le__(self, other: Any) -> bool:
        return bool(self.value <= other)


def tell_of_idle(name: str, value: object) -> None:
    """Warns if someone sets a setting that has no effect."""
    row = _IDLE.get(name)
    if row is not None and value != row.default:
        warnings.warn(f"{name}={value} has no effect: {row.meaning}", stacklevel=3)
    elif name in FROM_THE_START:
        legal = f"it was read at the import; legal is to assign dtypes.{name.lower()}"
        warnings.warn(f"{name}={value} has no effect: {legal}", stacklevel=3)


_IDLE = {row.name: row for row in TABLE if not row.effect}
FROM_THE_START = ("DEFAULT_FLOAT", "DEFAULT_INT")
SETTINGS: Mapping[str, ContextVar] = {row.name: ContextVar(row.name, row.default) for row in TABLE}
for _name in _IDLE:
    tell_of_idle(_name, SETTINGS[_name].value)

DEBUG = SETTINGS["DEBUG"]
DEV, BACKEND = SETTINGS["DEV"], SETTINGS["BACKEND"]
NOOPT = SETTINGS["NOOPT"]
BEAM = SETTINGS["BEAM"]
IGNORE_BEAM_CACHE = SETTINGS["IGNORE_BEAM_CACHE"]
RECIPES = SETTINGS["RECIPES"]
CAPTURE_KERNELS = SETTINGS["CAPTURE_KERNELS"]
SPEC = SETTINGS["SPEC"]
JIT = SETTINGS["JIT"]
CACHELEVEL = SETTINGS["CACHELEVEL"]
CACHE_FOLDER = SETTINGS["TINYGRAD_CACHE"]
CACHE_LIMIT_MB = SETTINGS["CACHE_LIMIT_MB"]
TRAINING = SETTINGS["TRAINING"]
ANY_SIZE = SETTINGS["ANY_SIZE"]
FUSE_OPS = SETTINGS["FUSE_OPS"]
RING = SETTINGS["RING"]
RING_BYTES = SETTINGS["RING_BYTES"]
TRACEMETA = SETTINGS["TRACEMETA"]
VIZ = SETTINGS["VIZ"]


class Context(contextlib.ContextDecorator, Ending):
    """`with Context(DEBUG=2): ...` or `@Context(TRAINING=1)`: temporary settings.

    KeyError, which lists the settings, for an unknown name; a warning for one without effect.

    >>> with Context(BEAM=2):
    ...     BEAM.value
    2
    """

    def __init__(self, **values: int | str) -> None:
        unknown = [name for name in values if name not in ContextVar._all]
        if unknown:
            known = ", ".join(sorted(ContextVar._all))
            raise KeyError(f"no setting {', '.join(unknown)}; there are {known}")
        for name, value in values.items():
            if isinstance(ContextVar._all[name].value, int) and not isinstance(value, int):
                raise TypeError(f"Context: {name}={value!r}; legal is a whole number")
            tell_of_idle(name, value)
        self.values = values

    def _recreate_cm(self) -> Context:  # of a decorated function each call, in any thread
        return Context(**self.values)

    def __enter__(self) -> Context:
        begin: list[Action] = []
        end: list[Action] = []
        this = object()
        for name, value in self.values.items():
            var = ContextVar._all[name]
            begin += var.say(dict.__setitem__, this, value)
            end += var.say(dict.pop, this)
        self.at_end(*end)
        [*map(call, begin)]
        return self


def getenv(key: str, default: Any = 0) -> Any:
    """The environment variable `key`, converted to the type of `default`.

    >>> getenv("A_SETTING_OF_NO_ONE", 3)
    3
    """
    return type(default)(os.environ.get(key, default))


def requested_device() -> str:
    """The device that the environment selects; empty if it selects none.

    `DEV=CL`, `BACKEND=CL` and `CL=1` all select it; DEV takes precedence over BACKEND, and BACKEND
    over the others. DeviceError if several of the others are set, since any choice would be a
    guess.
    """
    if said := DEV.value or BACKEND.value:
        return str(said)
    values = {name: os.environ.get(name, "0") for name in DEVICE_NAMES}
    for name, value in values.items():
        if value.lower() in ALMOST:
            raise DeviceError(f"the environment says {name}={value}; legal is {name}=1")
    asked = [name for name, value in values.items() if value == "1"]
    if len(asked) > 1:
        both = " and ".join(f"{name}=1" for name in asked)
        raise DeviceError(f"the environment says {both}; legal is one of them, or DEV={asked[0]}")
    return asked[0] if asked else ""


ALMOST = ("y", "yes", "t", "true", "on")  # other words may be other programs'
DEVICE_NAMES = (
    *("CPU", "CL", "GPU", "CUDA", "NV", "METAL", "AMD", "HIP", "QCOM", "WEBGPU"),
    *("CLANG", "LLVM", "PYTHON", "NULL", "NPY"),  # by how it computes, not where
)
