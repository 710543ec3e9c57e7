"""Safetensors beyond one small file (see nn/test_state.py): mapped, sharded, broken."""

import json
import os
import struct
import threading

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from formats.mutants import mutants, survives
from hypothesis import given, settings

from tinygrad import Device, GlobalCounters, Tensor, dtypes
from tinygrad.base.errors import ArgumentError, FileError
from tinygrad.engine.jit import TinyJit
from tinygrad.formats import gguf, numpy_files
from tinygrad.formats import safetensors as files
from tinygrad.formats.mapped import tensor_of
from tinygrad.nn import Linear
from tinygrad.nn.optim import SGD
from tinygrad.nn.state import get_state_dict, load_state_dict, safe_load, safe_save

HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage"


def resident():
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def flags_of_mapping(path):
    """What the system was asked of the process's mappings of a file: two letters a wish."""
    with open("/proc/self/smaps") as file:
        mappings = file.read().split("VmFlags:")
    pairs = zip(mappings, mappings[1:], strict=False)
    return [after.splitlines()[0].split() for before, after in pairs if str(path) in before]


def sparse_file(path, size):
    """A file of one large array of zeros with a 7 at its end, which takes no room on the disk."""
    row = {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}
    text = json.dumps({"w": row}).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + size)
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(7).tobytes())


@pytest.mark.usefixtures("on_the_cpu")
def test_huge_pages_are_asked_for(tmp_path):
    safe_save({"w": Tensor.ones(1000)}, tmp_path / "w.safetensors")
    held = [files.read(tmp_path / "w.safetensors"), safe_load(tmp_path / "w.safetensors")["w"]]
    assert held[1].to("CPU").sum().item() == 1000
    found = flags_of_mapping(tmp_path / "w.safetensors")
    assert len(found) == 2
    assert all(("hg" in flags) == os.path.exists(HUGE_PAGES) for flags in found)


@pytest.mark.usefixtures("on_the_cpu")
def test_a_gigabyte_is_not_copied_until_it_is_used(tmp_path):
    sparse_file(tmp_path / "big", 1 << 30)
    before, memory = resident(), GlobalCounters.mem_used
    weight = safe_load(tmp_path / "big")["w"]
    model = {"w": Tensor.empty(1 << 28, device="NULL").to(Device.DEFAULT)}
    load_state_dict(model, {"w": weight})
    assert GlobalCounters.mem_used <= memory
    GlobalCounters.reset()
    assert model["w"][-2:].tolist() == [0, 7]
    assert GlobalCounters.mem_used - memory < 1 << 20 and GlobalCounters.global_mem < 1 << 20
    assert resident() - before < 100 << 20


@pytest.mark.usefixtures("on_the_cpu")
def test_a_write_leaves_the_file_and_other_tensors_alone(tmp_path):
    safe_save({"w": Tensor([1.0, 2.0, 3.0])}, tmp_path / "x")
    loaded = safe_load(tmp_path / "x")["w"]
    view, other = loaded[1:], safe_load(tmp_path / "x")["w"]
    loaded[1] = 9
    assert loaded.tolist() == [1, 9, 3] and view.tolist() == [9, 3]
    other += 1
    assert other.tolist() == [2, 3, 4] and safe_load(tmp_path / "x")["w"].tolist() == [1, 2, 3]


def test_a_loaded_model_trains_in_a_captured_step(tmp_path):
    safe_save(get_state_dict(Linear(4, 2)), tmp_path / "x")

    def trained(jit):
        net = Linear(4, 2)
        load_state_dict(net, safe_load(tmp_path / "x"))
        optimizer = SGD([net.weight, net.bias], lr=0.1)

        def step(x):
            with Tensor.train():
                optimizer.zero_grad()
                loss = net(x).square().mean().backward()
                optimizer.step()
                return loss.realize()

        run = TinyJit(step) if jit else step
        return [run(Tensor.ones(3, 4).contiguous().realize()).item() for _ in range(4)]

    plain = trained(False)
    assert plain[0] > plain[-1]
    np.testing.assert_allclose(trained(True), plain, rtol=1e-6)


@pytest.mark.parametrize("shift", [0, 1, 2, 4, 8, 32])
def test_parts_may_lie_anywhere(shift):
    raw = np.arange(4 * 70 + 32, dtype=np.uint8)
    part = np.frombuffer(raw.tobytes(), np.uint8)[shift : shift + 4 * 70].view(np.uint32)
    assert (tensor_of(part) + 1).tolist() == (part + 1).tolist()
    assert tensor_of(part).reshape(7, 10).T.tolist() == part.reshape(7, 10).T.tolist()


def test_big_endian_arrays_are_turned():
    assert tensor_of(np.arange(3, dtype=">i4")).tolist() == [0, 1, 2]


# ---- several files -------------------------------------------------------------------------------


ARRAYS = {f"layer.{i}": np.full((10, 10), i, np.float32) for i in range(5)}
ARRAYS["fp8"] = np.array([1.5, -448], ml_dtypes.float8_e4m3fn)


def test_a_sharded_model_is_read_as_one(tmp_path):
    paths = files.write_sharded(tmp_path, ARRAYS, most=900)
    assert [path.name for path in paths] == [
        f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)
    ]
    assert json.loads((tmp_path / files.INDEX).read_text())["metadata"]["total_size"] == 2002
    for source in (tmp_path, tmp_path / files.INDEX):
        found = safe_load(source)
        assert list(found) == list(ARRAYS) and found["fp8"].dtype is dtypes.fp8e4m3
        assert found["layer.3"].tolist() == ARRAYS["layer.3"].tolist()
    assert safetensors.numpy.load_file(paths[1])["layer.3"].tolist() == ARRAYS["layer.3"].tolist()


def test_a_small_model_is_one_file(tmp_path):
    assert [path.name for path in files.write_sharded(tmp_path, ARRAYS)] == [files.SINGLE]
    assert list(safe_load(tmp_path)) == sorted(ARRAYS, key=lambda n: (-ARRAYS[n].itemsize, n))


def test_a_folder_holds_what_was_written_last(tmp_path):
    for value, most in enumerate((100, 1000, 100)):
        arrays = {name: np.full(20, value, np.float32) for name in "abc"}
        files.write_sharded(tmp_path, arrays, most)
        assert safe_load(tmp_path)["b"].tolist() == [value] * 20


@pytest.mark.parametrize(
    "index, message",
    [
        ("[]", "no JSON object"),
        ("{}", "no weight_map"),
        ('{"weight_map": {"a": 1}}', "no weight_map"),
        ('{"weight_map": {"a": "../x"}}', r"file '\.\./x'; legal are names"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "legal are names"),
        ('{"weight_map": {"a": ".."}}', "legal are names"),
        ('{"weight_map": {"a": "model.safetensors.index.json"}}', "legal are names"),
        ('{"weight_map": {"a": "none"}}', "none' can't be read"),
        ('{"weight_map": {"a": "model.safetensors"}}', "'a' is not in model.safetensors"),
    ],
)
def test_a_broken_index_is_refused(tmp_path, index, message):
    files.write(tmp_path / files.SINGLE, {"b": np.ones(1)})
    (tmp_path / files.INDEX).write_text(index)
    with pytest.raises(FileError, match=message):
        safe_load(tmp_path)


@pytest.mark.parametrize("place", [(), (slice(None),), (slice(0),)])
def test_complex_numbers(place, tmp_path):
    array = np.array([1 + 2j, 3], np.complex64)[1 if place == () else place]
    safetensors.torch.save_file({"z": torch.tensor(array)}, tmp_path / "z.safetensors")
    assert safe_load(tmp_path / "z.safetensors")["z"].tolist() == array.tolist()


# ---- broken files --------------------------------------------------------------------------------


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


ROW = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "raw, message",
    [
        (struct.pack("<Q", 2**63) + b"{}", "header of 9223372036854775808 bytes"),
        (file_of({"a": ROW, "b": ROW}, bytes(4)), "belong to no array, or to two"),
        (file_of({"a": ROW}, bytes(5)), "arrays end at byte 4, the file at 5"),
        (file_of({"a": {**ROW, "data_offsets": [1, 5]}}, bytes(5)), "bytes 0 to 1"),
        (file_of({"a": {**ROW, "data_offsets": [4, 0]}}, bytes(4)), "cut short"),
        (file_of({"a": {**ROW, "shape": [2**62, 4]}}, bytes(4)), "cut short"),
        (file_of({"a": {**ROW, "shape": [0, 2**70], "data_offsets": [0, 0]}}), "shape"),
        (file_of({"a": {**ROW, "shape": [1] * 70 + [4]}}, bytes(4)), "shape"),
        (file_of({"a": {**ROW, "shape": [4.0]}}, bytes(4)), "whole numbers"),
        (file_of({"a": {**ROW, "dtype": ["U8"]}}, bytes(4)), "dtype"),
        (file_of(b'{"a": {}, "a": {}}'), "stands twice"),
        (file_of(b"[" * 100_000), "no JSON"),
        (file_of({"__metadata__": {"a": 1}}), "legal are strings by name"),
        (file_of({"__metadata__": [1]}), "legal are strings by name"),
    ],
)
def test_a_broken_file_is_refused(raw, message):
    with pytest.raises(FileError, match=message):
        files.read(raw)


def test_names_that_the_format_lacks_are_refused(tmp_path):
    for name in ("__metadata__", 1):
        with pytest.raises(ArgumentError, match=f"can't be named {name!r}"):
            files.write(tmp_path / "x", {name: np.ones(1)})
    with pytest.raises(ArgumentError, match="'w' is a ndarray; legal are Tensors"):
        safe_save({"w": np.ones(1)}, tmp_path / "x")
    with pytest.raises(FileError, match="can't be read"):
        files.read(tmp_path / "none")


REAL = safetensors.numpy.save({"a": np.arange(6.0), "b": np.zeros((2, 3), np.int8)}, {"k": "v"})


@pytest.mark.parametrize("name", ["float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"])
def test_narrow_floats_that_tensors_lack_become_float32(name, tmp_path):
    values = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
    safetensors.torch.save_file({"w": values}, tmp_path / "w.safetensors")
    found = safe_load(tmp_path / "w.safetensors")["w"]
    assert found.dtype is dtypes.float32
    np.testing.assert_array_equal(found.numpy(), values.float().numpy())


@settings(max_examples=150)
@given(mutants([REAL]))
def test_mutants_are_read_or_refused(raw):
    survives(files.read, raw)


# ---- where it is written -------------------------------------------------------------------------

WRITERS = {
    "safetensors": lambda path: safe_save({"a": Tensor([1.0, 2.0])}, path),
    "gguf": lambda path: gguf.save(path, {"a": Tensor([1.0, 2.0])}),
    "npz": lambda path: numpy_files.save(path, {"a": Tensor([1.0, 2.0])}),
    "disk": lambda path: Tensor([1.0, 2.0]).to(f"disk:{path}").realize(),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_keeps_its_links_and_rights(name, tmp_path):
    path, link = tmp_path / "x.npz", tmp_path / "latest.npz"
    mask = os.umask(0)
    os.umask(mask)
    WRITERS[name](path)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    path.write_bytes(b"")
    path.chmod(0o640)
    link.symlink_to(path)
    WRITERS[name](link)
    assert link.is_symlink() and path.stat().st_mode & 0o777 == 0o640
    assert path.read_bytes() == link.read_bytes() != b""
    assert sorted(each.name for each in tmp_path.iterdir()) == ["latest.npz", "x.npz"]


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    safe_save({"a": Tensor([1.0, 2.0])}, pipe)
    reader.join()
    assert pipe.is_fifo()
    assert safe_load(Tensor(np.frombuffer(found[0], np.uint8)))["a"].tolist() == [1, 2]
    with pytest.raises(FileError, match="is a folder or a device"):
        Tensor([1.0]).to(f"disk:{pipe}").realize()


def test_where_nothing_can_be_written_the_path_is_named(tmp_path):
    for path, error in ((tmp_path / "no" / "x", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(error) as told:
            safe_save({"a": Tensor([1.0])}, path)
        assert told.value.filename == str(path)
