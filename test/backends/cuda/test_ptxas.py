"""Kernels for NVIDIA's chips, generated anew, are accepted by NVIDIA's assembler and become the
instructions that are meant. Nothing runs here. A tenth of the cases each time, all in test-all."""

from __future__ import annotations

import functools
import operator
import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from backends.cuda.cases import CASES, ones
from backends.cuda.compiled import DEVICES, kernels_of
from backends.cuda.toolkit import assemble, instructions, tool

from tinygrad import Tensor, dtypes
from tinygrad.base.errors import CompileError
from tinygrad.loops.groups import blocks

CHIPS = ("sm_80", "sm_89", "sm_90a")


def check_cases(cases, chip, folder):
    """Each case's kernels go through the assembler; the number of kernels."""
    tool("ptxas")
    made = [(name, ptx) for name, build in cases for ptx in kernels_of(chip, build)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, result in enumerate(
            [pool.submit(accepted, ptx, chip, folder / str(i)) for i, (_, ptx) in enumerate(made)]
        ):
            assert result.result() == "", f"{chip}, {made[number][0]}: {result.result()}"
    assert len(made) >= len(cases)
    return len(made)


def accepted(ptx, chip, folder):
    folder.mkdir()
    return assemble(ptx, chip, folder)[1]


def test_there_are_about_200_cases():
    assert len(CASES) >= 190
    assert len({name for name, _ in CASES}) == len(CASES)


@pytest.mark.parametrize("chip", CHIPS)
def test_the_assembler_accepts_a_tenth_of_the_kernels(chip, tmp_path):
    check_cases(CASES[CHIPS.index(chip) :: 10], chip, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("chip", ("sm_75", *CHIPS))
def test_the_assembler_accepts_all_kernels(chip, tmp_path):
    check_cases(CASES, chip, tmp_path)


# ---- what the chip executes ----------------------------------------------------------------------


def large(device, dtype=dtypes.float32):
    return ones(device, 1024, 1024, dtype=dtype)


def checked(device):
    return ones(device, 101, dtype=dtypes.int32) // ones(device, 101, dtype=dtypes.int32)


def long_row(device):
    return ones(device, 8, 6000).softmax()


def square(device, dtype):
    return ones(device, 512, 512, dtype=dtype)


def empty(device, size, dtype=dtypes.bfloat16):
    return Tensor.empty(size, size, dtype=dtype, device=device)


def batches(device, *shape):
    return Tensor.empty(*shape, dtype=dtypes.bfloat16, device=device)


def attention(device, length, width):
    q, k, v = (batches(device, 8, length, width) for _ in range(3))
    return q.scaled_dot_product_attention(k, v, is_causal=True)


def gradients_of_attention(device, length, width):
    q, k, v = (batches(device, 8, length, width) for _ in range(3))
    for x in (q, k, v):
        x.requires_grad = True
    out = q.scaled_dot_product_attention(k, v)
    out.backward(batches(device, 8, length, width))
    return out.realize(q.grad, k.grad, v.grad)


# what → chips, tensors of a device, instructions that are there, instructions that aren't
EXPECTED = {
    "16 bytes a load and store": (CHIPS, lambda d: large(d) * 2, ("LDG.E.128", "STG.E.128"), ()),
    "8 halves a load": (
        CHIPS,
        lambda d: large(d, dtypes.float16) * 2,
        ("LDG.E.128", "STG.E.128", "HMUL2|HADD2|HFMA2"),
        (),
    ),
    "products and sums of elements are rounded apart": (
        CHIPS,
        lambda d: large(d) * large(d) + 1,
        ("FMUL", "FADD"),
        ("FFMA",),
    ),
    "products of matrices are fused multiply-adds": (
        CHIPS,
        lambda d: ones(d, 130, 70) @ ones(d, 70, 90),
        ("FFMA",),
        (),
    ),
    "a row is shared by the lanes of a group": (CHIPS, long_row, ("BAR.SYNC", "LDS", "STS"), ()),
    "lanes of a warp exchange what they reduced": (
        CHIPS,
        lambda d: ones(d, 8, 5000).sum(1),
        ("SHFL.BFLY",),
        (),
    ),
    "pieces of operands are shared": (CHIPS, lambda d: large(d) @ large(d), ("LDS.128",), ("STL",)),
    "a warp multiplies what it fetched and gathered": (
        CHIPS,
        lambda d: square(d, dtypes.bfloat16) @ square(d, dtypes.bfloat16),
        ("HMMA.16816.F32.BF16", "LDGSTS.*128", "LDSM.16.M88.4", "LDSM.16.MT88", "LDGDEPBAR"),
        ("STL", "LDG.E.U16"),
    ),
    "a warp multiplies bytes": (
        CHIPS,
        lambda d: square(d, dtypes.int8).matmul(square(d, dtypes.int8).T, dtype=dtypes.int32),
        ("IMMA.16832.S8.S8", "LDGSTS.*128", "LDSM"),
        ("STL",),
    ),
    "four warps multiply what lies staged, while the next is fetched": (
        CHIPS[2:],
        lambda d: empty(d, 4096) @ empty(d, 4096),
        (
            r"HGMMA.64x256x16.F32.BF16 R\d+, gdesc\[UR\d+\].tnspB",
            "UTMALDG.2D",
            "SYNCS.ARRIVE.TRANS64",
            "SYNCS.PHASECHK.TRANS64.TRYWAIT",
            "FENCE.VIEW.ASYNC",
            "WARPGROUP.DEPBAR.LE gsb0, 0x1",
        ),
        ("STL", "HMMA", "LDGSTS", "(?s)BAR.SYNC.*BAR.SYNC"),
    ),
    "boxes of a batch have three axes": (
        CHIPS[2:],
        lambda d: batches(d, 8, 1030, 1024) @ batches(d, 8, 1024, 1040),
        ("UTMALDG.3D", "HGMMA"),
        ("STL", "LDGSTS"),
    ),
    "rows that boxes don't have are fetched by lanes": (
        CHIPS[2:],
        lambda d: empty(d, 2048)[:, ::2] @ empty(d, 2048)[:1024],
        ("HGMMA",),
        ("STL", "UTMALDG"),
    ),
    "and of the other layouts": (
        CHIPS[2:],
        lambda d: empty(d, 2048, dtypes.float16).T @ empty(d, 2048, dtypes.float16).T,
        (r"HGMMA.64x256x16.F32 R\d+, gdesc\[UR\d+\].tnspA ?, R", "WARPGROUP.DEPBAR.LE gsb0, 0x1"),
        ("STL", "HMMA"),
    ),
    "and bytes": (
        CHIPS[2:],
        lambda d: empty(d, 2048, dtypes.int8).matmul(
            empty(d, 2048, dtypes.int8).T, dtype=dtypes.int32
        ),
        ("IGMMA.64x256x32.S8.S8", "UTMALDG.2D", "WARPGROUP.DEPBAR.LE gsb0, 0x1"),
        ("STL", "IMMA"),
    ),
    "attention keeps scores in registers": (
        CHIPS,
        lambda d: attention(d, 1024, 64),
        ("HMMA.16816.F32.BF16", "LDSM.16.M88", "LDSM.16.MT88", "LDGSTS.*128", "SHFL.BFLY"),
        (
            "STL",
            "(?s)STG.E.*BAR.SYNC",
            r"(?s)(?>HMMA((?!HMMA).)*+){65}",
        ),  # scores and their products, once
    ),
    "and makes them again for its gradients, of two products at once": (
        CHIPS,
        lambda d: gradients_of_attention(d, 1024, 64),
        ("HMMA.16816.F32.BF16", "LDSM.16.M88", "LDSM.16.MT88", "LDGSTS.*128"),
        ("STL",),
    ),
    "also of wide heads": (
        CHIPS,
        lambda d: gradients_of_attention(d, 2048, 128),
        ("HMMA.16816.F32.BF16", "LDSM.16.M88", "LDGSTS.*128"),
        ("STL",),
    ),
    "a check writes its fault words once": (CHIPS, checked, ("ATOM.*CAS",), ()),
    "bfloat16 is rounded by the chip": (
        CHIPS,
        lambda d: large(d).cast(dtypes.bfloat16),
        ("F2F.*BF16|F2FP.BF16", "STG.E.64"),
        (),
    ),
    "division is the correctly rounded one": (
        CHIPS,
        lambda d: large(d) / large(d),
        ("MUFU.RCP", "FFMA"),
        (),
    ),
    "no lane spills": (CHIPS, lambda d: ones(d, 256, 256) @ ones(d, 256, 256), ("FFMA",), ("STL",)),
}


@pytest.mark.parametrize("chip", CHIPS)
def test_the_chip_executes_what_is_meant(chip, tmp_path):
    tool("ptxas")
    rows = {what: row for what, (chips, *row) in EXPECTED.items() if chip in chips}
    made = [(what, ptx) for what, (build, *_) in rows.items() for ptx in kernels_of(chip, build)]
    found = instructions([ptx for _, ptx in made], chip, tmp_path)
    for what, (_, present, absent) in rows.items():
        texts = [text for (name, _), text in zip(made, found, strict=True) if name == what]
        for word in present:
            assert any(re.search(word, text) for text in texts), f"{what}: no {word}\n{texts[-1]}"
        for word in absent:
            assert not any(re.search(word, text) for text in texts), f"{what}: {word}"


def columns_times(device, count, size=1024):
    """So many products of the same rows, read along their columns, in one kernel."""
    x, *others = (empty(device, size, dtypes.float32) for _ in range(1 + count))
    return functools.reduce(operator.mul, (x.T @ w for w in others))


# how many turns' pieces of 1 to 4 products are fetched beyond the next, where all must fit
AHEAD = {"sm_80": [2, 2, 2, 1], "sm_89": [2, 1, 0, None], "sm_90a": [2, 2, 2, 2]}


@pytest.mark.parametrize("chip", CHIPS)
def test_pieces_of_several_products_fit_into_what_lanes_share(chip):
    found = []
    for count in (1, 2, 3, 4):
        (ptx,) = kernels_of(chip, lambda device, n=count: columns_times(device, n))
        waits = re.findall(r"cp\.async\.wait_group\s+(\d)", ptx)
        found.append(max(map(int, waits), default=None))
    assert found == AHEAD[chip]


def test_a_kernel_whose_lanes_would_share_more_than_they_can_is_told(monkeypatch):
    always = lambda target, shared, most: (("depth", 4), ("via", "async"))  # noqa: E731
    monkeypatch.setattr(blocks, "pipeline", always)
    with pytest.raises(CompileError, match="share 155,136 bytes, on CUDA they can 101,376; legal"):
        kernels_of("sm_89", lambda device: columns_times(device, 3, 2048))  # made by no other test


def test_each_chip_has_a_device():
    assert set(CHIPS) <= set(DEVICES)
