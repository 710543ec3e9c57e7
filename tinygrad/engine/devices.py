"""The devices of this process: opened when first used, each with its memory and loaded kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from tinygrad.backends import EMPTY, canonicalize, default_device, known, open_device
from tinygrad.backends.interface import Backend, Compiler, Renderer
from tinygrad.base.errors import ArgumentError, DeviceError, OutOfMemory, TinygradError
from tinygrad.base.helpers import once
from tinygrad.base.settings import BACKEND, DEV, DEVICE_NAMES
from tinygrad.base.target import Target
from tinygrad.engine.cache import KindCache, disk_cache
from tinygrad.engine.profile import show_device
from tinygrad.engine.turns import preparing


@dataclass(frozen=True)
class Telling:
    """A context in which a driver's exceptions become DeviceErrors that name the device and the
    action. Other devices go on."""

    device: str
    doing: str

    def __enter__(self) -> None:
        """Does nothing: entering costs a tenth of a microsecond."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, TinygradError):
            name = type(error).__name__  # from any library: pyopencl has a MemoryError of its own
            raise (OutOfMemory if name == "MemoryError" else DeviceError)(
                f"device {self.device}: {self.doing}: {error or name}; what it holds may be lost, "
                "other devices go on"
            ) from error


@dataclass(eq=False)
class OpenDevice:
    """One open device. `kernels` holds, by kernel key, the kernels that plans use."""

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

    @once
    def is_addressable(self) -> bool:
        """Whether the host can use the device's memory in place, and the device the host's."""
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
    """`Device[name]` opens a device; `Device.DEFAULT` is the device of tensors that name none.

    >>> Device["cpu:0"] is Device["CPU"]
    True
    """

    def __init__(self) -> None:
        self._open: dict[str, OpenDevice] = {}
        self._asked: dict[str, str] = {}  # what a setting says → the device

    @property
    def DEFAULT(self) -> str:  # noqa: N802  tinygrad's name
        """The device of tensors that name none: from the environment or a Context, else CPU. Can be
        set, inside of a Context until that ends.

        >>> Device.DEFAULT == Device.canonicalize(None)
        True
        """
        said = DEV.value or BACKEND.value
        if said not in self._asked:
            self._asked[said] = default_device()
        return self._asked[said]

    @DEFAULT.setter
    def DEFAULT(self, name: str) -> None:  # noqa: N802
        DEV.value = canonicalize(name)

    @property
    def default(self) -> OpenDevice:
        """The open default device.

        >>> Device.default.name == Device.DEFAULT
        True
        """
        return self[self.DEFAULT]

    def canonicalize(self, name: Any) -> Any:
        """The canonical form of a device's name: `cpu:0` is `CPU`; None is the default. For several
        names it is a tuple, for a tuple of one that one. DeviceError, which lists the devices, for
        one without a backend; ArgumentError for a device that is named twice, or holds nothing
        beside others.

        >>> Device.canonicalize("cpu:0"), Device.canonicalize(("cpu:1", "cpu"))
        ('CPU', ('CPU:1', 'CPU'))
        """
        if not isinstance(name, (tuple, list)):
            return self.DEFAULT if name is None else known(name)
        names = tuple(known(each) for each in name)
        if len(set(names)) < len(names) or not names:
            raise ArgumentError(f"device {names}; legal are one or more devices, each once")
        if 0 < sum(name.partition(":")[0] in EMPTY for name in names) < len(names):
            raise ArgumentError(
                f"device {names}: {', '.join(sorted(EMPTY))} runs nothing, so its part of a value "
                "would be zeros; legal are devices that compute, or such devices only"
            )
        return names if len(names) > 1 else names[0]

    def __getitem__(self, name: str) -> OpenDevice:
        device = self._open.get(name)
        if device is None:
            name = canonicalize(name)
            if name.startswith("DISK:"):  # there are as many as files, so none is remembered
                return OpenDevice(name, open_device(name))
            with preparing.now:
                device = self._open.get(name) or self._start(name)
        return device

    def _start(self, name: str) -> OpenDevice:
        device = self._open[name] = OpenDevice(
            name, open_device(name, KindCache(disk_cache(), "object"))
        )
        show_device(name, device.target)
        return device

    def get_available_devices(self) -> Iterator[str]:
        """The devices that open here, each when it is asked for.

        >>> "CPU" in Device.get_available_devices()
        True
        """
        for name in DEVICE_NAMES:
            with contextlib.suppress(DeviceError):
                yield self[name].name

    def opened(self) -> list[OpenDevice]:
        """All devices that are open.

        >>> Device["CPU"] in Device.opened()
        True
        """
        return list(self._open.values())


Device = Devices()
