"""tinygrad: a deep-learning framework that one person can read to the bottom.

This file is the composition root: it puts the floors together and exports what programs import.
What a program may never need (`nn`, `fetch`, `explain`, `explore`) is imported when it is first
named.
"""

import functools
import importlib
from typing import TYPE_CHECKING, Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.interrupts import keep_interrupts
from tinygrad.base.later import later
from tinygrad.base.settings import VIZ, Context, ContextVar, getenv
from tinygrad.engine.devices import Device
from tinygrad.engine.jit import TinyJit
from tinygrad.engine.profile import GlobalCounters
from tinygrad.engine.storage import realized_buffer
from tinygrad.engine.untold import told
from tinygrad.schedule.shard_rules import axis_of
from tinygrad.tensor.generator import Generator
from tinygrad.tensor.tensor import Tensor
from tinygrad.uop.node import UOp
from tinygrad.uop.services import services
from tinygrad.uop.text import rendered, shown

if TYPE_CHECKING:
    from tinygrad import nn
    from tinygrad.data.download import fetch
    from tinygrad.nn.function import function
    from tinygrad.viz.explain import explain
    from tinygrad.viz.explorer import explore

rules = later("tinygrad.simplify.rules")
services.shown, services.render = shown, rendered
services.simplify = lambda node: rules.simplest(node)
keep_interrupts()
services.size = lambda node: rules.size(node)
services.realized = realized_buffer
services.axis = axis_of
services.told = told
Tensor._namespace = staticmethod(functools.partial(importlib.import_module, "tinygrad.array_api"))

if VIZ:
    importlib.import_module("tinygrad.viz.explorer").explore_at_exit()

Variable = UOp.variable

__version__ = "0.1.0"
__all__ = [
    "Context",
    "ContextVar",
    "Device",
    "Generator",
    "GlobalCounters",
    "Tensor",
    "TinyJit",
    "UOp",
    "Variable",
    "dtypes",
    "explain",
    "explore",
    "fetch",
    "function",
    "getenv",
    "nn",
]

_WHEN_NAMED = {
    "nn": ("tinygrad.nn", None),
    "linalg": ("tinygrad.linalg", None),
    "fft": ("tinygrad.fft", None),
    "fetch": ("tinygrad.data.download", "fetch"),
    "function": ("tinygrad.nn.function", "function"),
    "explain": ("tinygrad.viz.explain", "explain"),
    "explore": ("tinygrad.viz.explorer", "explore"),
}


def __getattr__(name: str) -> Any:
    if name not in _WHEN_NAMED:
        homes = {"Tensor": Tensor, "dtypes": dtypes} if name[0] != "_" else {}
        legal = "".join(f"; legal is {home}.{name}" for home in homes if hasattr(homes[home], name))
        raise AttributeError(f"module 'tinygrad' has no attribute {name!r}{legal}")
    path, attribute = _WHEN_NAMED[name]
    module = importlib.import_module(path)
    found = module if attribute is None else getattr(module, attribute)
    globals()[name] = found
    return found
