"""Tensors on devices that hold bytes and compute nothing: files (DISK) and NumPy's arrays (NPY)."""

import errno
import os
import stat
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tinygrad import Device, Tensor, TinyJit, dtypes
from tinygrad.base.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    FileError,
    JitError,
    OutOfMemory,
    ShapeError,
)
from tinygrad.nn.state import safe_load, safe_save

A = np.arange(24, dtype=np.float32).reshape(4, 6)
COMPUTING = ("CPU", "PYTHON", "CL")
ALL = (*COMPUTING, "NPY")


def named(path):
    return f"disk:{path}"


@pytest.fixture
def path(tmp_path):
    (tmp_path / "numbers").write_bytes(A.tobytes())
    return tmp_path / "numbers"


@pytest.fixture
def t(path):
    return Tensor.empty(4, 6, device=named(path))


def check(tensor, expected):
    np.testing.assert_array_equal(tensor.numpy(), expected)


# ---- reading -------------------------------------------------------------------------------------

VIEWS = {
    "all": lambda a: a,
    "rows": lambda a: a[1:3],
    "a row": lambda a: a[2],
    "an element": lambda a: a[2, 3],
    "columns": lambda a: a[:, 1:4],
    "steps": lambda a: a[::2, 1::3],
    "backwards": lambda a: a[::-1, ::-2],
    "turned": lambda a: a[1:].reshape(3, 2, 3).transpose(0, 2),
    "repeated": lambda a: a[:, None, :1].expand(4, 2, 3),
    "padded": lambda a: a[1:2].pad(((1, 0), (0, 2))),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_read_in_place_and_go_to_every_device(name, t):
    view = VIEWS[name](t)
    expected = VIEWS[name](Tensor(A, device="CPU")).numpy()
    assert view.device.startswith("DISK:")
    check(view, expected)
    for device in ALL:
        there = view.to(device)
        assert there.device == device
        check(there, expected)


@pytest.mark.parametrize("device", COMPUTING)
def test_what_was_read_is_computed_with(device, t):
    np.testing.assert_allclose(
        (t[1:, ::2].to(device) @ Tensor.ones(3, 1, device=device)).numpy(),
        A[1:, ::2].sum(1, keepdims=True),
    )


def test_the_cpu_borrows_the_mapping_and_copies_nothing(t):
    before = Device["CPU"].backend.memory.live
    there = t.to("CPU").realize()
    assert Device["CPU"].backend.memory.live == before
    check(there, A)


def test_a_path_is_its_bytes(path):
    t = Tensor(path)
    assert (t.dtype, t.shape, t.device) == (dtypes.uint8, (96,), f"DISK:{path}")
    check(Tensor(path, dtype="float"), A.ravel())
    check(Tensor(path, device="CPU", dtype="float").reshape(4, 6) + 1, A + 1)


def test_an_empty_file_is_an_empty_tensor(tmp_path):
    (tmp_path / "nothing").touch()
    assert Tensor(tmp_path / "nothing").numpy().shape == (0,)


def test_bitcast_copies_nothing_and_may_begin_anywhere(path):
    raw = Tensor(path)
    check(raw.bitcast("float").reshape(4, 6)[2:], A[2:])
    odd = A.tobytes()[3:11]
    for device in ALL:
        check(raw[3:11].bitcast("int").to(device), np.frombuffer(odd, np.int32))
    check(
        Tensor(path, dtype="float").bitcast("uint8")[:8], np.frombuffer(A.tobytes(), np.uint8)[:8]
    )
    with pytest.raises(DTypeError, match=r"bitcast: .* \(16,\) .*don't lie in a row"):
        raw[::6].bitcast("int")


@pytest.mark.parametrize("device", ("CPU", "CL"))
def test_bitcast_to_another_size_is_the_same_everywhere(device):
    a = np.random.randint(0, 2**31, (3, 4), np.int32)
    t = Tensor(a, device=device)
    for name in ("uint8", "int16", "int64", "float16"):
        kind = np.dtype(name)
        np.testing.assert_array_equal(
            t.bitcast(name).numpy().view(np.uint8), a.view(kind).view(np.uint8)
        )
        check(t.bitcast(name).bitcast("int"), a)


def test_checkpoints_are_read_from_tensors_of_files(tmp_path):
    safe_save({"w": Tensor(A)}, tmp_path / "x.safetensors")
    raw = Tensor(tmp_path / "x.safetensors")
    before = Device["CPU"].backend.memory.live
    found = safe_load(raw)["w"]
    assert Device["CPU"].backend.memory.live == before
    check(found, A)
    check(safe_load(raw.to("CL"))["w"], A)


def test_names_of_the_device_mean_one_file(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    assert Tensor.empty(2, device="disk:numbers").device == f"DISK:{path}"
    assert Device.canonicalize(f"DISK:{path}") == f"DISK:{path}"


# ---- writing -------------------------------------------------------------------------------------


def test_writes_go_to_the_file(t, path):
    now = A.copy()
    t[0, 1:3] = 7
    now[0, 1:3] = 7
    t[:, 5] = Tensor([1.0, 2.0, 3.0, 4.0], device="CL")
    now[:, 5] = [1, 2, 3, 4]
    t[::-2, 0] = np.float32(9)
    now[::-2, 0] = 9
    t[1:3].assign(Tensor(A[:2]) * 2)
    now[1:3] = A[:2] * 2
    check(t, now)
    np.testing.assert_array_equal(np.fromfile(path, np.float32).reshape(4, 6), now)


def test_parts_of_one_file_may_overlap(t):
    t[1:] = t[:-1]
    check(t, A[[0, 0, 1, 2]])


def test_whoever_read_before_a_write_keeps_what_was_there(t):
    borrowed, copied, waiting = t.to("CPU"), t[1:].to("CL"), t.to("CPU") + 1
    other = Tensor.empty(4, 6, device=t.device)
    t.assign(Tensor.zeros(4, 6))
    check(borrowed, A)
    check(copied, A[1:])
    check(waiting, A + 1)
    check(other, np.zeros((4, 6)))
    check(t.to("CPU") + 1, np.ones((4, 6)))


def test_what_is_borrowed_stays_as_it_is_if_nothing_else_is_left_of_the_file(path):
    borrowed = Tensor(path, dtype="float").to("CPU")
    Tensor(path, dtype="float").assign(Tensor.zeros(24))
    check(borrowed, A.ravel())
    check(Tensor(path, dtype="float"), np.zeros(24))


def test_a_tensor_is_saved_whole_or_not_at_all(tmp_path):
    goal = tmp_path / "saved"
    goal.write_bytes(b"older and longer" * 100)
    old = Tensor(goal)
    saved = (Tensor(A) + 1).to(named(goal))
    assert goal.stat().st_size == 1600
    saved.realize()
    np.testing.assert_array_equal(np.fromfile(goal, np.float32), A.ravel() + 1)
    assert old[:5].numpy().tobytes() == b"older"  # who has the old file open keeps it
    assert os.listdir(tmp_path) == ["saved"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(goal.stat().st_mode) == 0o666 & ~umask
    check(saved[1:].to("CL"), A[1:] + 1)


@pytest.mark.parametrize("device", COMPUTING)
def test_every_device_saves(device, tmp_path):
    (Tensor(A, device=device) * 2).to(named(tmp_path / "x")).realize()
    np.testing.assert_array_equal(np.fromfile(tmp_path / "x", np.float32), A.ravel() * 2)


def test_a_new_file_is_zeros(tmp_path):
    t = Tensor.empty(3, dtype="int", device=named(tmp_path / "new"))
    check(t, [0, 0, 0])
    t.assign(Tensor.arange(3))
    check(Tensor(tmp_path / "new", dtype="int"), [0, 1, 2])


def test_from_file_to_file(t, tmp_path):
    t[1:3].to(named(tmp_path / "part")).realize()
    np.testing.assert_array_equal(np.fromfile(tmp_path / "part", np.float32), A[1:3].ravel())


# ---- larger than memory --------------------------------------------------------------------------

HUGE = """
import os, sys
import numpy as np
from tinygrad import Tensor
path, device = sys.argv[1:]
def peak():  # of this process; getrusage would count what its parent had
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
def use(size):
    with open(path, "wb") as file:
        file.truncate(size)
        file.seek(size - 4000)
        file.write(np.arange(1000, dtype=np.float32).tobytes())
    t = Tensor(__import__("pathlib").Path(path)).bitcast("float").reshape(-1, 1 << 20)
    rows = size >> 22
    assert t.shape == (rows, 1 << 20), t.shape
    last = t[-1].to(device)
    assert last[-1000:].sum().item() == 499500.0
    assert t[:, -1].to("CPU")[-1].item() == 999.0
    assert t[::4096, -3:].numpy().sum() == 0
    t[rows // 2, 5:9] = 3
    assert t[rows // 2].to(device).sum().item() == 12.0
    assert os.stat(path).st_blocks * 512 < 1 << 20
use(64 << 20)  # what compilers take isn't the file's
before = peak()
use(64 << 30)
grown = peak() - before
assert grown < 32 << 10, grown
print("good")
"""


@pytest.mark.parametrize("device", ("CPU", "CL"))
def test_a_file_larger_than_memory_is_read_where_it_is_needed(device, tmp_path):
    command = [sys.executable, "-c", HUGE, str(tmp_path / "huge"), device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "good", done.stderr[-2000:]


def test_a_long_copy_holds_a_piece_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("tinygrad.engine.host.PIECE", 64)
    monkeypatch.setattr("tinygrad.backends.disk.files.PIECE", 40)
    a = np.random.rand(10, 7).astype(np.float32)
    (Tensor(a, device="CL") * 1).to(named(tmp_path / "x")).realize()
    t = Tensor(tmp_path / "x", dtype="float").reshape(10, 7)
    for view in (t, t[2:9, 1:6].T):
        expected = a if view is t else a[2:9, 1:6].T
        check(view.to("CL") + 0, expected)


# ---- bad days ------------------------------------------------------------------------------------


def limited(path, count):
    """A write of `count` floats to a new file where files may have 4096 bytes."""
    code = f"""
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    from tinygrad import Tensor, Context
    from tinygrad.base.errors import OutOfMemory
    from tinygrad.base.settings import CACHELEVEL
    CACHELEVEL.value = 0
    try:
        Tensor.ones({count}).contiguous().to("disk:{path}").realize()
    except OutOfMemory as error:
        print(error)
    print((Tensor.ones(3) + 1).sum().item())
    """
    # -B: bytecode that Python would write is cut, too, and stays so
    command = [sys.executable, "-B", "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300).stdout


def test_a_file_that_grows_too_large_is_an_error_and_no_trace_stays(tmp_path):
    found = limited(tmp_path / "x", 5000)
    assert f"file '{tmp_path}/x': File too large; free space" in found
    assert found.endswith("6.0\n")
    assert not os.listdir(tmp_path)


def test_a_full_disk_is_an_error_and_the_next_write_works(t, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OutOfMemory, match=r"\[write\] file .*numbers': No space left.*free sp"):
            t[0] = 1
    t[0] = 1
    check(t[0], np.ones(6))


def test_a_file_that_may_only_be_read_is_read(path):
    if os.geteuid() == 0:  # who may do everything: the mode says nothing
        opened = os.open

        def reading(name, flags, *mode, **more):
            if flags & os.O_RDWR:
                raise PermissionError(errno.EACCES, "Permission denied")
            return opened(name, flags, *mode, **more)

    path.chmod(0o444)
    with pytest.MonkeyPatch.context() as patch:
        if os.geteuid() == 0:
            patch.setattr(os, "open", reading)
        t = Tensor.empty(4, 6, device=named(path))
    check(t.to("CPU"), A)
    with pytest.raises(FileError, match="numbers' may only be read; legal is a copy"):
        t[0] = 1


def test_a_file_that_is_cut_is_an_error_and_no_crash(t, path):
    check(t[3], A[3])
    os.truncate(path, 40)
    for read in (lambda: t.numpy(), lambda: (t.to("CL") + 1).numpy(), lambda: t.to("CPU")):
        with pytest.raises(FileError, match="numbers' ends at 40, .* 96 are needed; it was cut"):
            read()


ERRORS = {
    "no such file": (lambda p: Tensor(p / "none"), FileError, "none' can't be opened: No such"),
    "a folder": (lambda p: Tensor(p), FileError, "is a folder or a device; legal is a plain file"),
    "no folder": (
        lambda p: Tensor([1]).to(named(p / "a/b")).realize(),
        FileError,
        "a/b' can't be made: No such",
    ),
    "a shorter file": (
        lambda p: Tensor.empty(100, device=named(p / "numbers")),
        FileError,
        "holds 96 bytes, the tensor needs 400; legal are a smaller tensor",
    ),
    "a size that doesn't divide": (
        lambda p: Tensor(p / "odd", dtype="float"),
        ShapeError,
        "has 5 bytes, an element of .* 4; legal",
    ),
    "an index beyond the end": (
        lambda p: Tensor(p / "numbers")[96],
        IndexError,
        "96",
    ),
    "no path": (lambda p: Tensor([1]).to("disk").realize(), DeviceError, "names no file; legal is"),
    "computing": (
        lambda p: (Tensor(p / "numbers") + 1).numpy(),
        DeviceError,
        r"numbers holds bytes and runs no kernels \(ADD.*legal is .to",
    ),
    "writing by tensors": (
        lambda p: Tensor(p / "numbers").__setitem__(Tensor([1]), 5),
        ArgumentError,
        "setitem: .* by a tensor or a mask; legal are numbers and slices",
    ),
    "writing what repeats": (
        lambda p: Tensor(p / "numbers")[:1].expand(5).assign(Tensor([1] * 5).cast("uint8")),
        ArgumentError,
        "elements repeat",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_a_misuse_is_an_error_that_says_what_is_legal(name, path):
    (path.parent / "odd").write_bytes(b"12345")
    action, kind, words = ERRORS[name]
    with pytest.raises(kind, match=words):
        action(path.parent)


def test_a_captured_step_neither_fetches_nor_writes(t):
    fetch = TinyJit(lambda x: (x + t.to("CPU")).realize())
    write = TinyJit(lambda x: (t.assign(x + 1), x)[1])
    for step, words in ((fetch, "to: a tensor on DISK"), (write, "assign: to a tensor on DISK")):
        step(Tensor.ones(4, 6).contiguous())
        with pytest.raises(JitError, match=words):
            step(Tensor.ones(4, 6).contiguous())


def test_files_are_closed_when_no_tensor_needs_them(tmp_path):
    def opened():
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    for i in range(50):
        (tmp_path / str(i)).write_bytes(bytes(8))
        Tensor(tmp_path / str(i)).to("CPU").numpy()
    assert opened() <= before + 2


# ---- NumPy's arrays ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_arrays(name):
    view = VIEWS[name](Tensor(A, device="NPY"))
    expected = VIEWS[name](Tensor(A, device="CPU")).numpy()
    check(view, expected)
    for device in COMPUTING:
        check(view.to(device) + 1, expected + 1)


@pytest.mark.parametrize("device", (*COMPUTING, "NPY"))
def test_arrays_come_from_every_device(device):
    there = (Tensor(A, device="CPU") + 1).to(device).to("NPY")
    assert there.device == "NPY"
    check(there, A + 1)


def test_tensors_are_made_there():
    check(Tensor([1.5, 2], dtype="half", device="NPY"), [1.5, 2])
    check(Tensor.zeros(2, 3, device="NPY"), np.zeros((2, 3)))
    check(Tensor(7, device="NPY"), 7)
    check(Tensor([True, False], device="NPY"), [True, False])


def test_an_array_is_written_in_place_and_readers_keep_theirs():
    a = A.copy()
    t = Tensor(a, device="NPY")
    a[0] = -1  # not the tensor's
    waiting = t[1:].to("CPU") + 1
    t[1] = Tensor.arange(6).float()
    check(t, np.concatenate([A[:1], [np.arange(6)], A[2:]]))
    check(waiting, A[1:] + 1)


def test_an_array_that_may_not_be_written_is_copied_first():
    a = A.copy()
    a.flags.writeable = False
    t = Tensor(a, device="NPY")
    t[0] = 5
    np.testing.assert_array_equal(a, A)
    check(t[0], [5] * 6)


def test_arrays_compute_nothing():
    with pytest.raises(DeviceError, match=r"device NPY holds bytes and runs no kernels \(MUL"):
        (Tensor(A, device="NPY") * 2).realize()
