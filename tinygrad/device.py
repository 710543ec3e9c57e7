"""A face: devices and their storage under the seeds' path."""

from tinygrad.engine.devices import Device
from tinygrad.engine.storage import Buffer

__all__ = ["Buffer", "Device"]
