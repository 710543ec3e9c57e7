"""The devices of this process: opened when first used, each with its memory and loaded kernels."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from tinygrad.backends import canonicalize, default_device, known, open_device
from tinygrad.backends.interface import Backend, Compiler, Renderer
from tinygrad.base.errors import ArgumentError, DeviceError, OutOfMemory, TinygradError
from tinygrad.base.target import Target
from tinygrad.engine.cache import KindCache, disk_cache
from tinygrad.engine.profile import show_device


@dataclass(frozen=True)
class Telling:
    """`with` it, what a driver raises in its own words becomes a DeviceError that names the device
    and what was being done. Other devices go on."""

    device: str
    doing: str

    def __enter__(self) -> None:
        """Nothing: it costs a tenth of a microsecond where all goes well."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, TinygradError):
            name = type(error).__name__  # of any library: pyopencl has a MemoryError of its own
            raise (OutOfMemory if name == "MemoryError" else DeviceError)(
                f"device {self.device}: {self.doing}: {error or name}; what it holds may be lost, "
                "other devices go on"
            ) from error


@dataclass(eq=False)
class OpenDevice:
    """One open device. `kernels` knows what plans hold, by kernel key."""

    name: str
    backend: Backend
    kernels: WeakValueDictionary[str, Any] = field(default_factory=WeakValueDictionary)

    def synchronize(self) -> None:
        """Waits until everything that was started has finished."""
        try:
            self.backend.queue.synchronize()
        except Exception:
            with Telling(self.name, "waiting for its kernels"):
                raise

    @functools.cached_property
    def is_addressable(self) -> bool:
        """Whether the host can use its memory where it is, and it the host's."""
        return self.backend.memory.borrow(memoryview(bytearray(1))) is not None

    @property
    def target(self) -> Target:
        return self.backend.target

    @property
    def renderer(self) -> Renderer:
        return self.backend.renderer

    @property
    def compiler(self) -> Compiler:
        return self.backend.compiler


class Devices:
    """`Device[name]` opens a device, `Device.DEFAULT` is where tensors go that name none."""

    def __init__(self) -> None:
        self._open: dict[str, OpenDevice] = {}
        self._default: str | None = None

    @property
    def DEFAULT(self) -> str:  # noqa: N802  tinygrad's name
        """The device of tensors that name none; from the environment, else CPU. Can be set."""
        if self._default is None:
            self._default = canonicalize(default_device())
        return self._default

    @DEFAULT.setter
    def DEFAULT(self, name: str) -> None:  # noqa: N802
        self._default = canonicalize(name)

    @property
    def default(self) -> OpenDevice:
        """The open default device."""
        return self[self.DEFAULT]

    def canonicalize(self, name: Any) -> Any:
        """The one spelling of a device's name: `cpu:0` is `CPU`; None is the default. Of several
        names those of each, of a tuple of one that one. DeviceError, with the devices that there
        are, for one without a backend; ArgumentError for a device that stands twice."""
        if not isinstance(name, (tuple, list)):
            return self.DEFAULT if name is None else known(name)
        names = tuple(known(each) for each in name)
        if len(set(names)) < len(names) or not names:
            raise ArgumentError(f"device {names}; legal are one or more devices, each once")
        return names if len(names) > 1 else names[0]

    def __getitem__(self, name: str) -> OpenDevice:
        device = self._open.get(name)
        if device is None:
            name = canonicalize(name)
            if name.startswith("DISK:"):  # as many as there are files: none is remembered
                return OpenDevice(name, open_device(name))
            device = self._open.get(name) or self._start(name)
        return device

    def _start(self, name: str) -> OpenDevice:
        device = self._open[name] = OpenDevice(
            name, open_device(name, KindCache(disk_cache(), "object"))
        )
        show_device(name, device.target)
        return device

    def opened(self) -> list[OpenDevice]:
        """All that are open."""
        return list(self._open.values())


Device = Devices()
