"""A program: kernels read memory that is lent to them where it lies at the end of a page, and the
next page can't be read. Whoever reads beyond it ends this process."""

import ctypes
import mmap

import numpy as np

from tinygrad import Tensor

PAGE = mmap.PAGESIZE
ROWS = 5, 35, 331, 1027
OF_ROWS = {
    "sums": lambda t: t.exp().sum(-1),
    "columns": lambda t: t.exp().sum(0),
    "softmax": lambda t: t.softmax(-1),
    "softmax of columns": lambda t: t.softmax(0).sum(0),
    "log_softmax": lambda t: t.log_softmax(-1),
    "layernorm": lambda t: t.layernorm(),
    "deviations": lambda t: t.std(0),
    "products": lambda t: t.T @ t,
    "transposed": lambda t: t.T.exp(),
}
lent = []


def at_end(shape):
    """A lent tensor of random numbers, whose last byte is the last of a page."""
    values = np.random.default_rng(0).standard_normal(shape).astype("float32")
    pages = -(-values.nbytes // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    assert protect(ctypes.c_void_p(begin + pages * PAGE), ctypes.c_size_t(PAGE), 0) == 0
    place = pages * PAGE - values.nbytes
    memory[place : pages * PAGE] = values.tobytes()
    lent.append(memory)
    return Tensor.from_blob(begin + place, shape), Tensor(values)


for rows in ROWS:
    for shape in ((rows,), (rows, 2), (3, rows)):
        mine, right = at_end(shape)
        for name, function in OF_ROWS.items():
            if "products" not in name or len(shape) == 2:
                print(name, shape, flush=True)
                found, wanted = function(mine).numpy(), function(right).numpy()
                np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)
print("all")
