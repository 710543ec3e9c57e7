"""Random kernels of odd sizes, scheduled by the heuristic, against NumPy and PyTorch in float64.

python test/codegen/fuzz_emission.py 0 100
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import kernels as K  # noqa: E402

from tinygrad.codegen import nesting  # noqa: E402
from tinygrad.loops.recipe import apply  # noqa: E402

SIZES = [1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 31, 33, 48, 63, 64, 65, 96, 100, 127, 129]


def size(most=150):
    return random.choice(SIZES) if random.random() < 0.7 else random.randint(1, most)


def rows(count, most=700):
    return K.normal(count, size(most))


def matmul():
    m, n, k = size(), size(), size()
    at, bt = random.random() < 0.5, random.random() < 0.5
    a = K.normal(*((k, m) if at else (m, k)))
    b = K.normal(*((n, k) if bt else (k, n)))
    exact = (a.T if at else a).astype(float) @ (b.T if bt else b)
    return K.matmul(m, n, k, at, bt), [a, b], exact, 1e-3


def softmax():
    x = rows(size())
    return K.softmax(*x.shape), [x], K.softmax_ref(x), 1e-5


def layernorm():
    x = K.normal(size(), size(700) + 1)
    g, b = K.normal(x.shape[1]), K.normal(x.shape[1])
    return K.layernorm(*x.shape), [x, g, b], K.layernorm_ref(x, g, b), 2e-2


def conv():
    n, c, h, w, o = (random.randint(1, most) for most in (3, 20, 20, 20, 40))
    x, k = K.normal(n, c, h, w), K.normal(o, c, 3, 3)
    return K.conv(n, c, h, w, o), [x, k], K.conv_ref(x, k), 1e-3


def attention():
    shape = (random.randint(1, 3), size(), random.choice([16, 17, 32, 64, 80]))
    q, k, v = (K.normal(*shape) for _ in range(3))
    causal = random.random() < 0.7
    return K.attention(*shape, causal), [q, k, v], K.attention_ref(q, k, v, causal), 1e-4


def total():
    x, axis = rows(size()), random.randint(0, 1)
    return K.total(*x.shape, axis), [x], x.astype(float).sum(axis), 1e-3


def transposed():
    x = rows(size(), 300)
    return K.transposed(*x.shape[::-1]), [x], x.T, 0


MAKERS = (matmul, matmul, matmul, softmax, layernorm, conv, attention, total, transposed)


def try_one(seed):
    """The largest error in units of what is allowed, and what was tried."""
    random.seed(seed)
    np.random.seed(seed)
    maker = random.choice(MAKERS)
    kernel, inputs, exact, allowed = maker()
    target = K.host_target()
    if random.random() < 0.3:
        target = replace(target, vector=random.choice([16, 32]), registers=16)
    found = K.compute(K.scheduled(kernel, target), exact.shape, inputs, "llvm", target=target)
    error = np.abs(found - exact).max()
    assert error <= allowed, (seed, maker.__name__, [i.shape for i in inputs], error)


# ---- recipes at random ---------------------------------------------------------------------------


def small_kernel():
    """A kernel, inputs, the result, the loops of its stores and those of its reductions."""
    m, n, k = (random.choice([1, 2, 3, 5, 8, 13, 17, 20, 33]) for _ in range(3))
    which = random.choice(["matmul", "softmax", "conv", "sum", "attention", "transposed"])
    if which == "matmul":
        a, b = K.normal(m, k), K.normal(k, n)
        return K.matmul(m, n, k), [a, b], a.astype(float) @ b, "mn", ["k"]
    if which == "softmax":
        x = K.normal(m, n)
        return K.softmax(m, n), [x], K.softmax_ref(x), "ij", ["j1", "j2"]
    if which == "conv":
        sizes = (random.randint(1, 2), random.randint(1, 3), m % 9 + 1, n % 9 + 1, k % 5 + 1)
        x, w = K.normal(*sizes[:4]), K.normal(sizes[4], sizes[1], 3, 3)
        return K.conv(*sizes), [x, w], K.conv_ref(x, w), "nohw", ["c", "kh", "kw"]
    if which == "sum":
        x, axis = K.normal(m, 9 * n), random.randint(0, 1)
        return K.total(m, 9 * n, axis), [x], x.astype(float).sum(axis), "ji"[axis], "ij"[axis]
    if which == "attention":
        q, causal = [K.normal(m % 3 + 1, n, k) for _ in range(3)], random.random() < 0.6
        expected = K.attention_ref(*q, causal)
        return K.attention(*q[0].shape, causal), q, expected, "hqd", ["t1", "t2", "t3"]
    x = K.normal(n, m)
    return K.transposed(m, n), [x], x.T, "ij", []


def random_recipe(own, reduced):
    """Splits and roles that are legal; at most one VECTOR among the loops of a value."""
    recipe, outer = [], ["LOOP", "PARALLEL"]
    vector = random.choice(["own", "reduced", "none"])
    for name in random.sample(list(own), len(own)):
        if random.random() < 0.6:
            turns, role = random.choice([2, 3, 4, 5]), random.choice(["UNROLL", "LOOP"])
            if vector == "own":
                vector, turns, role = "used", random.choice([2, 4, 8, 16]), "VECTOR"
            recipe.append(("split", name, turns, f"{name}.x", random.choice(outer), role))
        elif random.random() < 0.3:
            recipe.append(("role", name, "PARALLEL"))
    for name in reduced:
        turns, role = (
            random.choice([2, 3, 4, 7, 8, 16]),
            random.choice(["UNROLL", "SPREAD", "LOOP"]),
        )
        if vector == "reduced" and random.random() < 0.5:
            turns, role = random.choice([4, 8, 16]), "VECTOR"
        if random.random() < 0.9:
            recipe.append(("split", name, turns, f"{name}.x", "LOOP", role))
    return recipe


def try_recipe(seed, most_copies):
    """A small kernel under a random recipe, with few static copies allowed or many."""
    random.seed(seed)
    np.random.seed(seed)
    kernel, inputs, expected, own, reduced = small_kernel()
    recipe = random_recipe(own, reduced)
    if reduced and reduced[0] == "c":  # one reduction over three loops: one vector at most
        vectors = [step for step in recipe if step[-1] == "VECTOR"]
        recipe = [step for step in recipe if step not in vectors[1:]]
    for how in ("llvm", "python") if expected.size < 200 else ("llvm",):
        found = K.compute(apply(kernel, recipe), expected.shape, inputs, how)
        error = np.abs(found - expected).max()
        assert error <= 1e-4, (seed, most_copies, recipe, [i.shape for i in inputs], error)


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        try_one(number)
        for nesting.MOST_COPIES in (0, 2, 24):
            try_recipe(number, nesting.MOST_COPIES)
    print("all right")
