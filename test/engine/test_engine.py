"""What the engine promises: nothing runs before it must, nothing runs twice, nothing is lost."""

import gc
import json
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
from interrupts import interrupted_at
from together import together

from tinygrad import Device, GlobalCounters, Tensor, TinyJit, Variable, dtypes, explain, nn
from tinygrad.backends.cpu.queue import CPUSegment
from tinygrad.backends.llvm_compiler import LLVMCompiler
from tinygrad.base.errors import JitError
from tinygrad.base.helpers import MASSES, Recent, garbage_kept
from tinygrad.base.settings import Context
from tinygrad.engine import making, plans
from tinygrad.engine.cache import DiskCache
from tinygrad.engine.host import HostFunction, call, register
from tinygrad.engine.realize import compute_pending
from tinygrad.engine.structure import structure_of
from tinygrad.schedule.kernels import plan
from tinygrad.tensor import again
from tinygrad.tensor.scan import scan
from tinygrad.uop.node import UOp


def kernels_of(run) -> int:
    """How many kernels and copies `run` runs."""
    before = GlobalCounters.kernel_count
    run()
    return GlobalCounters.kernel_count - before


def child(code: str, **settings: str) -> str:
    """The output of a program in a process of its own."""
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def vector(*values: float) -> Tensor:
    return Tensor(list(values)).realize()


# ---- laziness and sharing ------------------------------------------------------------------------


def test_equal_expressions_are_one_node():
    t = vector(1.0, 2.0)
    assert (t * 4 + 1).uop is (t * 4 + 1).uop


def test_equal_expressions_are_computed_once():
    t = vector(1.0, 2.0)
    a, b = t * 4, t * 4
    a.realize()
    assert a.uop is b.uop
    assert kernels_of(lambda: b.tolist()) == 0


def test_nothing_runs_until_values_are_asked_for():
    def build():
        t = Tensor([1.0, 2.0, 3.0]) * 2
        repr(t), str(t.uop), t.shape, t.sum().dtype, explain(t)
        t.sum().gradient(t)

    assert kernels_of(build) == 0


def test_repr_shows_values_of_realized_tensors_only():
    t = Tensor([1, 2]) + 1
    assert "[2, 3]" not in repr(t)
    t.realize()
    assert "[2, 3]" in repr(t)


def test_elementwise_chain_is_one_kernel():
    t = vector(1.0, 2.0, 3.0)
    assert kernels_of(lambda: ((t * 2 + 1).relu() - 3).realize()) == 1


def test_a_realized_part_is_not_computed_again():
    t = vector(1.0, 2.0)
    part = (t @ t.reshape(2, 1)).realize()
    assert kernels_of(lambda: (part * 2).realize()) == 1
    assert (part * 2).tolist() == [10.0]


def test_equal_creations_are_tensors_of_their_own():
    """Deduplication is about values: writing to one must not change the other."""
    a, b = Tensor.zeros(2).contiguous().realize(), Tensor.zeros(2).contiguous().realize()
    a.assign(a + 1).realize()
    c = Tensor.zeros(2).contiguous().realize()
    assert [t.tolist() for t in (a, b, c)] == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]


def test_a_realized_row_of_a_product_is_not_computed_again():
    a, b = Tensor.ones(4, 5).contiguous().realize(), Tensor.ones(5, 6).contiguous().realize()
    row = (a @ b)[:, 3].realize()
    assert kernels_of(lambda: row.numpy()) == 0


def test_realize_of_several_tensors_makes_one_plan():
    t = vector(1.0, 2.0)
    before = GlobalCounters.plans_made
    a, b = t + 41, t * 43
    a.realize(b)
    assert GlobalCounters.plans_made - before <= 1
    assert (a.tolist(), b.tolist()) == ([42.0, 43.0], [43.0, 86.0])


def test_explain_tells_the_bytes_that_must_move():
    t = vector(*range(16))
    text = explain(t * 2 + 1)
    assert "1 step" in text
    assert "bytes: 64 given + 64 results are the floor; kernels move 128" in text


@pytest.mark.usefixtures("others_are_old")
def test_memory_is_freed_with_the_tensor():
    gc.collect()
    before = GlobalCounters.mem_used
    t = Tensor.zeros(1 << 16).contiguous().realize()
    assert GlobalCounters.mem_used - before > 3 << 16  # others may free a few bytes meanwhile
    del t
    gc.collect()
    assert GlobalCounters.mem_used <= before


# ---- structures, plans, kernels: each made once --------------------------------------------------


def test_same_structure_on_other_buffers_needs_no_new_plan():
    (vector(1.0, 2.0) * 3 + 0.5).realize()
    made, lowered = GlobalCounters.plans_made, GlobalCounters.kernels_lowered
    assert (vector(5.0, 6.0) * 3 + 0.5).tolist() == [15.5, 18.5]
    assert (GlobalCounters.plans_made, GlobalCounters.kernels_lowered) == (made, lowered)


def test_steps_of_a_plain_training_loop_share_a_plan():
    """Also what they compute for tensors that still need old values comes in the same order."""
    layers = [nn.Linear(8, 8) for _ in range(6)]
    optimizer = nn.optim.Adam(nn.state.get_parameters(layers))
    x = Tensor.ones(4, 8).contiguous().realize()
    made = []
    with Tensor.train():
        for _ in range(5):
            optimizer.zero_grad()
            x.sequential(layers).square().mean().backward()
            optimizer.step()
            made.append(GlobalCounters.plans_made)
    assert made[1:] == [made[1]] * 4


def plans_of(run, times: int) -> list[int]:
    """How many plans each of `run(0)`, `run(1)`, .. makes."""
    made = []
    for turn in range(times):
        before = GlobalCounters.plans_made
        run(turn)
        made.append(GlobalCounters.plans_made - before)
    return made


def test_a_number_that_changes_becomes_an_argument_of_the_plan():
    """The first graph has it in its code, the second wants a plan with it open, no other does."""
    x = vector(1.0, -2.0, float("inf"))
    rates = [0.3, 0.1, 0.7, -0.0, 0.0, 1.0, float("inf"), float("nan"), 1e-45]

    def check(turn):
        found = (x * rates[turn] - 0.25).numpy()
        with np.errstate(invalid="ignore"):
            expected = x.numpy() * np.float32(rates[turn]) - np.float32(0.25)
        np.testing.assert_array_equal(found, expected)

    assert plans_of(check, len(rates))[2:] == [0] * 7


def test_all_kinds_of_floats_become_arguments():
    for dtype in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64):
        x = Tensor([3.0], dtype=dtype).realize()

        def check(turn, x=x):
            assert (x * (turn + 0.5)).item() == 3.0 * (turn + 0.5)

        assert plans_of(check, 4)[2:] == [0, 0], dtype


WHOLE = np.arange(-3, 5, dtype=np.int32)
IN_ROWS = WHOLE.reshape(2, 4)
WHOLE_NUMBERS = {
    "compared": (lambda t, n: (t == n).sum(), lambda a, n: (a == n).sum()),
    "added": (lambda t, n: t + n, lambda a, n: a + n),
    "multiplied": (lambda t, n: t * (n << 28), lambda a, n: a * np.int32(n << 28)),
    "larger": (lambda t, n: t.maximum(n), lambda a, n: np.maximum(a, n)),
    "chosen": (lambda t, n: (t < 1).where(n, t), lambda a, n: np.where(a < 1, n, a)),
    "places": (lambda t, n: t[Tensor.arange(3) + n], lambda a, n: a[n : n + 3]),
    "scattered": (
        lambda t, n: Tensor.zeros(8, dtype="int").scatter(0, Tensor.arange(4) + n, t[:4]),
        lambda a, n: np.pad(a[:4], (n, 4 - n)),
    ),
    "triangle": (lambda t, n: t.reshape(2, 4).tril(n), lambda a, n: np.tril(IN_ROWS, n)),
    "divided": (lambda t, n: (t + n) // 3 + (t - n) % 3, lambda a, n: (a + n) // 3 + (a - n) % 3),
    "unsigned": (
        lambda t, n: t.cast("uint32") + (n + (1 << 32) - 5),
        lambda a, n: a.astype(np.uint32) + np.uint32(n + (1 << 32) - 5),
    ),
}


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
def test_a_whole_number_that_changes_becomes_an_argument_of_the_plan(name):
    mine, theirs = WHOLE_NUMBERS[name]
    x = Tensor(WHOLE).realize()

    def check(turn):
        np.testing.assert_array_equal(mine(x, turn).numpy(), theirs(WHOLE, turn))

    assert plans_of(check, 5)[4:] == [0]  # 0 and numbers that are equal may make other graphs


def test_a_number_that_a_kernel_does_not_need_is_no_argument_of_it():
    ends = [(4.0, 0), (-2.0, 7), (-3.0, 0), (9.0, 0)]  # of one number, which is the first
    rows = [Tensor.linspace(a, b, 1, dtype="complex64").numpy() for a, b in ends]
    assert [row.item().real for row in rows] == [a for a, _ in ends]


def test_numbers_that_decide_what_code_is_written_stay_in_it():
    """A power's exponent, and the value of a tensor that is nothing else."""
    x = vector(3.0)
    assert [(x**n).item() for n in (2.0, 3.0, 0.0, 1.0)] == [9.0, 27.0, 1.0, 3.0]
    assert [Tensor(n).item() for n in (2.0, 3.0)] == [2.0, 3.0]
    assert [Tensor.full((2,), n).contiguous().tolist() for n in (2.0, 3.0, 4.0)] == [
        [2.0, 2.0],
        [3.0, 3.0],
        [4.0, 4.0],
    ]


def test_a_learning_rate_that_falls_makes_no_new_plans():
    weight, x = Tensor([1.0, 2.0], requires_grad=True).realize(), vector(3.0, 4.0)
    expected = np.array([1.0, 2.0], np.float32)

    def step(turn):
        nonlocal expected
        rate = 0.1 / (turn + 1)
        weight.grad = None
        (weight * x).sum().backward()
        weight.assign(weight.detach() - weight.grad * rate).realize()
        expected = expected - np.array([3.0, 4.0], np.float32) * np.float32(rate)
        np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-6)

    assert plans_of(step, 8)[2:] == [0] * 6


def test_jit_keeps_the_numbers_of_its_capture():
    x = vector(1.0, 2.0)
    for turn in range(3):
        step = TinyJit(lambda x, factor=turn + 0.25: (x * factor).realize())
        assert [step(x).tolist() for _ in range(4)] == [[turn + 0.25, 2 * turn + 0.5]] * 4


def test_bound_variables_are_parameters_of_the_plan():
    size = Variable("size", 1, 8)
    counts = Tensor.arange(8).realize()

    def total(n):
        return (counts < Tensor(size.bind(n))).where(counts, 0).sum().item()

    assert total(3) == 3
    made = GlobalCounters.plans_made
    assert total(5) == 10
    assert GlobalCounters.plans_made == made


def test_kernels_that_differ_in_their_variables_only_are_one():
    """Draws of one shape have counters of their own; what is drawn alone is the same."""
    Tensor.manual_seed(3)
    draws = [Tensor.rand(37) for _ in range(4)]
    made = plan(structure_of([draw.uop for draw in draws]).sink)
    (step,) = made.steps
    assert len(step.ast.src) == 1
    assert len({values for _, _, values in step.ast.arg}) == 4
    draws[0].realize(*draws[1:])
    Tensor.manual_seed(3)
    for draw in draws:
        np.testing.assert_array_equal(draw.numpy(), Tensor.rand(37).numpy())


def test_kernels_that_differ_in_their_symbolic_sizes_only_are_one():
    x = Tensor.arange(20).realize()
    sizes = [Variable(name, 1, 20).bind(n) for name, n in (("a", 7), ("b", 13))]
    parts = [x.shrink(((0, size),)) * 3 for size in sizes]
    made = plan(structure_of([part.uop for part in parts]).sink)
    assert len({step.ast for step in made.steps}) == 1
    parts[0].realize(parts[1])
    assert [part.sum().item() for part in parts] == [3 * 21, 3 * 78]


def test_phases_of_one_text_are_compiled_once(monkeypatch):
    """Two products that want the same matrix packed."""
    compiled, compiling = [], LLVMCompiler.compile
    one, *others = (Tensor.rand(300, n, device="CPU").realize() for n in (200, 400, 500))
    monkeypatch.setattr(LLVMCompiler, "compile", lambda *a: compiled.append(a[1]) or compiling(*a))
    monkeypatch.setattr(making, "core_count", lambda: 1)  # two threads may begin at once
    with Context(CACHELEVEL=0):
        products = [one.T @ other for other in others]
        products[0].realize(products[1])
    texts = {source.partition("define")[2].partition("(")[2] for source in compiled}
    assert 2 <= len(texts) == len(compiled), "one for the packed rows, one for each product"
    for product, other in zip(products, others, strict=True):
        right = one.numpy().T @ other.numpy()
        np.testing.assert_allclose(product.numpy(), right, rtol=1e-4)


def test_compiling_leaves_the_interpreter_as_it_was():
    """While kernels compile, threads take shorter turns."""
    x = vector(1.0, 2.0, 3.0)
    before = sys.getswitchinterval()
    with Context(CACHELEVEL=0):
        (x * 41).sin().realize((x * 43).cos().contiguous())
    assert sys.getswitchinterval() == before


def test_cachelevel_is_asked_each_time(tmp_path):
    code = """
from pathlib import Path
from tinygrad import Context, Tensor
files = lambda: sum(path.is_file() for path in Path({folder!r}).rglob("*"))
with Context(CACHELEVEL=0):
    (Tensor([1.0]) + 1).realize()
none = files()
with Context(CACHELEVEL=1):
    (Tensor([1.0]) + 2).realize()
kinds = sorted(path.name for path in Path({folder!r}).iterdir())
(Tensor([1.0]) + 3).realize()
print(none, kinds, files() > 0)
"""
    found = child(code.format(folder=str(tmp_path)), TINYGRAD_CACHE=str(tmp_path), DEV="CPU")
    assert found == "0 ['kernel'] True\n"


PROGRAM = """
import json, sys
from tinygrad import GlobalCounters, Tensor
x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
loss = (x @ x).relu().sum()
loss.backward()
result = [loss.item(), x.grad.tolist(), Tensor.rand(3).shape]
made = [getattr(GlobalCounters, n) for n in ("plans_made", "kernels_lowered", "kernels_compiled")]
print(json.dumps([result, made, "llvmlite" in sys.modules]))
"""


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_second_process_makes_nothing(tmp_path, device):
    """A warm process rewrites nothing, lowers nothing, compiles nothing and loads no LLVM."""
    settings = {"TINYGRAD_CACHE": str(tmp_path), "DEV": device, "SPEC": "0"}
    cold, made, _ = json.loads(child(PROGRAM, **settings))
    assert all(made)
    warm, made, llvm = json.loads(child(PROGRAM, **settings))
    assert warm == cold
    assert made == [0, 0, 0]
    assert not llvm


def test_cache_is_for_its_owner_only(tmp_path):
    child(PROGRAM, TINYGRAD_CACHE=str(tmp_path / "cache"), DEV="CPU")
    files = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert files
    assert all(p.stat().st_mode & 0o077 == 0 for p in files)


def test_damaged_cache_entries_are_ignored(tmp_path):
    settings = {"TINYGRAD_CACHE": str(tmp_path), "DEV": "CPU"}
    cold, _, _ = json.loads(child(PROGRAM, **settings))
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        raw = path.read_bytes()
        path.write_bytes(raw[: len(raw) // 2] + b"\0" * 8)
    again, made, _ = json.loads(child(PROGRAM, **settings))
    assert again == cold
    assert all(made)


@pytest.mark.parametrize(
    "settings",
    [
        {"TINYGRAD_CACHE": "/proc/no/such/folder"},
        {"TINYGRAD_CACHE": "", "HOME": "/nonexistent", "XDG_CACHE_HOME": ""},
        {"TINYGRAD_CACHE": "", "HOME": "", "XDG_CACHE_HOME": "/proc"},
        {"CACHELEVEL": "0"},
    ],
    ids=["folder cannot be made", "no home", "read-only cache home", "no cache wanted"],
)
def test_works_without_a_cache_folder(settings):
    assert json.loads(child(PROGRAM, DEV="CPU", **settings))[0][0] == 54.0


def test_what_goes_while_the_cache_is_counted_is_not_counted(tmp_path):
    cache = DiskCache(tmp_path)
    cache.put("kernel", "aabb", b"12345")
    (tmp_path / "kernel" / "aa" / "part").symlink_to(tmp_path / "gone")  # seen, but not there
    assert [size for _, size, _ in cache.entries()] == [5 + 32]


def test_cache_stays_under_its_limit(tmp_path):
    cache = DiskCache(tmp_path)
    for i in range(20):
        cache.put("kernel", f"{i:08x}", bytes(1000))
    cache.sweep(5000)
    left = [p.stat().st_size for p in tmp_path.rglob("*") if p.is_file()]
    assert 0 < sum(left) <= 5000
    cache.clear()
    assert cache.get("kernel", f"{19:08x}") is None


def test_sweeps_are_as_many_as_the_bytes_ask_for(tmp_path, monkeypatch):
    cache, swept = DiskCache(tmp_path), []
    monkeypatch.setattr(cache, "sweep", swept.append)
    with Context(CACHE_LIMIT_MB=1):
        for i in range(1000):  # a megabyte in all, as if by many processes
            cache.put("kernel", f"{i:08x}", i.to_bytes(1000))
    assert 16 <= len(swept) <= 64


# ---- threads and processes -----------------------------------------------------------------------


def test_two_python_threads_compute():
    def work(seed):
        x = Tensor(np.full((64, 64), seed, np.float32))
        for _ in range(20):
            x = ((x @ x) / 64).realize()
            x = x / x.max()
        return x.numpy()

    for values in together(lambda: work(1), lambda: work(2)):
        np.testing.assert_allclose(values, np.ones((64, 64)), rtol=1e-5)


def test_computes_after_a_fork():
    """In a child of its own: pytest's process has other people's threads."""
    if not hasattr(os, "fork"):
        return
    printed = child(
        """
import os
import re
from tinygrad import Tensor
x = Tensor.ones(512, 512).contiguous().realize()
def tell(more):
    os.write(1, f"{(x @ x + more).sum().item()}\\n".encode())
tell(0)
pid = os.fork()
tell(1 if pid == 0 else 2)
if pid == 0:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
""",
        DEV="CPU",
    )
    whole = 512.0**3
    assert sorted(map(float, printed.split())) == [whole, whole + 512**2, whole + 2 * 512**2]


# ---- memory --------------------------------------------------------------------------------------


def test_temporaries_share_an_arena():
    """Each row sum is stored; three of them are never alive together."""
    x = Tensor.ones(256, 256).contiguous().realize()
    y = x
    for _ in range(6):
        y = (y @ x).contiguous()
    made = plan(structure_of([y.sum().uop]).sink)
    temporaries = [s.nbytes for s in made.storages if s.kind == "temp"]
    assert len(temporaries) >= 6
    assert sum(made.arenas.values()) < sum(temporaries) / 2


# ---- TinyJit -------------------------------------------------------------------------------------


def test_jit_replays_with_new_inputs(capsys):
    @TinyJit
    def double(x):
        print("called")
        return (x * 2).realize()

    for n in range(6):
        assert double(vector(n, n + 1)).tolist() == [2 * n, 2 * n + 2]
    assert capsys.readouterr().out == "called\n" * 2


def test_jit_results_of_earlier_calls_stay():
    @TinyJit
    def step(x):
        return (x + 1).realize()

    results = [step(vector(n)) for n in range(6)]
    assert [r.item() for r in results] == [n + 1 for n in range(6)]


def test_jit_takes_inputs_that_were_not_realized():
    step = TinyJit(lambda x: (x + 1).realize())
    assert [step(Tensor([float(n)]) * 2).item() for n in range(5)] == [1.0, 3.0, 5.0, 7.0, 9.0]


def test_jit_takes_views():
    step = TinyJit(lambda x: (x + 1).realize())
    rows = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]).realize()
    assert [step(rows[i]).tolist()[0] for i in range(4)] == [2.0, 4.0, 6.0, 8.0]


def test_jit_draws_fresh_random_numbers():
    step = TinyJit(lambda x: (x + Tensor.rand(4)).realize())
    seen = {tuple(step(vector(0.0, 0.0, 0.0, 0.0)).tolist()) for _ in range(6)}
    assert len(seen) == 6


def test_jit_draws_what_plain_calls_draw():
    def draw(x):
        return (x + Tensor.rand(4)).realize()

    zeros = vector(0.0, 0.0, 0.0, 0.0)
    Tensor.manual_seed(7)
    plain = [draw(zeros).tolist() for _ in range(5)]
    Tensor.manual_seed(7)
    step = TinyJit(draw)
    assert [step(zeros).tolist() for _ in range(5)] == plain


def test_jit_computes_what_happens_to_be_known_when_it_captures():
    """A value that is in memory because somebody else computed it is no constant of the step."""
    weight = Tensor([3.0], requires_grad=True).realize()
    first, second = vector(1.0), vector(5.0)
    kept = (first * weight).realize()
    step = TinyJit(lambda x: (x * weight + 1).realize())
    assert [step(x).item() for x in (first, first, second, second)] == [4.0, 4.0, 16.0, 16.0]
    assert kept.item() == 3.0


def test_jit_follows_weights_that_change_after_the_capture():
    weight = Tensor([3.0], requires_grad=True).realize()
    x = vector(2.0)
    kept = (x * weight).realize()
    step = TinyJit(lambda x: (x * weight + 1).realize())
    for _ in range(3):
        assert step(x).item() == 7.0
    weight.assign(Tensor([10.0])).realize()
    assert step(x).item() == 21.0
    assert kept.item() == 6.0


def test_jit_of_the_same_input_whose_results_are_kept():
    weight = Tensor([3.0], requires_grad=True).realize()
    step = TinyJit(lambda x: (x * weight).realize())
    x = vector(2.0)
    results = [step(x) for _ in range(5)]
    assert [r.item() for r in results] == [6.0] * 5


def test_jit_with_another_shape():
    step = TinyJit(lambda x: (x + 1).realize())
    for _ in range(3):
        step(vector(1.0, 2.0))
    with pytest.raises(JitError, match=r"captured for \(float\[2\].*called with \(float\[3\]"):
        step(vector(1.0, 2.0, 3.0))
    assert step(vector(4.0, 5.0)).tolist() == [5.0, 6.0]
    step.reset()
    assert step(vector(1.0, 2.0, 3.0)).tolist() == [2.0, 3.0, 4.0]


def test_jit_keeps_state():
    total = Tensor.zeros(2).contiguous().realize()

    @TinyJit
    def add(x):
        total.assign(total + x).realize()

    for n in range(6):
        add(vector(n, 1.0))
    assert total.tolist() == [15.0, 6.0]


def test_jit_keeps_old_readers_of_its_state_right():
    total = Tensor.zeros(2).contiguous().realize()

    @TinyJit
    def add(x):
        return total.assign(total + x).realize()

    seen = []
    for _ in range(5):
        seen.append(total * 1)
        add(vector(1.0, 2.0))
    assert [s.tolist() for s in seen] == [[n, 2.0 * n] for n in range(5)]


def test_jit_of_nested_containers_and_keywords():
    @TinyJit
    def step(pair, *, extra):
        a, (b, c) = pair
        return {"sum": (a + b + c).realize(), "rest": [(extra["x"] * 2).realize()]}

    for n in range(5):
        out = step((vector(n), [vector(1.0), vector(2.0)]), extra={"x": vector(n)})
        assert (out["sum"].item(), out["rest"][0].item()) == (n + 3, 2 * n)


def test_jit_of_methods():
    class Scale:
        def __init__(self, factor):
            self.factor = vector(factor)

        @TinyJit
        def __call__(self, x):
            return (x * self.factor).realize()

    two, three = Scale(2.0), Scale(3.0)
    for n in range(5):
        assert two(vector(n)).item() == 2 * n
        assert three(vector(n)).item() == 3 * n


def test_jit_of_the_same_buffer_twice():
    step = TinyJit(lambda a, b: (a * b).realize())
    x = vector(3.0)
    assert [step(x, x).item() for _ in range(4)] == [9.0] * 4
    with pytest.raises(JitError, match="the same buffer as input 0"):
        step(x, vector(2.0))


def test_jit_with_nothing_to_capture():
    step = TinyJit(lambda: 3)
    assert step() == 3
    with pytest.raises(JitError, match="nothing was computed"):
        step()


def test_jit_that_fails_leaves_no_trace():
    @TinyJit
    def step(x, fail):
        if fail:
            raise ValueError("of the user")
        return (x + 1).realize()

    step(vector(1.0), False)
    with pytest.raises(ValueError, match="of the user"):
        [step(vector(1.0), True) for _ in range(3)]
    assert [step(vector(n), False).item() for n in range(4)] == [1.0, 2.0, 3.0, 4.0]


def test_jit_switched_off():
    with Context(JIT=0):
        step = TinyJit(lambda x: (x + 1).tolist())
        assert [step(vector(n)) for n in range(4)] == [[n + 1] for n in range(4)]


def test_jit_of_bound_variables():
    size = Variable("n", 1, 10)

    @TinyJit
    def fill(n):
        return (Tensor.arange(4) * Tensor(n)).realize()

    assert [fill(size.bind(n)).tolist()[3] for n in (1, 2, 5, 7)] == [3, 6, 15, 21]


def test_jit_runs_no_python_of_the_step_and_makes_no_plan():
    step = TinyJit(lambda x: ((x @ x).relu().sum(0) + 1).realize())
    x = Tensor.ones(8, 8).contiguous().realize()
    for _ in range(2):
        step(x)
    made = GlobalCounters.plans_made
    assert step(x).tolist() == [65.0] * 8
    assert GlobalCounters.plans_made == made


# ---- SCAN ----------------------------------------------------------------------------------------


def loop(body, state, xs):
    outputs = []
    for i in range(xs.shape[0]):
        state, out = body(state, xs[i])
        outputs.append(out)
    return state, Tensor.stack(*outputs)


def test_scan_is_a_loop_and_its_gradient_too():
    weight = Tensor([[0.5, -0.25], [0.125, 0.75]], requires_grad=True)

    def body(state, x):
        state = (state @ weight + x).tanh()
        return state, state * 2

    xs = Tensor([[0.1 * i, 0.3 - 0.05 * i] for i in range(5)], requires_grad=True)
    start = Tensor([0.2, -0.1], requires_grad=True)
    wanted = loop(body, start, xs)
    states, outputs = scan(lambda s, x: tuple([r] for r in body(s, x)), [start], [xs])
    np.testing.assert_allclose(states[0].numpy(), wanted[0].numpy(), rtol=1e-5)
    np.testing.assert_allclose(outputs[0].numpy(), wanted[1].numpy(), rtol=1e-5)
    ours = (states[0].sum() + outputs[0].square().sum()).gradient(start, xs, weight)
    theirs = (wanted[0].sum() + wanted[1].square().sum()).gradient(start, xs, weight)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-4, atol=1e-6)


def test_scan_in_reverse_of_several_states():
    xs = Tensor([[1.0], [2.0], [3.0]])
    (total, count), (sums,) = scan(
        lambda s, n, x: ([s + x, n + 1], [s * 1]), [Tensor([0.0]), Tensor(0)], [xs], reverse=True
    )
    assert (total.tolist(), count.item()) == ([6.0], 3)
    assert sums.tolist() == [[5.0], [3.0], [0.0]]


def test_scan_of_no_turns_gives_the_first_state():
    start = Tensor([1.0, 2.0], requires_grad=True)
    (state,), (outs,) = scan(lambda s, x: ([s + x], [s]), [start], [Tensor.zeros(0, 2)])
    assert (state.tolist(), outs.shape) == ([1.0, 2.0], (0, 2))
    assert (state.sum() * 3 + outs.sum()).gradient(start)[0].tolist() == [3.0, 3.0]


def test_scan_of_any_length_compiles_once():
    def total(n):
        xs = Tensor([float(i) for i in range(n)]).reshape(n, 1).realize()
        return scan(lambda s, x: ([s * 0.5 + x], [s]), [Tensor([0.0])], [xs])[0][0].item()

    total(4)
    lowered = GlobalCounters.kernels_lowered
    expected = 0.0
    for i in range(40):
        expected = expected * 0.5 + i
    assert total(40) == pytest.approx(expected, rel=1e-6)
    assert GlobalCounters.kernels_lowered - lowered <= 1


# ---- CALL ----------------------------------------------------------------------------------------


def test_a_host_function_in_a_graph():
    def same(x):
        return [x]

    def in_order(results, a):
        results[0][...] = np.sort(a)

    sort = register(HostFunction("test sort", in_order, same))
    x = Tensor([3.0, 1.0, 2.0]) * 2
    (node,) = call(sort, x.uop)
    assert (Tensor(node) + 1).tolist() == [3.0, 5.0, 7.0]


def test_a_host_function_of_two_results():
    def shapes(x):
        shape, dtype = x
        return [(shape, dtype), ((), dtypes.int32)]

    def run(results, a):
        ordered, count = results
        ordered[...] = np.sort(a)
        count[...] = a.size

    both = HostFunction("test sort and count", run, shapes)
    first, second = call(register(both), Tensor([2.0, 1.0]).uop)
    assert Tensor(second).item() == 2
    assert Tensor(first).tolist() == [1.0, 2.0]


# ---- devices -------------------------------------------------------------------------------------


def test_copies_between_devices():
    x = Tensor([1.0, 2.0], device="CPU") + 1
    there = x.to("PYTHON") * 2
    back = there.to("CPU")
    assert (there.device, back.device) == ("PYTHON", "CPU")
    assert back.tolist() == [4.0, 6.0]


def test_default_device_can_be_set():
    before = Device.DEFAULT
    try:
        Device.DEFAULT = "PYTHON"
        assert (Tensor([1, 2]) + 1).device == "PYTHON"
        assert (Tensor([1, 2]) + 1).tolist() == [2, 3]
    finally:
        Device.DEFAULT = before


@pytest.mark.parametrize("setting", ["DEV", "BACKEND"])
def test_default_device_can_be_set_for_a_while(setting):
    before = Device.DEFAULT
    with Context(**{"DEV": "", setting: "PYTHON"}):
        assert Device.DEFAULT == Tensor([1, 2]).device == Tensor.rand(2).device == "PYTHON"
        Device.DEFAULT = "CLANG"
        assert (Tensor([1, 2]) + 1).device == "CLANG"
    assert Device.DEFAULT == Tensor([1, 2]).device == before


@pytest.mark.parametrize("size", [1, 5, 16, 35])
@pytest.mark.parametrize("reverse", [False, True])
def test_slices_of_a_scan_may_lie_anywhere(size, reverse):
    """Slices of 4·size bytes begin where no vector may be stored as if it were aligned."""
    rows = np.arange(9 * size, dtype=np.float32).reshape(9, size)
    (last,), (sums,) = scan(
        lambda s, x: ([s + x], [s + x * 2]), [Tensor.zeros(size)], [Tensor(rows)], reverse
    )
    ordered = rows[::-1] if reverse else rows
    total = ordered.cumsum(axis=0) + ordered
    np.testing.assert_array_equal(sums.numpy(), total[::-1] if reverse else total)
    np.testing.assert_array_equal(last.numpy(), rows.sum(axis=0))


# ---- native calls --------------------------------------------------------------------------------


@pytest.fixture
def native_calls(monkeypatch):
    """A list that grows with each list of kernels that is handed to the CPU."""
    compute_pending()  # what tensors of other tests wait for, a capture would compute
    calls: list[int] = []
    plain = CPUSegment.run

    def run(segment, *rest, **more):
        calls.append(len(segment.launches))
        return plain(segment, *rest, **more)

    monkeypatch.setattr(CPUSegment, "run", run)
    return calls


def test_a_captured_step_of_several_realizes_is_one_native_call(native_calls):
    total = Tensor.zeros(8, device="CPU").contiguous().realize()

    @TinyJit
    def step(x, n):
        y = (x * 2).realize()
        total.assign(total + y).realize()
        z = (y[::-1] + x[:n].sum()).realize()
        return (z + total).realize(), y

    values = np.arange(8, dtype=np.float32)
    x, n = Tensor(values, device="CPU").realize(), Variable("n", 1, 8)
    results = []
    for turn in range(5):
        native_calls.clear()
        results.append(step(x.detach() if turn % 2 else x, n.bind(turn + 1)))
        assert len(native_calls) == (1 if turn >= 2 else 4)
    for turn, (whole, double) in enumerate(results):
        expected = values[::-1] * 2 + values[: turn + 1].sum() + values * 2 * (turn + 1)
        np.testing.assert_array_equal(whole.numpy(), expected)
        np.testing.assert_array_equal(double.numpy(), values * 2)


def test_many_dependent_kernels_are_one_native_call(native_calls):
    @TinyJit
    def step(x):
        for _ in range(200):
            x = (x + 1).contiguous()
        return x.realize()

    x = Tensor([1.0, 2.0], device="CPU").realize()
    for _ in range(4):
        native_calls.clear()
        before = GlobalCounters.kernel_count
        assert step(x).tolist() == [201.0, 202.0]
        assert native_calls == [200]
        assert GlobalCounters.kernel_count - before == 200


def test_jit_in_two_threads():
    """A replay's temporaries are its own while it runs."""

    @TinyJit
    def step(x):
        y = (x @ x).contiguous().realize()
        return (y @ x).contiguous().sum().realize()

    inputs = [Tensor.full((32, 32), float(n)).contiguous().realize() for n in (1, 2)]
    for _ in range(2):
        step(inputs[0])

    def work(n):
        for _ in range(60):
            assert step(inputs[n - 1]).item() == 32.0**4 * n**3

    together(lambda: work(1), lambda: work(2))


def nodes_alive() -> int:
    """Nodes that somebody holds besides the functions that remember so many results and no more."""
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("tinygrad")]
    cached = {f for m in modules for f in vars(m).values() if hasattr(f, "cache_parameters")}
    for function in cached:
        if function.cache_parameters()["maxsize"] is not None:
            function.cache_clear()
    gc.collect()
    return len(UOp._table)


@pytest.mark.usefixtures("others_are_old")
def test_ever_new_shapes_stay_within_a_bound(monkeypatch):
    """Kernels are held by plans and plans are bounded, so that shapes that never come back go;
    nothing of unlimited size holds their nodes."""
    monkeypatch.setattr(plans, "_plans", Recent(4))
    monkeypatch.setattr(again, "_known", Recent(4))
    known = Device[Device.DEFAULT].kernels

    def run(size):
        (Tensor.ones(size, size + 1).contiguous() * 2 + size).sum(0).realize()

    run(299)  # what the first one makes for all
    nodes, before = nodes_alive(), len(known)
    for size in range(300, 340):
        run(size)
    assert nodes_alive() <= nodes + 8 * 150  # what the last plans and steps hold
    assert len(plans._plans) == 4
    assert len(known) <= before + 3 * len(plans._plans)


def test_what_is_made_in_masses_is_looked_through_when_all_is():
    """Not by the next small collection; cycles among it are found by a whole one."""

    class Held:
        pass

    with garbage_kept():
        many = [[i] for i in range(2 * MASSES)]
        cycle = Held()
        cycle.itself = cycle
        seen = weakref.ref(cycle)
    assert gc.get_count()[0] < MASSES and len(many) and gc.isenabled()
    del cycle
    gc.collect(1)
    assert seen() is not None
    gc.collect()
    assert seen() is None


def test_garbage_is_looked_for_whenever_ctrl_c_has_come():
    def build() -> None:
        with garbage_kept():
            many.extend([[i] for i in range(MASSES + 1)])

    many, number = [], 0
    while interrupted_at(number, build):
        assert gc.isenabled() and not gc.get_freeze_count()
        number += 1
    assert number > 10


@pytest.mark.parametrize("counted", [True, False])
def test_what_runs_is_counted_unless_that_is_not_wanted(counted):
    x, before = Tensor([1.0, 2]).realize(), GlobalCounters.kernel_count
    assert (x * 2).realize(do_update_stats=counted).tolist() == [2, 4]
    assert GlobalCounters.kernel_count - before == counted


def test_kernels_are_shown_with_the_lines_of_this_program(tmp_path):
    """Not of an equal graph before it, in this process or in one whose plan is on disk."""
    products = "(t @ t).sum().tolist()\n"
    program = "from tinygrad import Tensor\nt = Tensor([[1.0, 2], [3, 4]]).realize()\n" + products
    cache = {"DEBUG": "2", "TINYGRAD_CACHE": str(tmp_path / "cache")}

    def lines_of(text):
        (tmp_path / "program.py").write_text(text)
        file = str(tmp_path / "program.py")
        run = f"import runpy, sys; sys.stderr = sys.stdout; runpy.run_path({file!r})"
        shown = child(run, **cache)
        return re.findall(r"program\.py:(\d+)", shown)

    first = lines_of(program)
    assert first and set(first) == {"3"}
    assert lines_of("\n\n" + program) == ["5"] * len(first)
    again = lines_of(program + products * 2)
    assert again == [line for line in "345" for _ in first]
