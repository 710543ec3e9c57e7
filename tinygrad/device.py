"""A face, as programs import it: the devices and buffers of `engine`."""

from tinygrad.engine.devices import Device
from tinygrad.engine.storage import Buffer

__all__ = ["Buffer", "Device"]
