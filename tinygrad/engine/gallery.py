"""Kernels kept as text (CAPTURE_KERNELS), so that another version of this package can make them
again and see what it does otherwise (`tools/replay.py`).

A picture is the kernel before its recipe, the Target and the settings that it was made for, and the
source of each phase. It says nothing of how it is made: both versions only need to read `uop/text`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tinygrad.base.settings import NOOPT, Context
from tinygrad.base.target import Numerics, Target
from tinygrad.codegen.pipeline import Lowered
from tinygrad.engine.cache import write_whole
from tinygrad.engine.devices import OpenDevice
from tinygrad.engine.recipes import lower_kernel
from tinygrad.uop.node import UOp
from tinygrad.uop.text import dump, parse

Picture = Mapping[str, Any]


def capture_kernel(ast: UOp, lowered: Lowered, device: OpenDevice, folder: Path) -> None:
    """Writes the kernel's picture, once for each Target and NOOPT; completely or not at all."""
    target = device.target
    facts = ast.key + repr((target.device, target.key(), NOOPT.value)).encode()
    path = folder / f"{hashlib.sha256(facts).hexdigest()[:32]}.json"
    if path.exists():
        return
    picture = {
        "kernel": dump(ast),
        "target": asdict(target),
        "noopt": NOOPT.value,
        "sources": sources(lowered, device),
    }
    if not write_whole(path, json.dumps(picture, default=sorted).encode()):
        raise OSError(f"CAPTURE_KERNELS: nothing can be written to {folder}")


def sources(lowered: Lowered, device: OpenDevice) -> dict[str, str]:
    """Each phase's source by its name."""
    return {
        phase.name: device.renderer.render(phase.name, phase.program) for phase in lowered.phases
    }


def made_again(picture: Picture, device: OpenDevice) -> dict[str, str]:
    """The kernel of a picture, compiled by today's code for the Target in the picture. ValueError
    if its text is not a graph."""
    ast, target = parse(picture["kernel"]), read_target(picture["target"])
    then = OpenDevice(device.name, replace(device.backend, target=target))
    with Context(NOOPT=picture["noopt"]):
        return sources(lower_kernel(ast, then)[0], then)


def read_target(facts: Picture) -> Target:
    """A Target from its fields; fields that no longer exist are ignored."""
    plain = Target("")
    given = {name: value for name, value in facts.items() if name in plain.__dict__}
    for name, value in given.items():
        if isinstance(value, list):  # JSON has neither sets nor tuples
            given[name] = type(getattr(plain, name))(value)
    numerics = facts.get("numerics", {})
    known = {k: v for k, v in numerics.items() if k in plain.numerics.__dict__}
    return Target(**{**given, "numerics": Numerics(**known)})
