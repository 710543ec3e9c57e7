"""Batches come in an order that a seed fixes, from files as they are on a disk."""

import dataclasses
import gzip
import hashlib
import http.server
import io
import json
import tarfile
import threading
from typing import NamedTuple

import numpy as np
import pytest
import torch

from tinygrad import Tensor, data, nn
from tinygrad.base.errors import ArgumentError, DTypeError, FileError, ShapeError, TinygradError
from tinygrad.data import ArrayDataset, DataLoader, FetchError, TextLines, collate, fetch, images


def numbers(loader):
    return [batch.tolist() for batch in loader]


def test_batches_in_order():
    assert numbers(DataLoader(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert numbers(DataLoader(range(5), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert len(DataLoader(range(5), 2)) == 3 and len(DataLoader(range(0), 2)) == 0
    assert numbers(DataLoader(range(0), 2)) == []


def test_a_seed_fixes_the_order_and_epochs_differ():
    one, other = (DataLoader(range(50), 8, shuffle=True, seed=3) for _ in range(2))
    first, second = numbers(one), numbers(one)
    assert first == numbers(other) and first != second
    assert sorted(sum(second, [])) == list(range(50))
    assert numbers(DataLoader(range(50), 8, shuffle=True, seed=4)) != first


@pytest.mark.parametrize("workers", [0, 3])
def test_a_loop_goes_on_where_it_was(workers):
    loader = DataLoader(range(30), 4, shuffle=True, num_workers=workers)
    numbers(loader)
    seen = []
    for batch in loader:
        seen.append(batch.tolist())
        if len(seen) == 3:
            state = loader.state_dict()
    again = DataLoader(range(30), 4, shuffle=True, num_workers=workers)
    again.load_state_dict(state)
    assert numbers(again) == seen[3:]
    assert numbers(again) == numbers(loader)


def test_workers_are_threads_ahead():
    class Slow:
        def __init__(self):
            self.threads = set()

        def __len__(self):
            return 40

        def __getitem__(self, number):
            self.threads.add(threading.current_thread().name)
            return number

    data = Slow()
    assert sum(numbers(DataLoader(data, 4, num_workers=2, prefetch=3)), []) == list(range(40))
    assert threading.current_thread().name not in data.threads


def test_an_error_in_a_worker_reaches_the_loop():
    class Broken:
        def __len__(self):
            return 8

        def __getitem__(self, number):
            if number == 5:
                raise KeyError("sample 5")
            return number

    loader = DataLoader(Broken(), 2, num_workers=2)
    with pytest.raises(KeyError, match="sample 5"):
        numbers(loader)
    for _ in loader:
        break  # leaving early stops the workers
    assert next(iter(loader)).tolist() == [0, 1]


def test_a_batch_has_the_form_of_a_sample():
    samples = [{"x": np.ones(3, np.float32) * i, "y": (i, f"name {i}")} for i in range(2)]
    batch = collate(samples)
    assert batch["x"].tolist() == [[0.0] * 3, [1.0] * 3]
    assert batch["y"][0].tolist() == [0, 1] and batch["y"][1] == ["name 0", "name 1"]
    assert collate([Tensor([1]), Tensor([2])]).tolist() == [[1], [2]]
    assert collate([torch.tensor([1]), torch.tensor([2])]).tolist() == [[1], [2]]


def test_arrays():
    data = ArrayDataset(np.arange(10).reshape(5, 2), Tensor(np.arange(5)))
    x, y = next(iter(DataLoader(data, 3)))
    assert x.tolist() == [[0, 1], [2, 3], [4, 5]] and y.tolist() == [0, 1, 2]
    with pytest.raises(ArgumentError, match=r"shapes \[\(2,\), \(3,\)\]"):
        ArrayDataset(np.zeros(2), np.zeros(3))


def test_lines_of_text(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("one\nzwei ü\r\n\nlast".encode())
    lines = TextLines(path)
    assert [lines[i] for i in range(len(lines))] == ["one", "zwei ü", "", "last"]
    assert lines[-1] == "last"
    with pytest.raises(IndexError, match="line 4 of 4"):
        lines[4]


@pytest.mark.parametrize("option", ["batch_size", "prefetch"])
def test_misuse(option):
    with pytest.raises(ArgumentError, match=f"{option}=0; legal are whole numbers from 1"):
        DataLoader(range(3), **{option: 0})


# ---- sets that are downloaded --------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("tinygrad.data.download._folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def idx(array):
    head = bytes([0, 0, 8, array.ndim])
    return head + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def test_mnist_from_its_files(tmp_path, monkeypatch, cache):
    wanted = [np.random.default_rng(i).integers(0, 255, s, np.uint8) for i, s in enumerate(SHAPES)]
    hashes = {}
    for name, array in zip(images.MNIST_FILES, wanted, strict=True):
        packed = gzip.compress(idx(array))
        (tmp_path / name).write_bytes(packed)
        hashes[name] = hashlib.md5(packed).hexdigest()
    monkeypatch.setattr(images, "MNIST", f"file://{tmp_path}/")
    monkeypatch.setattr(images, "MNIST_FILES", hashes)
    for found, array in zip(nn.datasets.mnist(), wanted, strict=True):
        np.testing.assert_array_equal(found.numpy().reshape(array.shape), array)
    monkeypatch.setattr(images, "MNIST", "file:///nowhere/")  # it is kept
    assert nn.datasets.mnist()[0].shape == (6, 1, 28, 28)


SHAPES = [(6, 28, 28), (6,), (2, 28, 28), (2,)]


def test_cifar_from_its_archive(tmp_path, monkeypatch, cache):
    records = np.random.default_rng(0).integers(0, 10, (12, images.CIFAR10_RECORD), np.uint8)
    path = tmp_path / "cifar.tar.gz"
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    with tarfile.open(path, "w:gz") as archive:
        for i, name in enumerate(names):
            raw = records[2 * i : 2 * i + 2].tobytes()
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
    monkeypatch.setattr(images, "CIFAR10", f"file://{path}")
    monkeypatch.setattr(images, "CIFAR10_MD5", hashlib.md5(path.read_bytes()).hexdigest())
    x_train, y_train, x_test, y_test = (t.numpy() for t in nn.datasets.cifar())
    np.testing.assert_array_equal(y_train, records[:10, 0])
    np.testing.assert_array_equal(x_test.reshape(2, -1), records[10:, 1:])
    assert x_train.shape == (10, 3, 32, 32) and y_test.shape == (2,)


def test_a_wrong_file_is_not_kept(tmp_path, cache):
    (tmp_path / "data").write_bytes(b"not it")
    with pytest.raises(FetchError, match="has md5 .*, wanted 00; nothing was kept"):
        fetch(f"file://{tmp_path}/data", "data", md5="00")
    with pytest.raises(FetchError, match="put the file at .*missing by hand, or go online"):
        fetch(f"file://{tmp_path}/nothing", "missing")
    assert list(cache.iterdir()) == []
    assert fetch(f"file://{tmp_path}/data", "data").read_bytes() == b"not it"


def test_what_is_no_idx_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"GIF8 and more")
    with pytest.raises(TinygradError, match="not an idx file"):
        images.read_idx(path)
    path.write_bytes(idx(np.zeros((2, 3), np.uint8))[:-1])
    with pytest.raises(TinygradError, match=r"5 elements for the shape \(2, 3\)"):
        images.read_idx(path)


def test_folders_that_are_led_to_have_images(tmp_path):
    for name in ("set/cat", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.png").touch()
    (tmp_path / "set/cat/more").symlink_to(tmp_path / "elsewhere")
    files, labels, _ = images.image_folder(tmp_path / "set")
    found = [path.relative_to(tmp_path).as_posix() for path in files]
    assert found == ["set/cat/a.png", "set/cat/more/a.png"] and labels == [0, 0]
    (tmp_path / "elsewhere/b.png").symlink_to("nowhere")  # who opens it is told
    assert len(images.image_folder(tmp_path / "set")[0]) == 3
    (tmp_path / "elsewhere/again").symlink_to(tmp_path / "set/cat")
    with pytest.raises(TinygradError, match="leads back"):
        images.image_folder(tmp_path / "set")


def test_folders_are_classes(tmp_path):
    for name in ["dog/2", "cat/1", "dog/1", ".git/HEAD", "cat/.DS_Store", "dog/.old/3"]:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(b"")
    files, labels, names = images.image_folder(tmp_path)
    assert [f.name for f in files] == ["1", "1", "2"]
    assert labels == [0, 1, 1] and names == ["cat", "dog"]
    with pytest.raises(TinygradError, match="one folder a class"):
        images.image_folder(tmp_path / "cat")


# ---- downloads that end too early ----------------------------------------------------------------


@pytest.fixture
def server():
    """A server that sends what `answers` has for a path, and the headers that stand beside it."""
    answers = {}

    class Answering(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            raw, headers = answers[self.path]
            self.send_response(headers.pop("status", 200))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}", answers
        found.shutdown()
        thread.join()


@pytest.mark.parametrize("status", [204, 206])
def test_what_is_no_whole_answer_is_not_kept(server, cache, status):
    server[1]["/a"] = b"", {"status": status, "Content-Length": "0"}
    with pytest.raises(FetchError, match=f"answered {status}; nothing was kept"):
        fetch(f"{server[0]}/a")
    assert list(cache.iterdir()) == []


def test_what_lies_there_is_checked_too(tmp_path, cache):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    wanted = hashlib.sha256(b"2").hexdigest().upper()
    fetch(one.as_uri(), "same")
    path = fetch(two.as_uri(), "same", sha256=wanted)
    assert path.read_bytes() == b"2"
    path.write_bytes(b"damaged")
    assert fetch(two.as_uri(), "same", sha256=wanted).read_bytes() == b"2"
    assert fetch(str(two), sha256=wanted) == two
    with pytest.raises(FetchError, match="one has sha256 6b86.*, wanted d473"):
        fetch(str(one), sha256=wanted)
    with pytest.raises(FetchError, match="gunzip of a file of this machine"):
        fetch(str(one), gunzip=True)


@pytest.mark.parametrize(
    "headers, told",
    [
        ({"Content-Length": "9"}, "gave 3 bytes of 9; nothing was kept"),
        ({"Transfer-Encoding": "chunked"}, "can't get"),
    ],
)
def test_half_a_download_is_not_kept(server, cache, headers, told):
    url, answers = server
    answers["/x"] = (b"5\r\nhal" if "chunked" in headers.values() else b"hal"), headers
    with pytest.raises(FetchError, match=told):
        fetch(f"{url}/x", "x")
    assert list(cache.iterdir()) == []
    answers["/x"] = b"whole", {"Content-Length": "5"}
    assert fetch(f"{url}/x", "x").read_bytes() == b"whole"


@pytest.mark.parametrize("damage", ["cut", "changed", "other"])
def test_a_damaged_gzip_file_is_not_kept(tmp_path, cache, damage):
    packed = gzip.compress(bytes(range(256)) * 9)
    changed = packed[:40] + bytes([packed[40] ^ 255]) + packed[41:]
    raw = {"cut": packed[:-9], "changed": changed, "other": b"no gzip"}[damage]
    (tmp_path / "data.gz").write_bytes(raw)
    with pytest.raises(FetchError, match="is no whole gzip file .*; nothing was kept"):
        fetch(f"file://{tmp_path}/data.gz", "data", gunzip=True)
    assert list(cache.iterdir()) == []


# ---- text in other encodings ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "encoding",
    ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "latin-1", "cp037", "shift-jis"],
)
@pytest.mark.parametrize("ends", ["\n", ""])
def test_lines_of_text_in_other_encodings(tmp_path, encoding, ends):
    path = tmp_path / "text"
    texts = ["one", "", "zwei", "ĊਊА" if encoding.startswith("utf") else "x"]  # of bytes 0A, too
    path.write_bytes(("\n".join(texts) + ends).encode(encoding))
    lines = TextLines(path, encoding)
    assert [lines[i] for i in range(len(lines))] == texts


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16", "utf-32-be", "cp037"])
@pytest.mark.parametrize("text", ["a\rb\r", "a\rb\r\nc\n\rd", "a\r\r\nb\n", "a\nb\r", "\r\n"])
def test_lines_end_as_those_of_open(tmp_path, encoding, text):
    path = tmp_path / "text"
    path.write_bytes(text.encode(encoding))
    with path.open(encoding=encoding) as file:
        assert list(TextLines(path, encoding)) == [line.rstrip("\n") for line in file]


def test_an_end_between_two_pieces_of_a_file_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr("tinygrad.data.loader.PIECE", 2)
    (tmp_path / "text").write_bytes(b"a\r\nbc\r\n\rd\r")
    assert list(TextLines(tmp_path / "text")) == ["a", "bc", "", "d"]


def test_a_file_of_text_that_changed_is_told(tmp_path):
    path = tmp_path / "text"
    for text in ("one\nt", "uno y dos\ny tres y mas\n"):
        path.write_text("one\ntwo\nthree\n")
        lines = TextLines(path)
        path.write_text(text)
        with pytest.raises(FileError, match="has changed since its lines were counted"):
            lines[1]


def test_the_first_bytes_of_a_file_tell_the_order_of_all(tmp_path):
    path = tmp_path / "text"
    for order in ("be", "le"):
        path.write_bytes("\ufeffa\nb".encode(f"utf-16-{order}"))
        assert [*map(TextLines(path, "utf16").__getitem__, range(2))] == ["a", "b"]
    with pytest.raises(ArgumentError, match="unknown encoding: utf-99"):
        TextLines(path, "utf-99")


# ---- batches of other things ---------------------------------------------------------------------


class Named(NamedTuple):
    x: int
    name: str


@dataclasses.dataclass(frozen=True)
class Sample:
    x: np.ndarray
    name: str


def test_what_changes_nothing_may_be_given():
    """PyTorch's arguments that leave the batches as they are, and those that ask for nothing."""
    same = {"pin_memory": True, "timeout": 5, "in_order": True}
    none = dict.fromkeys(("generator", "worker_init_fn", "multiprocessing_context"))
    assert [x.tolist() for x in DataLoader([1, 2, 3], 2, **same, **none)] == [[1, 2], [3]]
    with pytest.raises(TypeError, match="no argument 'in_order'.*legal are dataset"):
        DataLoader([1, 2, 3], 2, in_order=False)


def test_a_batch_of_named_tuples_is_one():
    batch = collate([Named(1, "a"), Named(2, "b")])
    assert type(batch) is Named and batch.x.tolist() == [1, 2] and batch.name == ["a", "b"]


def test_a_batch_of_dataclasses_is_one():
    batch = collate([Sample(np.zeros(2), "a"), Sample(np.ones(2), "b")])
    assert type(batch) is Sample and batch.x.tolist() == [[0, 0], [1, 1]]
    assert batch.name == ["a", "b"]


def test_keys_in_another_order_are_the_same():
    batch = collate([{"a": 1, "b": 2}, {"b": 4, "a": 3}])
    assert batch["a"].tolist() == [1, 3] and batch["b"].tolist() == [2, 4]


def test_a_batch_of_strings_is_a_list():
    assert collate(["a", "b"]) == ["a", "b"] and collate([b"a", b"b"]) == [b"a", b"b"]
    assert collate([np.str_("a"), np.str_("b")]) == ["a", "b"]
    assert collate([None, None]) == [None, None]


@pytest.mark.parametrize(
    "samples, error, told",
    [
        ([{"a": 1}, {"a": 1, "b": 2}], ArgumentError, r"keys \['a'\] and \['a', 'b'\]"),
        ([(1, 2), (1,)], ArgumentError, "lengths 2 and 1"),
        ([np.zeros(2), np.zeros(3)], ShapeError, r"shapes \(2,\) and \(3,\)"),
        ([Sample(np.zeros(1), ""), 3], ArgumentError, "kinds Sample and int"),
        ([], ArgumentError, "no samples"),
        ([np.ma.masked_array([1, 2], [0, 1])], DTypeError, "1 elements of an array are masked"),
    ],
)
def test_a_batch_of_several_forms_is_refused(samples, error, told):
    with pytest.raises(error, match=told):
        collate(samples)


# ---- cursors -------------------------------------------------------------------------------------


def test_two_loops_over_one_loader_have_cursors_of_their_own():
    loader, alone = (DataLoader(range(6), 2, shuffle=True) for _ in range(2))
    epochs = [numbers(alone) for _ in range(4)]
    pairs = [(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=True)]
    assert pairs == list(zip(*epochs[:2], strict=True))
    assert loader.state_dict()["epoch"] == 2
    outer = iter(loader)
    assert next(outer).tolist() == epochs[2][0]
    assert numbers(loader) == epochs[3]
    assert next(outer).tolist() == epochs[2][1]
    state = loader.state_dict()
    assert (state["epoch"], state["batch"]) == (2, 2)  # of the loop that moved last
    assert [batch.tolist() for batch in outer] == epochs[2][2:]
    assert loader.state_dict()["epoch"] == 4


def test_a_cursor_beyond_the_data_is_refused():
    state = {"epoch": 0, "batch": 4, "seed": 0}
    loader = DataLoader(range(6), 2)
    with pytest.raises(
        ArgumentError, match="after batch 4 .* with 6 samples by 2, .*3 batches; legal are"
    ):
        loader.load_state_dict(state)
    assert loader.state_dict()["batch"] == 0
    with pytest.raises(ArgumentError, match="legal are numbers from 0"):
        loader.load_state_dict({**state, "batch": -1})


def test_a_cursor_of_other_batches_is_refused_in_the_middle_of_an_epoch():
    loader = DataLoader(range(12), 2)
    next(iter(loader))
    state = loader.state_dict()
    for other in (DataLoader(range(12), 3), DataLoader(range(11), 2)):
        with pytest.raises(ArgumentError, match="after batch 1 of 12 samples by 2"):
            other.load_state_dict(state)
        other.load_state_dict({**state, "batch": 0})
        assert len(numbers(other)) == len(other)


def test_a_cursor_of_another_order_is_refused_in_the_middle_of_an_epoch():
    loader = DataLoader(range(12), 2, shuffle=True)
    next(iter(loader))
    state = loader.state_dict()
    for other in (DataLoader(range(12), 2), DataLoader(range(12), 2, sampler=range(12))):
        with pytest.raises(ArgumentError, match="by 2, shuffled, with 12 samples by 2"):
            other.load_state_dict(state)
        other.load_state_dict({**state, "batch": 0})


def test_a_cursor_is_of_pythons_numbers():
    loader = DataLoader(range(9), np.int64(2), seed=np.int64(3))
    assert json.loads(json.dumps(loader.state_dict()))["seed"] == 3


def test_data_that_shrinks_under_a_cursor_is_told():
    data = list(range(8))
    loader = DataLoader(data, 2)
    loader.load_state_dict({"epoch": 0, "batch": 3, "seed": 0})
    del data[3:]
    with pytest.raises(ArgumentError, match="after batch 3"):
        numbers(loader)


def test_masked_arrays_are_no_data():
    with pytest.raises(DTypeError, match="1 elements of an array are masked; legal are .filled"):
        ArrayDataset(np.ma.masked_equal([1, 2, 3], 2))


# ---- parts of datasets ---------------------------------------------------------------------------


def test_some_samples_and_all_of_several():
    assert list(data.Subset(range(10), [3, 1, -1])) == [3, 1, 9]
    several = data.ConcatDataset([range(3), [], [7, 8]])
    assert list(several) == [0, 1, 2, 7, 8] and several[-1] == 8 and len(several) == 5
    assert numbers(DataLoader(several, 4)) == [[0, 1, 2, 7], [8]]


@pytest.mark.parametrize("lengths, wanted", [([7, 3], [7, 3]), ([0.5, 0.25, 0.25], [6, 2, 2])])
def test_parts_that_share_no_sample(lengths, wanted):
    parts = data.random_split(range(10), lengths, seed=1)
    assert [len(part) for part in parts] == wanted
    assert sorted(sum((list(part) for part in parts), [])) == list(range(10))
    assert list(parts[0]) == list(data.random_split(range(10), lengths, seed=1)[0])
    assert list(parts[0]) != list(data.random_split(range(10), lengths, seed=2)[0])


def test_parts_that_are_refused():
    for lengths in ([5, 4], [0.5, 0.4], [11, -1], []):
        with pytest.raises(ArgumentError, match="of 10 samples; legal are numbers that add up"):
            data.random_split(range(10), lengths)
    with pytest.raises(ArgumentError, match="sample 3 of 3; legal are 0 to 2"):
        data.Subset(range(3), [0, 3])
    with pytest.raises(ArgumentError, match="no datasets"):
        data.ConcatDataset([])
    with pytest.raises(IndexError, match="sample 3 of 3"):
        data.ConcatDataset([range(3)])[3]
