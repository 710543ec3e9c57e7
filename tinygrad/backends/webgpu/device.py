"""Finds an adapter, opens it with all that it can, and describes it."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from tinygrad.backends.presence import Presence
from tinygrad.base.errors import DeviceError, OutOfMemory
from tinygrad.base.target import ORDINARY, Numerics, Target

DRIVERS = ("Vulkan", "Metal", "DX12")  # of wgpu's; OpenGL's lacks what we need
NARROW = ("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float32")
NATIVE = ORDINARY | {"TRUNC", "ROUND", "RECIP"}
NUMERICS = Numerics(nan=False, exact_division=False, subnormals=False, fused_multiply_add=False)
SUBGROUPS = {"subgroup", "subgroups"}  # in wgpu's own words, or the standard's
FEATURES = ("shader-f16", "timestamp-query", *SUBGROUPS)
LANES = tuple(f"max-compute-{what}" for what in ("invocations-per-workgroup", "workgroup-size-x"))
LIMITS = (
    *("max-buffer-size", "max-storage-buffer-binding-size"),
    *("max-storage-buffers-per-shader-stage", "max-compute-workgroup-storage-size"),
    *(*LANES, "max-compute-workgroup-size-y", "max-compute-workgroup-size-z"),
    *("max-compute-workgroups-per-dimension", "min-storage-buffer-offset-alignment"),
    "min-uniform-buffer-offset-alignment",
)


@dataclass(frozen=True)
class Connection:
    """One open device."""

    wgpu: ModuleType
    opened: Any
    target: Target
    presence: Presence = field(default_factory=lambda: Presence("WEBGPU"))
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def device(self) -> Any:
        """wgpu's device; DeviceError in a forked child, whom the driver's threads didn't follow."""
        self.presence.check()
        return self.opened

    @property
    def limits(self) -> Any:
        return self.opened.limits

    @contextlib.contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Turns errors of the driver into ours, which say in which operation: `what`. Only one
        thread at a time is inside, so that a segment's bindings stay its own until it is
        submitted."""
        try:
            with self.lock:
                yield
        except self.wgpu.GPUOutOfMemoryError as error:
            raise OutOfMemory(f"{what} on WEBGPU: {error}") from error
        except (self.wgpu.GPUError, RuntimeError) as error:
            if isinstance(error, DeviceError):
                raise
            if "lost" in str(error):
                self.presence.lost = " ".join(str(error).split())
            raise DeviceError(f"{what} on WEBGPU: {error}") from error


def connect(index: int) -> Connection:
    """Adapter number `index` of this machine."""
    wgpu, adapters = find_adapters()
    if index >= len(adapters):
        there = ", ".join(f"WEBGPU:{i} ({a.info['device']})" for i, a in enumerate(adapters))
        raise DeviceError(f"device WEBGPU:{index}: there are {there}")
    adapter = adapters[index]
    features = [name for name in FEATURES if name in adapter.features]
    limits = {name: adapter.limits[name] for name in LIMITS}
    try:
        device = adapter.request_device_sync(required_features=features, required_limits=limits)
    except (wgpu.GPUError, RuntimeError) as error:
        raise DeviceError(f"device WEBGPU: {adapter.info['device']} refused ({error})") from error
    return Connection(wgpu, device, describe(adapter))


@functools.cache
def find_adapters() -> tuple[ModuleType, list[Any]]:
    """wgpu, and all adapters: those that are not this machine's processor first."""
    # Mesa's layer that sorts cards by what the screen uses complains where there is no screen
    os.environ.setdefault("NODEVICE_SELECT", "1")
    try:
        import wgpu
        from wgpu.backends.wgpu_native import extras
    except ImportError as error:
        needed = f"device WEBGPU needs wgpu: pip install 'tinygrad[webgpu]' ({error})"
        raise DeviceError(needed) from error
    with contextlib.suppress(RuntimeError):  # somebody else was first: then all drivers are there
        extras.set_instance_extras(backends=DRIVERS)
    found, reason = [], "there is no adapter"
    try:
        found = wgpu.gpu.enumerate_adapters_sync()
    except (wgpu.GPUError, RuntimeError) as error:
        reason = str(error)
    found = [each for each in found if each.info["backend_type"] in ("Vulkan", "Metal", "D3D12")]
    if not found:
        raise DeviceError(
            f"device WEBGPU: no driver answers ({reason}); install the vendor's for Vulkan, or "
            "Mesa's for the processor (Debian: apt-get install mesa-vulkan-drivers)"
        )
    return wgpu, sorted(found, key=lambda adapter: adapter.info["adapter_type"] == "CPU")


def describe(adapter: Any) -> Target:
    """The adapter in our terms. The language promises little of numbers: NaNs may be assumed away,
    quotients and roots be off by some units in the last place, subnormals be 0. How many lanes a
    subgroup has may differ from kernel to kernel: the fewest are sure to be side by side."""
    info, limits = adapter.info, adapter.limits
    dtypes = {*NARROW, "float16"} if "shader-f16" in adapter.features else {*NARROW}
    groups = limits["max-compute-workgroups-per-dimension"]
    # of lanes; the key is spelt in two ways
    smallest = next((n for key, n in info.items() if key.endswith("group_min_size")), 0)
    return Target(
        device="WEBGPU",
        cpu=info["device"],
        features=f"{info['backend_type']} {info['description']}",
        vector=0,
        has_groups=True,
        group_limit=min(limits[name] for name in LANES),
        local_memory=limits["max-compute-workgroup-storage-size"],
        warp=smallest if SUBGROUPS & set(adapter.features) else 0,
        buffer_limit=limits["max-storage-buffers-per-shader-stage"],
        window_limit=limits["max-storage-buffer-binding-size"],
        largest_buffer=limits["max-buffer-size"],
        turn_limit=65_535 if info["device"].startswith("llvmpipe") else 0,  # Mesa's own
        grid_limit=(groups, groups, groups),
        dtypes=frozenset(dtypes),
        storage_dtypes=frozenset((*dtypes, "int64", "uint64", "float64")),
        widest_integer=32,
        native=NATIVE,
        numerics=NUMERICS,
    )
