"""The other end of `engine/stopwatch`: a process that runs kernels under recipes and says how long
they took and whether the result was right. It reads requests from stdin and writes answers to
stdout, a line of JSON each. It may crash or hang: its parent survives that.

    {"kernel": text, "device": name, "recipe": text}   a new kernel, and the recipe to compare with
    {"recipe": text, "limit": seconds}                 → {"seconds": s} or {"problem": text}
    {"race": text, "rounds": n}                        → {"ratio": its time over the reference's}
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import TinygradError
from tinygrad.codegen.pipeline import lower
from tinygrad.engine.devices import Device
from tinygrad.engine.kernels import LoadedKernel, load_record
from tinygrad.engine.making import compile_lowered
from tinygrad.engine.race import Condition, worst_ratio
from tinygrad.engine.recipes import MOST_INSTRUCTIONS
from tinygrad.engine.run import RunnablePlan
from tinygrad.engine.storage import Buffer, as_array, numpy_dtype
from tinygrad.loops.cost import estimate, turns
from tinygrad.loops.recipe import apply, from_text
from tinygrad.loops.roles import own_ranges, role_of
from tinygrad.loops.vectors.tasks import TASKS
from tinygrad.schedule.plan import Plan, Step, Storage, variable_name, variable_number
from tinygrad.uop import Ops, UOp
from tinygrad.uop.text import parse

BATCH = 1e-3  # seconds of a batch, at least
BATCHES = 5
MOST_REPEATS = 500
SAMPLE = 1 << 17
"""Elements of a candidate's result that are compared; all of them before it wins."""

SWEEPS = (4, 64)
"""Multiples of the private cache that are written as other memory: more than one cache, and more
than all of them."""

HOPELESS = 1.5
"""If the first batch takes this many times the limit, the candidate is not timed further."""

TOLERANCES = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Tolerances for different orders of summation, relative to the value and to the mean magnitude."""


class Trial:
    """One kernel with buffers of its own, and the results of the reference recipe."""

    def __init__(self, ast: UOp, device: str, reference: str) -> None:
        self.ast, self.device = ast, Device[device]
        nodes = ast.toposort()
        params = sorted({n for n in nodes if n.op is Ops.PARAM}, key=lambda p: p.arg[0])
        self.storages = tuple(
            Storage("param", device, p.dtype, p.arg[1], i) for i, p in enumerate(params)
        )
        variables = [n.arg for n in nodes if n.op is Ops.DEFINE_VAR]
        most = {variable_number(name): high if low >= 0 else 0 for name, low, high in variables}
        self.values = [most.get(i, 1) for i in range(1 + max(most, default=-1))]
        stored = {s.src[0].src[0].arg[0] for s in ast.src}
        self.written = [i for i, p in enumerate(params) if p.arg[0] in stored]
        arrays = [_numbers(p.dtype, p.arg[1], seed) for seed, p in enumerate(params)]
        self.given = [memoryview(array.view(np.uint8)) for array in arrays]  # type: ignore[arg-type]
        self.buffers = [Buffer(device, s.nbytes) for s in self.storages]
        self.least_tasks = 1
        self.repeats = 1
        self.loaded: dict[str, LoadedKernel] = {}
        self.reference = self._load(reference)
        if not self.device.target.has_groups:
            self.least_tasks = min(TASKS, self.tasks)
        for buffer, numbers in zip(self.buffers, self.given, strict=True):
            buffer.write(numbers)
        self.expected = [array.copy() for array in self._run(self.reference)]
        seconds = self._seconds(self._several(self.reference, 1))
        self.repeats = max(1, min(MOST_REPEATS, int(BATCH / max(seconds, 1e-9))))
        self.reference_plan = self._several(self.reference, self.repeats)

    def seconds(self, recipe: str, limit: float) -> float:
        """The least time of a few batches; raises if the result differs from the reference's."""
        key = self._load(recipe)
        self._check(key, SAMPLE)
        made = self._several(key, self.repeats)
        least = self._seconds(made)
        if least < HOPELESS * limit:
            least = min(least, *(self._seconds(made) for _ in range(BATCHES - 1)))
        return least

    def ratio(self, recipe: str, rounds: int) -> float:
        """Its time over the reference's: both in a row, and with other memory touched before each
        run, so that operands are not in the private cache, or in no cache. A kernel meets all these
        cases."""
        key = self._load(recipe)
        self._check(key, max(array.size for array in self.expected))
        often = self._several(key, self.repeats), self.reference_plan
        once = self._several(key, 1), self._several(self.reference, 1)
        ways = [(often, 0), *((once, size) for size in SWEEPS)]
        return worst_ratio((self._condition(*pair, size) for pair, size in ways), rounds)

    def _condition(self, candidate: RunnablePlan, reference: RunnablePlan, size: int) -> Condition:
        """Both, after writing other memory of so many times the private cache's size."""
        sweep = np.zeros(size * self.device.target.cache_l2, np.uint8)

        def before() -> None:
            np.add(sweep, 1, out=sweep)

        return Condition(lambda: self._seconds(candidate), lambda: self._seconds(reference), before)

    # ---- one kernel --------------------------------------------------------------------------

    def _load(self, recipe: str) -> str:
        """Compiles the kernel with a recipe. Returns the key under which the device has it."""
        kernel = apply(self.ast, from_text(recipe))
        own = own_ranges(kernel.src[0])
        self.tasks = turns(loop for loop in own if role_of(loop) == "PARALLEL")
        if self.tasks < self.least_tasks:
            raise TinygradError(f"{self.tasks} tasks: cores would be idle")
        key = f"{self.ast.key.hex()} {recipe}"
        if key not in self.loaded:
            lowered = lower(kernel, self.device.target)
            if lowered.instructions > MOST_INSTRUCTIONS:
                raise TinygradError(f"{lowered.instructions} instructions are too many")
            record = compile_lowered((lowered, estimate(self.ast)), self.device)
            self.loaded[key] = self.device.kernels[key] = load_record(record, self.device)
        return key

    def forget(self) -> None:
        """Frees the memory of the compiled candidates."""
        self.loaded.clear()

    def _several(self, key: str, repeats: int) -> RunnablePlan:
        """The kernel, repeated, in one native call."""
        numbers = tuple(range(len(self.storages)))
        names = tuple(map(variable_name, range(len(self.values))))
        step = Step(
            Ops.KERNEL, self.device.name, numbers, len(self.written), self.ast, variables=names
        )
        plan = Plan(self.storages, (step,) * repeats, (), {})
        return RunnablePlan(plan, [key] * repeats)

    def _seconds(self, plan: RunnablePlan) -> float:
        """The time of this thread, which runs all tasks, since the machine may be busy. A device
        with groups is waited for."""
        waits = self.device.target.has_groups
        clock = time.perf_counter if waits else time.thread_time
        start = clock()
        plan.run(self.buffers, self.values)
        if waits:
            self.device.synchronize()
        return (clock() - start) / len(plan.plan.steps)

    def _run(self, key: str) -> list[np.ndarray[Any, Any]]:
        """What the kernel writes, over other contents."""
        for slot in self.written:
            self.buffers[slot].write(self.given[slot])
        self._several(key, 1).run(self.buffers, self.values)
        pairs = [(self.buffers[slot], self.storages[slot].dtype) for slot in self.written]
        return [as_array(buffer, dtype) for buffer, dtype in pairs]

    def _check(self, key: str, most: int) -> None:
        """Compares about `most` elements of each result, spread over all of it."""
        for made, wanted in zip(self._run(key), self.expected, strict=True):
            apart = made.size // most | 1
            if not _agree(made[::apart], wanted[::apart]):
                raise TinygradError("another result than the reference's")


def _agree(made: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> bool:
    allowed = TOLERANCES.get(wanted.dtype.name, 0.0)
    if not allowed:
        return bool((made == wanted).all())
    made, wanted = made.astype(np.float64), wanted.astype(np.float64)
    finite = np.abs(wanted[np.isfinite(wanted)])
    scale = float(finite.mean()) if finite.size else 0.0
    return np.allclose(made, wanted, rtol=allowed, atol=allowed * scale, equal_nan=True)


def _numbers(dtype: DType, size: int, seed: int) -> np.ndarray[Any, Any]:
    """The contents of a buffer: normal floats; integers are 0 or 1, which are valid indices of any
    table."""
    generator = np.random.default_rng(seed)
    if dtypes.is_float(dtype):
        values = generator.standard_normal(min(size, 1 << 20), np.float32)
    else:
        values = generator.integers(0, 2, min(size, 1 << 20)).astype(np.int8)
    return np.resize(values, size).astype(numpy_dtype(dtype))


def answer(request: dict[str, Any], trial: Trial | None) -> tuple[Trial | None, dict[str, Any]]:
    """The answer to a request, and the trial that the next one is about."""
    if "kernel" in request:
        if trial is not None:
            trial.forget()
        trial = Trial(parse(request["kernel"]), request["device"], request["recipe"])
        return trial, {}
    assert trial is not None
    if "race" in request:
        return trial, {"ratio": trial.ratio(request["race"], request["rounds"])}
    return trial, {"seconds": trial.seconds(request["recipe"], request["limit"])}


def main() -> None:
    """Answers requests until stdin ends."""
    trial: Trial | None = None
    for line in sys.stdin:
        try:
            trial, found = answer(json.loads(line), trial)
        except (TinygradError, ValueError, AssertionError, KeyError, IndexError) as error:
            found = {"problem": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
