"""Other libraries and Python's own protocols: what goes out and comes in is the same memory, both
sides see what the other writes, and nothing is freed while somebody uses it."""

import copy
import ctypes
import gc
import operator
import pickle
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from together import together

from tinygrad import Tensor, TinyJit, dtypes, nn
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.engine.devices import Device
from tinygrad.tensor import dlpack
from tinygrad.uop.op import Ops

DEVICES = ("CPU", "PYTHON")  # those whose memory the host can address
KINDS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
KINDS += ("float16", "float32", "float64")


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch):
    """What is about memory that other libraries can address runs on a device that has it."""
    monkeypatch.setattr(Device, "DEFAULT", "CPU")


def on(device, *rows):
    return Tensor([list(row) for row in rows], dtype="float", device=device).realize()


class Old:
    """A producer from before version 1 of DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


# ---- out -----------------------------------------------------------------------------------------

EXPORTS = {  # name → what makes an array of a tensor without a copy
    "numpy dlpack": np.from_dlpack,
    "numpy dlpack, never a copy": lambda t: np.from_dlpack(t, copy=False),
    "torch dlpack": torch.from_dlpack,
    "an old capsule": lambda t: torch.utils.dlpack.from_dlpack(t.__dlpack__()),
    "asarray": np.asarray,
    "asarray, never a copy": lambda t: np.asarray(t, copy=False),
    "__array__": lambda t: t.__array__(copy=False),
    "the buffer protocol": lambda t: np.asarray(t.__buffer__(0)),
    "and back": lambda t: np.from_dlpack(Tensor.from_dlpack(t, device=t.device)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_is_the_same_memory(name, device):
    x = on(device, (1, 2, 3), (4, 5, 6))
    before = (x + 1).realize()
    there = EXPORTS[name](x)
    assert there.tolist() == [[1, 2, 3], [4, 5, 6]]
    there[0, 0] = 10
    assert x.tolist() == [[10, 2, 3], [4, 5, 6]], "a write there is seen here"
    assert before.tolist() == [[2, 3, 4], [5, 6, 7]], "what was computed before stays"
    assert (x + 1).tolist() == [[11, 3, 4], [5, 6, 7]], "what is computed after sees it"
    x += 1
    x.realize()
    assert there.tolist() == [[11, 3, 4], [5, 6, 7]], "a write here is seen there"


VIEWS = {  # name → (a view, its strides in elements)
    "transposed": (lambda t: t.T, (1, 4)),
    "a row": (lambda t: t[1], (1,)),
    "columns": (lambda t: t[:, 1:3], (4, 1)),
    "every second": (lambda t: t[:, ::2], (4, 2)),
    "backwards": (lambda t: t.flip(1), (4, -1)),
    "one element": (lambda t: t[1, 2], ()),
    "another shape": (lambda t: t.reshape(2, 2, 2), (4, 2, 1)),
    "with a new axis": (lambda t: t[:, None], (4, 0, 1)),
}


ORDERS = ("<i2", ">i2", ">i4", ">f4", ">f8", ">f2", ">u8")


def test_arrays_of_the_other_byte_order_keep_their_values():
    for kind in ORDERS:
        assert Tensor(np.array([1, 2, 300], kind)).tolist() == [1, 2, 300]
        held = Tensor([0, 0]).cast(np.dtype(kind).name).contiguous().realize()
        held[:] = np.array([7, 8], kind)
        assert held.tolist() == [7, 8]


def test_bytes_are_elements_as_they_lie_in_memory():
    assert Tensor(b"\x01\x02\x00\x00", dtype="int16").tolist() == [513, 0]
    assert Tensor(bytearray(b"ab")).tolist() == [97, 98]
    assert Tensor(b"\x80\x3f", dtype="bfloat16").tolist() == [1.0]
    assert Tensor(b"\x00\x02", dtype="bool").tolist() == [False, True]
    assert Tensor(memoryview(np.float32([1.5]))).tolist() == [1.5]
    with pytest.raises(ShapeError, match="3 bytes as .*legal is a multiple of 2"):
        Tensor(b"abc", dtype="int16")


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_goes_out_with_its_strides(name):
    view, strides = VIEWS[name]
    x = on("CPU", (1, 2, 3, 4), (5, 6, 7, 8))
    shown = view(x)
    there = np.from_dlpack(shown, copy=False)
    assert there.tolist() == shown.tolist()
    apart = [s for s, n in zip(there.strides, there.shape, strict=True) if n > 1]
    assert apart == [4 * s for s, n in zip(strides, there.shape, strict=True) if n > 1]
    there[...] = 0
    assert view(x).numpy().max() == 0 and x.numpy().min() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_dtype_goes_out_and_comes_in(kind):
    values = np.array([0, 1, 1]).astype(kind)
    there = np.from_dlpack(Tensor(values))
    assert there.dtype == values.dtype and (there == values).all()
    back = Tensor.from_dlpack(values)
    assert back.numpy().dtype == values.dtype and back.tolist() == values.tolist()


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_complex_numbers_are_lent_and_borrowed(kind):
    values = (np.arange(6).reshape(2, 3) * (1 + 2j)).astype(kind)
    here = Tensor.from_dlpack(values.T)
    there = torch.from_dlpack(here)
    values[0, 1] = 7j
    assert here.numpy().dtype == kind and here[1, 0].item() == 7j == there[1, 0].item()
    there[2, 1] = 5
    assert values[1, 2] == 5 and np.from_dlpack(here)[2, 1] == 5
    assert np.from_dlpack(here.conj()).tolist() == values.T.conj().tolist()
    assert Tensor.from_dlpack(values[:0]).shape == (0, 3)


def test_complex_numbers_whose_parts_lie_apart_are_copied():
    pairs = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    x = pairs.T.view_as_complex()
    assert torch.from_dlpack(x).tolist() == [1 + 3j, 2 + 4j]
    with pytest.raises(BufferError, match="lie apart; legal is a copy"):
        np.from_dlpack(x, copy=False)


def test_pytorch_gets_no_negative_strides():
    x = Tensor([1.0, 2.0, 3.0]).realize()
    assert torch.from_dlpack(x.flip(0)).tolist() == [3, 2, 1]


def test_numbers_whose_signs_pytorch_keeps_apart_are_refused():
    conjugate = torch.tensor([1 + 2j, 3 - 4j]).conj()
    with pytest.raises(BufferError, match=r"legal is its .resolve_neg()"):
        Tensor.from_dlpack(conjugate.imag)
    assert Tensor.from_dlpack(conjugate.imag.resolve_neg()).tolist() == [-2, 4]
    with pytest.raises(DTypeError, match="resolve_conj"):
        Tensor(conjugate)


def test_narrow_floats_go_to_pytorch_and_come_back():
    for name, theirs in (("bfloat16", torch.bfloat16), ("fp8e4m3", torch.float8_e4m3fn)):
        there = torch.from_dlpack(Tensor([1.5, -2.0], dtype=name))
        assert there.dtype is theirs and there.float().tolist() == [1.5, -2.0]
        assert Tensor.from_dlpack(there).tolist() == [1.5, -2.0]
    x = Tensor([0.5], dtype="fp8e5m2")
    assert torch.from_dlpack(x).dtype is torch.float8_e5m2 and x.numpy().dtype == "float8_e5m2"


@pytest.mark.parametrize("name", ["bfloat16", "fp8e4m3", "fp8e5m2"])
def test_narrow_floats_go_to_numpy(name):
    x = Tensor([1.5, -2.0, 0.5], dtype=name).realize()
    assert np.asarray(x[::-1]).tolist() == [0.5, -2.0, 1.5]


def test_empty_and_single_tensors_go_out():
    assert np.from_dlpack(Tensor.zeros(0, 3)).shape == (0, 3)
    assert torch.from_dlpack(Tensor.zeros(2, 0)).shape == (2, 0)
    assert Tensor.from_dlpack(np.zeros((0, 3))).shape == (0, 3)
    assert np.from_dlpack(Tensor(3.5)).shape == () and np.asarray(Tensor(3.5)) == 3.5


def test_constants_and_expressions_are_computed_to_go_out():
    x = Tensor.ones(3)
    there = np.from_dlpack(x)
    there[0] = 5
    assert x.tolist() == [5, 1, 1] and Tensor.ones(3).tolist() == [1, 1, 1]
    y = Tensor([1.0, 2.0]) * 3
    np.from_dlpack(y)[0] = 7
    assert y.tolist() == [7.0, 6.0]


def test_who_shares_a_buffer_by_chance_sees_no_write():
    t = Tensor([1.0, 2.0]).realize()
    a, b = t * 4, t * 4
    a.realize()
    np.from_dlpack(a)[0] = 9
    assert a.tolist() == [9.0, 8.0] and b.tolist() == [4.0, 8.0]
    assert (t * 4).tolist() == [4.0, 8.0]


def test_copies_are_asked_for():
    x = on("CPU", (1, 2))
    np.from_dlpack(x, copy=True)[0, 0] = 9
    np.array(x)[0, 0] = 9
    x.numpy()[0, 0] = 9
    assert x.tolist() == [[1, 2]]
    assert np.asarray(x, dtype="int64").dtype == np.int64
    assert np.asarray(x.cast("bfloat16")).dtype == x.cast("bfloat16").numpy().dtype
    spread = x.expand(3, 2)
    assert np.from_dlpack(spread).tolist() == [[1, 2]] * 3
    with pytest.raises(BufferError, match="no strided part"):
        spread.__dlpack__(copy=False)
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(Tensor([1.0], requires_grad=True) * 2, copy=False)
    with pytest.raises(ValueError, match="must become"):
        x.__array__(dtype=np.dtype("int8"), copy=False)


def test_other_devices_lend_a_copy_if_asked():
    x = on("CL", (1, 2))
    assert x.__dlpack_device__() == (4, 0) and Tensor([1]).__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="CL"):
        x.__dlpack__()
    assert np.from_dlpack(Borrowing(x.__dlpack__(dl_device=(1, 0)))).tolist() == [[1, 2]]
    assert np.asarray(x).tolist() == [[1, 2]]
    assert Tensor.from_dlpack(np.ones(2), device="CL").device == "CL"
    assert Tensor.from_dlpack(x, device="CL").tolist() == [[1, 2]]


class Borrowing:
    """What hands on a capsule."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


def test_weights_go_out_and_what_gradients_pass_through_does_not():
    w = Tensor([1.0], requires_grad=True)
    y = w * 2
    with pytest.raises(BufferError, match="detach"):
        y.__dlpack__()
    assert np.asarray(y).tolist() == [2.0], "as a copy it does"
    np.from_dlpack(w)[0] = 4
    assert w.tolist() == [4.0] and (w * w).sum().gradient(w)[0].tolist() == [8.0]
    np.from_dlpack(w.detach())[0] = 7
    assert w.tolist() == [4.0], "a detached tensor is a value of its own"


def test_a_capsule_of_version_1_says_what_it_is():
    x = on("CPU", (1, 2))
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 3)))
    assert '"dltensor"' in repr(x.__dlpack__(max_version=(0, 8)))
    taken = dlpack.Borrowed(x.__dlpack__(max_version=(1, 0), copy=True))
    assert taken.array.shape == (1, 2) and taken.array.strides == (1, 1)
    assert taken.device == (1, 0) and not taken.read_only
    fixed = Tensor.from_dlpack(np.frombuffer(b"abcd", np.uint8))
    assert dlpack.Borrowed(fixed.__dlpack__(max_version=(1, 0))).read_only
    assert not np.from_dlpack(fixed).flags.writeable
    assert torch.utils.dlpack.from_dlpack(fixed.__dlpack__()).tolist() == [97, 98, 99, 100]


# ---- in ------------------------------------------------------------------------------------------


def numpy_at(count, offset):
    """A float array that begins `offset` bytes after a line of the cache."""
    raw = np.zeros(count * 4 + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + count * 4].view(np.float32)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("wrap", [lambda a: a, torch.from_numpy, Old])
def test_an_import_is_the_same_memory(wrap, device):
    there = np.arange(6, dtype=np.float32).reshape(2, 3)
    here = Tensor.from_dlpack(wrap(there), device=device)
    assert here.tolist() == [[0, 1, 2], [3, 4, 5]]
    before = (here * 2).realize()
    there[0, 0] = 9
    assert here.tolist() == [[9, 1, 2], [3, 4, 5]] and before.tolist()[0][0] == 0
    assert (here * 2).tolist()[0][0] == 18
    here += 1
    here[1, 1] = -1
    here.realize()
    assert there.tolist() == [[10, 2, 3], [4, -1, 6]]


LAYOUTS = {  # name → (an array, whether it is used where it is)
    "transposed": (lambda a: a.T, True),
    "rows": (lambda a: a[1:], True),
    "backwards": (lambda a: a[::-1], True),
    "permuted": (lambda a: a.reshape(2, 2, 3).transpose(2, 0, 1), True),
    "columns": (lambda a: a[:, :2], False),
    "every second": (lambda a: a[:, ::2], False),
    "spread": (lambda a: np.broadcast_to(a, (2, 4, 3)), False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_any_layout_comes_in(name):
    view, as_it_is = LAYOUTS[name]
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    here = Tensor.from_dlpack(view(array))
    assert here.tolist() == view(array).tolist()
    array[3, 0] = 100
    assert (100 in here) is as_it_is
    if not as_it_is:
        with pytest.raises(BufferError, match="as it is"):
            Tensor.from_dlpack(view(array), copy=False)


@pytest.mark.parametrize("offset", [0, 4, 16, 36])
def test_memory_that_begins_anywhere_is_read_and_written(offset):
    there = numpy_at(4 << 20, offset)  # so large that stores go past the cache
    there[:] = 1
    here = Tensor.from_dlpack(there)
    assert here.sum().item() == 4 << 20
    here.assign(here * 2 + 1).realize()
    assert there[0] == there[-1] == 3 and there.min() == there.max()


@pytest.mark.parametrize("begin", [0, 4, 16, 32])
def test_a_captured_step_takes_memory_that_begins_anywhere(begin):
    @TinyJit
    def step(x, total):
        total.assign(total + x.sum(0)).realize()
        return (x * 2).realize()

    total = numpy_at(7, begin)
    total[:] = 0
    sums = Tensor.from_dlpack(total)
    for turn, offset in enumerate((0, 16, 4, 0, 20, 4)):
        array = numpy_at(35, offset).reshape(5, 7)
        array[:] = turn
        assert step(Tensor.from_dlpack(array), sums).tolist() == (array * 2).tolist()
    assert total.tolist() == [75.0] * 7


def test_what_may_only_be_read_is_copied_before_a_write():
    there = np.arange(4.0)
    there.flags.writeable = False
    here = Tensor.from_dlpack(there)
    here += 1
    assert here.tolist() == [1, 2, 3, 4] and there.tolist() == [0, 1, 2, 3]


def by_interface(tensor):
    """What NumPy makes of that protocol alone."""
    return np.asarray(SimpleNamespace(__array_interface__=tensor.__array_interface__))


@pytest.mark.parametrize("ask", ["numpy dlpack", "asarray", "the buffer protocol", "interface"])
def test_what_may_only_be_read_goes_out_so(ask):
    """Memory of a file that is mapped to be read, too: a write to it would end the process."""
    there = np.arange(4.0)
    there.flags.writeable = False
    taken = {**EXPORTS, "interface": by_interface}[ask](Tensor.from_dlpack(there))
    assert np.shares_memory(taken, there) and not taken.flags.writeable


def test_the_same_memory_twice_is_one_buffer():
    there = np.zeros(8, np.float32)
    a, b, part = (Tensor.from_dlpack(x) for x in (there, there, there[2:4]))
    a[:4] = 1
    part += 5
    assert b.tolist() == [1, 1, 6, 6, 0, 0, 0, 0] == there.tolist()
    a.assign(b.flip(0)).realize()
    assert there.tolist() == [0, 0, 0, 0, 6, 6, 1, 1]
    before = b * 1
    part.assign(part + 1)
    assert before.tolist() == [0, 0, 0, 0, 6, 6, 1, 1] and b.tolist()[2:4] == [1, 1]
    with pytest.raises(BufferError, match="as it is"):  # half here, half elsewhere
        whole = np.zeros(8, np.float32)
        kept = Tensor.from_dlpack(whole[2:])
        Tensor.from_dlpack(whole, copy=False)
    assert kept.shape == (6,)


def test_memory_of_ours_that_comes_back_is_ours():
    x = on("CPU", (1, 2), (3, 4))
    back = Tensor.from_dlpack(np.from_dlpack(x))
    back += 100
    assert x.tolist() == [[101, 102], [103, 104]] == back.tolist()


def test_gradients_pass_through_imported_weights():
    w = np.ones((3, 2), np.float32)
    ours = Tensor.from_dlpack(w).requires_grad_()
    x = Tensor.from_dlpack(np.full((4, 3), 2.0, np.float32))
    loss = (x @ ours).square().mean()
    assert loss.item() == 36.0  # looked at before the derivative is asked for
    loss.backward()
    theirs = torch.ones(3, 2, requires_grad=True)
    (torch.full((4, 3), 2.0) @ theirs).square().mean().backward()
    assert np.allclose(ours.grad.numpy(), theirs.grad.numpy())
    with Tensor.train():
        nn.optim.SGD([ours], lr=0.5).step()
    assert np.allclose(w, 1 - 0.5 * theirs.grad.numpy()), "the optimizer writes their memory"


def test_an_expression_keeps_its_order_with_our_own_writes():
    there = np.ones(3, np.float32)
    x = Tensor.from_dlpack(there)
    first = x + 1
    assert (x * 3).tolist() == [3, 3, 3]  # reads it, so a later read is of another version
    second = x + 2
    x.assign(Tensor([5.0, 5.0, 5.0]))
    assert second.tolist() == [3, 3, 3] and first.tolist() == [2, 2, 2]
    assert x.tolist() == [5, 5, 5] == there.tolist()


def test_blobs():
    raw = (ctypes.c_int16 * 6)(1, 2, 3, 4, 5, 6)
    x = Tensor.from_blob(ctypes.addressof(raw), (2, 3), dtype="short")
    raw[0] = 9
    assert x.tolist() == [[9, 2, 3], [4, 5, 6]]
    x += 1
    x.realize()
    assert list(raw) == [10, 3, 4, 5, 6, 7]
    there = Tensor.from_blob(ctypes.addressof(raw), (6,), dtype="short", device="CL")
    assert there.device == "CL" and there.tolist() == [10, 3, 4, 5, 6, 7]


def test_an_array_is_copied_once():
    """What the host can address is there at once; each replay of a captured step that takes an
    array begins with what was in it."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert Tensor(values).uop.base.op is Ops.BUFFER

    @TinyJit
    def added(x):
        total = Tensor(values)
        total += x
        return total.realize()

    one = Tensor.ones(2, 3).contiguous().realize()
    for _ in range(4):
        np.testing.assert_array_equal(added(one).numpy(), values + 1)


def test_an_array_that_is_given_is_as_it_was_then():
    for device in ("CPU", "PYTHON", "CL"):
        array = np.ones(3, np.float32)
        x = Tensor(array, device=device)
        y = Tensor(torch.from_numpy(array), device=device)
        array[:] = 5
        assert x.tolist() == [1, 1, 1] == y.tolist()


# ---- lifetime ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("others_are_old")
def test_memory_lives_as_long_as_its_borrower():
    x = Tensor(np.full(1000, 7.0)).realize()
    held = [np.from_dlpack(x), torch.from_dlpack(x), np.asarray(x), np.asarray(x.__buffer__(0))]
    buffer = weakref.ref(x.uop.base.realized)
    assert buffer().others == 4
    del x
    gc.collect()
    others = [Tensor(np.full(1000, float(i))).realize() for i in range(8)]
    assert all(float(h[500]) == 7.0 for h in held)
    del held
    gc.collect()
    assert buffer() is None and len(others) == 8


@pytest.mark.usefixtures("others_are_old")
def test_memory_lives_as_long_as_it_is_read_here():
    class Array(np.ndarray):
        pass

    there = np.ones(100).view(Array)
    gone = weakref.ref(there)
    x = Tensor.from_dlpack(there)
    y = x + 1
    del there, x
    gc.collect()
    assert gone() is not None and y.sum().item() == 200.0
    del y
    gc.collect()
    assert gone() is None


@pytest.mark.usefixtures("others_are_old")
def test_a_capsule_that_nobody_takes_is_given_back():
    x = on("CPU", (1, 2))
    buffer, lent = x.uop.base.realized, len(dlpack._lent)
    capsules = [x.__dlpack__(), x.__dlpack__(max_version=(1, 0))]
    assert buffer.others == 2
    del capsules
    with pytest.raises(RuntimeError, match="[Uu]nsupported dtype"):  # NumPy's own words arrive
        np.from_dlpack(Tensor([1.0], dtype="bfloat16"))
    capsule = on("CPU", (1, 2)).__dlpack__()
    assert buffer.others == 0 and len(dlpack._lent) == lent + 1
    Tensor.from_dlpack(capsule)
    with pytest.raises(BufferError, match="nobody has taken"):
        Tensor.from_dlpack(capsule)


def test_threads_lend_and_borrow():
    def turn():
        for i in range(30):
            x = Tensor(np.full(50, float(i))).realize()
            torch.from_dlpack(x).add_(1)
            assert {*Tensor.from_dlpack(np.from_dlpack(x)).tolist()} == {i + 1.0}

    together(turn, turn, turn)


# ---- NumPy beside tensors ------------------------------------------------------------------------

OPERATORS = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
]
BITS = ["and_", "or_", "xor", "lshift", "rshift"]


@pytest.mark.parametrize("name", OPERATORS + BITS)
def test_an_array_on_the_left_gives_a_tensor(name):
    function = getattr(operator, name)
    array = np.array([4, 5, 6], "int32" if name in BITS else "float32")
    other = np.array([1, 2, 3], array.dtype)
    result = function(array, Tensor(other))
    assert isinstance(result, Tensor), "no array of tensors, no loop over elements"
    assert np.allclose(result.numpy(), function(array, other))
    if name != "matmul":
        assert isinstance(function(array[0], Tensor(other)), Tensor)


def test_pillow_takes_tensors():
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert np.asarray(Image.fromarray(Tensor(pixels))).tolist() == pixels.tolist()
    assert Tensor(Image.fromarray(pixels)).tolist() == pixels.tolist()  # and go where one was
    assert Tensor(Image.new("1", (3, 2))).dtype is dtypes.bool


def test_functions_of_numpy_take_tensors():
    x = Tensor([[1.0, 4.0], [9.0, 16.0]])
    assert np.sqrt(x).tolist() == [[1, 2], [3, 4]] and isinstance(np.sqrt(x), np.ndarray)
    assert np.concatenate([x, x]).shape == (4, 2) and np.stack([x, x]).dtype == np.float32
    total = np.zeros((2, 2), np.float32)
    total += x
    assert total.tolist() == x.tolist()


TWO = np.int64(2)
SIZES = {  # what is made with NumPy's numbers → its shape
    "reshape": (lambda x: x.reshape(TWO, 3), (2, 3)),
    "zeros": (lambda x: Tensor.zeros(TWO, 3), (2, 3)),
    "full": (lambda x: Tensor.full((TWO,), np.float32(1)), (2,)),
    "arange": (lambda x: Tensor.arange(TWO), (2,)),
    "eye": (lambda x: Tensor.eye(TWO), (2, 2)),
    "linspace": (lambda x: Tensor.linspace(0, 1, TWO), (2,)),
    "randn": (lambda x: Tensor.randn(TWO, 2), (2, 2)),
    "randint": (lambda x: Tensor.randint(TWO, low=np.int32(0), high=TWO), (2,)),
    "expand": (lambda x: x.expand(TWO, 2, 3), (2, 2, 3)),
    "repeat": (lambda x: x.repeat(TWO, TWO), (4, 6)),
    "pad": (lambda x: x.pad(((TWO, TWO), None)), (6, 3)),
    "flat pad": (lambda x: x.pad((TWO, TWO)), (2, 7)),
    "shrink": (lambda x: x.shrink(((0, np.int8(1)), None)), (1, 3)),
    "split": (lambda x: x.split(np.int64(1))[1], (1, 3)),
    "chunk": (lambda x: x.chunk(TWO)[0], (1, 3)),
    "unfold": (lambda x: x.unfold(np.int64(1), TWO, 1), (2, 2, 2)),
    "one_hot": (lambda x: x.one_hot(np.int64(7)), (2, 3, 7)),
    "topk": (lambda x: x.topk(TWO)[0], (2, 2)),
    "axes": (lambda x: x.sum((np.int64(0), np.int32(-1)), keepdim=True), (1, 1)),
    "permute": (lambda x: x.permute(np.int64(1), np.int64(0)), (3, 2)),
    "slices": (lambda x: x[np.int32(0) : TWO, np.int64(1)], (2,)),
    "a tensor for a size": (lambda x: x.reshape(Tensor(2), -1), (2, 3)),
    "a tensor among sizes": (lambda x: Tensor.zeros((Tensor([1, 3]).max(), 2)), (3, 2)),
    "a tensor for an end": (lambda x: Tensor.arange(Tensor(2)), (2,)),
    "a tensor for a number of copies": (lambda x: x.repeat(Tensor(2), 1), (4, 3)),
    "a tensor to expand to": (lambda x: x.expand(Tensor(2), 2, 3), (2, 2, 3)),
    "an array for a size": (lambda x: Tensor.rand(np.array(2), 3), (2, 3)),
    "dtypes": (lambda x: x.cast(np.int8).cast(np.dtype("float32")), (2, 3)),
}


@pytest.mark.parametrize("name", SIZES)
def test_numbers_of_numpy_are_sizes_and_axes(name):
    function, shape = SIZES[name]
    made = function(Tensor.arange(6).reshape(2, 3))
    assert made.shape == shape and all(type(n) is int for n in made.shape)


# ---- numbers and containers of Python ------------------------------------------------------------

CONVERSIONS = [
    (int, 2.7, 2),
    (int, -2.7, -2),
    (int, True, 1),
    (float, 2, 2.0),
    (complex, 2.5, 2.5 + 0j),
    (bool, 0.0, False),
    (bool, float("nan"), True),
    (operator.index, 5, 5),
    ("{:.2f}".format, 3.14159, "3.14"),
    ("{:04d}".format, 7, "0007"),
    (round, 2.5, 2),
    (lambda t: round(t, 1), 2.25, 2.2),
    (lambda t: [q.item() for q in divmod(t, 3)], -7, [-3, 2]),
    (lambda t: [q.item() for q in divmod(7, t)], 2, [3, 1]),
    (lambda t: [10, 20, 30][t], 1, 20),
    (lambda t: list(range(5))[t:], 3, [3, 4]),
]


@pytest.mark.parametrize(("function", "value", "wanted"), CONVERSIONS)
def test_a_tensor_of_one_element_is_a_number(function, value, wanted):
    assert function(Tensor(value)) == wanted


def test_a_tensor_is_a_container():
    x = Tensor([[1, 2], [3, 4]])
    assert len(x) == 2 and [row.tolist() for row in x] == [[1, 2], [3, 4]]
    a, b = x
    assert a.tolist() == [1, 2] and 4 in x and 5 not in x and Tensor(3) in x
    assert [row.tolist() for row in reversed(x)] == [[3, 4], [1, 2]]
    assert hash(x) == hash(x) and len({x, Tensor([1]), x}) == 2, "a tensor is itself"
    assert f"{x}" == str(x)


MISUSES = [
    (DTypeError, "whole number", lambda: operator.index(Tensor(1.5))),
    (ShapeError, "one element", lambda: int(Tensor([1, 2]))),
    (ShapeError, "one element", lambda: float(Tensor([1.0, 2.0]))),
    (TypeError, "not clear", lambda: bool(Tensor([]))),
    (TypeError, "legal is ()", lambda: f"{Tensor([1.0]):.2f}"),
    (BufferError, "legal are capsules", lambda: Tensor.from_dlpack([1, 2])),
    (
        BufferError,
        "type code",
        lambda: Tensor.from_dlpack(torch.zeros(2, dtype=torch.float8_e4m3fnuz)),
    ),
    (BufferError, "dl_device", lambda: Tensor([1]).__dlpack__(dl_device=(2, 0))),
    (BufferError, "stream", lambda: Tensor([1]).__dlpack__(stream=1)),
    (BufferError, "no letter", lambda: Tensor([1.0], dtype="bfloat16").__buffer__(0)),
    (ArgumentError, "address 0", lambda: Tensor.from_blob(0, (2,))),
    (ShapeError, "from_blob", lambda: Tensor.from_blob(64, (-2,))),
]


@pytest.mark.parametrize(("error", "words", "function"), MISUSES)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        function()


# ---- notebooks -----------------------------------------------------------------------------------


def test_a_notebook_shows_facts_and_computes_nothing():
    x = Tensor([[1.0, 2.0]]) * 2
    assert "not computed yet" in x._repr_html_() and "shape (1, 2), float, on" in x._repr_html_()
    assert "[[2. 4.]]" in x.realize()._repr_html_()
    large = Tensor.zeros(2000, 2000).contiguous().realize()
    assert "4,000,000 elements" in large._repr_html_() and len(large._repr_html_()) < 200
    assert "wants a gradient" in Tensor([1.0], requires_grad=True)._repr_html_()
    assert "&lt;" not in x._repr_html_()


# ---- copies and pickles --------------------------------------------------------------------------


def again(x, protocol=pickle.HIGHEST_PROTOCOL):
    return pickle.loads(pickle.dumps(x, protocol))


PICKLED = {
    "lazy": lambda: Tensor([1.0, 2.0]) * 3,
    "a view": lambda: Tensor([[1, 2], [3, 4]]).T,
    "without axes": lambda: Tensor(3.5),
    "empty": lambda: Tensor.zeros(0, 2),
    "bool": lambda: Tensor([True, False]),
    "bfloat16": lambda: Tensor([1.5], dtype="bfloat16"),
    "fp8": lambda: Tensor([1.5], dtype="fp8e5m2"),
    "with a gradient": lambda: Tensor([1.0], requires_grad=True),
    "elsewhere": lambda: Tensor([1.0], device="PYTHON"),
}


@pytest.mark.parametrize("name", PICKLED)
@pytest.mark.parametrize("protocol", [2, 5])
def test_pickles(name, protocol):
    x = PICKLED[name]()
    y = again(x, protocol)
    assert (y.tolist(), y.shape, y.dtype) == (x.tolist(), x.shape, x.dtype)
    assert (y.device, y.requires_grad) == (x.device, x.requires_grad)


def test_large_values_may_go_beside_a_pickle():
    x = Tensor.arange(1000).realize()
    apart: list[pickle.PickleBuffer] = []
    text = pickle.dumps(x, 5, buffer_callback=apart.append)
    assert len(text) < 300 and pickle.loads(text, buffers=apart).tolist() == x.tolist()


def test_layers_and_optimizers_pickle():
    layer = nn.Linear(3, 2)
    x = Tensor.ones(1, 3)
    assert again(layer)(x).tolist() == layer(x).tolist()
    norm = nn.BatchNorm(2)
    assert again(norm).running_var.tolist() == [1.0, 1.0]
    for make in (nn.optim.SGD, nn.optim.AdamW):
        layer.weight.requires_grad = layer.bias.requires_grad = None
        pair = layer, make(nn.state.get_parameters(layer), lr=0.1)
        twin = again(pair)
        for model, optimizer in (pair, twin):
            for _ in range(2):
                optimizer.zero_grad()
                model(x).square().sum().backward()
                with Tensor.train():
                    optimizer.step()
        assert twin[0].weight.tolist() == pair[0].weight.tolist()


def test_a_copy_is_a_view_and_a_deep_copy_is_not():
    x = Tensor([1.0, 2.0]).realize()
    view, deep = copy.copy(x), copy.deepcopy(x)
    x += 1
    assert view.tolist() == [2.0, 3.0] and deep.tolist() == [1.0, 2.0]
    view *= 2
    assert x.tolist() == [4.0, 6.0]
    w = Tensor([1.0], requires_grad=True)
    (w * w).backward()
    twin = copy.deepcopy({"a": w, "b": w})
    assert twin["a"] is twin["b"] and twin["a"].grad.tolist() == [2.0]
    assert twin["a"].grad is not w.grad and twin["a"].dtype is dtypes.float


def written_copies(whole, devices):
    if devices is not None:
        whole = whole.shard(devices, 0)
    table = whole.reshape(2, 3)
    of_row, of_whole, of_column, of_turned = copy.deepcopy(
        (whole[1:3], whole, table[:, 0], table.T)
    )
    of_row[0], of_column[:], of_turned[2] = 50.0, 7.0, 8.0
    of_whole[4] = 9.0
    return [t.tolist() for t in (of_row, of_whole, of_column, of_turned, whole)]


@pytest.mark.parametrize("devices", [None, ("CPU:0", "CPU:1")])
@pytest.mark.parametrize("make", [lambda t: t, lambda t: t * 1])
def test_deep_copies_of_views_of_each_other_are_so_too(make, devices):
    numbers = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    found = written_copies(make(Tensor(numbers).realize()), devices)
    assert found == written_copies(make(torch.tensor(numbers)), None)


def test_a_mask_that_hides_nothing_is_no_mask():
    assert Tensor(np.ma.masked_array([1, 2], [0, 0])).tolist() == [1, 2]


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 3), (3, 1), (2, 1, 2)])
def test_complex_numbers_with_axes_of_size_1_go_out(shape):
    whole = (np.arange(24).reshape(2, 3, 4) * (1 + 1j)).astype(np.complex64)
    part = tuple(slice(0, n) for n in (1,) * (3 - len(shape)) + shape)
    assert np.array_equal(
        np.from_dlpack(Tensor(whole)[part].reshape(shape)), whole[part].reshape(shape)
    )
    assert np.array_equal(np.from_dlpack(Tensor(whole)[1:, 2:, 3:]), whole[1:, 2:, 3:])


def test_complex_numbers_of_pytorch_are_taken_as_arrays_are():
    theirs = torch.tensor([1 + 2j, 3j])
    assert Tensor(theirs).tolist() == theirs.tolist()


@pytest.mark.parametrize(
    "given", [torch.ones(2, dtype=torch.bfloat16), [torch.ones(2, requires_grad=True)]]
)
def test_what_numpy_makes_no_array_of_is_named(given):
    with pytest.raises(DTypeError, match="Tensor: Tensor of torch.*legal are.*from_dlpack"):
        Tensor(given)


def test_a_deep_copy_of_a_tensor_and_its_gradient_holds_them_together():
    w = Tensor([1.0, 2.0], requires_grad=True)
    (w * w).sum().backward()
    other, slope = copy.deepcopy([w, w.grad])
    assert other.grad is slope and slope is not w.grad
    slope += 1
    assert (w.grad.tolist(), other.grad.tolist()) == ([2.0, 4.0], [3.0, 5.0])


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_bytes_are_those_of_numpys_array(dtype, shape):
    values = np.arange(3, 3 + int(np.prod(shape))).astype(dtype).reshape(shape)
    assert bytes(Tensor(values)) == values.tobytes()


def test_a_bytearray_holds_the_elements_of_bytes():
    assert bytearray(Tensor([1, 2], dtype="uint8")) == bytearray([1, 2])


@pytest.mark.parametrize("other", [None, "a", object()])
@pytest.mark.parametrize("new", [Tensor, torch.tensor])
def test_what_has_no_values_equals_no_tensor(new, other):
    t = new([1, 2])
    assert ((t == other), (t != other), other == t) == (False, True, False)
    assert other not in (t, t) and {"a": t} != {"a": other}
