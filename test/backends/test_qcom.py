"""The QCOM device on an OpenCL that calls PoCL's processor an Adreno."""

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.backends import open_device, why_absent
from tinygrad.backends.cl import device as cl_device
from tinygrad.base.errors import DTypeError


class Adreno:
    """PoCL's device, but for its names and what an Adreno lacks."""

    vendor, name = "QUALCOMM", "QUALCOMM Adreno(TM) 740"
    double_fp_config = 0
    max_work_group_size = 4096
    local_mem_size = 1 << 20

    def __init__(self, device):
        self.device = device
        self.extensions = "cl_khr_byte_addressable_store"

    def __getattr__(self, name):
        return getattr(self.device, name)


class OpenCL:
    """pyopencl, which is handed an Adreno and takes PoCL's device."""

    def __init__(self, cl):
        self.cl = cl

    def __getattr__(self, name):
        return getattr(self.cl, name)

    def Context(self, devices):  # noqa: N802
        return self.cl.Context(devices)  # those of Adreno's platform, which are PoCL's

    def CommandQueue(self, context, device, *flags):  # noqa: N802
        return self.cl.CommandQueue(context, device.device, *flags)

    def Program(self, context, *given):  # noqa: N802
        if len(given) == 2:
            given = [each.device for each in given[0]], given[1]
        return Program(self.cl.Program(context, *given))


class Program:
    """One that is built for an Adreno."""

    def __init__(self, program):
        self.program = program

    def __getattr__(self, name):
        return getattr(self.program, name)

    def build(self, devices, **more):
        return self.program.build(devices=[each.device for each in devices], **more)


@pytest.fixture
def adreno(monkeypatch):
    cl, found = cl_device.find_devices()
    both = OpenCL(cl), [*found, Adreno(found[0])]
    monkeypatch.setattr(cl_device, "find_devices", lambda name: both)


def test_an_adreno_is_found_by_its_maker_and_described_by_its_row(adreno):
    target = open_device("QCOM").target
    assert (target.device, target.cpu) == ("QCOM", "QUALCOMM Adreno(TM) 740")
    assert (target.group_limit, target.local_memory) == (1024, 32 << 10)
    assert "float64" not in target.dtypes | target.storage_dtypes
    assert "int64" in target.dtypes and target.has_groups
    assert why_absent("QCOM:1") == "device QCOM:1: there are QCOM:0 (QUALCOMM Adreno(TM) 740)"


def test_tensors_compute_there(adreno):
    a, b = np.random.rand(17, 9).astype(np.float32), np.random.rand(9, 5).astype(np.float32)
    x, y = Tensor(a, device="QCOM"), Tensor(b, device="QCOM")
    np.testing.assert_allclose((x @ y).numpy(), a @ b, rtol=1e-5)
    np.testing.assert_allclose(x.softmax().numpy(), Tensor(a).softmax().numpy(), rtol=1e-5)
    with pytest.raises(DTypeError, match="float64: device QCOM"):
        (Tensor([1.0], dtype="float64", device="QCOM") * 2).numpy()


def test_without_an_adreno_a_sentence_says_so():
    words = "device QCOM:0: there are no OpenCL drivers of Qualcomm's, but "
    assert why_absent("QCOM").startswith(words)
