"""What `gpu.py` measures on a card, and the process that does it: a line of JSON on stdout for each
thing that is known, as soon as it is. This process may crash, hang or lose its card at any case;
`gpu.py` starts another one, which goes on behind it.

    python gpu_cases.py '{"device": "CUDA", "parts": ["gemm"], "seconds": 60, ...}'

Both sides run the same work on the same device. Inputs are made once; a round repeats the work for
a tenth of a second, the two in turn, and waits for the device at its end, so launches overlap as
they do in a program. The ratio is PyTorch's time over ours in the same round, the median of the
rounds. Each case's result is compared with PyTorch's before it is timed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np  # noqa: E402
import torch  # noqa: E402

from tinygrad import Context, Tensor, TinyJit, dtypes  # noqa: E402
from tinygrad.base.settings import SETTINGS  # noqa: E402
from tinygrad.engine.devices import Device  # noqa: E402

ROUNDS = 7
ROUND = 0.1  # seconds of a round, of each side
WARMING = 3

Work = Callable[[], Any]


@dataclass
class Case:
    """One comparison. `make` builds both sides: functions that do the work once, and give what is
    compared. `target` is the ratio aimed at, or `share` the part of the copy bandwidth."""

    name: str
    make: Callable[[], tuple[Work, Work]]
    tolerance: float | None = 2e-2  # of the largest; None: the sides start from other numbers
    operations: float = 0.0
    nbytes: float = 0.0
    target: float = 1.0
    share: float = 0.0


@dataclass
class Bench:
    """Where and how large. `peer`: PyTorch's device."""

    device: str = "CUDA"
    peer: str = "cuda"
    small: bool = False
    parts: list[str] = field(default_factory=list)
    skip: list[str] = field(default_factory=list)  # cases that are done
    seconds: float = 480.0
    bandwidth: float = 0.0  # bytes a second of a copy, once measured
    only: str = ""  # the name of the one case that is wanted
    without: str = ""  # of the device's features: cases' names say so

    @property
    def rounds(self) -> tuple[int, float]:
        """How many, and the seconds of each side in one."""
        return (2, ROUND / 10) if self.small else (ROUNDS, ROUND)

    def size(self, full: int, small: int) -> int:
        return small if self.small else full

    def pair(self, *shape: int, dtype: str = "float32", scale: float = 1.0) -> tuple[Any, Any]:
        """The same random numbers as a tensor of each side."""
        values = np.random.default_rng(sum(shape)).standard_normal(shape, np.float32) * scale
        ours = Tensor(values, device=self.device).cast(getattr(dtypes, dtype)).realize()
        theirs = torch.from_numpy(values).to(self.peer, getattr(torch, dtype))
        return ours, theirs

    def wait(self) -> None:
        Device[self.device].synchronize()
        if self.peer.startswith("cuda"):
            torch.cuda.synchronize()


# ---- the parts -----------------------------------------------------------------------------------


def captured(function: Callable[..., Any], *inputs: Tensor) -> Work:
    """The work as one captured call."""
    step = TinyJit(lambda *given: function(*given).realize())
    return lambda: step(*inputs)


def operations(bench: Bench) -> Iterator[Case]:
    """Small and odd, for their results and not their times."""
    for name in ("exp", "log", "sin", "sqrt", "tanh", "sigmoid", "relu", "square", "floor"):
        for shape in ((33, 70), (5,), (3, 1, 129))[: 1 if bench.small else None]:

            def one(name: str = name, shape: tuple[int, ...] = shape) -> tuple[Work, Work]:
                x, t = bench.pair(*shape)
                return (
                    lambda: getattr(x.abs() + 0.5, name)(),
                    lambda: getattr(t.abs() + 0.5, name)(),
                )

            yield Case(f"{name} {shape}", one, 1e-5)
    two: dict[str, Callable[[Any, Any], Any]] = {
        "matmul": lambda a, b: a @ b,
        "sum": lambda a, b: a.sum(0),
        "add": lambda a, b: a + a * 2,
        "softmax": lambda a, b: a.softmax(-1),
        "transpose": lambda a, b: a.T.contiguous(),
        "cumsum": lambda a, b: a.float().cumsum(1),
        "long product": lambda a, b: a.float() @ a.float().T,
    }
    for dtype in ("float32", "float16", "bfloat16")[: 1 if bench.small else None]:
        for name, function in two.items():

            def both(
                dtype: str = dtype, f: Callable[[Any, Any], Any] = function
            ) -> tuple[Work, Work]:
                (x, t), (y, u) = (bench.pair(*s, dtype=dtype) for s in ((65, 40), (40, 33)))
                return lambda: f(x, y), lambda: f(t, u)

            yield Case(f"{name} {dtype}", both, 1e-5 if dtype == "float32" else 1e-2)


def copy(bench: Bench) -> Iterator[Case]:
    """What the memory gives: the yardstick of all that is bound by it."""
    n = bench.size(256 << 20, 1 << 20)

    def make() -> tuple[Work, Work]:
        x, t = bench.pair(n // 4)
        return captured(lambda x: x + 1, x), lambda: t + 1

    yield Case(f"copy of {n >> 20} MiB", make, 1e-6, nbytes=2 * n, target=0.9)


def product(bench: Bench, n: int, dtype: str, tf32: bool = False) -> Case:
    def make() -> tuple[Work, Work]:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, t = bench.pair(n, n, dtype=dtype, scale=n**-0.5)
        b, u = bench.pair(n, n, dtype=dtype)
        return captured(lambda a, b: a @ b, a, b), lambda: t @ u

    ours = bool(SETTINGS["ALLOW_TF32"]) and dtype == "float32"
    name = f"matmul {dtype} {n}{' (tf32)' if ours else ' (PyTorch: tf32)' * tf32}"
    return Case(name, make, operations=2 * n**3, target=0.9)


def gemm(bench: Bench) -> Iterator[Case]:
    """The largest first: it is what is asked for."""
    for n in (256, 64) if bench.small else (8192, 4096, 2048, 1024):
        yield product(bench, n, "bfloat16")
    for n in (64,) if bench.small else (4096,):
        yield product(bench, n, "float16")


def f32(bench: Bench) -> Iterator[Case]:
    """Products of float32, without and with PyTorch's tf32; with ours only with it."""
    ways = (False, True) if bench.peer.startswith("cuda") else (False,)
    for n in (64,) if bench.small else (4096, 2048, 1024):
        for tf32 in ways[-1:] if SETTINGS["ALLOW_TF32"] else ways:
            yield product(bench, n, "float32", tf32)


def attention(bench: Bench) -> Iterator[Case]:
    for length in (64,) if bench.small else (2048, 512, 4096, 1024):
        for causal in (False, True):
            batch, heads, width = (1, 2, 32) if bench.small else (8, 16, 64)

            def make(
                shape: tuple[int, ...] = (batch, heads, length, width), causal: bool = causal
            ) -> tuple[Work, Work]:
                pairs = [bench.pair(*shape, dtype="bfloat16") for _ in range(3)]
                ours, theirs = zip(*pairs, strict=True)
                function = torch.nn.functional.scaled_dot_product_attention
                return (
                    captured(
                        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=causal),
                        *ours,
                    ),
                    lambda: function(*theirs, is_causal=causal),
                )

            yield Case(
                f"attention{' causal' * causal} {batch}x{heads}x{length}x{width}",
                make,
                operations=4 * batch * heads * length**2 * width / (2 if causal else 1),
                target=0.6,
            )
    for length in (64,) if bench.small else (2048, 4096):
        yield attention_gradients(bench, length)


def attention_gradients(bench: Bench, length: int) -> Case:
    """Forward and back: the gradients of queries, keys and values, side by side in one result."""
    batch, heads, width = (1, 2, 8) if bench.small else (8, 16, 64)

    def make() -> tuple[Work, Work]:
        shape = batch, heads, length, width
        pairs = [bench.pair(*shape, dtype="bfloat16") for _ in range(4)]
        ours, theirs = zip(*pairs, strict=True)
        given = [t.clone().requires_grad_() for t in theirs[:3]]
        function = torch.nn.functional.scaled_dot_product_attention

        @TinyJit
        def our_step(*inputs: Tensor) -> Tensor:
            *qkv, back = inputs
            out = Tensor.scaled_dot_product_attention(*qkv)
            grads = out.gradient(*qkv, gradient=back)
            out.realize(*grads)
            return grads[0].stack(*grads[1:]).realize()

        def their_step() -> Any:
            return torch.stack(torch.autograd.grad(function(*given), given, theirs[3]))

        return lambda: our_step(*ours), their_step

    operations = 14 * batch * heads * length**2 * width
    return Case(f"attention, gradients {length}", make, operations=operations)


def rows(bench: Bench) -> Iterator[Case]:
    """Bound by memory: softmax and layernorm of rows."""
    n = bench.size(8192, 64)
    norm = torch.nn.functional.layer_norm
    both: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "softmax": (lambda x: x.softmax(), lambda t: t.softmax(-1)),
        "layernorm": (lambda x: x.layernorm(), lambda t: norm(t, (n,))),
    }
    for dtype in ("float32", "bfloat16"):
        for name, (ours, theirs) in both.items():

            def make(
                dtype: str = dtype,
                ours: Callable[[Any], Any] = ours,
                theirs: Callable[[Any], Any] = theirs,
            ) -> tuple[Work, Work]:
                x, t = bench.pair(n, n, dtype=dtype)
                return captured(ours, x), lambda: theirs(t)

            moved = 2 * n * n * getattr(dtypes, dtype).itemsize
            yield Case(f"{name} {dtype} {n}x{n}", make, nbytes=moved, share=0.9)


def conv(bench: Bench) -> Iterator[Case]:
    batch, inside, outside, side = (2, 4, 8, 9) if bench.small else (32, 64, 128, 56)
    for dtype in ("float32", "bfloat16"):

        def make(dtype: str = dtype) -> tuple[Work, Work]:
            x, t = bench.pair(batch, inside, side, side, dtype=dtype)
            w, u = bench.pair(outside, inside, 3, 3, dtype=dtype, scale=0.1)
            work = captured(lambda x, w: x.conv2d(w, padding=1), x, w)
            return work, lambda: torch.nn.functional.conv2d(t, u, padding=1)

        yield Case(
            f"conv 3x3 {dtype} {batch}x{inside}x{side}x{side} to {outside}",
            make,
            operations=2 * batch * outside * inside * 9 * side * side,
        )


def two_layers(bench: Bench, dtype: str, compiled: bool) -> Case:
    """A step of stochastic gradient descent, the loss given back."""
    n, wide = bench.size(4096, 32), bench.size(1024, 16)

    def make() -> tuple[Work, Work]:
        x, t = bench.pair(n, wide, dtype=dtype)
        weights = [bench.pair(wide, wide, dtype=dtype, scale=wide**-0.5) for _ in range(2)]
        ours = [w.detach().contiguous().realize() for w, _ in weights]
        theirs = [u.clone().requires_grad_() for _, u in weights]
        for w in ours:
            w.requires_grad = True

        @TinyJit
        def our_step(x: Tensor) -> Tensor:
            with Tensor.train():
                loss = ((x @ ours[0]).relu() @ ours[1]).float().square().mean()
                grads = loss.gradient(*ours)
                for w, g in zip(ours, grads, strict=True):
                    w.assign(w.detach() - 0.0 * g)
                return loss.realize(*ours)

        def their_step() -> Any:
            loss = ((t @ theirs[0]).relu() @ theirs[1]).float().square().mean()
            grads = torch.autograd.grad(loss, theirs)
            with torch.no_grad():
                for w, g in zip(theirs, grads, strict=True):
                    w.sub_(g, alpha=0.0)
            return loss

        return lambda: our_step(x), torch.compile(their_step) if compiled else their_step

    name = f"step, 2 layers of {wide} {dtype}, batch {n}"
    return Case(name, make, operations=12 * n * wide * wide)


STEPS = (
    "mnist_train_step_b128",
    "gpt_train_step_4l_256d",
    "resnet18_train_step_b8",
    "mlp_train_step_b32",
)
KERNELS = (
    *("matvec_f32_4096", "elementwise_chain_16m", "gelu_4m", "sum_16m", "sum_axis0_16m"),
    *("transpose_4096", "gather_rows", "conv3x3_64_56", "depthwise3x3_128_56"),
    *("gpt2_small_forward_t128", "resnet18_forward_b1"),
)


def of_the_suite(bench: Bench, names: tuple[str, ...], compiled: bool = False) -> Iterator[Case]:
    """Cases of `suite.py`, by the functions that measure them on processors."""
    suite = importlib.import_module("suite")
    for name in names:
        row = suite.CASES[name]

        def make(name: str = name) -> tuple[Work, Work]:
            ours, theirs = map(importlib.import_module, ("cases_tinygrad", "cases_torch"))
            theirs.COMPILE = compiled
            return getattr(ours, name)(suite.Inputs()), getattr(theirs, name)(suite.Inputs())

        tolerance = 2e-2 if row.comparable else None
        nbytes = 0 if row.operations else row.nbytes
        yield Case(name, make, tolerance, row.operations, nbytes)


def aiming(cases: Iterator[Case], target: float, suffix: str = "") -> Iterator[Case]:
    for case in cases:
        case.target, case.name = target, case.name + suffix
        yield case


def training(bench: Bench) -> Iterator[Case]:
    yield from aiming(iter([two_layers(bench, "bfloat16", False)]), 1.1)
    yield from aiming(iter([two_layers(bench, "float32", False)]), 1.1)
    yield from aiming(of_the_suite(bench, STEPS[3:] if bench.small else STEPS), 1.1)


def compiled(bench: Bench) -> Iterator[Case]:
    """The same against torch.compile, which may take a minute for each, and needs a C compiler."""
    if not bench.small:
        yield from aiming(iter([two_layers(bench, "bfloat16", True)]), 1.0, ", torch.compile")
        yield from aiming(of_the_suite(bench, STEPS, True), 1.0, ", torch.compile")


def kernels(bench: Bench) -> Iterator[Case]:
    yield from of_the_suite(bench, ("gelu_4m",) if bench.small else KERNELS)


PARTS: dict[str, Callable[[Bench], Iterator[Case]]] = {
    "operations": operations,
    "copy": copy,
    "gemm": gemm,
    "attention": attention,
    "training": training,
    "rows": rows,
    "conv": conv,
    "f32": f32,
    "kernels": kernels,
    "compiled": compiled,
}


# ---- measuring -----------------------------------------------------------------------------------


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


def difference(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> str:
    """What is wrong with our result, if anything, and where: a corner, a lane, all of it."""
    if ours.shape != theirs.shape:
        return f"wrong: shape {ours.shape}, PyTorch's is {theirs.shape}"
    scale = float(np.abs(theirs).max(initial=0.0)) or 1.0
    apart = np.abs(ours - theirs) / scale
    bad = ~(apart <= tolerance)
    if not bad.any():
        return ""
    places = np.argwhere(bad)
    first, low, high = places[0].tolist(), places.min(0).tolist(), places.max(0).tolist()
    shown = f"{ours[tuple(first)]:.4g} for {theirs[tuple(first)]:.4g}"
    return (
        f"wrong: off by {np.nanmax(apart) if not np.isnan(apart).all() else np.nan:.2g} of the "
        f"largest, {len(places):,} of {bad.size:,} from {low} to {high}, {shown} at {first}"
    )


def measure(bench: Bench, case: Case, deadline: float, timed: bool) -> dict[str, Any]:
    """The case's row: checked, then both sides in turn; wrong ones too, but they say so."""
    row: dict[str, Any] = {"target": case.target, "share": case.share, "note": ""}
    before = time.perf_counter()
    sides = case.make()
    found = [as_numbers(side()) for side in sides]
    row["first"] = time.perf_counter() - before  # compiling, most of it
    if case.tolerance is not None:
        row["note"] = difference(*found, case.tolerance)
    if not timed:
        return row
    counts = [repeats_of(bench, side) for side in sides]
    rounds = []
    for _ in range(bench.rounds[0]):
        rounds.append([seconds(bench, s, n) for s, n in zip(sides, counts, strict=True)])
        if time.monotonic() > deadline:
            break
    row["ours"], row["theirs"] = (statistics.median(r[i] for r in rounds) for i in (0, 1))
    row["ratio"] = statistics.median(r[1] / r[0] for r in rounds)
    row["rate"], row["reached"] = rate(bench, case, row["ours"])
    with Context(DEBUG=2):  # where the time goes, kernel by kernel, on stderr: the log
        sides[0]()
        bench.wait()
    return row


def rate(bench: Bench, case: Case, took: float) -> tuple[str, float]:
    """Operations or bytes a second; and what part of the measured bandwidth that is."""
    if case.operations:
        return f"{case.operations / took * 1e-12:.2f} TFLOP/s", 0.0
    part = case.nbytes / took / bench.bandwidth if bench.bandwidth else 0.0
    shown = f", {part:.0%} of a copy" if part else ""
    return (f"{case.nbytes / took * 1e-9:.0f} GB/s{shown}" if case.nbytes else ""), part


def facts(bench: Bench) -> dict[str, Any]:
    """The machine. Fails where the device isn't there."""
    target = Device[bench.device].target
    card = platform.processor() or platform.machine()
    if bench.peer.startswith("cuda"):
        card = torch.cuda.get_device_name()
    peer = f"PyTorch {torch.__version__} on {bench.peer}"
    return {"machine": f"{card}; code for {target.cpu or target.device}; {peer}"}


def wanted(bench: Bench, part: str) -> Iterator[Case]:
    """The cases of a part that are asked for; what was left out is said by their names. What has a
    row already, in any way, is not asked for."""
    for case in PARTS[part](bench):
        name = case.name
        case.name += f", without {bench.without}" * bool(bench.without)
        is_asked = name == bench.only if bench.only else name not in bench.skip
        if is_asked and case.name not in bench.skip:
            yield case


def run(bench: Bench, say: Callable[[dict[str, Any]], None]) -> None:
    """The parts in order; each first for its share of the time, then what is left of them."""
    deadline = time.monotonic() + bench.seconds
    say({"cases": [[name, case.name] for name in bench.parts for case in wanted(bench, name)]})
    waiting = [(name, wanted(bench, name)) for name in bench.parts]
    while waiting and time.monotonic() < deadline:
        again = []
        for number, (name, cases) in enumerate(waiting):
            left = max(0.0, deadline - time.monotonic())
            until = time.monotonic() + left / (len(waiting) - number)
            for case in cases:
                one(bench, name, case, deadline, say)
                if time.monotonic() > until:
                    again.append((name, cases))
                    break
        waiting = again


def one(
    bench: Bench, part: str, case: Case, deadline: float, say: Callable[[dict[str, Any]], None]
) -> None:
    """One case, whatever it does. A device that is lost ends the process."""
    print(f"---- {part}: {case.name}", file=sys.stderr, flush=True)
    say({"begin": case.name, "part": part})
    try:
        row = measure(bench, case, deadline, part != "operations")
    except Exception as error:  # a case that fails is a row that says so
        traceback.print_exc()
        row = {"note": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    if part == "copy" and row.get("ours"):
        bench.bandwidth = case.nbytes / min(row["ours"], row["theirs"])
        say({"bandwidth": bench.bandwidth})
    say({"name": case.name, "part": part, **row})
    gc.collect()
    if row["note"] and not works(bench):
        say({"lost": row["note"]})
        os._exit(3)  # nothing waits for a card that doesn't answer


def works(bench: Bench) -> bool:
    """Whether both sides can still compute."""
    try:
        bench.wait()
        torch.ones(3, device=bench.peer).sum().item()
        return bool((Tensor([1.0, 2.0], device=bench.device) + 1).tolist() == [2.0, 3.0])
    except Exception:
        traceback.print_exc()
        return False


def main() -> None:
    told = os.fdopen(os.dup(1), "w")  # whatever else prints goes to the log
    os.dup2(2, 1)

    def say(thing: dict[str, Any]) -> None:
        print(json.dumps(thing), file=told, flush=True)

    bench = Bench(**json.loads(sys.argv[1]))
    try:
        torch.set_default_device(bench.peer)  # where the suite's models are made
        say(facts(bench))
    except Exception as error:
        traceback.print_exc()
        say({"lost": f"{type(error).__name__}: {error}"})
        return
    run(bench, say)
    say({"done": True})


if __name__ == "__main__":
    main()
