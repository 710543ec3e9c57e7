"""Results of a captured step that share memory, with each other, with the state or with arguments:
whoever writes to one of them later, it is seen where a plain step's results would show it, and
nowhere else. One step a line; `test/fuzz_captures.py` draws others."""

import pytest

from tinygrad import Tensor, TinyJit
from tinygrad.base.errors import ArgumentError, JitError

CALLS = 4


def add(t):
    t += 100


def tail(t):
    t[1:] = 7


def seen(step, write, jit):
    """What a program sees of all that it holds, which writes to each of its results in turn."""
    found = []
    for target in range(4):
        state = Tensor([[1, 2, 3], [4, 5, 6]]).realize()
        run = jit(lambda x, state=state: step(x, state))
        for call in range(CALLS):
            x = Tensor([[10, 20, 30], [40, 50, 60]]).mul(call + 1).realize()
            results = run(x)
            try:
                write(results[target % len(results)])
            except ArgumentError as error:
                found.append(str(error))
            found.append([t.tolist() for t in (*results, x, state)])
            found.append([[a is b for b in (*results, x, state)] for a in results])
    return found


def check(step, write=add):
    assert seen(step, write, TinyJit) == seen(step, write, lambda step: step)


STEPS = {
    "views with steps of a result": lambda x, s: ((y := x + s)[:, ::2], y[:, ::-2]),
    "one beside what it is of": lambda x, s: ((y := x + s), y[:, ::2]),
    "parts of what isn't returned": lambda x, s: ((y := x + s)[:, :2], y[:, 1:]),
    "a repeated one": lambda x, s: ((y := x[0] + s[0]).expand(4, 3), y),
    "of the state": lambda x, s: (s, s[:, ::2]),
    "of the state, computed": lambda x, s: (s, s[:, ::2].realize()),
    "of an argument": lambda x, s: (x[:, ::2], x),
    "of constants": lambda x, s: ((y := Tensor.full((2, 3), 7)), y[0], x + s),
    "of counts": lambda x, s: ((y := Tensor.arange(6)), y[::2], x + s),
    "of a padded one": lambda x, s: ((y := (x + s).pad(((1, 1), (0, 0)))), y[1:]),
    "a repeated one alone": lambda x, s: ((x[0] + s[0]).expand(4, 3),),
    "a part of a repeated one alone": lambda x, s: ((x + s).sum().expand(6)[1:4],),
    "every other of a repeated one": lambda x, s: ((x + s).sum().expand(6)[::2],),
    "windows that overlap": lambda x, s: ((x + s).unfold(1, 2, 1),),
    "rows of a repeated one alone": lambda x, s: ((x[0] + s[0]).expand(4, 3).T[1:],),
    "a part of constants, repeated": lambda x, s: (Tensor(7).expand(6)[1:4], x + s),
    "a part of a padded one alone": lambda x, s: ((x + s).pad(((1, 1), (0, 0)))[1:],),
    "constants, repeated, alone": lambda x, s: (Tensor.full((4,), 7).expand(2, 4),),
    "one twice": lambda x, s: ((y := (x + s)[:, ::2]), y),
    "equal ones": lambda x, s: (x + s, x + s),
    "equal ones, computed": lambda x, s: ((x + s).realize(), (x + s).realize()),
    "equal ones with views": lambda x, s: ((y := x + s), y[0], (z := x + s), z[0]),
    "a copy in no memory of its own": lambda x, s: (s.floor(), s),
    "two such copies": lambda x, s: (s.floor(), s.floor()),
    "such a copy of an argument": lambda x, s: (x, x.floor()),
    "a contiguous one": lambda x, s: ((y := x + s), y.contiguous(), x.contiguous()),
}


@pytest.mark.parametrize("write", [add, tail], ids=["all", "a part"])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_who_sees_a_write(step, write):
    check(step, write)


@pytest.mark.parametrize("calls", ["pjj", "pjjj", "pjpj", "ppjj"])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_results_that_equal_what_was_computed_before_are_their_own(calls, dtype):
    """Of each call: the plain function's, whose result is read, or the captured one's."""

    def seen(jit):
        state = Tensor([1, 2, 3, 4], dtype=dtype).realize()
        plain = lambda x: (state.pad((1, 1)), x * 2)  # noqa: E731
        run, kept = jit(plain), []
        for call in calls:
            kept.append((plain if call == "p" else run)(Tensor([1, 1]).realize())[0])
            if call == "p":
                kept[-1].tolist()
        found = []
        for number, t in enumerate(kept):
            t.assign(Tensor.full((6,), 50 + number, dtype=dtype))
            found.append([t.tolist() for t in kept])
        return found

    assert seen(TinyJit) == seen(lambda step: step)


@pytest.mark.parametrize("jit", [TinyJit, lambda step: step])
def test_a_copy_that_was_made_doesnt_keep_a_write_from_its_place(jit):
    state = Tensor([1, 2, 3]).realize()
    place = state.uop.base.storage

    @jit
    def step(x):
        state.assign(state + x)
        return state.pad((1, 1)).realize()

    held = [step(Tensor([1, 1, 1]).realize()) for _ in range(4)]
    assert [t.tolist() for t in held] == [[0, n + 2, n + 3, n + 4, 0] for n in range(4)]
    assert state.uop.base.storage is place


def test_constants_that_the_step_finds_are_returned_themselves():
    table = Tensor.zeros(3)
    run = TinyJit(lambda x: (x + 1, table))
    assert all(run(Tensor([1, 2]).realize())[1] is table for _ in range(CALLS))


def test_a_write_that_only_a_result_that_nobody_reads_asks_for_is_done():
    def final(jit):
        state = Tensor([1, 2, 3, 4, 5, 6]).realize()

        def step(x):
            out = x * state + state
            state.assign(state * 2 + 4)
            state[3:6:2].realize()
            return out

        run = jit(step)
        for _ in range(CALLS):
            run(Tensor([1, 2, 3, 4, 5, 6]).realize())
        return state.tolist()

    assert final(TinyJit) == final(lambda step: step)


def test_an_argument_that_is_the_state_and_is_written_is_a_jit_error():
    state = Tensor([1, 2]).realize()

    def step(x):
        x += state

    run = TinyJit(step)
    run(Tensor([3, 4]).realize())
    with pytest.raises(JitError, match="argument 0 is also read or written"):
        run(state)
