"""What the tests of files share."""

import pytest

from tinygrad import Device


@pytest.fixture
def on_the_cpu(monkeypatch):
    """A device that addresses the host's memory, whatever DEV says."""
    monkeypatch.setattr(Device, "DEFAULT", "CPU")
