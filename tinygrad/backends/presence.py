"""Whether a device is still there for this process. Every driver says in its own way that it is
not; what users read, and that nothing is sent to it from then on, is the same for all."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from tinygrad.base.errors import DeviceError


@dataclass
class Presence:
    """A device by the name that users know, and why it is lost, once it is."""

    label: str
    lost: str = ""
    process: int = field(default_factory=os.getpid)

    def check(self) -> None:
        """DeviceError on a lost device, or in a forked child: a driver's threads don't survive a
        fork, so a child would wait for them for ever."""
        if os.getpid() != self.process:
            raise DeviceError(
                f"device {self.label}: this process was forked after the device was opened; legal "
                "are multiprocessing's start method 'spawn', or opening the device in the child "
                "only"
            )
        if self.lost:
            raise DeviceError(f"device {self.label} is lost: {self.lost}; start the program again")
