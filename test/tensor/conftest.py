"""EVERY=3: of the cases of each test only the first and then every third, TESTS=2: only every other
test, for devices that are slow. On a device without values (Target.numerics) a test only must come
to its end."""

import os
from collections import Counter

import pytest

from tinygrad.engine.devices import Device


def pytest_collection_modifyitems(config, items):
    tests, every = (int(os.environ.get(name, "1")) for name in ("TESTS", "EVERY"))
    seen: Counter[str] = Counter()
    numbers: dict[str, int] = {}
    kept, dropped = [], []
    for item in items:
        name = item.nodeid.partition("[")[0]
        number = numbers.setdefault(name, len(numbers))
        is_left_out = "/tensor/" in name and (number % tests or seen[name] % every)
        (dropped if is_left_out else kept).append(item)
        seen[name] += 1
    items[:] = kept
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
