"""GGUF against the `gguf` package: it wrote the files that we read, reads those that we write, and
dequantises every block format."""

import io
import struct
from types import SimpleNamespace

import gguf
import ml_dtypes
import numpy as np
import pytest
from formats.mutants import mutants, survives
from gguf import quants
from hypothesis import given, settings

from tinygrad import GlobalCounters, Tensor, TinyJit, dtypes
from tinygrad.base.errors import ArgumentError, FileError
from tinygrad.formats import gguf as files
from tinygrad.formats.quants import FORMATS, dequantise
from tinygrad.nn import Embedding, Linear
from tinygrad.nn.experts import ChosenLinear
from tinygrad.nn.state import gguf_load, load_state_dict


def blocks_of(name, count, seed=0):
    """Random blocks; their scales are made finite."""
    draw = np.random.default_rng(seed)
    raw = draw.integers(0, 256, (count, FORMATS[name].nbytes), dtype=np.uint8)
    return raw


def test_every_format_of_the_package_has_a_row():
    """All that it can dequantise, and Q8_K, of which it knows the size."""
    known = [*quants._type_traits, gguf.GGMLQuantizationType.Q8_K]
    kinds = {kind.name: (kind.value, *gguf.GGML_QUANT_SIZES[kind]) for kind in known}
    assert kinds.pop("BF16") == (30, 1, 2)
    assert {n: (row.number, row.elements, row.nbytes) for n, row in FORMATS.items()} == kinds


def test_blocks_of_one_scale_and_bytes():
    raw = np.zeros(2, "f4, (256,)i1, (16,)i2")
    raw["f0"], raw["f1"] = [0.25, -3], np.arange(512).reshape(2, 256) - 128
    wanted = raw["f0"][:, None] * raw["f1"].astype(np.float32)
    found = dequantise(Tensor(raw.view(np.uint8)), "Q8_K", wanted.shape).numpy()
    np.testing.assert_array_equal(found, wanted)


BY_THE_PACKAGE = [name for name in FORMATS if name != "Q8_K"]


@pytest.mark.parametrize("name", BY_THE_PACKAGE)
def test_blocks_are_dequantised_bit_by_bit(name):
    raw = blocks_of(name, 5)
    with np.errstate(all="ignore"):
        wanted = quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    found = dequantise(Tensor(raw.reshape(-1)), name, wanted.shape).numpy()
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", BY_THE_PACKAGE)
def test_blocks_lie_on_any_device_and_on_several(name):
    raw = blocks_of(name, 4)
    with np.errstate(all="ignore"):
        wanted = quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    for device in ("PYTHON", ("CPU:1", "CPU:2")):
        found = dequantise(Tensor(raw.reshape(-1)).to(device), name, wanted.shape)
        np.testing.assert_array_equal(found.numpy(), wanted)


@pytest.mark.parametrize("name", ["Q4_0", "Q6_K"])
def test_few_rows_of_a_table_are_all_that_becomes_floats(name):
    """An embedding of a model was computed whole for each token, and kept as floats."""
    raw = Tensor(blocks_of(name, 1000).reshape(-1) // 2).realize()
    shape = (500, 2 * FORMATS[name].elements)
    layer = Embedding(*shape)
    layer.weight = dequantise(raw, name, shape)
    wanted = layer.weight.numpy()[[[3], [499]]]
    GlobalCounters.reset()
    found = layer(Tensor([[3], [499]], dtype=dtypes.int32)).realize()
    assert GlobalCounters.global_mem < raw.nbytes() // 2
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_another_format_is_refused():
    with pytest.raises(ArgumentError, match="format Q1; legal are Q4_0, "):
        dequantise(Tensor([0], dtype="uint8"), "Q1", (1,))


# ---- files ---------------------------------------------------------------------------------------

PLAIN = {
    "f32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "f16": np.array([0.5, -2], np.float16),
    "f64": np.array([1e300]),
    "i8": np.array([-1, 2], np.int8),
    "i16": np.array([-300], np.int16),
    "i32": np.array([7, 8, 9], np.int32),
    "i64": np.array([-(2**40)], np.int64),
}
FACTS = {
    "general.name": "née",
    "tokenizer.ggml.tokens": ["<s>", "a", "Ġb"],
    "tokenizer.ggml.scores": [0.0, -1.5, 2.0],
    "tokenizer.ggml.token_type": [1, 2, 3],
    "llama.context_length": 4096,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.add_bos_token": True,
}


def written(path, alignment=32, order=gguf.GGUFEndian.LITTLE):
    """A file by the package: plain arrays, and a matrix of 4 rows in every block format."""
    writer = gguf.GGUFWriter(path, "llama", endianess=order)
    big = order is gguf.GGUFEndian.BIG
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    for name, value in FACTS.items():
        kind = gguf.GGUFValueType.get_type(value)
        inner = gguf.GGUFValueType.get_type(value[0]) if isinstance(value, list) else None
        writer.add_key_value(name, value, kind, inner)
    for name, array in PLAIN.items():
        writer.add_tensor(name, array.copy())
    for name, row in FORMATS.items():
        raw = blocks_of(name, 4).reshape(4, row.nbytes)
        raw = row.turned(raw.reshape(-1)).reshape(raw.shape) if big else raw
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[name])
    bf16 = np.array([[0.5, -3]], ml_dtypes.bfloat16).view(np.uint16)
    bf16 = (bf16.byteswap() if big else bf16).view(np.uint8)
    writer.add_tensor("bf16", bf16, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


LITTLE, BIG = gguf.GGUFEndian.LITTLE, gguf.GGUFEndian.BIG


@pytest.mark.parametrize("alignment, order", [(32, LITTLE), (8, LITTLE), (256, LITTLE), (32, BIG)])
def test_we_read_what_the_package_writes(tmp_path, alignment, order):
    written(tmp_path / "x.gguf", alignment, order)
    assert files.facts_of(tmp_path / "x.gguf") == gguf_load(tmp_path / "x.gguf")[0]
    facts, tensors = gguf_load(tmp_path / "x.gguf")
    assert facts.items() >= FACTS.items() and facts["general.architecture"] == "llama"
    for name, array in PLAIN.items():
        np.testing.assert_array_equal(tensors[name].numpy(), array, strict=True)
    assert tensors["bf16"].dtype is dtypes.bfloat16 and tensors["bf16"].tolist() == [[0.5, -3]]
    assert all(tensors[name].shape == (4, row.elements) for name, row in FORMATS.items())
    for name in ("Q4_0", "Q6_K"):
        wanted = quants.dequantize(blocks_of(name, 4), gguf.GGMLQuantizationType[name])
        np.testing.assert_array_equal(tensors[name].numpy(), wanted)


@pytest.mark.parametrize("name", ["Q4_0", "Q8_0", "Q4_K", "Q6_K", "MXFP4", "NVFP4"])
def test_words_of_blocks_are_turned_as_the_package_turns_them(name):
    from gguf.scripts.gguf_convert_endian import byteswap_tensors

    raw = blocks_of(name, 3)
    turned = SimpleNamespace(data=raw.reshape(-1).copy())
    for block in range(3):
        kind = gguf.GGMLQuantizationType[name]
        byteswap_tensors[kind](turned, block * FORMATS[name].nbytes)
    assert FORMATS[name].turned(raw.reshape(-1)).tolist() == turned.data.tolist()


@pytest.mark.parametrize("kind", files.WRITABLE)
def test_the_package_reads_what_we_write(tmp_path, kind):
    weight = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
    files.save(tmp_path / "x", {"w": Tensor(weight), "b": Tensor(weight[0])}, FACTS, kind)
    reader = gguf.GGUFReader(tmp_path / "x")
    found = {tensor.name: tensor for tensor in reader.tensors}
    assert (found["w"].tensor_type.name, found["b"].tensor_type.name) == (kind, "F32")
    theirs = quants.dequantize(found["w"].data, found["w"].tensor_type)
    facts, ours = gguf_load(tmp_path / "x")
    assert facts.items() >= FACTS.items()
    np.testing.assert_array_equal(ours["w"].float().numpy(), theirs)
    steps = {"F32": 0, "F16": 2e-3, "BF16": 2e-2, "Q8_0": 2e-2, "Q4_0": 0.3}
    np.testing.assert_allclose(theirs, weight, atol=steps[kind])


def test_a_kind_that_does_not_fit_is_refused_or_f32(tmp_path):
    odd = Tensor.ones(2, 33)
    files.save(tmp_path / "x", {"w": odd}, kinds="Q8_0")
    assert gguf_load(tmp_path / "x")[1]["w"].tolist() == odd.tolist()
    with pytest.raises(ArgumentError, match="multiple of 32"):
        files.save(tmp_path / "x", {"w": odd}, kinds={"w": "Q8_0"})
    with pytest.raises(ArgumentError, match="as Q2_K; legal are F32"):
        files.save(tmp_path / "x", {"w": odd}, kinds="Q2_K")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("kinds", ["F16", "Q4_0", {}])
def test_whole_numbers_stay_so(tmp_path, kinds):
    """100000 became an infinite float16."""
    numbers = {dtype: Tensor([-1, 100_000], dtype=dtype) for dtype in ("int32", "int64")}
    numbers["int8"] = Tensor([[1, -2]], dtype="int8")
    files.save(tmp_path / "x", numbers, kinds=kinds)
    for name, tensor in gguf_load(tmp_path / "x")[1].items():
        assert tensor.dtype == numbers[name].dtype and tensor.tolist() == numbers[name].tolist()
    with pytest.raises(ArgumentError, match=r"dtypes.bool; legal are floats and signed"):
        files.save(tmp_path / "x", {"w": Tensor([True])}, kinds=kinds)


@pytest.mark.parametrize("kind", files.WRITABLE)
@pytest.mark.parametrize("shape", [(0, 32), (2, 0), (0,), ()])
def test_tensors_without_elements(tmp_path, kind, shape):
    files.save(tmp_path / "x", {"w": Tensor.ones(*shape)}, kinds=kind)
    assert gguf_load(tmp_path / "x")[1]["w"].tolist() == Tensor.ones(*shape).tolist()


@pytest.mark.parametrize(
    "value, kind",
    [
        (7, "UINT32"),
        (-7, "INT32"),
        (2**40, "INT64"),
        (2**63, "UINT64"),
        (0.5, "FLOAT32"),
        (float("inf"), "FLOAT32"),
        (1e300, "FLOAT64"),
        (True, "BOOL"),
        ("ü", "STRING"),
        ([1, 2], "INT32"),
        ([1, 2**40], "INT64"),
        (["a", ""], "STRING"),
    ],
)
def test_facts_have_the_type_that_holds_them(tmp_path, value, kind):
    files.save(tmp_path / "x", {}, {"fact": value})
    assert gguf.GGUFReader(tmp_path / "x").fields["fact"].types[-1].name == kind
    assert gguf_load(tmp_path / "x")[0]["fact"] == value


@pytest.mark.parametrize("value", [None, [], [1, "a"], [1, True], {}, 2**64, (1, 2), object()])
def test_other_facts_are_refused(tmp_path, value):
    with pytest.raises(ArgumentError, match="gguf: fact 'fact' of .*; legal are bools"):
        files.save(tmp_path / "x", {}, {"fact": value})


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_a_product_dequantises_what_it_multiplies(tmp_path, kind):
    width, height = 1024, 2048
    weight = np.random.default_rng(0).normal(size=(height, width)).astype(np.float32)
    files.save(tmp_path / "x", {"weight": Tensor(weight)}, kinds=kind)
    before = GlobalCounters.mem_used
    net = Linear(width, height, bias=False)
    load_state_dict(net, gguf_load(tmp_path / "x")[1], realize=False)
    assert GlobalCounters.mem_used <= before
    for rows in (1, 5):
        x = Tensor.ones(rows, width).contiguous().realize()
        GlobalCounters.reset()
        made = net(x).realize()
        assert rows > 1 or GlobalCounters.kernel_count == 1
        assert GlobalCounters.mem_used - before < weight.nbytes // 8
        packed = quants.quantize(weight, gguf.GGMLQuantizationType[kind])
        wanted = quants.dequantize(packed, gguf.GGMLQuantizationType[kind]).sum(1)
        np.testing.assert_allclose(made.numpy()[-1], wanted, atol=2e-3)


# ---- broken files --------------------------------------------------------------------------------


def small_file():
    """One fact, one F32 tensor of two numbers, one of a Q8_0 block."""
    out = io.BytesIO()
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, 1)
    head += text("k") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    head += text("w") + struct.pack("<IQIQ", 1, 2, 0, 0)
    head += text("q") + struct.pack("<IQIQ", 1, 32, 8, 32)
    out.write(head + bytes(-len(head) % 32) + np.array([1, 2], np.float32).tobytes() + bytes(58))
    return out.getvalue()


def text(word):
    return struct.pack("<Q", len(word)) + word.encode()


def test_a_small_file_is_read():
    facts, tensors = files.load(small_file())
    assert facts == {"k": ["a", "b"]} and tensors["w"].tolist() == [1, 2]
    assert tensors["q"].shape == (32,)


HEAD = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)


@pytest.mark.parametrize(
    "raw, message",
    [
        (b"", "cut short at byte 0"),
        (b"GGML" + small_file()[4:], "begins b'GGML', version 3; legal are GGUF, 2 and 3"),
        (small_file()[:-2], "cut short or its head is wrong"),
        (small_file()[:60], "cut short|values of"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 8, 2)
            + struct.pack("<QQ", 1000, 0),
            "cut short at byte 65",
        ),
        (b"GGUF" + struct.pack(">IQQ", 4, 0, 0), "version 4; legal are GGUF, 2 and 3"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 62, 0), "4611686018427387904 values of 24 bytes"),
        (HEAD + text("w") + struct.pack("<I", 99) + bytes(99), "has 99 axes"),
        (HEAD + text("w") + struct.pack("<IQIQ", 1, 1, 77, 0), "type 77; legal are"),
        (HEAD + text("w") + struct.pack("<IQIQ", 1, 33, 8, 0) + bytes(99), "shape"),
        (HEAD + text("w") + struct.pack("<IQIQ", 1, 1, 0, 1 << 60), "at byte 1152921504606846976"),
        (HEAD + text("w") + struct.pack("<IQQIQ", 2, 1 << 62, 0, 0, 0), "that memory can have"),
        (HEAD + text("w") + struct.pack("<IQQIQ", 2, 1 << 62, 0, 8, 0), "that memory can have"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 13), "type 13"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 9)
            + struct.pack("<IQ", 9, 1) * 20,
            "type 9",
        ),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("general.alignment")
            + struct.pack("<II", 4, 3),
            "alignment 3; legal",
        ),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + (text("k") + struct.pack("<II", 4, 3)) * 2,
            "'k' stands twice",
        ),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused(raw, message):
    with pytest.raises(FileError, match=message):
        files.load(raw)


@settings(max_examples=150)
@given(mutants([small_file()]))
def test_mutants_are_read_or_refused(raw):
    survives(files.load, raw)


def test_a_captured_step_reads_the_blocks_and_keeps_no_floats(tmp_path):
    file = tmp_path / "w.gguf"
    weight = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    files.save(file, {"w": Tensor(weight)}, kinds="Q8_0")
    held = gguf_load(file)[1]["w"]
    step = TinyJit(lambda x: x.linear(held.T).realize())
    x = Tensor.ones(1, 128).realize()
    first = step(x).numpy()
    before = GlobalCounters.mem_used
    again = [step(x).numpy() for _ in range(3)][-1]
    assert (first == again).all()
    assert GlobalCounters.mem_used - before < weight.nbytes // 2


def test_of_experts_in_blocks_only_the_chosen_are_read(tmp_path):
    """Also by captured steps, for any choice, and no floats are kept."""
    file, weight = tmp_path / "w.gguf", np.random.default_rng(0).standard_normal((8, 64, 128))
    files.save(file, {"w": Tensor(weight.astype(np.float32))}, kinds="Q4_0")
    layer = ChosenLinear(8, 128, 64)
    load_state_dict(layer, {"weight": gguf_load(file)[1]["w"]}, realize=False)
    known = gguf_load(file)[1]["w"].numpy()
    step = TinyJit(lambda x, which: layer(x, which).realize())
    x, before = np.ones((2, 1, 128), np.float32), GlobalCounters.mem_used
    for chosen in ([3, 5], [7, 7], [0, 6], [1, 2]):
        given = Tensor(x).realize(), Tensor(chosen, dtype=dtypes.int32).realize()
        GlobalCounters.reset()
        found = step(*given)
        assert GlobalCounters.global_mem < 2 * 64 * 128 * 2
        np.testing.assert_allclose(found.numpy()[:, 0], known[chosen].sum(-1), atol=1e-4)
    assert GlobalCounters.mem_used - before < weight[0].nbytes
