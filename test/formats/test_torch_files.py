"""Files of PyTorch's: what `torch.save` wrote is what we load, and nothing in a file is run."""

import collections
import io
import os
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from formats.mutants import mutants, survives
from hypothesis import given, settings

from tinygrad import GlobalCounters, Tensor, dtypes
from tinygrad.base.errors import FileError
from tinygrad.formats import torch_files as files
from tinygrad.nn.state import torch_load


def saved(value, legacy=False):
    out = io.BytesIO()
    torch.save(value, out, _use_new_zipfile_serialization=not legacy)
    return out.getvalue()


def check(value, legacy=False):
    """What we load is what PyTorch saved."""
    same(files.load(saved(value, legacy)), value)


def same(ours, theirs):
    if isinstance(theirs, torch.Tensor):
        assert ours.shape == tuple(theirs.shape)
        plain = theirs.detach().float() if theirs.dtype.itemsize < 4 else theirs.detach()
        np.testing.assert_array_equal(ours.numpy().astype(plain.numpy().dtype), plain.numpy())
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs) and isinstance(ours, dict)
        for key, value in theirs.items():
            same(ours[key], value)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    else:
        assert ours == theirs and type(ours) is type(theirs)


X = torch.arange(24.0).reshape(2, 3, 4)
NAMES = "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool uint16 uint32 uint64"


@pytest.mark.parametrize("name", [*NAMES.split(), "float8_e4m3fn", "float8_e5m2"])
def test_every_dtype(name):
    tensor = torch.tensor([0, 1, 1, 3]).to(getattr(torch, name))
    loaded = files.load(saved(tensor))
    assert loaded.cast("float").tolist() == tensor.float().tolist()


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    "view",
    [
        X,
        X[0].T,
        X.permute(1, 2, 0),
        X[1, :, 1],
        X[:, ::2, 1:3],
        X[:1].expand(5, 3, 4),
        X.flatten().unfold(0, 5, 2),
        torch.tensor(3.5),
        torch.zeros(0, 3),
        torch.ones(1, 1, 4)[:, :, 2:],
        torch.nn.Parameter(X[0]),
    ],
    ids=lambda view: f"{tuple(view.shape)}/{view.stride()}",
)
def test_views(view, legacy):
    check(view, legacy)


@pytest.mark.parametrize("legacy", [False, True])
def test_containers(legacy):
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    check(
        {
            "net": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "more": [1, -2.5, "née", None, True, b"\x00\xff", (1, 2), {3}, 1 << 70],
            "counts": collections.Counter("aab"),
            "sums": collections.defaultdict(int, a=2),
            "kinds": collections.defaultdict(str, a="b"),
            5: torch.Size([1, 2]),
        },
        legacy,
    )


def test_numpy_values():
    value = {"loss": np.float64(0.5), "array": np.arange(6, dtype=np.int16).reshape(2, 3).T}
    loaded = files.load(saved(value))
    assert loaded["loss"] == 0.5 and loaded["array"].tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("legacy", [False, True])
def test_empty_bytes(legacy):
    loaded = files.load(saved({"bytes": b"", "array": np.empty((0, 2))}, legacy))
    assert loaded["bytes"] == b"" and loaded["array"].shape == (0, 2)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol(protocol):
    array = np.arange(6, dtype=">i4").reshape(2, 3).T
    out = io.BytesIO()
    torch.save({"array": array, "bytes": bytearray(b"\x80a")}, out, pickle_protocol=protocol)
    loaded = files.load(out.getvalue())
    assert loaded["bytes"] == bytearray(b"\x80a") and loaded["array"].tolist() == array.tolist()


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_views_that_pytorch_turns_as_it_reads(dtype, legacy):
    z = (X[0] + 2j * X[1]).to(dtype)
    for view in (z.mT, z[0, 1], z[:0], z.conj()[1:], z.conj().imag, z.mT._neg_view()):
        wanted = view.resolve_conj().resolve_neg()
        assert files.load(saved(view, legacy)).tolist() == wanted.tolist()


def test_dtypes_and_devices_are_names():
    loaded = files.load(saved({"d": torch.float16, "e": torch.device("cuda:1")}))
    assert repr(loaded["d"]) == "torch.float16" and loaded["e"] == "cuda:1"


@pytest.mark.parametrize("legacy", [False, True])
def test_a_shared_storage_is_shared(legacy):
    whole = torch.zeros(6)
    loaded = files.load(saved({"a": whole, "b": whole[2:4], "c": torch.zeros(6)}, legacy))
    loaded["a"][3] = 7
    assert loaded["b"].tolist() == [0, 7] and loaded["c"].sum().item() == 0


@pytest.mark.usefixtures("on_the_cpu")
def test_storages_are_parts_of_the_mapped_file(tmp_path):
    torch.save({"w": torch.ones(1 << 20)}, tmp_path / "x.pt")
    before = GlobalCounters.mem_used
    weight = torch_load(tmp_path / "x.pt")["w"]
    assert GlobalCounters.mem_used <= before
    assert weight[:3].tolist() == [1, 1, 1] and weight.dtype is dtypes.float


def test_bytes_as_a_tensor():
    assert torch_load(Tensor(np.frombuffer(saved(X), np.uint8)))[1, 2, 3].item() == 23


def test_big_endian_files():
    raw, out = saved({"x": X}), io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = b"big" if name.endswith("byteorder") else old.read(name)
            new.writestr(name, X.numpy().astype(">f4").tobytes() if "data/0" in name else data)
    same(files.load(out.getvalue()), {"x": X})


def old_tar():
    """The first format: PyTorch reads it and no longer writes it."""
    key, part, tensor = 11, 12, 13
    storages = pickle.dumps(1, 2) + pickle.dumps((key, "cpu", torch.FloatStorage), 2)
    storages += struct.pack("<q", 6) + np.arange(6, dtype=np.float32).tobytes()
    storages += pickle.dumps([(part, key, 1, 4)], 2)
    tensors = pickle.dumps(1, 2) + pickle.dumps((tensor, part, torch.FloatTensor), 2)
    tensors += struct.pack("<ii4qq", 2, 0, 2, 2, 1, 2, 0)

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return str(tensor) if isinstance(value, torch.Tensor) else None

    pickled, out = io.BytesIO(), io.BytesIO()
    Pickler(pickled, 2).dump({"x": torch.zeros(1)})
    with tarfile.open(fileobj=out, mode="w") as archive:
        parts = {"storages": storages, "tensors": tensors, "pickle": pickled.getvalue()}
        for name, data in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")  # PyTorch's own
def test_tar_files(tmp_path):
    (tmp_path / "x.pt").write_bytes(old_tar())
    theirs = torch.load(tmp_path / "x.pt", weights_only=False)
    assert theirs["x"].tolist() == [[1, 3], [2, 4]]
    same(torch_load(tmp_path / "x.pt"), theirs)


# ---- files that want to do harm ------------------------------------------------------------------


class Calls:
    """Unpickling it would call `function` with `arguments`."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def with_pickle(pickled):
    """A zip file of PyTorch's with this pickle in it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x/data.pkl", pickled)
        archive.writestr("x/data/0", bytes(64))
    return out.getvalue()


def canary(tmp_path):
    return f"touch {tmp_path}/harm"


HARM = {
    "system": lambda path: pickle.dumps(Calls(os.system, canary(path))),
    "eval": lambda path: pickle.dumps(Calls(eval, f"open('{path}/harm', 'w')")),
    "exec": lambda path: pickle.dumps(Calls(exec, f"open('{path}/harm', 'w')")),
    "getattr": lambda path: pickle.dumps(Calls(getattr, "os", "system")),
    "nested": lambda path: pickle.dumps({"a": [{"b": (1, Calls(os.system, canary(path)))}]}),
    "import": lambda path: pickle.dumps(Calls(__import__, "os")),
    "open": lambda path: pickle.dumps(Calls(open, f"{path}/harm", "w")),
    "dotted": lambda path: b"\x80\x04\x8c\x05torch\x8c\x11serialization.os\x93.",
    "named twice": lambda path: b"\x80\x04\x8c\x12torch._utils._rebuild_tensor\x8c\x00\x93.",
    "inst": lambda path: f"(S'{canary(path)}'\nios\nsystem\n.".encode(),
    "obj": lambda path: f"(cos\nsystem\nS'{canary(path)}'\no.".encode(),
    "newobj_ex": lambda path: b"\x80\x04cos\nsystem\n)}\x92.",
    "extension": lambda path: b"\x80\x02\x82\x01.",
    "called string": lambda path: b"X\x02\x00\x00\x00os)R.",
    "called tensor type": lambda path: b"ctorch\nTensor\n)R.",
    "state of a dict": lambda path: b"}}b.",
    "state of a name": lambda path: b"ctorch\nSize\n}b.",
    "class of a module": lambda path: pickle.dumps(torch.nn.Linear(1, 1)),
    "storage from nowhere": lambda path: b"X\x02\x00\x00\x00osQ.",
    "a persistent id that calls": lambda path: b"(X\x07\x00\x00\x00storagecos\nsystem\nNNNtQ.",
    "function from the file": lambda path: (
        b"ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\nN)NtR."
    ),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", HARM)
def test_a_harmful_file_is_refused(name, legacy, tmp_path):
    pickled = HARM[name](tmp_path)
    if legacy:
        head = b"".join(pickle.dumps(v, 2) for v in (files.MAGIC, 1001, {"little_endian": True}))
        raw = head + b"\x80\x02" + pickled + pickle.dumps([], 2)
    else:
        raw = with_pickle(pickled)
    with pytest.raises(FileError):
        files.load(raw)
    assert not (tmp_path / "harm").exists()


def test_the_message_names_what_was_refused():
    with pytest.raises(FileError, match=r"it names (posix|nt).system, which is no plain value"):
        files.load(with_pickle(HARM["system"]("/")))


BOMBS = {
    # t0 = (); t1 = (t0, t0); ...: 2**100 steps to hash, and to print
    "hash": b"}" + b")" + b"2\x86" * 100 + b"K\x01s.",
    "set": b"\x80\x04\x8f(" + b")" + b"2\x86" * 100 + b"\x90.",
    "depth": b"]" * 200_000 + b"a" * 199_999 + b"K\x01a",
    "length": b"\x80\x04B\xff\xff\xff\x7fabc.",
    "long": b"\x8b\xff\xff\xff\x7f.",
    "digits": b"I" + b"9" * 100_000 + b"\n.",
    "pops": b"0" * 10 + b".",
    "marks": b"(" * 1000 + b".",
    "itself": b"]q\x00h\x00a}h\x00K\x01s.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(name):
    with pytest.raises(FileError):
        files.load(with_pickle(BOMBS[name]))


def given_often(path, value):
    """A pickle that gives one value to a function 200 times."""
    module, _, name = path.rpartition(".")
    return (
        b"\x80\x03(" + value + b"q\x010" + f"c{module}\n{name}\nq\x02".encode()
        + b"0(" + b"h\x02h\x01\x85R" * 200 + b"tt."
    )  # fmt: skip


LONG = b"X\x00\x00\x01\x00" + b"a" * (1 << 16)
MANY = b"](" + b"K\x01" * (1 << 14) + b"e"
PAIRS = b"".join(b"M" + struct.pack("<H", n) + b"N" for n in range(1 << 14))
COPIES = {
    "text": ("_codecs.encode", LONG),
    "list": ("builtins.set", MANY),
    "pairs": ("collections.OrderedDict", b"}(" + PAIRS + b"u"),
    "words": ("torch.serialization._get_layout", MANY),
    "a call in a call": ("torch._tensor._rebuild_from_type_v2", b"c_codecs\nencode\n"),
}


@pytest.mark.parametrize("name", COPIES)
def test_calls_copy_no_more_than_the_file_has(name):
    with pytest.raises(FileError):
        files.load(with_pickle(given_often(*COPIES[name])))


def test_a_long_key_is_refused():
    """It would be hashed again for each use: 90 KB took two minutes."""
    key = b"(" + b"N" * 30_000 + b"tq\x010"
    with pytest.raises(FileError, match="a key of 30000 parts"):
        files.load(with_pickle(b"\x80\x03" + key + b"}(" + b"h\x01N" * 30_000 + b"u."))


def test_a_state_given_often_is_refused():
    array = b"h\x02)R(K\x01J\x00\x00\x01\x00\x85h\x03\x89h\x01tb"
    pickled = (
        b"\x80\x03(B\x00\x00\x01\x00" + bytes(1 << 16) + b"q\x010"
        b"cnumpy\ndtype\nX\x02\x00\x00\x00u1K\x00K\x01\x87Rq\x030"
        b"cnumpy.core.multiarray\n_reconstruct\nq\x020(" + array * 200 + b"tt."
    )
    with pytest.raises(FileError, match="calls are given"):
        files.load(with_pickle(pickled))


def test_shared_lists_cost_what_they_are_long():
    assert len(files.load(with_pickle(b"]" + b"2\x86" * 100 + b"."))) == 2


@pytest.mark.parametrize(
    "make",
    [lambda: X[0].to_sparse(), lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)],
    ids=["sparse", "quantised"],
)
@pytest.mark.filterwarnings("ignore")
def test_other_layouts_are_refused(make):
    with pytest.raises(FileError, match="tensor; legal are dense|which is no plain value"):
        files.load(saved(make()))


def rebuilt(arguments):
    """A pickle that rebuilds a tensor on the 64-byte storage."""
    key = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
    key += b"K\x10tQ"
    unpacked = b"".join(pickle.dumps(value, 2)[2:-1] for value in arguments)
    return with_pickle(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + key + unpacked + b"tR.")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((0, (17,), (1,), False), "ends at element 16 of a storage of 16"),
        ((0, (2, 2), (1 << 40, 1), False), "ends at element"),
        ((-1, (2,), (1,), False), "below 0"),
        ((0, (2,), (-1,), False), "below 0"),
        ((0, (2,), (1, 1), False), "strides"),
        ((0, (2.0,), (1,), False), "strides"),
        ((0, (1,) * 100, (1,) * 100, False), "strides"),
    ],
)
def test_a_tensor_outside_its_storage_is_refused(arguments, message):
    with pytest.raises(FileError, match=message):
        files.load(rebuilt(arguments))


def test_a_packed_archive_is_refused():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", b"\x80\x02}." + bytes(1000))
    with pytest.raises(FileError, match="is packed"):
        files.load(out.getvalue())


@pytest.mark.parametrize("raw", [b"", b"PK", b"GIF89a", b"\x80\x02}.", b"PK\x03\x04" + bytes(30)])
def test_other_files_are_refused(raw):
    with pytest.raises(FileError):
        files.load(raw)


def test_memory_follows_the_file_and_not_what_it_says():
    head = b"".join(pickle.dumps(v, 2) for v in (files.MAGIC, 1001, {"little_endian": True}))
    assert not survives(files.load, head + b"\x80\x02X\xff\xff\xff\x7fabc.")
    assert not survives(files.load, with_pickle(b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7fabc."))


SMALL = {"a": X[0].T, "b": [torch.nn.Parameter(X[1]), 1.5, "x"], "c": collections.OrderedDict()}
REAL = [saved(SMALL), saved(SMALL, legacy=True), old_tar()]


@settings(max_examples=150)
@given(mutants(REAL))
def test_mutants_are_read_or_refused(raw):
    survives(files.load, raw)


@settings(max_examples=150)
@given(mutants([zipfile.ZipFile(io.BytesIO(REAL[0])).read("archive/data.pkl")]))
def test_mutant_pickles_are_read_or_refused(pickled):
    survives(files.load, with_pickle(pickled))
