"""EVERY=3: of the cases of each test only the first and then every third, for devices whose
compiler is slow. On a device without values (Target.numerics) a test only must come to its end."""

import os
from collections import Counter

import pytest

from tinygrad.engine.devices import Device


def pytest_collection_modifyitems(config, items):
    every = int(os.environ.get("EVERY", "1"))
    seen: Counter[str] = Counter()
    dropped = []
    for item in list(items):
        name = item.nodeid.partition("[")[0]
        if "/tensor/" in name and seen[name] % every:
            items.remove(item)
            dropped.append(item)
        seen[name] += 1
    config.hook.pytest_deselected(items=dropped)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Where nothing is computed zeros are wrong, and a CHECK fails never: both are no news. Kernels
    that can't be made are, and shapes and dtypes (`check.Unlike`)."""
    try:
        return (yield)
    except (AssertionError, pytest.fail.Exception):
        if Device.default.target.numerics.values:
            raise
        return True
