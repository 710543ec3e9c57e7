"""Each primitive: loops before and after, what it refuses, and that the meaning stays."""

import numpy as np
import pytest
from kernel_reference import evaluate_kernel
from loops import kernels

from tinygrad.base.errors import ArgumentError
from tinygrad.loops import primitives
from tinygrad.loops.layout import elements, fact, option, strides
from tinygrad.loops.operands import path_to, stages_of
from tinygrad.loops.reads import is_index
from tinygrad.loops.trims import ends_of
from tinygrad.simplify.affine import affine, build
from tinygrad.uop.op import GroupOp, Ops


def buffers_for(kernel, seed=0):
    """Random contents for all of a kernel's buffers."""
    params = {n.arg[0]: n for n in kernel.toposort() if n.op is Ops.PARAM}
    generator = np.random.default_rng(seed)
    return [
        generator.standard_normal(params[i].arg[1])
        if i not in params or params[i].dtype.name in ("float", "double", "half")
        else generator.integers(0, 5, params[i].arg[1])
        for i in range(max(params) + 1)
    ]


def same(before, after):
    """Asserts that both kernels give the same buffers."""
    buffers = buffers_for(before)
    want, got = evaluate_kernel(before, buffers), evaluate_kernel(after, buffers)
    for slot in want:
        np.testing.assert_allclose(got[slot], want[slot], rtol=1e-9, atol=1e-9)


def becomes(before, after, text):
    same(before, after)
    assert kernels.loops(after) == text


def operand(kernel, which):
    """The path to a factor of the only product."""
    reduction = next(n for n in kernel.toposort() if n.op is Ops.REDUCE)
    return path_to(kernel, reduction.src[0].src[which])


def test_split_of_an_even_loop():
    k = kernels.elementwise(32)
    becomes(k, primitives.split(k, "i0", 8, "j"), "store: i0:4, j:8")


def test_split_of_an_odd_loop_limits_the_inner_one():
    k = kernels.elementwise(100)
    after = primitives.split(k, "i0", 16, "j", "PARALLEL", "VECTOR")
    becomes(k, after, "store: i0:7 PARALLEL, j:16<i0*-16+100 VECTOR")


@pytest.mark.parametrize("name", ("split", "merge", "stage"))
def test_index_arithmetic_is_canonical_where_it_is_used(name):
    k = kernels.conv(2, 3, 8, 8, 4)
    after = {
        "split": lambda: primitives.split(k, "i2", 3, "j"),
        "merge": lambda: primitives.merge(k, "i2", "i3", "p"),
        "stage": lambda: primitives.split(
            primitives.stage(k, operand(k, 0), ("i3", "k1", "k2"), "s"), "s.i3", 2, "j"
        ),
    }[name]()
    used = {s for n in after.toposort() if n.op not in GroupOp.ALU for s in n.src if is_index(s)}
    assert {build(*affine(s)) for s in used} == used


def test_limits_survive_a_second_split():
    k = kernels.elementwise(100)
    after = primitives.split(primitives.split(k, "i0", 48, "j"), "j", 16, "v")
    becomes(k, after, "store: i0:3, j:3<i0*-3+7, v:16<i0*-48+j*-16+100")


def test_split_of_a_variable_size():
    k = kernels.growing_sum(40, 3)
    after = primitives.split(k, "k0", 8, "k1")
    assert kernels.loops(after).startswith("reduce: k0:5<(n+7)//8, k1:8<k0*-8+n")


def test_merge():
    k = kernels.elementwise(4, 8)
    becomes(k, primitives.merge(k, "i0", "i1", "p"), "store: p:32")


def test_merge_of_reduced_loops():
    k = kernels.whole_sum(4, 8)
    becomes(k, primitives.merge(k, "k0", "k1", "p"), "reduce: p:32\nstore: ")


def test_order_of_stores():
    k = kernels.two_outputs(3, 4)
    text = "store: i1:4, i0:3\nstore: i1:4, i0:3"
    becomes(k, primitives.order(k, "store", ("i1", "i0")), text)


def test_role():
    k = kernels.elementwise(16)
    becomes(k, primitives.role(k, "i0", "VECTOR"), "store: i0:16 VECTOR")


def test_drop_single():
    k = kernels.elementwise(1, 8, 1)
    becomes(k, primitives.drop_single(k), "store: i1:8")
    assert kernels.loops(primitives.drop_single(kernels.total(1, 1, 1))) == "store: "


def test_stage_and_its_layout_after_a_split():
    k = kernels.matmul(6, 8, 5)
    k2 = primitives.split(k, "i1", 4, "v")
    staged = primitives.stage(k2, operand(k2, 1), ("k0", "v"), "panel")
    text = "panel: panel.k0:5, panel.v:4\nreduce: k0:5\nstore: i0:6, i1:2, v:4"
    becomes(k, staged, text)
    again = primitives.split(staged, "panel.k0", 2, "panel.k1")
    becomes(k, again, text.replace("panel.k0:5", "panel.k0:3, panel.k1:2<panel.k0*-2+5"))
    filled = primitives.order(again, "panel", ("panel.v",))
    assert option(stages_of(filled)["panel"], "loops") == ("panel.v",)


def test_pad_moves_rows_apart_and_follows_a_split():
    k = kernels.matmul(6, 8, 5)
    k = primitives.stage(k, operand(k, 1), ("k0", "i1"), "panel")
    padded = primitives.pad(k, "panel", "panel.k0", 3)
    assert strides(stages_of(padded)["panel"]) == (11, 1)
    again = primitives.split(padded, "panel.k0", 2, "q")
    assert strides(stages_of(again)["panel"]) == (22, 11, 1)
    assert elements(stages_of(again)["panel"]) == 66
    same(k, again)


def test_the_loops_of_a_reduction_in_another_order():
    k = kernels.conv(1, 3, 4, 5, 2)
    after = primitives.order(k, "reduce", ("k1", "k2", "k0"))
    becomes(k, after, "reduce: k1:3, k2:3, k0:3\nstore: i0:1, i1:2, i2:4, i3:5")
    with pytest.raises(ArgumentError, match="none has the loops"):
        primitives.order(k, "reduce", ("k1", "k2"))


def test_rows_that_a_split_rounded_up_lie_without_a_gap():
    k = kernels.matmul(6, 28, 5)
    k = primitives.stage(k, operand(k, 1), ("k0", "i1"), "panel")
    k = primitives.split(k, "panel.i1", 16, "v")
    assert strides(stages_of(k)["panel"]) == (32, 16, 1)
    closer = primitives.pad(k, "panel", "panel.k0", -4)
    assert strides(stages_of(closer)["panel"]) == (28, 16, 1)
    same(k, closer)
    with pytest.raises(ArgumentError, match="legal from -4"):
        primitives.pad(k, "panel", "panel.k0", -5)


def test_a_stage_keeps_what_two_loops_need():
    k = kernels.softmax(3, 10)
    exp = next(n for n in k.toposort() if n.op is Ops.EXP2 and "k1" in {r.arg[0] for r in n.ranges})
    after = primitives.stage(k, path_to(k, exp), ("k1",), "row", twins=("i1",))
    same(k, after)
    assert sum(n.op is Ops.EXP2 for n in after.toposort()) == 1


def test_a_window_is_kept_over_the_sum_of_three_loops():
    i, g, k = kernels.named(i0=4, i1=2, k0=3)
    weight = kernels.at(2, (2, 3), g, k)
    kernel = kernels.out((4, 2), (kernels.at(1, (7,), i + g + k) * weight).reduce("add", k), i, g)
    pairs = (("i0", 1, "k0", 1), ("i0", 1, "i1", 1))
    after = primitives.window(kernel, operand(kernel, 0), ("i0",), pairs, "w", "GLOBAL")
    becomes(kernel, after, "w: w.i0:7\nreduce: k0:3\nstore: i0:4, i1:2")


def test_a_window_is_kept_over_the_sum_of_two_loops_with_its_border():
    k = kernels.weight_gradient(2, 3, 4, 5, 6)
    pairs = (("k1", 1, "i2", 1), ("k2", 1, "i3", 1))
    after = primitives.window(k, operand(k, 1), ("k0", "i1", "k1", "k2"), pairs, "w", "GLOBAL")
    stores = "store: i0:6, i1:3, i2:3, i3:3"
    becomes(k, after, f"w: w.k0:2, w.i1:3, w.k1:6, w.k2:7\nreduce: k0:2, k1:4, k2:5\n{stores}")
    with pytest.raises(ArgumentError, match=r"doesn't move by 1\*k1 \+ 2\*i2 only"):
        primitives.window(k, operand(k, 1), ("k0",), (("k1", 1, "i2", 2),), "w")
    with pytest.raises(ArgumentError, match="are not loops that the value has"):
        primitives.window(k, operand(k, 1), ("k0", "i1", "k1", "i0"), pairs, "w")
    with pytest.raises(ArgumentError, match=r"missing \['i1'\]"):
        primitives.window(k, operand(k, 1), ("k0", "k1", "k2"), pairs, "w", "GLOBAL")


def test_a_window_with_strides_leaves_nothing_out_and_may_be_kept_by_phases():
    k = kernels.conv(1, 2, 9, 21, 4, stride=2)
    pairs = (("i2", 2, "k1", 1), ("i3", 2, "k2", 1))
    after = primitives.window(k, operand(k, 0), ("k0", "i2", "i3"), pairs, "w")
    assert kernels.loops(after).startswith("w: w.k0:2, w.i2:11, w.i3:23\n")
    same(k, after)
    after = primitives.window(
        k, operand(k, 0), ("k0", "i2", "i3"), pairs, "w", "LOCAL", (("i3", 2),)
    )
    assert kernels.loops(after).startswith("w: w.k0:2, w.i2:11, w.i3p:2, w.i3:12\n")
    same(k, after)
    apart = kernels.conv(1, 2, 9, 21, 4, stride=4)
    with pytest.raises(ArgumentError, match="or numbers are left out"):
        primitives.window(apart, operand(apart, 0), ("k0", "i2"), (("i2", 4, "k1", 1),), "w")


def test_accumulate():
    k = kernels.total(20, 12, 0)
    after = primitives.accumulate(k, (0, 1), ("k0",), "acc")
    same(k, after)
    assert option(stages_of(after)["acc"], "acc") is True


def test_regroup_and_accumulate_take_a_sum_in_parts():
    k = kernels.total(20, 12, 0)
    k = primitives.split(k, "i0", 8, "i1")
    parts = primitives.regroup(k, (0, 1), ("i1",))
    becomes(k, parts, "reduce: i1:8<i0*-8+20\nreduce: i0:3\nstore: k0:12")
    after = primitives.accumulate(parts, (0, 1), ("k0",), "acc")
    becomes(k, after, "reduce: i1:8<i0*-8+20\nreduce: i0:3\nacc: acc.k0:12\nstore: k0:12")


def test_trim_and_how_splits_change_it():
    k = kernels.masked_sum(20)
    trimmed = primitives.trim(k, ("i0",))
    assert fact(trimmed, "trim") == (("k0", ((("i0", 1),), 1, 1)),)
    after = primitives.split(primitives.split(trimmed, "k0", 4, "k1"), "i0", 8, "j")
    inside = "k1", ((("i0", 8), ("k0", -4)), 8, 1)
    assert fact(after, "trim") == (("k0", ((("i0", 8),), 8, 4)), inside)
    same(k, after)


def test_a_loop_that_takes_several_steps_a_turn_ends_in_turns():
    """Phases of a stride: taps 2*k0 + i0 below 5, and above -5 where they are subtracted."""
    i, k = kernels.named(i0=2, k0=4)
    taps = kernels.at(1, (8,), k * 2 + i)
    for guard, bound in ((k * 2 + i < 5, ("trim", ((("i0", -1),), 5, 2))),):
        kernel = kernels.out((2,), guard.where(taps, 0.0).reduce("add", k), i)
        trimmed = primitives.trim(kernel, ("i0",))
        assert fact(trimmed, bound[0]) == (("k0", bound[1]),)
        same(kernel, trimmed)
        same(kernel, primitives.split(trimmed, "k0", 2, "k1"))
    kernel = kernels.out((2,), (i < k * 2).where(taps, 0.0).reduce("add", k), i)
    trimmed = primitives.trim(kernel, ("i0",))
    assert fact(trimmed, "start") == (("k0", ((("i0", -1),), -2, 2)),)
    same(kernel, trimmed)


def test_a_loop_starts_where_its_values_begin_to_count():
    i, k = kernels.named(i0=20, k0=20)
    value = (i < k + 1).where(kernels.at(1, (20,), k), 0.0).reduce("add", k)
    kernel = kernels.out((20,), value, i)
    trimmed = primitives.trim(kernel, ("i0",))
    assert fact(trimmed, "start") == (("k0", ((("i0", -1),), 0, 1)),)
    after = primitives.split(primitives.split(trimmed, "k0", 4, "k1"), "i0", 8, "j")
    assert fact(after, "start") == (("k0", ((("i0", -8),), 0, 4)),)
    same(kernel, after)


def test_copies_of_a_loop_run_to_its_end_and_so_does_what_fills_what_they_read():
    i, k = kernels.named(i0=20, k0=3)
    value = (k < 2).where(kernels.at(1, (3,), k), 0.0)
    kernel = kernels.out((20,), (value * kernels.at(2, (20,), i)).reduce("add", k), i)
    staged = primitives.stage(kernel, path_to(kernel, value), ("k0",), "row")
    trimmed = primitives.trim(staged, ("i0",))
    stop = ((), 2, 1)
    assert fact(trimmed, "trim") == (("k0", stop), ("row.k0", stop))
    assert ends_of(primitives.role(trimmed, "row.k0", "UNROLL"), "trim") == {"k0": stop}
    assert ends_of(primitives.role(trimmed, "k0", "UNROLL"), "trim") == {}


def test_a_stage_is_filled_as_far_as_the_loop_inside_of_a_split_sum_goes():
    i, k = kernels.named(i0=64, k0=64)
    value = (k < i + 1).where(kernels.at(1, (64, 64), i, k) * 3.0, 0.0)
    kernel = kernels.out((64,), value.reduce("add", k), i)
    kernel = primitives.stage(kernel, path_to(kernel, value.src[1]), ("k0",), "row")
    kernel = primitives.split(primitives.trim(kernel, ("i0",)), "i0", 16, "j")
    stop = (("i0", 16),), 16
    for factor, inside, filled in ((8, "LOOP", 0), (8, "UNROLL", 0), (32, "VECTOR", 16)):
        cut = primitives.split(kernel, "k0", factor, "kb", "LOOP", inside)
        assert ends_of(cut, "trim")["row.k0"] == (stop[0], stop[1] + filled, 1)
        same(kernel, cut)
    cut = primitives.split(kernel, "k0", 32, "kb")  # the inner loop ends with the bound, ...
    assert ends_of(cut, "trim")["row.k0"] == (*stop, 1)
    cut = primitives.order(cut, "reduce", ("kb", "k0"))  # ... unless it is the outer one
    assert ends_of(cut, "trim")["row.k0"] == (stop[0], 32, 1) and "kb" not in ends_of(cut, "trim")
    same(kernel, cut)


def test_prefetch_and_stream_are_facts():
    k = primitives.stream(primitives.prefetch(kernels.matmul(4, 4, 8), "k0", 4))
    assert fact(k, "prefetch") == (("k0", 4),) and k.src[0].arg == "nontemporal"


REFUSED = [
    (primitives.split, ("x", 2, "y"), "no loop 'x'; there are i0, i1, k0"),
    (primitives.split, ("i0", 0, "y"), "at least 1"),
    (primitives.split, ("i0", 2, "i1"), "'i1' is taken"),
    (primitives.split, ("i0", 2, "y", "LOOP", "WARP"), "'WARP' is none; there are LOOP"),
    (primitives.split, ("i0", 99, "y", "LOOP", "UNROLL"), "at most 64 copies"),
    (primitives.merge, ("i0", "k0", "p"), "not side by side"),
    (primitives.merge, ("i1", "i0", "p"), "not side by side"),
    (primitives.role, ("k0", "PARALLEL"), "can't have PARALLEL; legal: LOOP, VECTOR, UNROLL"),
    (primitives.role, ("i0", "SPREAD"), "can't have SPREAD"),
    (primitives.role, ("i0", "ORDERED"), "the scheduler's"),
    (primitives.order, ("store", ("i0",)), "are not their loops"),
    (primitives.order, ("panel", ("i0",)), "no stage 'panel'; there are none"),
    (primitives.stage, ((0, 1), ("k0",), "s"), "doesn't depend on ['k0']"),
    (primitives.stage, ((0, 1), ("i0", "i0"), "s"), "twice"),
    (primitives.stage, ((0, 1), ("i0",), "s", "TAPE"), "no memory 'TAPE'"),
    (primitives.stage, ((0, 2), ("i0",), "s"), "no value that can be kept"),
    (primitives.stage, ((0, 9), ("i0",), "s"), "sources"),
    (primitives.accumulate, ((0, 1, 0), ("i0",), "s"), "a REDUCE is needed"),
    (primitives.follow, (("k0",), ("i0",)), "loops of [72] and [70] turns; legal: the same"),
    (
        primitives.follow,
        (("k0",), ("k0",)),
        "are no powers of distances to a maximum over ('k0',)",
    ),
    (primitives.across, ("k0", "i0"), "is no LOOP of as many turns as a LANE"),
    (primitives.regroup, ((0, 1), ("k0",)), "not some of the loops of a REDUCE"),
    (primitives.regroup, ((0, 0), ("k0",)), "not some of the loops of a REDUCE"),
    (primitives.pad, ("s", "i0", 1), "no stage 's'"),
    (primitives.prefetch, ("z", 1), "no loop 'z'"),
]


@pytest.mark.parametrize(("primitive", "args", "message"), REFUSED)
def test_what_is_not_legal_is_refused(primitive, args, message):
    with pytest.raises(ArgumentError) as error:
        primitive(kernels.matmul(70, 71, 72), *args)
    assert message in str(error.value)


def test_ordered_loops_stay():
    k = kernels.in_order(4, 8)
    with pytest.raises(ArgumentError, match="ORDERED"):
        primitives.role(k, "i0", "PARALLEL")
    with pytest.raises(ArgumentError, match="ORDERED"):
        primitives.split(k, "i0", 2, "j")
    after = primitives.split(k, "i0", 2, "j", "ORDERED", "VECTOR")
    becomes(k, after, "store: i0:2 ORDERED, j:2 VECTOR, i1:8")


@pytest.mark.parametrize("name", primitives.PRIMITIVES)
def test_a_primitive_says_what_it_requires_and_shows_a_nest_before_and_after(name):
    said = primitives.PRIMITIVES[name].__doc__ or ""
    assert "Requires: " in said and " become" in said.replace("\n", " ")
    assert said.count(">>> draw(") >= 2
