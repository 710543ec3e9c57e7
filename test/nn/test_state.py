"""Tensors by name, and files that safetensors' own library reads and writes alike."""

import json
import struct
from collections import deque, namedtuple
from types import MappingProxyType

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from mapped import is_mapped

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError, TinygradError
from tinygrad.engine.jit import TinyJit
from tinygrad.formats import safetensors as files
from tinygrad.nn import BatchNorm, Linear, datasets
from tinygrad.nn.state import (
    _source,
    get_parameters,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_load_metadata,
    safe_save,
)
from tinygrad.tensor import Tensor

Pair = namedtuple("Pair", "first second")


class Net:
    def __init__(self):
        self.layers = [Linear(2, 3), Tensor.relu, BatchNorm(3)]
        self.more = {"pair": Pair(Tensor([1.0]), (Tensor([2.0]),)), "size": 3, "none": None}
        self.step = TinyJit(self.forward)
        self.me = self  # an object that holds itself

    def forward(self, x):
        return x


NAMES = [
    "layers.0.weight",
    "layers.0.bias",
    "layers.2.weight",
    "layers.2.bias",
    "layers.2.num_batches_tracked",
    "layers.2.running_mean",
    "layers.2.running_var",
    "more.pair.first",
    "more.pair.second.0",
]


def test_names_are_the_way_to_the_tensor():
    assert list(get_state_dict(Net())) == NAMES
    assert list(get_state_dict(Net(), "net.")) == ["net." + name for name in NAMES]
    assert len(get_parameters(Net())) == len(NAMES)
    assert list(get_state_dict(Tensor([1.0]), "x")) == ["x"]


class Slotted:
    __slots__ = ("unset", "w")

    def __init__(self):
        self.w = Tensor([1.0])


class Layers(list):
    def __init__(self):
        super().__init__([Tensor([1.0])])
        self.norm = Tensor([2.0])


class Named(dict):
    def __init__(self):
        super().__init__(a=Tensor([1.0]))
        self.norm = Tensor([2.0])
        self.again = self


@pytest.mark.parametrize(
    "held, names",
    [
        ([Slotted()], ["0.w"]),
        (deque([Tensor([1.0])]), ["0"]),
        (MappingProxyType({"a": Tensor([1.0])}), ["a"]),
        (Layers(), ["0", "norm"]),
        (Named(), ["a", "norm"]),
    ],
)
def test_whatever_holds_tensors_holds_them(held, names):
    assert list(get_state_dict(held)) == names


def test_a_set_has_no_names_for_its_tensors():
    assert not get_state_dict({1, "a"})
    with pytest.raises(ArgumentError, match="a set of tensors, 'net.of'; legal are lists"):
        get_state_dict({"of": {Tensor([1.0])}}, "net.")


def test_a_loaded_model_is_the_saved_one(tmp_path):
    net, other = Net(), Net()
    safe_save(get_state_dict(net), tmp_path / "net.safetensors")
    loaded = load_state_dict(other, safe_load(tmp_path / "net.safetensors"))
    assert len(loaded) == len(NAMES)
    for name, tensor in get_state_dict(net).items():
        found = get_state_dict(other)[name]
        assert found.dtype is tensor.dtype and found.tolist() == tensor.tolist()


def test_computed_tensors_are_written_in_place():
    place = Tensor([0.0, 0.0]).contiguous().realize()
    storage = place.uop.realized
    load_state_dict({"w": place}, {"w": Tensor([1.0, 2.0])})
    assert place.uop.realized is storage and place.tolist() == [1.0, 2.0]


def test_what_was_computed_is_a_start_once_it_was_loaded():
    place = (Tensor([1.0, 2.0], requires_grad=True) * 2).realize()
    with Tensor.no_grad():
        load_state_dict({"w": place}, {"w": Tensor([3.0, 4.0])})
    assert (place * place).sum().gradient(place)[0].tolist() == [6, 8]


def test_another_dtype_is_kept_and_used_values_are_consumed():
    place, values = {"w": Tensor([0.0])}, {"w": Tensor([1.0], dtype=dtypes.half)}
    load_state_dict(place, values, consume=True)
    assert place["w"].dtype is dtypes.half and not values


def test_one_number_loads_with_or_without_an_axis():
    place = {"n": Tensor(0)}
    load_state_dict(place, {"n": Tensor([7])})
    assert (place["n"].shape, place["n"].item()) == ((), 7)


def test_missing_names_are_listed():
    with pytest.raises(ArgumentError, match=r"no value for b; values without a place: c;"):
        load_state_dict({"a": Tensor([0]), "b": Tensor([0])}, {"a": Tensor([1]), "c": Tensor([2])})
    place = {"a": Tensor([0]), "b": Tensor([0])}
    assert load_state_dict(place, {"a": Tensor([1])}, strict=False) == [place["a"]]


def test_unused_values_are_listed():
    with pytest.warns(UserWarning, match="no place for b, c"):
        load_state_dict({"a": Tensor([0])}, {name: Tensor([1]) for name in "abc"})


def test_a_wrong_shape_is_named_and_nothing_is_loaded():
    place = {"a": Tensor([0]), "b": Tensor([0, 0])}
    with pytest.raises(ShapeError, match=r"b has shape \(2,\) in the model and \(3,\)"):
        load_state_dict(place, {"a": Tensor([1]), "b": Tensor([1, 2, 3])})
    assert place["a"].tolist() == [0]


# ---- files ---------------------------------------------------------------------------------------

ARRAYS = {
    "bool": np.array([True, False, True]),
    "i8": np.array([-1, 2], np.int8),
    "u8": np.array([[1], [255]], np.uint8),
    "i16": np.array([-300, 2], np.int16),
    "u16": np.array([60_000], np.uint16),
    "i32": np.array(-7, np.int32),
    "u32": np.array([4_000_000_000], np.uint32),
    "i64": np.array([-(2**40)], np.int64),
    "u64": np.array([2**63], np.uint64),
    "f16": np.array([0.5, -2], np.float16),
    "bf16": np.array([0.5, -3], ml_dtypes.bfloat16),
    "f32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "f64": np.array([[1e300]]),
}


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name


def test_every_dtype_goes_there_and_back(tmp_path):
    path = tmp_path / "all.safetensors"
    safe_save({name: Tensor(array) for name, array in ARRAYS.items()}, path, {"who": "née"})
    same({name: tensor.numpy() for name, tensor in safe_load(path).items()}, ARRAYS)
    assert safe_load_metadata(path)["__metadata__"] == {"who": "née"}


def test_the_library_reads_what_we_write(tmp_path):
    path = tmp_path / "ours.safetensors"
    plain = {name: array for name, array in ARRAYS.items() if name != "bf16"}
    files.write(path, ARRAYS)
    theirs = safetensors.torch.load_file(path)
    assert theirs["bf16"].dtype is torch.bfloat16
    assert theirs["bf16"].float().tolist() == ARRAYS["bf16"].astype(float).tolist()
    same({name: theirs[name].numpy() for name in plain}, plain)


def test_we_read_what_the_library_writes(tmp_path):
    path = tmp_path / "theirs.safetensors"
    plain = {name: array for name, array in ARRAYS.items() if name != "bf16"}
    safetensors.numpy.save_file(plain, path, {"a": "b"})
    found, metadata = files.read(path)
    same(found, plain)
    same({n: t.numpy() for n, t in safe_load(Tensor(path.read_bytes())).items()}, plain)
    assert metadata == {"a": "b"}


def test_fp8_and_empty_arrays_are_kept(tmp_path):
    arrays = {
        "e4m3": np.array([1.5, -448], ml_dtypes.float8_e4m3fn),
        "e5m2": np.array([1.5], ml_dtypes.float8_e5m2),
        "none": np.zeros((0, 3), np.float32),
    }
    files.write(tmp_path / "x", arrays)
    same(files.read(tmp_path / "x")[0], arrays)


def test_reading_maps_the_file_and_arrays_lie_aligned(tmp_path):
    files.write(tmp_path / "x", {"b": np.ones(3, np.uint8), "a": np.ones(2, np.float64)})
    arrays, _ = files.read(tmp_path / "x")
    assert all(is_mapped(a) and a.flags.aligned for a in arrays.values())


def test_a_failed_write_leaves_the_old_file(tmp_path):
    files.write(tmp_path / "x", {"a": np.ones(2)})
    with pytest.raises(ArgumentError, match="'b' has dtype complex128"):
        files.write(tmp_path / "x", {"b": np.ones(2, np.complex128)})
    assert files.read(tmp_path / "x")[0]["a"].tolist() == [1, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


ROW = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "raw, message",
    [
        (b"", "0 bytes"),
        (b"not a safetensors file", "no safetensors file"),
        (file_of(b"{"), "no JSON"),
        (file_of([1]), "no JSON object"),
        (file_of({"a": {"dtype": "F32"}}), "'a': a row needs"),
        (file_of({"a": {**ROW, "dtype": "F3"}}, bytes(8)), "dtype F3; known are BOOL"),
        (file_of({"a": ROW}, bytes(7)), "cut short"),
        (file_of({"a": {**ROW, "shape": [3]}}, bytes(8)), r"shape \(3,\) at bytes 0 to 8"),
        (file_of({"a": {**ROW, "shape": [-2]}}, bytes(8)), "legal are whole numbers"),
    ],
)
def test_a_broken_file_is_refused(raw, message):
    with pytest.raises(ArgumentError, match=message):
        files.read(raw)


def test_metadata_must_be_strings(tmp_path):
    with pytest.raises(ArgumentError, match="legal are strings"):
        safe_save({}, tmp_path / "x", {"epoch": 3})


# ---- data sets -----------------------------------------------------------------------------------


def test_digits_are_tensors():
    x_train, y_train, x_test, y_test = datasets.digits()
    assert (x_train.shape, y_train.shape) == ((1437, 1, 8, 8), (1437,))
    assert (x_test.shape, y_test.shape) == ((360, 1, 8, 8), (360,))
    assert x_train.dtype is dtypes.uint8 and y_train.max().item() == 9


def test_what_needs_a_download_says_so():
    with pytest.raises(TinygradError, match="mnist.*digits"):
        datasets.mnist()


def test_captured_steps_see_what_is_loaded_into_a_tensor_of_two_names():
    weight = Tensor([1.0]).realize()
    step, tied = TinyJit(lambda: (weight * 2).realize()), {"embed": weight, "head": weight}
    for _ in range(3):
        step()
    load_state_dict(tied, {"embed": Tensor([5.0]), "head": Tensor([5.0])})
    assert step().item() == 10.0


def test_bytes_of_a_file_are_read_where_they_are(tmp_path):
    path = tmp_path / "w.safetensors"
    safe_save({"w": Tensor([1.0, 2.0])}, path)
    data = Tensor(path)
    first, second = np.asarray(_source(data)), np.asarray(_source(data))
    assert first.ctypes.data == second.ctypes.data
    assert safe_load_metadata(data)["w"]["shape"] == [2]


@pytest.mark.parametrize("net", [{"a.b": 0, "a": {"b": 1}}, {1: 0, "1": 1}])
def test_two_tensors_of_one_name_are_refused(net):
    def made(part):
        return {k: made(p) for k, p in part.items()} if isinstance(part, dict) else Tensor([part])

    with pytest.raises(ArgumentError, match="two have the name '(a.b|1)'"):
        get_state_dict(made(net))
    with pytest.raises(ArgumentError, match="two have the name"):
        get_parameters(made(net))
