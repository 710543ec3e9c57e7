"""Beside kernels that were specialised by hand: a folder of generators of LLVM IR (gemm.py,
conv.py, elem.py, attn.py, matvec.py and their kit.py) is a path from outside, and each of its
kernels runs in turn with ours, on the same numbers, in one process on one core.

    taskset -c 1 python benchmarks/ceiling.py FOLDER [--cases 'gemm*'] [--rounds 11]

A line a case: our time and that of the best of its variants (the processor's time of this thread,
the median of the rounds), and the median of the rounds' ratios, theirs over ours; above 1 we are
faster. A call of ours is a captured step, its Python included (20 µs). With the product of 512 goes
a loop of multiply-adds that does nothing else: the peak.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from asked import matching

from tinygrad import Device, Tensor, TinyJit, dtypes

Call = Callable[[], object]
CHAINS, TURNS = 24, 200_000


@dataclass
class Hand:
    """The folder's modules, and what makes a function of a kernel of theirs."""

    folder: str
    modules: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name not in self.modules:
            self.modules[name] = importlib.import_module(name)
        return self.modules[name]

    def array(self, *shape: int, dtype: Any = np.float32) -> np.ndarray:
        """Numbers in large pages, as their kernels want them."""
        made = self.kit.aligned(shape, dtype)
        if dtype is np.float32:
            made[...] = np.random.default_rng(len(shape)).standard_normal(shape)
        return made

    def call(self, text: str, name: str, *arguments: np.ndarray | None) -> Call:
        """A kernel on one thread; None stands for its counter of tasks."""
        function = self.kit.SINGLE(self.kit.jit(text, [name], opt=None)[name])
        counter = np.zeros(64, np.int64)
        given = self.kit.args(*(counter if a is None else a for a in arguments))

        def run() -> None:
            counter[:] = 0
            function(given, 0, 1)

        return run


def ours(function: Callable[..., Tensor], *arrays: np.ndarray) -> tuple[Call, TinyJit]:
    """A captured step of ours on copies of these arrays."""
    given = [Tensor(np.array(a)).realize() for a in arrays]
    step = TinyJit(lambda *t: function(*t).contiguous().realize())

    def run() -> Tensor:
        out = step(*given)
        Device[Device.DEFAULT].synchronize()
        return out

    return run, step


@dataclass(frozen=True)
class Pair:
    """Our call, theirs by variant, what theirs writes, and the operations of a call."""

    ours: Call
    theirs: dict[str, Call]
    result: np.ndarray
    operations: int = 0


def gemm(hand: Hand, m: int, n: int, k: int, form: str = "nn") -> Pair:
    left, right = form[0] == "t", form[1] == "t"
    a, b = hand.array(*((k, m) if left else (m, k))), hand.array(*((n, k) if right else (k, n)))
    c, theirs = hand.array(m, n), {}
    for rows, columns, extra in (
        (8, 48, {"KU": 2}),
        (6, 64, {"KU": 2}),
        (6, 64, {"KU": 4}),
        (6, 64, {"KU": 2, "fuse": True, "pfd": 8}),
    ):
        if right and "fuse" in extra:
            continue
        packed = {"packA": True, "aw": {8: 64, 6: 96}[rows]} if left else {}
        text = hand.gemm.gemm_ir(m, n, k, rows, columns, left, right, **extra, **packed)
        room = [hand.array((m + rows) * k)] if left else []
        buffer = hand.array(k * columns * 2 + 4096)
        theirs[f"{rows}x{columns} {extra}"] = hand.call(text, "gemm", a, b, c, buffer, None, *room)
    run, _ = ours(lambda x, y: (x.T if left else x) @ (y.T if right else y), a, b)
    return Pair(run, theirs, c, 2 * m * n * k)


def conv(hand: Hand, batch: int, channels: int, size: int) -> Pair:
    x, w = hand.array(batch, channels, size, size), hand.array(channels, channels, 3, 3)
    y, theirs = hand.array(batch, channels, size, size), {}
    for rows, columns in ((8, 48), (6, 64), (14, 32), (4, 64)):
        if size * size % columns % 16 == 0:
            text = hand.conv.conv_ir(batch, channels, size, size, channels, rows, columns)
            buffer = hand.array(channels * 9 * columns * 2 + 4096)
            theirs[f"{rows}x{columns}"] = hand.call(text, "conv", x, w, y, buffer, None)
    run, _ = ours(lambda x, w: x.conv2d(w, padding=1), x, w)
    return Pair(run, theirs, y, 2 * batch * channels**2 * size**2 * 9)


def attention(hand: Hand, heads: int, tokens: int, width: int) -> Pair:
    q, k, v, out = (hand.array(heads, tokens, width) for _ in range(4))
    buffer = hand.array(2 * (tokens * width + 128 * (tokens + 32) + 8192))
    theirs = {
        f"{rows} queries": hand.call(
            hand.attn.attn_ir(heads, tokens, width, BQ=rows), "k", q, k, v, out, None, buffer
        )
        for rows in (24, 48, 96)
    }
    run, _ = ours(lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True), q, k, v)
    return Pair(run, theirs, out, 2 * heads * tokens**2 * width)


def rows(
    hand: Hand,
    make: Callable[..., str],
    function: Callable[..., Tensor],
    shape: tuple[int, ...],
    out: tuple[int, ...],
    variants: tuple[dict[str, Any], ...],
    extra: tuple[np.ndarray, ...] = (),
    room: bool = False,
) -> Pair:
    """A pass over memory."""
    x, y = hand.array(*shape), hand.array(*out)
    rest = (*extra, *([hand.array(4 * (16384 + 1024) + 4096)] if room else []))
    theirs = {
        str(given): hand.call(make(*shape, **given), "k", x, y, None, *rest) for given in variants
    }
    return Pair(ours(function, x, *extra)[0], theirs, y)


def matvec(hand: Hand, size: int, kind: str) -> Pair:
    x, y, dummy, scale = hand.array(size), hand.array(size), hand.array(64), hand.array(size)
    w = hand.array(size, size)
    if kind == "i8":
        stored = hand.array(size, size, dtype=np.int8)
        stored[...] = np.clip(w * 30, -127, 127)
        run, _ = ours(lambda w, s, x: (w.cast(dtypes.float32) * x).sum(1) * s, stored, scale, x)
    elif kind == "bf16":
        stored = hand.array(size, size, dtype=np.uint16)
        stored[...] = w.view(np.uint32) >> 16
        run, _ = ours(lambda w, x: w.bitcast(dtypes.bfloat16).cast(dtypes.float32) @ x, stored, x)
    else:
        stored = w
        run, _ = ours(lambda w, x: w @ x, stored, x)
    theirs = {
        str(given): hand.call(
            hand.matvec.mv_ir(size, size, kind, **given), "k", stored, x, y, None, scale, dummy
        )
        for given in ({}, {"RU": 4, "U": 4}, {"RU": 8, "U": 1}, {"pf": 512})
        if not (given.get("pf") and kind != "f32")
    }
    return Pair(run, theirs, y, 2 * size * size)


def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.layernorm() * weight + bias


CASES: dict[str, Callable[[Hand], Pair]] = {
    **{
        f"gemm {n} {form}": lambda hand, n=n, form=form: gemm(hand, n, n, n, form)
        for n in (512, 1024, 2048)
        for form in ("nn", "nt", "tn")
    },
    "gemm 1000x777x333": lambda hand: gemm(hand, 1000, 777, 333),
    "gemm 127x4096x1024": lambda hand: gemm(hand, 127, 4096, 1024),
    "gemm 64x1024x1024": lambda hand: gemm(hand, 64, 1024, 1024),
    "conv3x3 8x64x56": lambda hand: conv(hand, 8, 64, 56),
    "conv3x3 8x128x24": lambda hand: conv(hand, 8, 128, 24),
    "attention 8x1024x64": lambda hand: attention(hand, 8, 1024, 64),
    "softmax 4096": lambda hand: rows(
        hand,
        hand.elem.softmax_ir,
        Tensor.softmax,
        (4096, 4096),
        (4096, 4096),
        ({"nt": True}, {"nt": True, "U": 8}, {"nt": True, "pf": 1}),
        room=True,
    ),
    "layernorm 4096x1024": lambda hand: rows(
        hand,
        hand.elem.lnorm_ir,
        normed,
        (4096, 1024),
        (4096, 1024),
        ({}, {"nt": True}, {"U": 8}),
        (hand.array(1024), hand.array(1024)),
    ),
    "gelu 4M": lambda hand: rows(
        hand,
        hand.elem.gelu_ir,
        Tensor.gelu,
        (4 << 20,),
        (4 << 20,),
        ({}, {"nt": True}, {"nt": "arcp"}),
    ),
    "sum 16M": lambda hand: rows(
        hand, hand.elem.sum_ir, Tensor.sum, (16 << 20,), (1024,), ({}, {"U": 16}, {"pf": 1024})
    ),
    "sum of columns 4096": lambda hand: rows(
        hand,
        hand.elem.sum0_ir,
        lambda x: x.sum(0),
        (4096, 4096),
        (4096,),
        ({}, {"RU": 4}, {"RU": 16}),
        room=True,
    ),
    "transpose 4096": lambda hand: rows(
        hand,
        hand.elem.transpose_ir,
        lambda x: x.T,
        (4096, 4096),
        (4096, 4096),
        ({"nt": True}, {"BI": 16, "BJ": 256}, {"BI": 256, "BJ": 16, "order": "ji", "nt": True}),
    ),
    "matvec f32 4096": lambda hand: matvec(hand, 4096, "f32"),
    "matvec int8 4096": lambda hand: matvec(hand, 4096, "i8"),
    "matvec bf16 4096": lambda hand: matvec(hand, 4096, "bf16"),
}


def peak(hand: Hand) -> Call:
    """A loop of independent multiply-adds of whole vectors."""
    vector = "<16 x float>"
    lines = [f"declare {vector} @llvm.fma.v16f32({vector}, {vector}, {vector})"]
    lines += ["define void @peak(ptr %a, i64 %b, i64 %c) {", "entry:", "br label %turn", "turn:"]
    lines.append("%i = phi i64 [0, %entry], [%next, %turn]")
    for n in range(CHAINS):
        lines.append(f"%x{n} = phi {vector} [zeroinitializer, %entry], [%y{n}, %turn]")
    factor = "splat (float 0.5)"
    for n in range(CHAINS):
        given = f"{vector} %x{n}, {vector} {factor}, {vector} {factor}"
        lines.append(f"%y{n} = call {vector} @llvm.fma.v16f32({given})")
    lines += ["%next = add i64 %i, 1", f"%more = icmp ult i64 %next, {TURNS}"]
    lines += ["br i1 %more, label %turn, label %end", "end:"]
    for n in range(CHAINS):
        lines.append(f"store volatile {vector} %y{n}, ptr %a, align 4")
    text = "\n".join([*lines, "ret void", "}", ""])
    function = hand.kit.SINGLE(hand.kit.jit(text, ["peak"], opt=None)["peak"])
    room = (ctypes.c_float * 16)()
    return lambda: function(room, 0, 1)


def timed(call: Call) -> float:
    """Seconds of a call that follows another one: both sides find in the caches what they left."""
    call()
    before = time.thread_time()
    call()
    return time.thread_time() - before


def measure(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call, round by round, in an order that turns around."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        for name in list(calls)[:: 1 - 2 * (number % 2)]:
            taken[name].append(timed(calls[name]))
    return taken


def agree(pair: Pair, name: str) -> None:
    """Both sides computed the same: else the comparison means nothing."""
    mine = pair.ours().numpy().reshape(-1).astype(np.float64)  # type: ignore[attr-defined]
    for variant, call in pair.theirs.items():
        call()
        want = pair.result.reshape(-1).astype(np.float64)
        if name.startswith("sum 16M"):
            want = np.array([want[:16].sum() + want[64:80].sum()])
        error = np.abs(mine - want).max() / max(1e-30, np.abs(want).max())
        assert error < 1e-2, f"{name} {variant}: the results differ by {error:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares tinygrad with kernels made by hand.")
    parser.add_argument("folder", help="their generators")
    parser.add_argument("--cases", default="*", help="names or patterns, with commas")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    sys.path.insert(0, options.folder)
    hand = Hand(options.folder)
    print("| case | ms | by hand | variant | theirs / ours |\n| --- | --: | --: | --- | --: |")
    for name in matching(options.cases, CASES):
        pair = CASES[name](hand)
        agree(pair, name)
        extra = {"peak": peak(hand)} if name == "gemm 512 nn" else {}
        taken = measure({"ours": pair.ours, **pair.theirs, **extra}, options.rounds)
        middle = {key: statistics.median(times) for key, times in taken.items()}
        best = min(pair.theirs, key=middle.__getitem__)
        ratio = statistics.median(b / a for a, b in zip(taken["ours"], taken[best], strict=True))
        times = f"{middle['ours'] * 1e3:.3f} | {middle[best] * 1e3:.3f}"
        print(f"| {name} | {times} | {best} | {ratio:.2f} |", flush=True)
        if extra:
            most = 2 * 16 * CHAINS * TURNS / middle["peak"]
            part = pair.operations / middle["ours"] / most
            print(f"\npeak {most / 1e9:.1f} GFLOP/s, of which ours {part:.1%}\n", flush=True)


if __name__ == "__main__":
    main()
