"""The heuristic's recipes: they keep the meaning of every kernel on every machine, some of them as
text, and how long it takes to find them."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from kernel_reference import evaluate_kernel
from loops import kernels
from loops.test_primitives import buffers_for

from tinygrad import Tensor
from tinygrad.base.dtype import dtypes
from tinygrad.base.settings import Context
from tinygrad.base.target import Target
from tinygrad.codegen.pipeline import lower
from tinygrad.engine.structure import structure_of
from tinygrad.loops.cost import estimate
from tinygrad.loops.groups.blocks import Sizes
from tinygrad.loops.groups.unit_products import staged_shape
from tinygrad.loops.heuristic import schedule, schedule_small
from tinygrad.loops.layout import fact
from tinygrad.loops.matrix_units import UNITS, matrix_units
from tinygrad.loops.recipe import apply, from_text, to_text
from tinygrad.loops.roles import name_of, role_of
from tinygrad.loops.trims import permitted
from tinygrad.nn.functional import group_norm
from tinygrad.schedule.kernels import plan
from tinygrad.uop import UOp
from tinygrad.uop.op import Ops
from tinygrad.uop.verify import verify

SOME = {
    "one element": kernels.elementwise(1),
    "three elements": kernels.elementwise(3),
    "four axes": kernels.elementwise(2, 3, 5, 33),
    "many int8": kernels.elementwise(7, 100, dtype=dtypes.int8),
    "many doubles": kernels.elementwise(1000, dtype=dtypes.float64),
    "20 of int8": kernels.elementwise(20, dtype=dtypes.int8),
    "sum of rows": kernels.total(33, 70, 1),
    "sum of columns": kernels.total(70, 133, 0),
    "max of columns of int64": kernels.total(33, 70, 0, "max", dtypes.int64),
    "sum of half": kernels.total(5, 300, 1, dtype=dtypes.half),
    "rows by columns": kernels.sum_of_rows_and_columns(37, 70),
    "rows by columns of int8": kernels.sum_of_rows_and_columns(70, 33, dtypes.int8),
    "two sums of rows by columns": kernels.sums_of_rows_and_columns(64, 70),
    "whole sum": kernels.whole_sum(9, 50),
    "softmax along the middle": kernels.softmax_along_the_middle(19, 20, 8),
    "transpose": kernels.transpose(33, 70),
    "transpose of int8": kernels.transpose(70, 90, dtypes.int8),
    "matmul": kernels.matmul(13, 40, 9),
    "matmul A.T": kernels.matmul(33, 33, 33, a_t=True),
    "matmul B.T": kernels.matmul(13, 40, 33, b_t=True),
    "matmul both, scaled": kernels.matmul(50, 35, 17, True, True, scaled=True),
    "matmul of int8": kernels.matmul(20, 70, 9, dtype=dtypes.int8),
    "matmul of doubles": kernels.matmul(20, 30, 9, dtype=dtypes.float64),
    "matmul of half": kernels.half_matmul(13, 40, 9),
    "taps of rows": kernels.taps_of_rows(40, 20, 33, 9),
    "one row": kernels.matmul(1, 40, 9),
    "one column": kernels.matmul(40, 1, 9),
    "few columns": kernels.matmul(40, 3, 9),
    "few columns of many rows": kernels.matmul(67, 5, 70),
    "long transpose": kernels.long_transpose(33, 70),
    "long transpose of short rows": kernels.long_transpose(70, 5),
    "few columns of a transposed matrix": kernels.matmul(67, 5, 70, a_t=True),
    "few columns, both transposed": kernels.matmul(67, 3, 70, True, True),
    "few columns of many rows of half": kernels.half_matmul(67, 3, 70),
    "matvec": kernels.matvec(37, 100),
    **{f"combined, {how}": kernels.combined(13, 40, 70, how) for how in kernels.COMBINED},
    "combined, long": kernels.combined(13, 40, 333, "squares", b_t=False),
    "combined, long maximum": kernels.combined(30, 40, 333, "largest sum"),
    "maximum of a product": kernels.reduced_product(37, 70, 20),
    "maximum of distances": kernels.reduced_product(37, 70, 17, "distances"),
    "maxima of products of short rows": kernels.reduced_products(10, 7, 7, 16),
    "products of three matrices": kernels.product_summed_over_matrices(40, 7, 20, 3),
    "sum of a product": kernels.summed_product(5, 7, 40, 20),
    "softmax of a transpose": kernels.softmax_of_a_transpose(70, 37),
    "softmax": kernels.softmax(5, 37),
    "layernorm": kernels.layernorm(6, 100),
    "conv": kernels.conv(2, 3, 5, 7, 4),
    "products of several matrices, side by side": kernels.matrices_innermost(3, 20, 37, 18),
    "halves of bytes": kernels.halves_of_bytes(5, 3, 16),
    "matmul of many rows that lie side by side": kernels.matmul(300, 20, 90, a_t=True),
    "long matmul": kernels.matmul(5, 20, 101),
    "long matmul A.T": kernels.matmul(7, 20, 101, a_t=True),
    "weight gradient": kernels.weight_gradient(2, 2, 5, 7, 4),
    "weight gradient of many": kernels.weight_gradient(3, 2, 9, 20, 37),
    "strided weight gradient": kernels.weight_gradient(2, 3, 9, 13, 20, stride=2),
    "conv of small images": kernels.conv(12, 24, 5, 5, 16),
    "conv of blocks of images": kernels.conv(128, 12, 4, 4, 20),
    "weight gradient of few": kernels.weight_gradient(2, 3, 9, 20, 3),
    "strided weight gradient of few": kernels.weight_gradient(2, 3, 9, 31, 2, stride=2),
    "weight gradient of one": kernels.weight_gradient(1, 3, 11, 13, 20),
    "conv of wide rows": kernels.conv(1, 2, 4, 20, 13),
    "conv of channels last": kernels.conv(3, 8, 9, 9, 20, stride=2, size=4, last=True),
    "conv with stride": kernels.conv(1, 8, 19, 37, 13, stride=2),
    "conv read in place": kernels.conv(1, 9, 5, 7, 13),
    "conv in groups": kernels.conv(1, 8, 9, 20, 6, groups=2),
    "conv of channels apart": kernels.conv(1, 8, 9, 20, 8, groups=8),
    "windows side by side": kernels.grown(5, 4, 21, 9),
    "windows side by side, cut off": kernels.grown(5, 4, 21, 9, pad=1),
    "windows that overlap": kernels.grown_over(8, 16, 12, 12, 32),
    "attention": kernels.attention(2, 20, 8),
    "attention in blocks": kernels.attention(1, 100, 16),
    "attention, all tokens": kernels.attention(1, 70, 16, causal=False),
    "gradient of values": kernels.value_gradient(2, 70, 16),
    "two products": kernels.gated_products(20, 40, 9),
    "softmax of a product": kernels.matmul_softmax(20, 50, 7),
    "gather of rows": kernels.gather_rows(11, 40, 10),
    "gather": kernels.gather(40, 10),
    "two outputs": kernels.two_outputs(7, 9),
    "in order": kernels.in_order(4, 40),
    "padded": kernels.padded(6, 30),
    "depthwise conv": kernels.conv(2, 6, 12, 21, 6, groups=6, size=5),
    "depthwise conv with stride": kernels.conv(1, 3, 33, 19, 3, groups=3, size=7, stride=2),
    "layernorm of short rows": kernels.layernorm(6, 45),
    "depthwise conv of channels last": kernels.conv(
        2, 40, 9, 11, 40, groups=40, last=True, lies=True
    ),
    "of channels last, with stride": kernels.conv(
        1, 21, 14, 9, 21, 2, groups=21, size=5, last=True, lies=True
    ),
    "to channels last": kernels.conv(1, 18, 9, 13, 18, groups=18, size=5, last=True),
    "from channels last": kernels.conv(2, 34, 12, 9, 34, groups=34, lies=True),
    "step of depthwise weights": kernels.depthwise_step(2, 3, 12, 21, 5),
    "of channels last": kernels.depthwise_step(2, 40, 12, 21, 5, last=1),
    "of an image of channels last, too": kernels.depthwise_step(2, 40, 12, 21, 5, last=2),
    "of channels last, large windows": kernels.depthwise_step(1, 33, 13, 16, 7, last=1),
    "maxpool": kernels.maxpool(3, 9),
    "sums of rests": kernels.rests(40, 5),
    "strided windows folded": kernels.folded(3, 37),
    "argmax": kernels.first_index_of_max(5, 40),
    "masked sum": kernels.masked_sum(50),
    "checked": kernels.checked(40),
    "as many rows as n": kernels.growing_sum(12, 20),
    "n rows": kernels.growing_rows(12, 20),
    "rows of n": kernels.growing_softmax(3, 40),
    "a matrix whose rows take turns": kernels.turning_matvec(64, 4, 1024, 64),
    "two matrices by a vector": kernels.gated_matvec(37, 100),
    "sums together": kernels.centred_sums(5, 100),
    "a few sums together": kernels.centred_sums(3, 7),
}

MACHINES = {
    "wide": kernels.WIDE,
    "small": kernels.SMALL,
    "tiny cache": kernels.TINY,
    "scalar": kernels.SCALAR,
    "groups": kernels.GROUPS,
    "one lane a group": Target("CL", has_groups=True, group_limit=1),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", SOME)
def test_a_recipe_keeps_the_meaning(name, machine):
    check_meaning(SOME[name], MACHINES[machine])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("tokens", [5, 70, 133])
@pytest.mark.parametrize("machine", [m for m, target in MACHINES.items() if not target.has_groups])
def test_so_it_does_where_stores_have_loops_of_their_own(machine, tokens, causal):
    check_meaning(kernels.score_gradients(2, tokens, 12, causal), MACHINES[machine])


def check_meaning(kernel, machine):
    scheduled, recipe = schedule(kernel, machine)
    verify(scheduled, "kernel")
    assert from_text(to_text(recipe)) == recipe
    assert apply(kernel, recipe) is scheduled
    buffers = buffers_for(kernel)
    want = evaluate_kernel(kernel, buffers, {"n": 12})
    got = evaluate_kernel(scheduled, buffers, {"n": 12})
    for slot in want:
        np.testing.assert_allclose(got[slot], want[slot], rtol=1e-9, atol=1e-9)


def test_rows_that_lie_side_by_side_are_not_packed_for_a_few_columns():
    def is_turned(*sizes, **how):
        recipe = schedule(kernels.matmul(*sizes, **how), kernels.WIDE)[1]
        return recipe[0] == ("stage", (0, 1), ("i1", "i0"), "out1", "GLOBAL")

    assert is_turned(512, 64, 2048, a_t=True)
    assert not is_turned(512, 64, 2048)  # they lie along the sum
    assert not is_turned(512, 512, 2048, a_t=True)  # as many columns
    assert not is_turned(512, 64, 128, a_t=True)  # a short sum


def test_several_products_whose_elements_are_side_by_side_have_tiles():
    recipe = schedule(kernels.matrices_innermost(8, 64, 64, 48), kernels.WIDE)[1]
    assert recipe[0] == ("stage", (0, 1), ("i2", "i0", "i1"), "out1", "GLOBAL")
    recipe = schedule(kernels.matrices_innermost(8, 64, 64, 4), kernels.WIDE)[1]
    assert "out1" not in recipe[0]  # few terms


def test_short_rows_that_are_summed_in_turn_are_taken_two_at_a_time():
    def takes_two(rows, columns):
        recipe = schedule(kernels.layernorm(rows, columns), kernels.WIDE)[1]
        return [step[1] for step in recipe if step[2:3] == (2,) and step[4:] == ("LOOP", "UNROLL")]

    assert takes_two(64, 192) == ["i0c"]
    assert not takes_two(63, 192)
    assert not takes_two(64, 4096)


def test_which_half_of_a_byte_is_read_is_known():
    recipe = schedule(kernels.halves_of_bytes(64, 8, 16), kernels.WIDE)[1]
    assert {("role", "k2", "UNROLL"), ("role", "k3", "UNROLL")} <= {*recipe}


def test_stores_beside_it_leave_a_window_its_tile():
    recipe = schedule(kernels.depthwise_step(2, 3, 12, 21, 5), kernels.WIDE)[1]
    assert "window" in [step[0] for step in recipe]


def test_windows_with_strides_are_kept_by_phases():
    """So no tap picks every second lane. What few results need is read where it lies; and a fill by
    phases from memory would see less of it ahead."""

    def kept(size, stride, batch=2):
        kernel = kernels.conv(batch, 6, 28, 40, 6, groups=6, size=size, stride=stride)
        found = [step for step in schedule(kernel, kernels.WIDE)[1] if step[0] == "window"]
        return [step[6:] for step in found]

    assert kept(5, 2) == kept(4, 2) == [((("i3", 2),),)]
    assert kept(7, 3) == [((("i3", 3),),)]
    assert kept(5, 1) == kept(5, 2, batch=200) == [()]
    assert kept(3, 2) == kept(4, 2, batch=200) == []


def test_vectors_of_a_depthwise_convolution_lie_along_what_its_results_do():
    """Results of channels last have vectors of channels, whose weights are laid along them. A block
    of the image is filled as it is stored: an image that lies otherwise is turned in squares."""

    def vectors(**how):
        kernel = kernels.conv(2, 64, 28, 28, 64, groups=64, **how)
        splits = [step for step in schedule(kernel, kernels.WIDE)[1] if step[0] == "split"]
        lying = {step[1] for step in splits if step[-1] == "VECTOR" and step[1] in ("i1b", "i3")}
        return lying, any(step[1][:3] == "w1." and step[-1] == "UNROLL" for step in splits)

    assert vectors() == ({"i3"}, False)
    assert vectors(lies=True) == ({"i3"}, True)
    assert vectors(last=True) == ({"i1b"}, True)
    assert vectors(last=True, lies=True) == ({"i1b"}, False)


def test_slopes_that_lie_channels_last_are_laid_along_the_pixels():
    def stages(**how):
        recipe = schedule(kernels.depthwise_step(2, 40, 12, 21, 5, **how), kernels.WIDE)[1]
        return [step[2:] for step in recipe if step[0] == "stage" and "turned" in step[3]]

    assert stages(last=1) == stages(last=2) == [(("i0", "k0", "k1", "k2"), "turned1", "GLOBAL")]
    assert not stages()


def test_an_image_that_lies_channels_last_is_turned_with_its_border():
    def windows(**how):
        recipe = schedule(kernels.depthwise_step(2, 40, 12, 21, 5, **how), kernels.WIDE)[1]
        return [(step[2], step[-1]) for step in recipe if step[0] == "window"]

    assert windows() == windows(last=1) == [(("k1", "k2"), "LOCAL")]
    assert windows(last=2) == [(("i0", "k0", "k1", "k2"), "GLOBAL")]


def test_rows_from_memory_are_read_as_runs_side_by_side():
    """A matrix that leaves the cache: four runs of rows, as long as they can be, a line of each a
    turn. Two matrices follow each other. A number of rows that isn't four runs is one of them,
    never neighbours side by side, which only what stays in the cache is."""
    recipe = schedule(kernels.matvec(1024, 2048), kernels.WIDE)[1]
    assert recipe[0] == ("split", "k0", 16, "k0v", "LOOP", "VECTOR")
    assert {("split", "i0", 256, "i0r"), ("role", "i0", "UNROLL")} <= {*recipe}
    recipe = schedule(kernels.gated_matvec(1024, 2048), kernels.WIDE)[1]
    assert [step[2] for step in recipe if step[0] == "stage"] == [("i0", "i0rc"), ("i0", "i0rc")]
    assert ("role", "sums2.i0", "UNROLL") in recipe
    assert ("split", "i0rc", 16, "i0rcv", "LOOP", "VECTOR") in recipe  # what is made of the sums
    recipe = schedule(kernels.gated_matvec(8192, 2048), kernels.WIDE)[1]
    assert ("split", "i0r", 128, "i0rc", "PARALLEL") in recipe  # 1 MiB of a run, then the next
    odd = schedule(kernels.matvec(1009, 2048), kernels.WIDE)[1]
    assert [step[-1] for step in odd if step[1] == "i0"] == ["PARALLEL"]
    few = schedule(kernels.gated_matvec(36, 8192), kernels.WIDE)[1]  # a row of each run a task
    assert [step[2] for step in few if step[0] == "stage"] == [("i0",), ("i0",)]
    turning = schedule(kernels.turning_matvec(1024, 4, 2048, 64), kernels.WIDE)[1]
    assert {("split", "i1", 512, "i1r"), ("role", "i0", "UNROLL")} <= {*turning}  # two runs of four
    small = schedule(kernels.matvec(64, 2048), kernels.WIDE)[1]
    assert ("split", "i0", 4, "i0u", "LOOP", "UNROLL") in small


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("rows", "runs"), [(1024, 4), (1001, 1), (1005, 5), (1002, 3), (10, 1)])
def test_a_matrix_from_memory_is_summed_in_a_few_runs(axis, rows, runs):
    """A prefetcher that follows one run alone asks memory for too little."""
    machine = replace(kernels.WIDE, cache_l2=1 << 14)
    recipe = schedule(kernels.total(rows, 256, axis), machine)[1]
    split = [step[2] for step in recipe if step[:2] == ("split", "i0") and step[3] == "i0r"]
    assert split == ([rows // runs] if runs > 1 else [])


@pytest.mark.parametrize("how", kernels.COMBINED)
def test_what_two_operands_are_together_is_reduced_in_a_tile_of_registers(how):
    recipe = schedule(kernels.combined(500, 600, 64, how), kernels.WIDE)[1]
    (height,) = (step[2] for step in recipe if step[:2] == ("split", "i0") and "i0u" in step)
    (panel,) = (step for step in recipe if step[0] == "stage")
    assert height >= 3
    assert panel[3] == "pb1"


def test_a_diagonal_of_scores_does_not_keep_them_from_being_a_product():
    """A contrastive loss: each row's own class is its number."""
    a, b = (Tensor.empty(512, 128).realize() for _ in range(2))
    loss = (a @ b.T).cross_entropy(Tensor.arange(512))
    asts = [step.ast for step in plan(structure_of([loss.uop]).sink).steps]
    staged = [step[3] for ast in asts for step in schedule(ast, kernels.WIDE)[1] if "stage" in step]
    assert "pb1" in staged


def test_columns_that_a_sum_reads_beside_rows_are_squares_of_vectors():
    recipe = schedule(kernels.sum_of_rows_and_columns(1000, 900), kernels.WIDE)[1]
    assert recipe[:2] == (
        ("split", "k0", 16, "k0v", "LOOP", "VECTOR"),
        ("split", "i0", 16, "i0u", "LOOP", "UNROLL"),
    )


def test_a_softmax_of_a_transpose_keeps_a_block_of_rows_in_order():
    recipe = schedule(kernels.softmax_of_a_transpose(1000, 900), kernels.WIDE)[1]
    stages = [(row[3], row[2]) for row in recipe if row[0] == "stage"]
    assert stages == [("sum1", ("i0b",)), ("row1", ("i0b", "k1"))]
    assert ("split", "row1.i0bi", 16, "row1.i0bu", "LOOP", "UNROLL") in recipe


@pytest.mark.parametrize("machine", [kernels.WIDE, kernels.NARROW])
@pytest.mark.parametrize("how", ["max", "distances"])
@pytest.mark.parametrize(("terms", "is_kept"), [(16, True), (200, True), (7, False)])
def test_a_product_is_kept_for_a_reduction_if_its_sums_fill_a_vector(machine, how, terms, is_kept):
    """Without a stage each sum would be a dot product of its own."""
    recipe = schedule(kernels.reduced_product(512, 700, terms, how), machine)[1]
    rows = [step[2] for step in recipe if step[0] == "stage" and step[3] == "row1"]
    assert rows == ([("i0b", "k1")] if is_kept else [])


@pytest.mark.parametrize(("rows", "over"), [(8, ("k0", "k2")), (4096, ("k0b", "k2"))])
def test_rows_that_a_sum_takes_in_are_a_block_for_each_of_its_parts(rows, over):
    """The panel is packed once for all parts, which are tasks."""
    recipe = schedule(kernels.summed_product(64, rows, 700, 64), kernels.WIDE)[1]
    stages = {step[3]: (step[2], step[4]) for step in recipe if step[0] == "stage"}
    assert stages["row1"] == (over, "LOCAL")
    assert stages["pb1"][1] == "GLOBAL"
    assert ("role", "i0", "PARALLEL") in recipe


@pytest.mark.parametrize("machine", [kernels.WIDE, kernels.NARROW])
def test_a_long_expression_reads_what_lies_across_from_a_transposed_block(machine):
    """So that it is in the text once, not for each row of a square."""
    scheduled, recipe = schedule(kernels.long_transpose(400, 900), machine)
    assert [step[2] for step in recipe if step[0] == "stage"] == [("i0i", "i1i")]
    lengths = [lower(scheduled, machine).instructions]
    lengths.append(
        lower(schedule(kernels.long_transpose(400, 900, 24), machine)[0], machine).instructions
    )
    assert lengths[1] < lengths[0] + 24 * 2 * 8
    short = schedule(kernels.transpose(400, 900), machine)[1]
    assert not any(step[0] == "stage" for step in short)


@pytest.mark.parametrize(
    "make",
    [lambda x: x.softmax(1), lambda x: x.log_softmax(1), lambda x: x - x.mean(1, keepdim=True)],
)
def test_short_rows_that_lie_side_by_side_are_written_out(make):
    values = make(Tensor.empty(4, 3, 64, 64).realize())
    (step,) = plan(structure_of([values.uop]).sink).steps
    recipe = schedule(step.ast, kernels.NARROW)[1]
    assert {("role", "i3", "UNROLL"), ("role", "k0", "UNROLL")} <= {*recipe}
    assert ("split", "p1i", 8, "p1v", "UNROLL", "VECTOR") in recipe


@pytest.mark.parametrize("machine", [kernels.WIDE, kernels.NARROW])
def test_rows_that_lie_side_by_side_are_reduced_by_lanes(machine):
    """A square of results would be too long a text, or make the sums again for each block."""
    logs = Tensor.empty(300, 200).realize().T.log_softmax(1)
    (step,) = plan(structure_of([logs.uop]).sink).steps
    recipe = schedule(step.ast, machine)[1]
    assert ("split", "i0", machine.lanes(4), "i0v", "LOOP", "VECTOR") in recipe
    assert not any(step[0] == "order" for step in recipe)


@pytest.mark.parametrize("machine", [kernels.WIDE, kernels.NARROW])
@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_short_rows_whose_elements_cost_much_are_lanes(machine, size):
    """Each logarithm is computed once, for as many rows as a vector has lanes."""
    logs = Tensor.empty(512, size).realize().abs().add(1).log()
    (step,) = plan(structure_of([logs.layernorm().uop]).sink).steps
    scheduled, recipe = schedule(step.ast, machine)
    lanes = machine.lanes(4)
    assert ("split", "i0i", lanes, "i0v", "UNROLL", "VECTOR") in recipe
    assert {step[2] for step in recipe if step[0] == "role"} == {"UNROLL"}
    (phase,) = lower(scheduled, machine).phases
    assert phase.nest.count("filling row1") == 1
    assert all(n.dtype.count == lanes for n in phase.program if n.op is Ops.MULACC)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("size", [2, 3, 4, 7, 15])
def test_short_rows_in_lanes_are_what_numpy_says(dtype, size):
    """51 rows are no whole number of vectors, and the first element of each is masked."""
    x = np.random.default_rng(0).standard_normal((3, 17, size)).astype(dtype)
    shown = np.where(np.arange(size) > 0, np.exp(x.astype("float64")), 0)
    want = np.exp(shown - shown.max(-1, keepdims=True))
    given = Tensor(x)[..., 1:].exp().pad(((0, 0), (0, 0), (1, 0)))
    close = {"rtol": 2e-2, "atol": 2e-3} if dtype == "float16" else {"rtol": 2e-5, "atol": 1e-6}
    got = given.softmax(-1).numpy()
    np.testing.assert_allclose(got, want / want.sum(-1, keepdims=True), **close)


def vectors_of(value: Tensor, machine) -> set[int]:
    """The lanes of the arithmetic on floats in the kernel of a value."""
    (step,) = plan(structure_of([value.uop]).sink).steps
    (phase,) = lower(schedule(step.ast, machine)[0], machine).phases
    return {n.dtype.count for n in phase.program if n.op in (Ops.ADD, Ops.MUL, Ops.MULACC)}


@pytest.mark.parametrize("machine", [kernels.WIDE, kernels.NARROW])
@pytest.mark.parametrize("size", [2, 3, 5, 6, 7])
def test_short_rows_beside_what_is_repeated_fill_vectors(machine, size):
    """Some vectors cover some rows: what all rows read, or a row's elements, are shuffled."""
    rows, row = Tensor.empty(500, size).realize(), Tensor.empty(size).realize()
    column = Tensor.empty(500, 1).realize()
    for other in (row, column):
        lanes = vectors_of((rows + other) * 2.5, machine)
        assert lanes - {1} == {machine.lanes(4)}  # scalar is the arithmetic of addresses
    planes = Tensor.empty(25, 600, 4).realize() + Tensor.empty(25, 1, 4).realize()
    assert machine.lanes(4) in vectors_of(planes, machine)


@pytest.mark.parametrize("machine", [kernels.WIDE, kernels.NARROW])
@pytest.mark.parametrize("size", [2, 3])
def test_a_few_columns_are_reduced_by_vectors(machine, size):
    """Down the columns, also of several matrices, or along many columns beside each other."""
    row = Tensor.empty(size).realize()
    for shape in ((896, size), (8, 896, size)):
        value = (Tensor.empty(*shape).realize() - row).square().sum(-2)
        assert machine.lanes(4) in vectors_of(value, machine)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7, 12])
@pytest.mark.parametrize("rows", [1, 9, 331, 16385])
def test_short_rows_in_vectors_are_what_numpy_says(size, rows):
    draw = np.random.default_rng(0)
    x, row, column = (draw.random(s, "float32") for s in ((rows, size), (size,), (rows, 1)))
    a, b, c = Tensor(x), Tensor(row), Tensor(column)
    close = {"rtol": 3e-5, "atol": 1e-5}
    np.testing.assert_allclose((a * b - c).exp().numpy(), np.exp(x * row - column), **close)
    np.testing.assert_allclose((a * b).exp().sum(0).numpy(), np.exp(x * row).sum(0), **close)
    planes = x.reshape(rows, 1, size) * row[:, None]  # (rows, size, size)
    np.testing.assert_allclose(
        (a.reshape(rows, 1, size) * b.reshape(size, 1)).max(0).numpy(), planes.max(0), **close
    )
    np.testing.assert_allclose(a.softmax(0).sum(0).numpy(), np.ones(size), **close)


def test_short_rows_whose_elements_cost_little_are_no_lanes():
    means = Tensor.empty(500, 7).realize()
    (step,) = plan(structure_of([(means - means.mean(1, keepdim=True)).uop]).sink).steps
    assert all("i0v" not in step for step in schedule(step.ast, kernels.WIDE)[1])


def test_rows_as_long_as_a_variable_are_vectors():
    kernel = schedule(kernels.growing_softmax(4, 4096), kernels.WIDE)[0]
    loops = [n for n in kernel.toposort() if n.op is Ops.RANGE]
    assert {name_of(r) for r in loops if role_of(r) == "VECTOR"} == {"k0v", "i1v"}


def test_sums_of_the_same_elements_go_through_their_loops_together():
    recipe = schedule(kernels.centred_sums(64, 1024), kernels.WIDE)[1]
    joined = [step for step in recipe if step[0] == "together"]
    assert joined == [("together", ("k1",), ("k2",)), ("together", ("k1",), ("k3",))]
    softmax = schedule(kernels.softmax(64, 1024), kernels.WIDE)[1]
    assert all(step[0] != "together" for step in softmax)  # the sum needs the largest


def test_passes_over_a_row_in_the_cache_ask_for_the_next_row():
    """All of them, but for the first where a later one takes exponentials meanwhile."""
    softmax, layernorm = kernels.softmax(4096, 4096), kernels.layernorm(4096, 4096)
    for kernel, passes in ((softmax, ("k1", "i1")), (layernorm, ("k0", "k1", "i1"))):
        recipe = schedule(kernel, kernels.WIDE)[1]
        asked = [step for step in recipe if step[0] == "prefetch"]
        assert asked == [("prefetch", "i0c", 1, *passes)]
    short, long = kernels.softmax(4096, 64), kernels.softmax(64, 1 << 20)
    for kernel in (short, long):
        assert all(step[0] != "prefetch" for step in schedule(kernel, kernels.WIDE)[1])


def test_a_mask_that_lies_across_the_vectors_is_turned():
    """In squares of registers, a panel of a block's rows at a time; nothing is without a mask."""
    recipe = schedule(kernels.value_gradient(2, 512, 64), kernels.WIDE)[1]
    turned = [step for step in recipe if step[0] == "stage" and step[3] == "turned1"]
    assert [step[2] for step in turned] == [("row1.i1b", "row1.k1i")]
    assert ("split", "turned1.row1.i1b", 16, "turned1.row1.i1bu", "LOOP", "UNROLL") in recipe
    plain = schedule(kernels.value_gradient(2, 512, 64, masked=False), kernels.WIDE)
    assert "turned1" not in {step[3] for step in plain[1] if step[0] == "stage"}


def test_a_group_of_channels_is_a_loop():
    """So that the product is found, its rows are tiled, and its columns are read in place."""
    recipe = schedule(kernels.conv(8, 128, 28, 28, 128, groups=4), kernels.WIDE)[1]
    assert recipe[:2] == (("split", "i1", 32, "i1g"), ("merge", "i2", "i3", "p1"))
    assert ("split", "i1g", 11, "i1gu", "LOOP", "UNROLL") in recipe


def test_vectors_turn_to_the_side_that_is_packed_once():
    """A weight gradient: the window stays in memory, with its border; images are summed apart, so
    that there are tasks; where a result costs more than packing, all stays as it was. So do large
    images; small ones would leave vectors empty."""
    gradient = kernels.weight_gradient(8, 64, 56, 56, 64)
    recipe = schedule(gradient, kernels.WIDE)[1]
    assert [step[0] for step in recipe].index("window") == 0
    assert ("split", "out1.i0", 64, "out1.i0i") in recipe
    assert ("role", "out1.k0", "PARALLEL") in recipe
    for same in (kernels.weight_gradient(1, 512, 7, 7, 512), kernels.conv(8, 64, 56, 56, 64)):
        assert not any(step[0] == "window" for step in schedule(same, kernels.WIDE)[1])
    small = schedule(kernels.conv(8, 512, 7, 7, 512), kernels.WIDE)[1]
    assert small[0][:1] == ("window",)
    assert ("order", "reduce", ("k1", "k2", "k0")) in small


def test_rows_that_are_few_are_made_together_inside_of_what_they_share():
    """Eight rows are one block: made for each row of the result, it would be made eight times."""
    kernel = kernels.softmax_along_the_middle(489, 32, 8)
    recipe = schedule(kernel, kernels.NARROW)[1]
    assert ("order", "store", ("i1", "i0", "i2")) in recipe
    assert any(step[0] == "stage" and step[2] == ("i0", "k1") for step in recipe)


def test_a_weight_along_the_results_rows_is_packed_once_for_all_pixels():
    """Not for each row of them: a transposed convolution's gradient, as many taps as pixels."""
    recipe = schedule(kernels.conv(16, 64, 8, 8, 128, stride=2, size=4, last=True), kernels.WIDE)[1]
    assert recipe[0][0] == "window"
    panel = next(step for step in recipe if step[0] == "stage" and step[3] == "pb1")
    assert panel[2] == ("out1.i1", "k1", "k2", "k0", "out1.i1i")  # as it is read
    assert ("order", "reduce", ("k1", "k2", "k0")) in recipe
    assert ("merge", "p2", "i1", "p1") in recipe  # stored in the order in which it is made


def test_sums_end_at_the_border_of_small_images():
    """Rows are one pixel of all images then: 361 of 441 pairs of a pixel and a tap are inside."""
    kernel, recipe = schedule(kernels.conv(8, 512, 7, 7, 512), kernels.WIDE)
    assert ("trim", ("out1.i2", "out1.i3")) in recipe
    assert ("split", "out1.i0", 8, "out1.i0u", "LOOP", "UNROLL") in recipe
    starts = dict(fact(kernel, "start"))
    assert starts["k1"] == ((("out1.i2", 1),), -1, 1)
    kernel, recipe = schedule(kernels.conv(17, 512, 7, 7, 512), kernels.WIDE)
    assert not any(step[0] == "trim" for step in recipe)  # no block of 17 images is a tile


def test_blocks_of_images_have_copies_of_their_own():
    """Those of all images would be as large as what a convolution makes. A weight that the cache
    doesn't hold would be read again for each block, and a few blocks are too few tasks."""
    for batch, outputs, memory in ((128, 16, "LOCAL"), (48, 16, "GLOBAL"), (128, 64, "GLOBAL")):
        recipe = schedule(kernels.conv(batch, 16, 4, 4, outputs), kernels.SMALL)[1]
        assert next(step for step in recipe if step[0] == "window")[-1] == memory
        assert next(step for step in recipe if step[0] == "stage")[-2:] == ("out1", memory)


def test_lanes_that_memory_has_apart_are_little_text():
    """Small images lie side by side along a row that is stored: vectors run within each. Columns
    of a panel whose addresses have nothing in common are turns of a loop."""
    kernel, recipe = schedule(kernels.conv(17, 512, 7, 7, 512), kernels.WIDE)
    assert ("split", "p2", 49, "p2s") in recipe
    assert lower(kernel, kernels.WIDE).instructions < 1100  # 2195, lane by lane
    strided = schedule(kernels.weight_gradient(8, 256, 14, 14, 512, stride=2), kernels.WIDE)
    assert ("split", "pb1.p2i", 4, "pb1.p2iv", "LOOP", "VECTOR") in strided[1]
    assert lower(strided[0], kernels.WIDE).instructions < 1500  # 2500, all turns written out
    whole = schedule(kernels.weight_gradient(8, 512, 7, 7, 512), kernels.WIDE)[0]
    assert lower(whole, kernels.WIDE).instructions < 1700  # 2150, were lanes no rows of squares


def test_rows_of_strided_windows_are_shuffled_though_a_loop_is_around_them():
    """7 pixels a row, two apart: 16 of them lie in three rows, wherever the loop of one turn is."""
    image, weight = (Tensor.zeros(shape).contiguous() for shape in ((1, 8, 14, 14), (4, 2, 5, 5)))
    image.realize(weight)
    made = image.conv2d(weight, stride=2, padding=2, groups=4)
    (step,) = plan(structure_of([made.uop]).sink).steps
    scheduled, recipe = schedule(step.ast, kernels.WIDE)
    assert ("role", "k2", "UNROLL") in recipe  # one tap after the other: which lanes are masked
    program = lower(scheduled, kernels.WIDE).phases[0].program
    alone = [n for n in program if n.op is Ops.LOAD and n.dtype.count == 1 and len(n.src) > 1]
    assert not alone


@pytest.mark.parametrize("taps, in_text", [(2, True), (9, False)])
def test_a_short_sum_beside_a_tile_is_text_where_its_copies_are_few(taps, in_text):
    recipe = schedule(kernels.product_and_window(96, 128, 64, taps), kernels.WIDE)[1]
    assert (("role", "k1", "UNROLL") in recipe) == in_text


def _image_gradient(image, filters, **options):
    """The kernels of a convolution's gradient by its image, of these shapes."""
    image, filters = Tensor.empty(*image), Tensor.empty(*filters)
    out = image.conv2d(filters, **options)
    made = out.gradient(image, gradient=Tensor.empty(*out.shape))[0]
    return plan(structure_of([made.uop]).sink).steps


@pytest.mark.parametrize("size", [32, 100])
def test_lanes_of_stride_3_repeat_after_three_vectors(size):
    """Which tap and pixel a lane reads is then known: 0.16 to 0.4 of PyTorch's speed, when each
    lane was a read of its own."""
    options = {"stride": 3, "padding": 3, "groups": 4}
    *_, fold = _image_gradient((1, 20, size, size), (16, 5, 7, 7), **options)
    scheduled, _ = schedule(fold.ast, kernels.WIDE)
    program = lower(scheduled, kernels.WIDE).phases[0].program
    assert not any(n.op is Ops.LOAD and n.dtype.count == 1 for n in program)


@pytest.mark.parametrize("width, is_merged", [(4, True), (5, False), (7, False), (8, True)])
def test_short_rows_of_phases_are_merged_if_all_vectors_have_the_same_lanes(width, is_merged):
    """Rows of 5 to 7 took 10 to 20 times as long, merged."""
    *_, fold = _image_gradient((8, 64, 14, width), (64, 64, 3, 3), stride=2, padding=1)
    recipe = schedule(fold.ast, kernels.WIDE)[1]
    assert any(step[:3] == ("merge", "i2", "i3") for step in recipe) == is_merged


def test_sums_visit_no_taps_beyond_the_border():
    """Planes and rows end loops over taps; those along a row are copies, and so are channels."""
    *_, fold = _image_gradient((5, 64, 6, 5, 10), (53, 64, 5, 5, 5))
    kernel, recipe = schedule(fold.ast, kernels.WIDE)
    assert {*dict(fact(kernel, "trim"))} == {*dict(fact(kernel, "start"))} == {"k0", "k1"}
    assert ("role", "k2", "UNROLL") in recipe
    assert ("split", "i1", 4, "i1u", "LOOP", "UNROLL") in recipe


def test_even_and_odd_pixels_of_strided_windows_are_phases():
    recipe = schedule(kernels.folded(3, 37), kernels.WIDE)[1]
    assert ("split", "i1", 2, "i1p", "LOOP", "UNROLL") in recipe
    few = schedule(kernels.folded(3, 9), kernels.WIDE)[1]  # halves would not fill a vector
    assert not any(step[:1] == ("split",) and step[3] == "i1p" for step in few)


def test_windows_stored_one_after_the_other_are_vectors():
    """Rows of 4 = 2 x 2 elements: a vector takes several, and what it reads is two loads."""
    n, w, y, x = (kernels.loop(size, f"i{i}") for i, size in enumerate((9, 10, 2, 2)))
    read = kernels.at(1, (9, 2, 10, 2), n, y, w, x)
    scheduled, recipe = schedule(kernels.out((9, 10, 2, 2), read + read, n, w, y, x), kernels.WIDE)
    assert ("merge", "i1", "p1", "p2") in recipe
    program = lower(scheduled, kernels.WIDE).phases[0].program
    assert sum(node.op is Ops.LOAD for node in program) < 12
    w, c = kernels.loop(90, "i1"), kernels.loop(4, "i2")  # too far apart
    apart = kernels.out((9, 90, 4), kernels.at(1, (9, 4, 90), n, c, w), n, w, c)
    assert not any(step[0] == "merge" for step in schedule(apart, kernels.WIDE)[1])


def test_a_row_longer_than_half_a_vector_is_one():
    i, j = kernels.loop(9, "i0"), kernels.loop(10, "i1")
    read = kernels.at(1, (9, 40), i, j * 2)
    recipe = schedule(kernels.out((9, 10), read + read, i, j), kernels.WIDE)[1]
    assert ("split", "i1", 16, "i1v", "LOOP", "VECTOR") in recipe


def test_windows_of_one_channel_are_kept_with_their_border_and_shared_by_rows():
    kernel, recipe = schedule(kernels.conv(2, 96, 56, 56, 96, groups=96, size=7), kernels.NARROW)
    pairs = (("i2", 1, "k1", 1), ("i3", 1, "k2", 1))
    assert recipe[1] == ("window", (0, 1, 0, 0), ("i2", "i3"), pairs, "w1", "LOCAL")
    nest = """
    for i2 in 0..7
      for i3 in 0..7
        reduce add over k2, k1:7 UNROLL
          for k2 in 0..7
            take
        store"""
    (phase,) = lower(kernel, kernels.NARROW).phases
    assert nest in phase.nest, phase.nest


def test_windows_whose_rows_fill_half_a_vector_have_no_masks_of_lanes():
    kernel, recipe = schedule(kernels.conv(1, 8, 14, 14, 8, groups=8, stride=2), kernels.WIDE)
    assert ("split", "i3", 8, "i3v", "UNROLL", "VECTOR") in recipe
    (phase,) = lower(kernel, kernels.WIDE).phases
    assert not [n for n in phase.program if n.op is Ops.LOAD and n.dtype.count == 1 < len(n.src)]


def test_windows_of_one_channel_make_whole_rows_in_the_order_of_memory():
    """56 pixels are 3.5 wide vectors, but 7 of half their size, two of which take as long as one
    where multiply-adds have one port. Rows follow each other, so lines fill: past the cache."""
    one_port = replace(kernels.WIDE, fma_ports=1)
    recipe = schedule(kernels.conv(8, 128, 56, 56, 128, groups=128), one_port)[1]
    assert ("split", "i2", 2, "i2u", "LOOP", "UNROLL") in recipe
    assert ("split", "i3", 8, "i3v", "UNROLL", "VECTOR") in recipe
    assert ("stream",) in recipe
    wide = schedule(kernels.conv(8, 128, 56, 56, 128, groups=128), kernels.WIDE)[1]
    assert ("split", "i3", 16, "i3v", "UNROLL", "VECTOR") in wide
    assert ("stream",) not in wide  # vectors that begin within lines, and half of one a row


def test_half_vectors_where_products_have_few_columns_and_one_port_takes_whole_ones():
    """8 columns leave half of a vector of 16 empty, and two halves take as long as a whole one."""
    one_port = replace(kernels.WIDE, fma_ports=1)
    for target, n, lanes in ((one_port, 8, 8), (one_port, 32, 16), (kernels.WIDE, 8, 16)):
        recipe = schedule(kernels.matmul(256, n, 64), target)[1]
        assert ("split", "i1i", lanes, "i1v", "UNROLL", "VECTOR") in recipe


def test_a_window_is_kept_for_few_columns_where_half_vectors_take_half_the_time():
    """8 channels a group: rows of 9 pixels, two apart, were packed for each of 64 taps."""
    one_port = replace(kernels.WIDE, fma_ports=1)
    image, filters = Tensor.empty(2, 32, 9, 12, 16), Tensor.empty(32, 8, 4, 4, 4)
    made = image.conv2d(filters, stride=2, padding=2, groups=4)
    (step,) = plan(structure_of([made.uop]).sink).steps
    recipe = schedule(step.ast, one_port)[1]
    assert sum(s[0] == "window" for s in recipe) == 1


@pytest.mark.parametrize("taps", [3, 5, 7])
@pytest.mark.parametrize("pad", [1, 2, 3])
def test_what_a_strided_convolution_spreads_over_pixels_is_read_along_them(taps, pad):
    """The products lie with their positions last: read across them, lane by lane, the sum over
    taps was too long for vectors, and 0.16 to 0.4 of PyTorch's speed."""
    image, filters = Tensor.empty(2, 64, 32, 32), Tensor.empty(32, 64, taps, taps)
    out = image.conv2d(filters, stride=2, padding=pad)
    made = out.gradient(image, gradient=Tensor.empty(*out.shape))[0]
    *_, fold = plan(structure_of([made.uop]).sink).steps
    assert lower(schedule(fold.ast, kernels.WIDE)[0], kernels.WIDE).instructions < 1500


def test_small_planes_that_a_strided_convolution_spreads_lie_beside_each_other():
    """49 pixels of an image filled three quarters of 64 lanes: 0.85 of PyTorch's speed."""
    image, filters = Tensor.empty(8, 64, 14, 14), Tensor.empty(128, 64, 3, 3)
    made = image.conv2d(filters, stride=2, padding=1)
    made = made.gradient(image, gradient=Tensor.empty(*made.shape))[0]
    product, _ = plan(structure_of([made.uop]).sink).steps
    recipe = schedule(product.ast, kernels.WIDE)[1]
    assert [s[2] for s in recipe if s[0] == "split" and s[3] == "pb1.p3ir"] == [49]


def test_a_window_whose_pixels_lie_apart_is_not_packed_for_each_tap():
    """It is kept with its border: 49 copies of each pixel were 0.76 of PyTorch's speed."""
    recipe = schedule(kernels.conv(8, 16, 64, 64, 16, size=7, stride=2), kernels.WIDE)[1]
    assert sum(step[0] == "window" for step in recipe) == 1


def test_a_window_whose_rows_fill_their_pieces_hardly_is_not_copied_for_each_tap():
    """41 pixels took the room of 64, so that a copy for each tap seemed to be no larger: 0.7 of
    PyTorch's speed, now 1.6."""
    image, filters = Tensor.empty(2, 64, 64, 20), Tensor.empty(64, 28, 3, 3)
    made = image.conv_transpose2d(filters, stride=2, padding=1, groups=4)
    made = made.gradient(image, gradient=Tensor.empty(*made.shape))[0]
    (step,) = plan(structure_of([made.uop]).sink).steps
    recipe = schedule(step.ast, kernels.NARROW)[1]
    assert [s[2] for s in recipe if s[0] == "split" and s[1] == "w1.i4"] == [24]
    assert {s[3] for s in recipe if s[0] == "stage"} == {"out1", "pb1"}


def test_a_window_that_is_kept_leaves_the_products_copies():
    """The cuts of its fill were all that a nest may have, so the last of 39 channels was masked in
    every turn: 0.44 of PyTorch's speed."""
    (step,) = _image_gradient((8, 15, 71, 8), (39, 15, 3, 3), padding=1, dilation=2)
    nest = lower(schedule(step.ast, kernels.NARROW)[0], kernels.NARROW).phases[-1].nest
    assert "k2 = 19" in nest


def test_sums_of_a_single_vector_each_have_no_copies_along_k():
    """LLVM gave each of them a new register for every copy, and had none left: 1.15 to 1.5 times
    the time."""
    (step,) = _image_gradient((1, 12, 16, 24), (100, 12, 3, 3), padding=1)
    splits = {s[1]: s[2] for s in schedule(step.ast, kernels.NARROW)[1] if s[0] == "split"}
    assert splits["i0"] == 12 and splits["p1i"] == 8 and "k2" not in splits
    splits = {s[1] for s in schedule(step.ast, kernels.WIDE)[1] if s[0] == "split"}
    assert "k2" in splits  # there are registers for all


def test_rows_and_taps_that_move_by_the_same_step_have_no_copies_along_k():
    """The next tap's row is this one's next row: what copies share filled the registers. Twice the
    time."""
    image, filters = Tensor.empty(1, 110, 97, 32), Tensor.empty(110, 128, 3, 2)
    made = image.conv_transpose2d(filters, padding=1)
    made = made.gradient(filters, gradient=Tensor.empty(*made.shape))[0]
    (step,) = plan(structure_of([made.uop]).sink).steps
    assert not any(s[1] == "k0" for s in schedule(step.ast, kernels.NARROW)[1] if s[0] == "split")


def test_channels_of_several_images_are_side_by_side_where_squares_can_be_turned():
    """Rows of a tile are a pixel of each image. Between the channels of one, they were stored
    element by element: 0.07 of the kernel's time."""
    image, filters = Tensor.empty(2, 16, 6, 28, 28), Tensor.empty(32, 16, 3, 3, 3)
    (step,) = plan(structure_of([image.conv2d(filters, padding=1).uop]).sink).steps
    recipe = schedule(step.ast, kernels.NARROW)[1]
    assert [s[2][-2:] for s in recipe if s[0] == "window"] == [("i0", "k0")]


def test_odd_sizes_have_phases():
    """The last even pixel has no odd one beside it."""
    image, filters = Tensor.empty(2, 64, 33, 35), Tensor.empty(64, 1, 3, 3)
    made = image.conv_transpose2d(filters, stride=2, padding=1, groups=64)
    (step,) = plan(structure_of([made.uop]).sink).steps
    recipe = schedule(step.ast, kernels.WIDE)[1]
    assert [s[1:3] for s in recipe if s[0] == "split" and s[3].endswith("p")] == [
        ("i2", 2),
        ("i3", 2),
    ]


@pytest.mark.parametrize("size", [64, 96])
@pytest.mark.parametrize("taps, pad", [(3, 1), (5, 2), (7, 3)])
def test_phases_of_a_gradient_end_with_their_taps(size, taps, pad):
    """Products that were stored and added up were 0.6 to 0.8 of PyTorch's speed. Phases visit no
    taps that don't exist, and are inside of the rows whose lines they fill."""
    image, filters = Tensor.empty(2, 32, size, size), Tensor.empty(32, 32, taps, taps)
    out = image.conv2d(filters, stride=2, padding=pad)
    made = out.gradient(image, gradient=Tensor.empty(*out.shape))[0]
    (step,) = plan(structure_of([made.uop]).sink).steps
    kernel, recipe = schedule(step.ast, kernels.WIDE)
    assert {*dict(fact(kernel, "trim"))} == {"k0", "k1"}
    assert not any(s[0] == "stream" for s in recipe)  # a line is written twice
    last = [s[2] for s in recipe if s[:2] == ("order", "store")][-1]
    assert last.index("i0") < last.index("i2g") < last.index("i3g")


@pytest.mark.parametrize(("outputs", "along"), [(2, True), (4, True), (32, False)])
def test_gradients_of_few_channels_weights_lie_along_the_pixels(outputs, along):
    """Panels of windows, packed for a few rows, took 1.1 to 9 times as long."""
    recipe = schedule(kernels.weight_gradient(8, 15, 28, 64, outputs), kernels.WIDE)[1]
    assert (("split", "k2", 16, "k2v", "UNROLL", "VECTOR") in recipe) == along


def test_what_lanes_share_of_a_mask_is_not_shuffled():
    """Of taps that read every second pixel, whether their plane and row exist."""
    *_, fold = _image_gradient((4, 16, 16, 5, 9), (2, 16, 5, 5, 5), stride=2, padding=3)
    program = lower(schedule(fold.ast, kernels.WIDE)[0], kernels.WIDE).phases[0].program
    assert not [n for n in program if n.op is Ops.SHUFFLE and n.src[0].op is Ops.AND]


def _text_of(result, choose=schedule):
    """The instructions of the only kernel that makes it."""
    (step,) = plan(structure_of([result.uop]).sink).steps
    return lower(choose(step.ast, kernels.WIDE)[0], kernels.WIDE).instructions


def test_sums_side_by_side_beside_phases_are_fewer_where_they_are_too_much_text():
    """Scalars took 65 times as long as four phases of two channels."""
    image, filters = Tensor.empty(2, 20, 8, 64), Tensor.empty(20, 1, 7, 7)
    made = image.conv_transpose2d(filters, stride=2, dilation=2, groups=20)
    assert _text_of(made, schedule_small) < 8000


def test_windows_along_a_row_that_is_most_of_a_vector_are_no_lanes():
    """Each element was brought into the lane of its row: scalars took 7 times as long."""
    image, filters = Tensor.empty(2, 20, 64, 32), Tensor.empty(20, 1, 4, 4)
    assert _text_of(image.conv2d(filters, stride=3, dilation=2, padding=3, groups=20)) < 1000


def test_two_sums_whose_taps_are_copies_have_no_loops_for_their_borders():
    """A max-pool's gradient counts what it compares with: odd images took 1.5 times as long."""
    x = Tensor.empty(8, 16, 57, 57)
    made = x.max_pool2d(3, 2, padding=1)
    steps = plan(
        structure_of([made.gradient(x, gradient=Tensor.empty(*made.shape))[0].uop]).sink
    ).steps
    assert not any(dict(fact(schedule(step.ast, kernels.WIDE)[0], "start")) for step in steps)


def test_running_sums_of_a_row_as_long_as_a_vector_have_two_turns():
    """A loop in order of one turn carries nothing on, and scalars took five times as long."""
    rows = Tensor.empty(64, 16).cumsum(1)
    (step,) = plan(structure_of([rows.uop]).sink).steps
    recipe = schedule(step.ast, kernels.WIDE)[1]
    assert ("split", "i1", 8, "i1v", "ORDERED", "VECTOR") in recipe


@pytest.mark.parametrize("b_t", [False, True])
def test_a_transposed_matrix_by_a_narrow_one_has_its_rows_in_lanes(b_t):
    """They lie side by side: each was summed alone, in 30 times the time."""
    for target in kernels.WIDE, kernels.NARROW:
        recipe = schedule(kernels.matmul(256, 3, 512, a_t=True, b_t=b_t), target)[1]
        lanes = target.vector // 4
        assert ("role", "i1", "UNROLL") in recipe
        assert ("split", "i0i", lanes, "i0v", "UNROLL", "VECTOR") in recipe


def test_rows_shorter_than_a_vector_are_stored_from_lanes_if_they_cost_enough():
    for function, is_costly in ((lambda x: x, False), (Tensor.log, True)):
        moved = function(Tensor.empty(3, 512)).T.contiguous()
        (step,) = plan(structure_of([moved.uop]).sink).steps
        recipe = schedule(step.ast, kernels.WIDE)[1]
        assert any("VECTOR" in line for line in recipe) == is_costly


def test_columns_of_a_narrow_matrix_are_laid_along_its_sums():
    """They are read for each row, by shuffles of several vectors each time where they lie."""
    for target in kernels.WIDE, kernels.NARROW:
        recipe = schedule(kernels.matmul(256, 3, 512), target)[1]
        assert recipe[0][0] == "stage" and recipe[0][2:] == (("i1", "k0"), "turned1", "GLOBAL")
        read_once = schedule(kernels.matmul(16, 3, 512), target)[1]
        assert not any(step[0] == "stage" for step in read_once)


def test_planes_whose_taps_are_border_are_left_out_of_a_sum():
    """Two of 16 planes have two of three taps down; pixels of a plane are one loop."""
    image, weight = (Tensor.zeros(s).contiguous() for s in ((2, 16, 16, 28, 28), (32, 16, 3, 3, 3)))
    image.realize(weight)
    (step,) = plan(structure_of([image.conv2d(weight, padding=1).uop]).sink).steps
    scheduled, recipe = schedule(step.ast, kernels.WIDE)
    assert [s for s in recipe if s[0] in ("merge", "trim")][1:] == [("trim", ("i2",))]
    nest = lower(scheduled, kernels.WIDE).phases[-1].nest
    assert "for k1 in max(0, ((i2*-1) + 1))..min(3, ((i2*-1) + 17))" in nest


def test_lanes_in_even_steps_fill_whole_vectors_of_a_panel():
    """Weights of 3x3 that lie turned, as the gradient by the image reads them: nine apart."""
    shapes = (8, 256, 14, 14), (256, 256, 3, 3)
    image, weight, grad = (Tensor.zeros(s).contiguous() for s in (*shapes, (8, 256, 14, 14)))
    image.realize(weight, grad)
    made = image.conv2d(weight, padding=1).gradient(image, gradient=grad)[0]
    (step,) = plan(structure_of([made.uop]).sink).steps
    recipe = schedule(step.ast, replace(kernels.WIDE, fma_ports=1, load_ports=1))[1]
    assert ("split", "pb1.out1.i1i", 16, "pb1.out1.i1iv", "LOOP", "VECTOR") in recipe


def test_windows_of_one_channel_stay_in_the_nearest_cache():
    """By blocks of rows; where a window is hardly more than its border there, in the second one."""
    large = schedule(kernels.conv(1, 4, 224, 224, 4, groups=4, size=5), kernels.NARROW)[1]
    assert large[1] == ("split", "i2", 28, "i2b")
    wide = schedule(kernels.conv(1, 4, 64, 2048, 4, groups=4, size=5), kernels.NARROW)[1]
    assert wide[1] == ("split", "i2", 16, "i2b")


def test_windows_that_hardly_overlap_are_read_where_they_lie():
    recipe = schedule(kernels.conv(1, 40, 28, 28, 40, groups=40, stride=2), kernels.WIDE)[1]
    assert not any(step[0] == "window" for step in recipe)


def test_what_one_operand_sees_of_a_loop_goes_to_its_side():
    recipe = schedule(kernels.grown(64, 28, 28, 64), kernels.WIDE)[1]
    assert recipe[:4] == (
        ("split", "i1", 2, "i1g"),
        ("order", "store", ("i1g", "i0", "i1", "i2")),
        ("split", "i2", 2, "i2g"),
        ("order", "store", ("i2g", "i1g", "i0", "i1", "i2")),
    )


def test_a_window_that_phases_move_is_kept_once_for_all_of_them():
    recipe = schedule(kernels.grown_over(8, 64, 28, 28, 32), kernels.NARROW)[1]
    window = next(step for step in recipe if step[0] == "window")
    assert window[2] == ("i0", "i2", "i3", "k0")
    assert {("i2", 1, "i2g", 1), ("i3", 1, "i3g", 1)} <= {*window[3]}


def test_a_group_of_channels_is_a_task_with_a_window_of_its_own():
    """Those of all groups would leave the cache."""
    recipe = schedule(kernels.conv(8, 128, 28, 28, 128, groups=4), kernels.NARROW)[1]
    window = next(step for step in recipe if step[0] == "window")
    assert window[2] == ("i2", "i3", "k0") and window[5] == "LOCAL"
    assert {("role", "i0", "PARALLEL"), ("role", "i1", "PARALLEL")} <= {*recipe}


def test_a_panel_of_strided_pixels_is_whole_tiles():
    """Whose lines no other tile's share; 56 pixels would be three tiles and a half."""
    recipe = schedule(kernels.conv(8, 64, 56, 56, 128, stride=2), kernels.NARROW)[1]
    assert recipe[1:3] == (
        ("split", "p1", 112, "p1i"),
        ("split", "i1", 6, "i1u", "LOOP", "UNROLL"),
    )


def test_rows_that_tiles_would_wait_for_come_from_memory_once():
    """The weights of one small image, whose pixels are four panels."""
    recipe = schedule(kernels.conv(1, 512, 7, 7, 512), kernels.NARROW)[1]
    assert ("order", "store", ("i1", "p1", "i1u", "p1i", "p1v")) in recipe
    assert [step[3] for step in recipe if step[0] == "stage"] == ["pb1"]


def test_what_both_operands_see_of_a_loop_is_outside_of_the_product():
    """Phases of a transposed convolution whose border is cut off."""
    recipe = schedule(kernels.grown(64, 28, 28, 64, pad=1), kernels.WIDE)[1]
    assert recipe[:2] == (
        ("split", "i1", 2, "i1g"),
        ("order", "store", ("i1g", "i0", "i1", "i2")),
    )
    assert ("split", "i0", 13, "i0u", "LOOP", "UNROLL") in recipe


def test_a_sum_whose_accumulators_are_one_tile_is_summed_once():
    """Few rows beside a sum so long that its panel is packed in blocks."""
    kernel = schedule(kernels.matmul(6, 64, 1 << 13), kernels.WIDE)[0]
    nest = lower(kernel, kernels.WIDE).phases[-1].nest
    assert nest.count("for k0 in") == 1, nest


ATTENTION = """
store over i0, i1, i2, i1b, i1bu:6 UNROLL, i2i:4 UNROLL, i2v:16 VECTOR
for i0 in 0..8, tasks
  fill pb1 over pb1.row1.k1, pb1.k0, pb1.k0u:16 UNROLL, pb1.row1.k1i, pb1.row1.k1iv:16 VECTOR
    for pb1.row1.k1i in 0..4
      for pb1.row1.k1 in 0..12
        for pb1.k0 in 0..4
          fill
  for i1 in 0..16
    fill row1 over row1.i1b, row1.i1bu:6 UNROLL, row1.k1, row1.k1i:4 UNROLL, row1.k1v:16 VECTOR
      for row1.k1 in 0..min(12, ((((i1*3) + 2)//4) + 1))
        for row1.i1b in 0..8
          reduce add over k0, k0u:2 UNROLL
            for k0 in 0..32
              take
          fill
    fill sum1 over sum1.i1b
      for sum1.i1b in 0..48
        reduce max over k1, k1i:4 SPREAD, k1v:16 VECTOR
          for k1 in 0..min(12, ((((i1*3) + 2)//4) + 1))
            take
        fill
    fill row2 over row2.i1b, row2.k3, row2.k3i:4 UNROLL, row2.k3v:16 VECTOR
      for row2.i1b in 0..48
        for row2.k3 in 0..min(12, ((((i1*3) + 2)//4) + 1))
          fill
    i2 = 0
      for i1b in 0..8
        reduce add over k3, k3u:2 UNROLL
          for k3 in 0..min(384, ((i1*24) + 24))
            take
        reduce add over k2, k2v:16 VECTOR
          for k2 in 0..min(6, ((((i1*3) + 2)//8) + 1))
            reduce add over k2.block
              for k2.block in 0..min(8, (((i1*3) + (k2*-8)) + 3))
                take
            take
        store
"""


@pytest.mark.parametrize(("heads", "memory"), [(2, "GLOBAL"), (8, "LOCAL")])
def test_a_head_s_keys_are_packed_once(heads, memory):
    """By tasks of their own, where blocks of its queries are tasks; else by the head's task."""
    scheduled, _ = schedule(kernels.attention(heads, 768, 64), kernels.WIDE)
    stages = {n.arg[0]: n.arg[1] for n in scheduled.toposort() if n.op is Ops.STAGE}
    assert stages["pb1"] == memory


@pytest.mark.parametrize("early", [False, True])
def test_what_a_softmax_reduces_is_in_vectors_also_as_a_factor_is_laid_out(early):
    scheduled, _ = schedule(kernels.attention(8, 768, 64, False, early=early), kernels.WIDE)
    rows = [
        n for n in scheduled.toposort() if n.op is Ops.REDUCE and n.ranges.isdisjoint(n.src[1:])
    ]
    assert all(role_of(n.src[-1]) in ("VECTOR", "UNROLL") for n in rows), rows


@pytest.mark.parametrize("depth", [2, 4])
def test_a_sum_of_two_products_is_a_matrix_product_for_a_unit(depth):
    """Not a word of each lane: the two terms don't lie side by side."""
    units = replace(kernels.WIDE, features="+avx512bf16", native=frozenset(("MULACC",)))
    recipe = schedule(kernels.wide_matmul(100, 128, depth), units)[1]
    assert "vdpbf16ps" in {step[-1] for step in recipe if step[0] == "tensorise"}


@pytest.mark.parametrize("causal", [True, False])
def test_weights_that_a_product_reads_rounded_are_kept_in_rows(causal):
    """So they are computed once, and written out once: else the text is too long for vectors."""
    units = replace(kernels.WIDE, features="+avx512bf16", native=frozenset(("MULACC",)))
    kernel = kernels.attention(8, 768, 64, causal, dtypes.bfloat16)
    scheduled, _ = schedule(kernel, units)
    stages = {n.arg[0]: dict(n.arg[2]) for n in scheduled.toposort() if n.op is Ops.STAGE}
    assert stages["row2"].get("first") is None
    assert not stages["pb2"].get("first")  # a first block would be a text of its own
    assert lower(scheduled, units).instructions < 4000


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "ahead"),
    [
        (65536, 128, 16, 2),
        (65536, 64, 16, 0),  # a tile's rows lie in one page
        (65536, 2048, 16, 0),  # two tiles' rows would push each other out
        (256, 128, 16, 0),  # all of them are in the cache
    ],
)
def test_rows_that_are_read_once_are_asked_for_some_tiles_ahead(rows, depth, columns, ahead):
    recipe = schedule(kernels.matmul(rows, columns, depth), kernels.WIDE)[1]
    assert [step[2] for step in recipe if step[0] == "prefetch"] == ([ahead] if ahead else [])


@pytest.mark.parametrize(
    ("kernel", "steps"),
    [
        (kernels.residual(1024, 1024, 256), [("prefetch", "i0", 2, "i0")]),
        (kernels.residual(128, 1024, 256), []),  # it is in the cache
        (kernels.residual(16384, 32, 256), []),  # one row goes on where the other ends
        (kernels.attention(2, 1024, 64, masked=True), [("prefetch", "row1.k1", 1, "row1.i1b")]),
        (kernels.attention(2, 256, 64, masked=True), []),
    ],
    ids=("residual", "small", "narrow", "mask", "small mask"),
)
def test_what_is_read_beside_a_tiles_sums_is_asked_for_before(kernel, steps):
    recipe = schedule(kernel, kernels.WIDE)[1]
    assert [step for step in recipe if step[0] == "prefetch" and step[3:]] == steps


@pytest.mark.parametrize(
    ("kernel", "steps"),
    [
        (kernels.matmul(16, 16384, 128, b_t=True), [("prefetch", "i1", 1, "pb1.k0")]),
        (kernels.matmul(64, 16384, 128), []),  # vectors along rows of memory
        (kernels.matmul(16, 4096, 128, b_t=True), []),  # all columns are in the cache
        (kernels.matmul(16, 128, 16384), [("prefetch", "k0", 1, "k0b")]),  # blocks of the sum
        (kernels.matmul(4096, 16384, 16384, b_t=True), []),  # two panels would be more than a part
    ],
    ids=("panels", "rows", "small", "blocks", "deep"),
)
def test_the_next_panel_is_asked_for_while_this_one_is_used(kernel, steps):
    recipe = schedule(kernel, kernels.WIDE)[1]
    assert [step for step in recipe if step[0] == "prefetch"] == steps


@pytest.mark.parametrize(("causal", "kept"), [(False, ["sum1", "sum2"]), (True, ["sum1"])])
def test_a_softmaxs_sum_is_taken_once_for_all_columns_of_values(causal, kept):
    recipe = schedule(kernels.attention(2, 1024, 64, causal), kernels.WIDE)[1]
    stages = [step[3] for step in recipe if step[0] == "stage"]
    assert [name for name in stages if name.startswith("sum")] == kept


def test_what_other_stores_sum_over_the_rows_is_added_up_block_by_block():
    """From the first query that a block of keys is seen by; scores are made once for all three."""
    scheduled, recipe = schedule(kernels.score_gradients(8, 512, 64), kernels.NARROW)
    assert sum(n.op is Ops.EXP2 for n in scheduled.toposort()) == 1
    (phase,) = lower(scheduled, kernels.NARROW).phases
    lines = [line.strip() for line in phase.nest.splitlines()]
    blocks = lines.index(next(line for line in lines if line.startswith("for i1 in")))
    assert lines.index("store") > blocks
    assert lines.index("store1") > lines.index("store")
    assert any(line.startswith("for acc1.i3 in max(0, (i1*") for line in lines)


def test_who_sums_over_the_rows_reads_them_where_they_lie():
    recipe = schedule(kernels.score_gradients(8, 512, 64), kernels.NARROW)[1]
    assert all(step[3] != "pa1" for step in recipe if step[0] == "stage")


@pytest.mark.parametrize(("rows", "depth", "along_k"), [(64, 4096, True), (64, 1 << 16, False)])
def test_vectors_lie_along_k_for_rows_that_stay_in_the_cache(rows, depth, along_k):
    recipe = schedule(kernels.matmul(rows, 64, depth, b_t=True), kernels.WIDE)[1]
    assert (("role", "pa1.k0v", "VECTOR") in recipe) is along_k


@pytest.mark.parametrize(("depth", "height"), [(1000, 16), (1024, 8)])
def test_no_more_rows_share_lines_of_the_cache_than_it_keeps(depth, height):
    recipe = schedule(kernels.matmul(1024, 16, depth), kernels.WIDE)[1]
    assert ("split", "i0", height, "i0u", "LOOP", "UNROLL") in recipe


@pytest.mark.parametrize(
    ("columns", "taps", "laid_out"),
    [
        (49, 9, False),
        (130, 9, True),  # several panels read the rows
        (49, 2, True),  # a tile's rows fill less than two lines
    ],
)
def test_rows_that_lie_in_tiles_are_read_there_by_one_panel(columns, taps, laid_out):
    kernel, _ = schedule(kernels.taps_of_rows(512, columns, 512, taps), kernels.WIDE)
    stages = {n.arg[0] for n in kernel.toposort() if n.op is Ops.STAGE}
    assert ("pa1" in stages) is laid_out


@pytest.mark.parametrize(
    ("rows", "block"),
    [
        (512, 16),  # 18 KiB apart: their lines share a 32nd of the sets
        (480, 64),  # 17,280 bytes: an odd number of lines
    ],
)
def test_no_more_turns_share_lines_of_the_cache_than_it_keeps(rows, block):
    recipe = schedule(kernels.taps_of_rows(rows, 49, 512, 9), kernels.WIDE)[1]
    assert ("split", "k0", block, "k0b") in recipe


@pytest.mark.parametrize(("target", "block"), [(kernels.NARROW, 16), (kernels.WIDE, 32)])
def test_a_window_and_a_block_of_its_panel_fit_into_the_first_cache_where_registers_are_few(
    target, block
):
    target = replace(target, cache_l1=32 << 10, cache_l2=512 << 10)
    recipe = schedule(kernels.conv(8, 512, 7, 7, 512), target)[1]
    assert next(step[2] for step in recipe if step[:2] == ("split", "k0")) == block


def test_lanes_that_end_a_row_early_are_folded_once_a_row():
    """Not with each block of a long sum, whose loop says how many lanes there are."""
    scheduled, _ = schedule(kernels.total(64, 1000, 1), kernels.WIDE)
    (phase,) = lower(scheduled, kernels.WIDE).phases
    folded = [line.strip() for line in phase.nest.splitlines() if "VECTOR" in line]
    assert folded == ["reduce add over k0, k0v:16 VECTOR"]


def test_golden_nest_of_causal_attention():
    """Scores, weights and sums of a block of rows stay LOCAL; loops over keys end at the mask."""
    scheduled, _ = schedule(kernels.attention(8, 768, 64), kernels.WIDE)
    (phase,) = lower(scheduled, kernels.WIDE).phases
    assert phase.nest == ATTENTION.strip()


def test_a_tiny_kernel_is_written_out():
    scheduled, recipe = schedule(kernels.elementwise(4), kernels.WIDE)
    assert recipe == (("role", "i0", "UNROLL"),)
    assert kernels.loops(scheduled) == "store: i0:4 UNROLL"


def test_nothing_depends_on_the_number_of_cores():
    many = Target("CPU", vector=64, registers=32, cores=96)
    few = Target("CPU", vector=64, registers=32, cores=1)
    for kernel in SOME.values():
        assert schedule(kernel, many)[1] == schedule(kernel, few)[1]


def test_noopt_gives_the_empty_recipe():
    kernel = kernels.matmul(64, 64, 64)
    with Context(NOOPT=1):
        assert schedule(kernel, kernels.WIDE) == (kernel, ())


def test_a_tiny_kernel_is_one_task():
    scheduled, _ = schedule(kernels.elementwise(64, 64), kernels.WIDE)
    assert all(role_of(n) != "PARALLEL" for n in scheduled.toposort() if n.op is Ops.RANGE)


@pytest.mark.parametrize(
    ("kernel", "limit"),
    [
        (kernels.elementwise(2048, 2048), 8),
        (kernels.matmul(512, 512, 512), 15),
        (kernels.attention(8, 1024, 64), 40),
    ],
)
def test_a_recipe_is_short(kernel, limit):
    """Each step rebuilds the nest, so their number is what finding a recipe costs."""
    assert len(schedule(kernel, kernels.WIDE)[1]) <= limit


def test_cost_of_a_product():
    cost = estimate(kernels.matmul(10, 20, 30))
    assert cost.operations == 2 * 10 * 20 * 30
    assert cost.bytes == 4 * (10 * 20 + 10 * 30 + 30 * 20)


@pytest.mark.parametrize(
    ("rows", "columns", "block"),
    [
        (8192, 8192, (128, 256)),
        (2048, 2048, (128, 256)),
        (1024, 1024, (64, 128)),  # smaller ones keep processors busy
        (8192, 300, (128, 128)),  # and reach less far beyond the edge
        (512, 512, None),
    ],
)
def test_a_unit_that_reads_staged_operands_has_blocks(rows, columns, block):
    target = Target("GPU", has_groups=True, warp=32, group_limit=1024, registers=255)
    target = replace(target, local_memory=227 << 10, native=frozenset({"wgmma"}))
    shape = staged_shape(target, UNITS["wgmma.f16.256"], Sizes(rows, columns, 64))
    assert (shape and shape.block) == block
    if shape:  # of two products at once sums and pieces take twice the room
        both = staged_shape(target, shape.unit, Sizes(rows, columns, 64, products=2))
        assert prod(both.block) <= prod(shape.block)


def test_matrix_units_are_found_by_features():
    target = Target("CPU", features="+avx512f,+amx-bf16,+avx512bf16,-avxvnni,+avx512vnni")
    bfloat16, float32, int8, int32 = dtypes.bfloat16, dtypes.float32, dtypes.int8, dtypes.int32

    def names(*kinds):
        return [unit.name for unit in matrix_units(target, *kinds)]

    assert names(bfloat16, bfloat16, float32) == ["tdpbf16ps", "vdpbf16ps"]
    assert names(dtypes.uint8, int8, int32) == names(int8, int8, int32) == ["vpdpbusd"]
    assert names(dtypes.float64, dtypes.float64, dtypes.float64) == []


def test_loops_end_where_a_mask_says_less_or_equal():
    """As `rows >= columns` is written: less, or equal."""
    i, j = kernels.loop(96, "i0"), kernels.loop(96, "k0")
    seen = (j < i) | j.eq(i)
    value = seen.where(kernels.at(1, (96, 96), i, j), 0.0).reduce("add", j)
    bounds = permitted(kernels.out((96,), value, i), frozenset(["i0"]))
    assert bounds == {"trim": (("k0", ((("i0", 1),), 1, 1)),), "start": ()}


@pytest.mark.parametrize(
    "other, is_guard", [(float("-inf"), True), (float(np.finfo(np.float32).min), False)]
)
def test_only_minus_infinity_ends_the_loop_of_a_maximum(other, is_guard):
    """Where all of a row is masked, the maximum is the number of the mask."""
    i, j = kernels.loop(96, "i0"), kernels.loop(96, "k0")
    value = (j < i).where(kernels.at(1, (96, 96), i, j), other).reduce("max", j)
    bounds = permitted(kernels.out((96,), value, i), frozenset(["i0"]))
    assert bool(bounds["trim"]) == is_guard


def test_what_is_reduced_for_a_row_is_reduced_once_while_it_is_laid_out():
    """A batch norm's sums beside the gradient of a weight: not for each image anew."""
    kernel = kernels.product_of_centred_rows(96, 16, 64, 784)
    laid_out = lower(schedule(kernel, kernels.WIDE)[0], kernels.WIDE).phases[0].nest
    before, _ = laid_out.split("reduce add", 1)
    assert "pa1.i0u" in before and "for pa1.k" not in before, laid_out


def test_masks_in_registers_leave_room_for_themselves():
    """A tile of 4 x 3 vectors has no register for its masks, where they lie in vectors."""
    few = replace(kernels.WIDE, vector=32, registers=16)
    recipe = schedule(kernels.conv(1, 256, 28, 28, 256, groups=32), few)[1]
    splits = [step[2] for step in recipe if step[0] == "split"]
    assert 16 in splits and 24 not in splits


@pytest.mark.parametrize(("depth", "in_parts"), [(50_000, True), (2_000, False)])
def test_long_sums_of_few_results_are_taken_in_parts(depth, in_parts):
    for machine in (kernels.WIDE, kernels.NARROW):
        recipe = schedule(kernels.matmul(64, 64, depth, a_t=True), machine)[1]
        assert any(step[0] == "regroup" for step in recipe) == in_parts
        assert not any(step[0] == "stage" and step[3].startswith("pa") for step in recipe)


@pytest.mark.parametrize(("columns", "in_parts"), [(48, True), (16, False)])
def test_rows_along_long_sums_are_taken_in_parts_where_panels_share_them(columns, in_parts):
    recipe = schedule(kernels.matmul(48, columns, 10_000), kernels.NARROW)[1]
    assert any(step[0] == "stage" and step[3] == "out1" for step in recipe) == in_parts


@pytest.mark.parametrize(("depth", "columns"), [(16, 16), (1000, 24)])
def test_results_of_short_sums_are_whole_lines(depth, columns):
    """Three vectors, half of whose second line is another tile's, where a sum is longer."""
    recipe = schedule(kernels.matmul(784, 1024, depth), kernels.NARROW)[1]
    assert ("split", "i1", columns, "i1i") in recipe


@pytest.mark.parametrize("machine", [kernels.NARROW, kernels.WIDE])
def test_windows_of_stride_2_are_not_copied_tap_by_tap(machine):
    """Their rows are padded to whole vectors, so an element has hardly two taps on average."""
    recipe = schedule(kernels.weight_gradient(8, 64, 56, 56, 128, stride=2), machine)[1]
    assert [step[3] for step in recipe if step[0] == "stage"] == ["out1", "pb1"]


@pytest.mark.parametrize("machine", [kernels.NARROW, kernels.WIDE])
def test_pairs_of_pixels_are_no_vectors(machine):
    """Two by two windows side by side, as in the weight's gradient of a transposed convolution."""
    image, weight = (Tensor.zeros(s).contiguous() for s in ((8, 128, 28, 28), (128, 64, 2, 2)))
    grad = Tensor.zeros(8, 64, 56, 56).contiguous()
    image.realize(weight, grad)
    made = image.conv_transpose2d(weight, stride=2).gradient(weight, gradient=grad)[0]
    (step,) = plan(structure_of([made.uop]).sink).steps
    recipe = schedule(step.ast, machine)[1]
    assert not any(step[0] == "split" and step[2] == 2 and step[-1] == "VECTOR" for step in recipe)


@pytest.mark.parametrize("machine", [kernels.NARROW, kernels.WIDE])
def test_a_side_that_is_packed_in_squares_lies_along_the_vectors(machine):
    """The gradient of a strided convolution's weights along one axis."""
    shapes = (8, 80, 3000), (128, 80, 3), (8, 128, 1500)
    image, weight, grad = (Tensor.zeros(s).contiguous() for s in shapes)
    image.realize(weight, grad)
    made = image.conv2d(weight, stride=2, padding=1).gradient(weight, gradient=grad)[0]
    (step,) = plan(structure_of([made.uop]).sink).steps
    assert any(step[0] == "window" for step in schedule(step.ast, machine)[1])


@pytest.mark.parametrize("machine", [kernels.NARROW, kernels.WIDE])
@pytest.mark.parametrize("pixels", [(7, 7), (32, 32)])
def test_a_weight_of_a_channel_is_one_number_for_all_of_its_pixels(machine, pixels):
    """In the sums over a group's channels and pixels of the gradient of a group norm."""
    x, grad = (Tensor.zeros(8, 64, *pixels).contiguous() for _ in range(2))
    weight, bias = (Tensor.zeros(64).contiguous() for _ in range(2))
    x.realize(grad, weight, bias)
    made = group_norm(x, 8, weight, bias).gradient(x, gradient=grad)[0]
    (step,) = plan(structure_of([made.uop]).sink).steps
    recipe = schedule(step.ast, machine)[1]
    splits = [(step[1][0], step[2]) for step in recipe if step[0] == "split"]
    assert ("k", prod(pixels)) in splits, recipe
    assert not any(step[0] == "stage" for step in recipe)


def test_columns_that_are_tasks_enough_are_not_taken_in_parts():
    recipe = schedule(kernels.matmul(2, 4096, 4096), kernels.WIDE)[1]
    assert not any(step[0] == "stage" for step in recipe)


def test_lanes_of_a_loop_in_order_have_no_limit_of_their_own():
    """Each would be a branch around each store."""
    most, limit = 1 << 20, UOp.variable("n", 1, 1 << 20, dtypes.index)
    sizes = (UOp.const(dtypes.index, most), limit)
    turn = UOp(Ops.RANGE, dtypes.index, sizes, ("word", "ORDERED"))
    to, words = (UOp(Ops.PARAM, dtypes.int64, arg=(slot, most)) for slot in (0, 1))
    place = words.index(turn).cast(dtypes.index)
    dealing = UOp.sink(to.index(place).store(words.index(turn), turn))
    found, _ = schedule(dealing, Target("CPU", vector=64))
    assert {role_of(n) for n in found.toposort() if n.op is Ops.RANGE} == {"ORDERED"}
