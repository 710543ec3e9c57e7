"""One command for a machine with a GPU: checks, then times tinygrad against PyTorch on it.

    python benchmarks/gpu.py [--only check,copy,gemm,f32,attention,rows,conv,training]
                             [--minutes 8] [--device CUDA] [--output FILE] [--small]

It needs this checkout, its dependencies and PyTorch; nothing is installed. The parts run in the
order above until the minutes are used up; what was not reached is said, and `--only` runs it
another time. A Markdown page with the date, the machine and a row for each case goes to the screen
and to benchmarks/results/gpu-DATE.md.

Both sides run the same work on the same device (`--device CL` or `CPU`: PyTorch runs on the
processor). Inputs are made once; a round repeats the work for a tenth of a second, the two in turn,
and waits for the device at its end, so launches overlap as they do in a program. The ratio is
PyTorch's time over ours in the same round, the median of the rounds: above 1, tinygrad is faster.
Floors are what the copy bandwidth that was measured here, or the peak of the chip's data sheet,
allow. Each case's result is compared with PyTorch's before it is timed.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import torch  # noqa: E402

from tinygrad import Tensor, TinyJit, dtypes  # noqa: E402
from tinygrad.engine.devices import Device  # noqa: E402

ROUNDS = 7
ROUND = 0.1  # seconds of a round, of each side
WARMING = 3

Work = Callable[[], Any]


@dataclass
class Case:
    """One comparison. `ours` and `theirs` do the work once, and give what is compared."""

    name: str
    ours: Work
    theirs: Work
    tolerance: float = 2e-2
    operations: float = 0.0
    nbytes: float = 0.0
    target: float = 1.0  # the ratio that is aimed at
    compiled: Work | None = None  # by torch.compile, where that counts


@dataclass
class Row:
    """What a case gave; `note` where it gave none."""

    name: str
    ours: float = 0.0
    theirs: float = 0.0
    ratio: float = 0.0
    compiled: float = 0.0
    rate: str = ""
    target: float = 1.0
    note: str = ""


@dataclass
class Bench:
    """Where and how large."""

    device: str
    small: bool
    deadline: float
    bandwidth: float = 0.0  # bytes a second of a copy, measured
    rows: list[Row] = field(default_factory=list)

    @property
    def rounds(self) -> tuple[int, float]:
        """How many, and the seconds of each side in one."""
        return (2, ROUND / 10) if self.small else (ROUNDS, ROUND)

    @property
    def torch_device(self) -> str:
        return "cuda" if self.device.partition(":")[0] == "CUDA" else "cpu"

    def size(self, full: int, small: int) -> int:
        return small if self.small else full

    def pair(self, *shape: int, dtype: str = "float32", scale: float = 1.0) -> tuple[Any, Any]:
        """The same random numbers as a tensor of each side."""
        values = np.random.default_rng(sum(shape)).standard_normal(shape, np.float32) * scale
        ours = Tensor(values, device=self.device).cast(getattr(dtypes, dtype)).realize()
        theirs = torch.from_numpy(values).to(self.torch_device, getattr(torch, dtype))
        return ours, theirs

    def wait(self) -> None:
        Device[self.device].synchronize()
        if self.torch_device == "cuda":
            torch.cuda.synchronize()


# ---- measuring -----------------------------------------------------------------------------------


def captured(function: Callable[..., Any], *inputs: Tensor) -> Work:
    """The work as one captured call."""
    step = TinyJit(lambda *given: function(*given).realize())
    return lambda: step(*inputs)


def seconds(bench: Bench, work: Work, repeats: int) -> float:
    """Of one repetition, of so many between two waits for the device."""
    bench.wait()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    bench.wait()
    return (time.perf_counter() - start) / repeats


def repeats_of(bench: Bench, work: Work) -> int:
    for _ in range(WARMING):
        work()
    return max(1, int(bench.rounds[1] / max(seconds(bench, work, 1), 1e-6)))


def as_numbers(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, torch.Tensor):
        return value.detach().float().cpu().numpy()
    return value.cast(dtypes.float32).numpy()


def difference(case: Case) -> str:
    """What is wrong with our result, if anything."""
    ours, theirs = as_numbers(case.ours()), as_numbers(case.theirs())
    if ours.shape != theirs.shape:
        return f"shape {ours.shape}, PyTorch's is {theirs.shape}"
    scale = float(np.abs(theirs).max()) or 1.0
    worst = float(np.abs(ours - theirs).max()) / scale
    return "" if worst <= case.tolerance else f"wrong: off by {worst:.2g} of the largest"


def measure(bench: Bench, case: Case) -> Row:
    """The case's row: checked, then both sides in turn."""
    row = Row(case.name, target=case.target)
    try:
        row.note = difference(case)
        if row.note:
            return row
        sides = [case.ours, case.theirs, *([case.compiled] if case.compiled else [])]
        counts = [repeats_of(bench, side) for side in sides]
        rounds = []
        for _ in range(bench.rounds[0]):
            rounds.append([seconds(bench, s, n) for s, n in zip(sides, counts, strict=True)])
            if time.monotonic() > bench.deadline:
                break
    except Exception as error:  # a case that fails is a row that says so
        row.note = f"{type(error).__name__}: {error}".splitlines()[0][:160]
        return row
    row.ours, row.theirs = (statistics.median(r[i] for r in rounds) for i in (0, 1))
    row.ratio = statistics.median(r[1] / r[0] for r in rounds)
    if case.compiled:
        row.compiled = statistics.median(r[2] / r[0] for r in rounds)
    row.rate = rate(bench, case, row.ours)
    return row


def rate(bench: Bench, case: Case, took: float) -> str:
    """Operations or bytes a second; of bytes, what part of the measured bandwidth."""
    if case.operations:
        return f"{case.operations / took * 1e-12:.2f} TFLOP/s"
    if case.nbytes and bench.bandwidth:
        got = case.nbytes / took
        return f"{got * 1e-9:.0f} GB/s, {got / bench.bandwidth:.0%} of a copy"
    return f"{case.nbytes / took * 1e-9:.0f} GB/s" if case.nbytes else ""


# ---- the parts -----------------------------------------------------------------------------------


def check(bench: Bench) -> Iterator[Case]:
    """Operations against PyTorch's, small and odd; not for their times."""
    unary = ("exp", "log", "sin", "sqrt", "tanh", "sigmoid", "relu", "abs", "square", "floor")
    shapes = ((33, 70), (5,), (3, 1, 129))
    for name in unary:
        for shape in shapes:
            x, t = bench.pair(*shape)
            yield Case(
                f"{name} {shape}",
                lambda x=x, n=name: getattr(x.abs() + 0.5, n)(),
                lambda t=t, n=name: getattr(t.abs() + 0.5, n)(),
                1e-5,
            )
    for dtype in ("float32", "float16", "bfloat16"):
        x, t = bench.pair(65, 40, dtype=dtype)
        y, u = bench.pair(40, 33, dtype=dtype)
        tolerance = 1e-5 if dtype == "float32" else 1e-2
        rows: tuple[tuple[str, Work, Work], ...] = (
            ("matmul", lambda x=x, y=y: x @ y, lambda t=t, u=u: t @ u),
            ("softmax", lambda x=x: x.softmax(), lambda t=t: t.softmax(-1)),
            ("sum", lambda x=x: x.sum(0), lambda t=t: t.sum(0)),
            ("max", lambda x=x: x.max(1), lambda t=t: t.max(1).values),
            ("add", lambda x=x: x + x * 2, lambda t=t: t + t * 2),
            ("transpose", lambda x=x: x.T.contiguous(), lambda t=t: t.T.contiguous()),
            ("cumsum", lambda x=x: x.float().cumsum(1), lambda t=t: t.float().cumsum(1)),
        )
        for name, ours, theirs in rows:
            yield Case(f"{name} {dtype}", ours, theirs, tolerance)
    x, t = bench.pair(50, 20)
    at = np.array([3, 0, 49, 3], np.int64)
    yield Case(
        "gather",
        lambda: x[Tensor(at.astype(np.int32), device=bench.device)],
        lambda: t[torch.from_numpy(at).to(bench.torch_device)],
        0.0,
    )


def run_checks(bench: Bench) -> None:
    """One row for all."""
    wrong, count = [], 0
    for case in check(bench):
        count += 1
        try:
            found = difference(case)
        except Exception as error:
            found = f"{type(error).__name__}: {error}".splitlines()[0]
        wrong += [f"{case.name}: {found}"] if found else []
    note = f"{count - len(wrong)} of {count} agree with PyTorch"
    bench.rows.append(Row("operations", note="; ".join([note, *wrong[:5]])))


def copy(bench: Bench) -> Iterator[Case]:
    """What the memory gives: the yardstick of all that is bound by it."""
    n = bench.size(256 << 20, 1 << 20)
    x, t = bench.pair(n // 4)
    ours = captured(lambda x: x + 1, x)
    yield Case(
        f"copy of {n >> 20} MiB", ours, lambda: t + 1, nbytes=2 * n, target=0.9, tolerance=1e-6
    )


def product(bench: Bench, n: int, dtype: str, target: float) -> Case:
    a, t = bench.pair(n, n, dtype=dtype, scale=n**-0.5)
    b, u = bench.pair(n, n, dtype=dtype)
    work = captured(lambda a, b: a @ b, a, b)
    return Case(f"matmul {dtype} {n}", work, lambda: t @ u, operations=2 * n**3, target=target)


def gemm(bench: Bench) -> Iterator[Case]:
    for n in (64, 256) if bench.small else (1024, 2048, 4096, 8192):
        yield product(bench, n, "bfloat16", 0.9)


def f32(bench: Bench) -> Iterator[Case]:
    """Products of float32, without and with PyTorch's tf32."""
    for n in (64, 256) if bench.small else (1024, 2048, 4096):
        for tf32 in (False, True) if bench.torch_device == "cuda" else (False,):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            case = product(bench, n, "float32", 0.9)
            case.name += " (PyTorch: tf32)" if tf32 else ""
            yield case
    torch.backends.cuda.matmul.allow_tf32 = False


def attention(bench: Bench) -> Iterator[Case]:
    for length in (64,) if bench.small else (512, 1024, 2048, 4096):
        for causal in (False, True):
            batch, heads, width = (1, 2, 32) if bench.small else (8, 16, 64)
            pairs = [bench.pair(batch, heads, length, width, dtype="bfloat16") for _ in range(3)]
            ours, theirs = zip(*pairs, strict=True)
            work = captured(
                lambda q, k, v, c=causal: q.scaled_dot_product_attention(k, v, is_causal=c), *ours
            )
            function = torch.nn.functional.scaled_dot_product_attention
            yield Case(
                f"attention{' causal' * causal} {batch}x{heads}x{length}x{width}",
                work,
                lambda t=theirs, f=function, c=causal: f(*t, is_causal=c),
                operations=4 * batch * heads * length**2 * width / (2 if causal else 1),
                target=0.6,
            )


def rows(bench: Bench) -> Iterator[Case]:
    """Bound by memory: softmax and layernorm of rows."""
    for dtype in ("float32", "bfloat16"):
        n = bench.size(8192, 64)
        x, t = bench.pair(n, n, dtype=dtype)
        moved = 2 * n * n * x.dtype.itemsize
        softmax = captured(lambda x: x.softmax(), x)
        normal = captured(lambda x: x.layernorm(), x)
        yield Case(f"softmax {dtype} {n}x{n}", softmax, lambda t=t: t.softmax(-1), nbytes=moved)
        yield Case(
            f"layernorm {dtype} {n}x{n}",
            normal,
            lambda t=t, n=n: torch.nn.functional.layer_norm(t, (n,)),
            nbytes=moved,
        )


def conv(bench: Bench) -> Iterator[Case]:
    for batch, inside, outside, side in ((2, 4, 8, 9),) if bench.small else ((32, 64, 128, 56),):
        for dtype in ("float32", "bfloat16"):
            x, t = bench.pair(batch, inside, side, side, dtype=dtype)
            w, u = bench.pair(outside, inside, 3, 3, dtype=dtype, scale=0.1)
            work = captured(lambda x, w: x.conv2d(w, padding=1), x, w)
            yield Case(
                f"conv 3x3 {dtype} {batch}x{inside}x{side}x{side} to {outside}",
                work,
                lambda t=t, u=u: torch.nn.functional.conv2d(t, u, padding=1),
                operations=2 * batch * outside * inside * 9 * side * side,
            )


def training(bench: Bench) -> Iterator[Case]:
    """A step of stochastic gradient descent on two layers, the loss given back."""
    n, wide = bench.size(4096, 32), bench.size(1024, 16)
    x, t = bench.pair(n, wide)
    weights = [bench.pair(wide, wide, scale=wide**-0.5) for _ in range(2)]
    ours = [w.detach().contiguous().realize() for w, _ in weights]
    theirs = [u.clone().requires_grad_() for _, u in weights]
    for w in ours:
        w.requires_grad = True

    def our_step(x: Tensor) -> Tensor:
        with Tensor.train():
            loss = ((x @ ours[0]).relu() @ ours[1]).square().mean()
            grads = loss.gradient(*ours)
            for w, g in zip(ours, grads, strict=True):
                w.assign(w.detach() - 0.0 * g)
            return loss.realize(*ours)

    def their_step() -> Any:
        loss = ((t @ theirs[0]).relu() @ theirs[1]).square().mean()
        grads = torch.autograd.grad(loss, theirs)
        with torch.no_grad():
            for w, g in zip(theirs, grads, strict=True):
                w.sub_(g, alpha=0.0)
        return loss

    step = TinyJit(our_step)
    compiled = None if bench.small else torch.compile(their_step)
    yield Case(
        f"training step, 2 layers of {wide}, batch {n}",
        lambda: step(x),
        their_step,
        operations=12 * n * wide * wide,
        target=1.1,
        compiled=compiled,
    )


PARTS: dict[str, Callable[[Bench], Iterator[Case]]] = {
    "copy": copy,
    "gemm": gemm,
    "f32": f32,
    "attention": attention,
    "rows": rows,
    "conv": conv,
    "training": training,
}


# ---- the page ------------------------------------------------------------------------------------


def line(row: Row) -> str:
    """A row of the table."""
    if not row.ours:
        return f"| {row.name} | | | | | | {row.note} |"
    kept = "yes" if row.ratio >= row.target else "no"
    times = f"{row.ours * 1e6:.1f} | {row.theirs * 1e6:.1f} | {row.ratio:.2f}"
    compiled = f"{row.compiled:.2f}" if row.compiled else ""
    return f"| {row.name} | {times} | {compiled} | {row.target:.1f}: {kept} | {row.rate} |"


def page(bench: Bench, left_out: list[str]) -> str:
    """The Markdown page."""
    target = Device[bench.device].target
    card = torch.cuda.get_device_name() if bench.torch_device == "cuda" else platform.processor()
    head = [
        f"# {bench.device} against PyTorch, {datetime.datetime.now():%Y-%m-%d %H:%M}",
        "",
        f"Card: {card or platform.machine()}; code for {target.cpu}; PyTorch {torch.__version__} "
        f"on {bench.torch_device}; Python {platform.python_version()}.",
        "Ratios are PyTorch's time over ours (above 1 tinygrad is faster); times in microseconds.",
        "",
        "| case | ours | PyTorch | ratio | of torch.compile | target | rate |",
        "|---|--:|--:|--:|--:|---|---|",
    ]
    tail = ["", f"Not reached: {', '.join(left_out)}."] if left_out else []
    return "\n".join([*head, *map(line, bench.rows), *tail, ""])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", default=",".join(("check", *PARTS)))
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--device", default="CUDA")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--small", action="store_true", help="tiny shapes: tries the script itself")
    return parser.parse_args()


def main() -> int:
    """Runs the parts; 1 if a result was wrong or a case failed."""
    chosen = arguments()
    wanted = chosen.only.split(",")
    if unknown := [name for name in wanted if name != "check" and name not in PARTS]:
        raise SystemExit(f"--only {','.join(unknown)}: the parts are check, {', '.join(PARTS)}")
    deadline = time.monotonic() + 60 * chosen.minutes
    bench = Bench(chosen.device.upper(), chosen.small, deadline)
    left_out: list[str] = []
    if "check" in wanted:
        run_checks(bench)
        print(line(bench.rows[-1]), flush=True)
    for name, part in PARTS.items():
        if name not in wanted:
            continue
        if time.monotonic() > deadline:
            left_out.append(name)
            continue
        for case in part(bench):
            if time.monotonic() > deadline:
                left_out.append(case.name)
                continue
            bench.rows.append(measure(bench, case))
            if name == "copy" and bench.rows[-1].theirs:
                bench.bandwidth = case.nbytes / min(bench.rows[-1].theirs, bench.rows[-1].ours)
            print(line(bench.rows[-1]), flush=True)
    text = page(bench, left_out)
    today = f"{datetime.date.today():%Y-%m-%d}"
    output = chosen.output or HERE / "results" / f"gpu-{today}.md"
    output.write_text(text)
    print(f"\n{text}\nwritten to {output}")
    failed = [r for r in bench.rows if r.name == "operations" and ":" in r.note]
    return int(bool(failed) or any(r.note and not r.ours for r in bench.rows[1:]))


if __name__ == "__main__":
    sys.exit(main())
