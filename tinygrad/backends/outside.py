"""Devices that other distributions bring, by an entry point of the group `tinygrad.backends`:

    [project.entry-points."tinygrad.backends"]
    TPU = "my_package.tpu"          # a module with `open_device(index, cache) -> Backend`

The name is what users write (`DEV=TPU`, `.to("tpu:1")`). It can't be one of ours.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tinygrad.backends.interface import Backend
from tinygrad.base.errors import DeviceError

GROUP = "tinygrad.backends"


@functools.cache
def offers() -> dict[str, list[Any]]:
    """The entry points by name, in capitals. They are looked up once in a process, when a name is
    not ours."""
    from importlib.metadata import entry_points  # slow, and most programs don't need it

    found: dict[str, list[Any]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name.upper(), []).append(point)
    return found


def open_outside(name: str, index: int, cache: Any) -> Backend:
    """Opens the device `name` of another distribution; DeviceError, which names the distribution,
    if that fails."""
    points = offers()[name]
    if len(points) > 1:
        raise DeviceError(f"device {name}: offered by {sources(points)}; legal is one of them")
    try:
        loaded = points[0].load()
        backend = getattr(loaded, "open_device", loaded)(index, cache)
    except Exception as error:
        why = str(error) if isinstance(error, DeviceError) else repr(error)
        raise DeviceError(f"device {name}, which is {sources(points)}'s: {why}") from error
    if not isinstance(backend, Backend):
        raise DeviceError(
            f"device {name}, which is {sources(points)}'s: open_device gave {backend!r}; legal is "
            "a tinygrad.backends.interface.Backend"
        )
    return backend


def sources(points: Sequence[Any]) -> str:
    """The distributions of entry points, with their versions."""
    return " and ".join(f"{point.dist.name} {point.dist.version}" for point in points)
