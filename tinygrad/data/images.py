"""Sets of small images that are downloaded once: MNIST, Fashion-MNIST and CIFAR-10.

Each file is checked against the hash that its makers published. Without a network the error names
the path where a file can be put by hand.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.errors import TinygradError
from tinygrad.data.download import fetch

Bytes = NDArray[np.uint8]
Split = tuple[Bytes, Bytes, Bytes, Bytes]  # train images, train labels, test images, test labels

# Y. LeCun, C. Cortes, C. Burges, 1998 (CC BY-SA 3.0)
MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
MNIST_FILES = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
# H. Xiao, K. Rasul, R. Vollgraf, 2017 (MIT)
FASHION_MNIST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FASHION_MNIST_FILES = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
# A. Krizhevsky, 2009
CIFAR10 = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
CIFAR10_RECORD = 1 + 3 * 32 * 32  # a label, then the red, green and blue planes

IDX_UBYTE = 8  # the type byte of an idx file of unsigned bytes


def load_mnist(fashion: bool = False) -> Split:
    """Images (60000, 28, 28) and labels (60000,) to learn from, 10,000 of both to test on; uint8.

    Raises:
        FetchError: a file can't be downloaded, or is not what it should be.
    """
    base, files = (FASHION_MNIST, FASHION_MNIST_FILES) if fashion else (MNIST, MNIST_FILES)
    folder = "fashion-mnist" if fashion else "mnist"
    found = [
        read_idx(fetch(base + name, name.removesuffix(".gz"), folder, gunzip=True, md5=md5))
        for name, md5 in files.items()
    ]
    return found[0], found[1], found[2], found[3]


def load_cifar10() -> Split:
    """Images (50000, 3, 32, 32) and labels (50000,) to learn from, 10,000 of both to test on.

    Raises:
        FetchError: the file can't be downloaded, or is not what it should be.
    """
    path = fetch(CIFAR10, "cifar-10-binary.tar.gz", md5=CIFAR10_MD5)
    train = [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)]
    with tarfile.open(path) as archive:
        records = _records(archive, train)
        test_records = _records(archive, ["cifar-10-batches-bin/test_batch.bin"])
    return (*_images_and_labels(records), *_images_and_labels(test_records))


def _records(archive: tarfile.TarFile, names: list[str]) -> Bytes:
    parts = []
    for name in names:
        file = archive.extractfile(name)
        assert file is not None, f"{name} is a folder"
        parts.append(np.frombuffer(file.read(), np.uint8).reshape(-1, CIFAR10_RECORD))
    return np.concatenate(parts)


def _images_and_labels(records: Bytes) -> tuple[Bytes, Bytes]:
    return records[:, 1:].reshape(-1, 3, 32, 32).copy(), records[:, 0].copy()


def read_idx(path: str | Path) -> Bytes:
    """The array in an idx file of bytes: two zeros, a type, the number of axes, their sizes as
    big-endian numbers of 4 bytes, the elements.

    Raises:
        TinygradError: it is no such file, or its length is not what it says.
    """
    raw = Path(path).read_bytes()
    if len(raw) < 4 or raw[:3] != bytes([0, 0, IDX_UBYTE]):
        raise TinygradError(f"{path}: not an idx file of bytes; it begins with {raw[:4].hex()}")
    axes = raw[3]
    start = 4 + 4 * axes
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes))
    if len(raw) - start != int(np.prod(shape)):
        raise TinygradError(f"{path}: {len(raw) - start} elements for the shape {shape}")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def image_folder(path: str | Path) -> tuple[list[Path], list[int], list[str]]:
    """Images in one folder a class: their paths, each one's class as a number, the classes' names;
    all in order of name. Hidden files and folders, whose names begin with a dot, are none. Open the
    images with a library; this reads none.

    Raises:
        TinygradError: there are no folders with files in it, or a link leads back to where it is.
    """
    root = Path(path)
    names = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    names = [name for name in names if not name.startswith(".")]
    files: list[Path] = []
    labels: list[int] = []
    for number, name in enumerate(names):
        found = list(_files(root / name))
        files += found
        labels += [number] * len(found)
    if not files:
        raise TinygradError(f"{path}: no folders with files in them; legal is one folder a class")
    return files, labels, names


def _files(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """The files in a folder and in those below it, links followed, in order of name."""
    here = folder.resolve()
    if here in above:
        raise TinygradError(f"{folder}: a link that leads back to {here}; legal are others")
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _files(entry, (*above, here))
        elif entry.is_file() or entry.is_symlink():  # that leads nowhere: who opens it is told
            yield entry
