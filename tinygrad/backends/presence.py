"""Whether a device is still there for this process. Every driver says in its own way that it is
not; what users read, and that nothing is sent to it from then on, is the same for all. So is the
patience with one that computes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tinygrad.base.errors import DeviceError
from tinygrad.base.settings import SETTINGS

LONGEST = 1e-3  # seconds between two looks


def wait_until(is_done: Callable[[], bool], label: str) -> None:
    """Polls until a device is done, instead of waiting in its driver, so that Ctrl-C works while a
    kernel runs; the longer it takes, the less often it polls. DeviceError after DEVICE_TIMEOUT."""
    limit, start = SETTINGS["DEVICE_TIMEOUT"].value, time.monotonic()
    while not is_done():
        passed = time.monotonic() - start
        if limit and passed > limit:
            raise DeviceError(
                f"device {label}: its kernels have run for {limit} s (DEVICE_TIMEOUT) and are not "
                "done; it can't be used before they are, other devices can"
            )
        time.sleep(min(passed / 50, LONGEST))


@dataclass
class Presence:
    """A device's name as users know it, and the reason why it is lost, once it is."""

    label: str
    lost: str = ""
    process: int = field(default_factory=os.getpid)

    @property
    def is_there(self) -> bool:
        """Whether the device can be asked anything, from this process."""
        return not self.lost and os.getpid() == self.process

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
