"""Tar, zip and NumPy files: what is in them, and what must not be."""

import io
import tarfile
import zipfile

import numpy as np
import pytest
from formats.mutants import mutants, survives
from hypothesis import given, settings
from PIL import Image

from tinygrad import Tensor, dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, FileError
from tinygrad.formats import archives, numpy_files
from tinygrad.nn.state import TensorIO, tar_extract, zip_extract

FILES = {"a.txt": b"hello", "deep/er/b.bin": bytes(range(256)) * 40, "empty": b""}


def tar_of(files, mode="w", **kind):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in kind.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_of(files, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


ARCHIVES = {
    "tar": tar_of(FILES),
    "tar.gz": tar_of(FILES, "w:gz"),
    "tar.bz2": tar_of(FILES, "w:bz2"),
    "tar.xz": tar_of(FILES, "w:xz"),
    "zip": zip_of(FILES),
    "deflated zip": zip_of(FILES, zipfile.ZIP_DEFLATED),
    "zip by lzma": zip_of(FILES, zipfile.ZIP_LZMA),
}
ENCRYPTED = ARCHIVES["zip"].replace(b"PK\1\2\x14\3\x14\0\0", b"PK\1\2\x14\3\x14\0\1")
UNPACKABLE = ARCHIVES["zip by lzma"].replace(b"]\0\0\x80\0", b"\xff\0\0\x80\0")


@pytest.mark.parametrize("kind", ARCHIVES)
def test_members_are_tensors_of_bytes(kind, tmp_path):
    (tmp_path / "x").write_bytes(ARCHIVES[kind])
    extract = zip_extract if "zip" in kind else tar_extract
    for source in (tmp_path / "x", Tensor(np.frombuffer(ARCHIVES[kind], np.uint8))):
        found = extract(source)
        assert {name: bytes(t.numpy()) for name, t in found.items()} == FILES
        assert all(t.dtype is dtypes.uint8 and t.ndim == 1 for t in found.values())


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "..\\x", "C:/x", "C:\\x"])
def test_names_that_lead_out_are_refused(name):
    for raw in (tar_of({name: b"x"}), zip_of({name: b"x"})):
        with pytest.raises(FileError, match="leads out of the archive"):
            archives.members(raw)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_links_are_refused(kind):
    with pytest.raises(FileError, match="is a link"):
        archives.members(tar_of({"x": b""}, type=kind, linkname="/etc/passwd"))


def test_what_unpacks_to_too_much_is_refused():
    zeros = {"x": bytes(1 << 20)}
    for raw in (tar_of(zeros, "w:gz"), zip_of(zeros, zipfile.ZIP_DEFLATED)):
        with pytest.raises(FileError, match="unpacks to"):
            archives.members(raw, most=1 << 16)


@pytest.mark.parametrize("kind", ARCHIVES)
def test_memory_follows_the_file_and_not_the_limit(kind):
    assert survives(archives.members, ARCHIVES[kind])


@pytest.mark.parametrize("end", [1024, 1025, 1300, 1536, 1537])
def test_a_tar_file_that_ends_between_its_members_is_cut(end):
    with pytest.raises(
        FileError, match=f"cut short or broken at byte {1024 if end < 1536 else 1536}"
    ):
        archives.members(tar_of({"a": b"x", "b": b"", "c": b""})[:end])


@pytest.mark.parametrize(
    "raw",
    [b"no archive at all", ARCHIVES["tar"][:700], ARCHIVES["zip"][:50], ENCRYPTED, UNPACKABLE],
    ids=["text", "cut tar", "cut zip", "encrypted zip", "broken lzma"],
)
def test_other_files_are_refused(raw):
    with pytest.raises(FileError):
        archives.members(raw)


def test_a_tensor_is_a_file():
    file = TensorIO(Tensor(np.frombuffer(b"one\ntwo\n", np.uint8)))
    assert file.readline() == b"one\n" and file.tell() == 4
    assert file.seek(-3, io.SEEK_END) == 5 and file.read() == b"wo\n" and file.read() == b""
    with tarfile.open(fileobj=TensorIO(Tensor(np.frombuffer(ARCHIVES["tar"], np.uint8)))) as found:
        assert found.getnames() == list(FILES)
    with pytest.raises(ArgumentError, match="one axis of uint8"):
        TensorIO(Tensor([1.0]))


# ---- images --------------------------------------------------------------------------------------


def picture(kind, pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def test_images_are_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    grey = pixels[:, :, 0]
    raw = tar_of({"a.png": picture("PNG", pixels), "b.txt": b"x", "c.BMP": picture("BMP", grey)})
    found = dict(archives.images(raw))
    assert list(found) == ["a.png", "c.BMP"]
    np.testing.assert_array_equal(found["a.png"].numpy(), pixels)
    np.testing.assert_array_equal(found["c.BMP"].numpy(), np.stack([grey] * 3, -1))


@pytest.mark.parametrize("kind", ["png", "tiff"])
def test_images_of_16_bits_are_not_cut_off(kind):
    """Beside Pillow, which says 255 for all that is more."""
    grey = np.uint16([[0, 200, 1000, 32768, 65535]])
    ((_, found),) = archives.images(tar_of({f"a.{kind}": picture(kind, grey)}))
    np.testing.assert_array_equal(found.numpy()[0, :, 1], np.round(grey[0] / 65535 * 255))
    with pytest.raises(FileError, match=r"image 'a.tiff' .*float32 from 0.0 to 0.5; legal"):
        list(archives.images(tar_of({"a.tiff": picture("tiff", np.float32([[0, 0.5]]))})))


def test_a_broken_image_is_named():
    raw = picture("PNG", np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(FileError, match="image 'a.png'"):
        list(archives.images(tar_of({"a.png": raw[:40]})))


# ---- NumPy ---------------------------------------------------------------------------------------


def npy_of(array, **more):
    out = io.BytesIO()
    np.save(out, array, **more)
    return out.getvalue()


@pytest.mark.parametrize("kind", "?bBhHiIqQefdFD")
def test_every_dtype(kind, tmp_path):
    array = np.array([[0, 1, 3], [1, 0, 1]]).astype(kind)
    for one in (array, array.T, array[0], array[0, 0], array[:0], array.astype(f">{kind}")):
        np.save(tmp_path / "x.npy", one)
        found = numpy_files.load(tmp_path / "x.npy").numpy()
        np.testing.assert_array_equal(found, one)
        assert found.dtype == one.dtype.newbyteorder("=") and found.shape == one.shape


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(save, tmp_path):
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True])}
    save(tmp_path / "x.npz", **arrays)
    found = numpy_files.load(tmp_path / "x.npz")
    assert {name: t.tolist() for name, t in found.items()} == {
        name: array.tolist() for name, array in arrays.items()
    }


def test_numpy_reads_what_we_write(tmp_path):
    x = Tensor([[1.0, 2.0]])
    numpy_files.save(tmp_path / "x.npy", x)
    numpy_files.save(tmp_path / "x.npz", {"x": x, "y": x + 1})
    assert np.load(tmp_path / "x.npy").tolist() == [[1, 2]]
    assert np.load(tmp_path / "x.npz")["y"].tolist() == [[2, 3]]


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2])
def test_dtypes_that_numpy_lacks_are_not_written(dtype, tmp_path):
    with pytest.raises(ArgumentError, match="which NumPy's files lack"):
        numpy_files.save(tmp_path / "x.npy", Tensor.ones(2, dtype=dtype))


@pytest.mark.parametrize("given", [[Tensor.ones(2)], 3, {"a": [1.0, 2.0]}, np.ones(2)])
def test_what_is_no_tensor_is_not_written(given, tmp_path):
    with pytest.raises(DTypeError, match=r"numpy_files.save: a \w+; legal are a Tensor and a dict"):
        numpy_files.save(tmp_path / "x.npy", given)


@pytest.mark.parametrize(
    "raw, message",
    [
        (b"", "EOF|magic"),
        (npy_of(np.ones(4))[:-1], r"float64 of shape \(4,\) in 159 bytes; cut short"),
        (npy_of(np.array([{}], object), allow_pickle=True), "elements object; legal"),
        (npy_of(np.array(["a"])), "elements <U1"),
        (npy_of(np.ones(1)).replace(b"(1,), ", b"(-1,),"), "cut short"),
        (npy_of(np.ones(1)).replace(b"(1,), ", b"(9**9,"), "EOF in multi-line"),
        (npy_of(np.ones(1)).replace(b"NUMPY\x01", b"NUMPY\x09"), r"version \(9, 0\)"),
    ],
)
def test_a_broken_npy_is_refused(raw, message):
    with pytest.raises(FileError, match=message):
        numpy_files.load(raw)


@settings(max_examples=100)
@given(mutants([npy_of(np.arange(6.0).reshape(2, 3)), zip_of({"a.npy": npy_of(np.ones(3))})]))
def test_mutant_arrays_are_read_or_refused(raw):
    survives(numpy_files.load, raw)


@settings(max_examples=100)
@given(
    mutants([tar_of({"a.txt": b"hello"})[:2048], *(ARCHIVES[k] for k in ARCHIVES if k != "tar")])
)
def test_mutant_archives_are_read_or_refused(raw):
    survives(archives.members, raw)
