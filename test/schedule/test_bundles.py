"""Kernels that need nothing of each other are one launch: how many there are, and that nothing is
different for it."""

import numpy as np
import pytest
from devices import present

from tinygrad import GlobalCounters, Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.base.target import Target
from tinygrad.codegen.bundles import shared
from tinygrad.engine.making import plan_of
from tinygrad.engine.structure import structure_of
from tinygrad.nn.optim import LAMB, SGD, Adam, AdamW, clip_grad_norm_
from tinygrad.schedule.bundles import kernels_of
from tinygrad.schedule.kernels import plan
from tinygrad.schedule.order import Ready
from tinygrad.schedule.plan import Wishes
from tinygrad.uop.op import Ops
from tinygrad.viz.explain import explain

SIZES = (1, 7, 64, 65, 333)


def numbers(*shape, dtype=np.float32):
    return Tensor((np.arange(np.prod(shape)) % 13 + 1).reshape(shape).astype(dtype)).realize()


def structure(*tensors):
    return structure_of([t.uop for t in tensors]).sink


def kernels(function):
    """How many kernels a call runs."""
    before = GlobalCounters.kernel_count
    function()
    return GlobalCounters.kernel_count - before


# ---- updates -------------------------------------------------------------------------------------

MLP = ((128, 784), (128,), (10, 128), (10,))
GPT = (
    *((512, 64), (32, 64)),
    *(((64,), (64,), (192, 64), (192,), (64, 64), (64,), (256, 64), (256,), (64, 256), (64,)) * 4),
    *((64,), (64,), (512, 64)),
)


def resnet18():
    """The shapes of its 62 parameters."""
    shapes, before = [(64, 3, 7, 7), (64,), (64,)], 64
    for wide in (64, 64, 128, 128, 256, 256, 512, 512):
        shapes += [(wide, before, 3, 3), (wide, wide, 3, 3), *((wide,),) * 4]
        shapes += [(wide, before, 1, 1), (wide,), (wide,)] if wide != before else []
        before = wide
    return (*shapes, (1000, 512), (1000,))


MOST = {"sgd": 1, "adam": 2, "adamw": 2, "lamb": 6}
OPTIMIZERS = {
    "sgd": lambda params: SGD(params, lr=0.1, momentum=0.9),
    "adam": Adam,
    "adamw": AdamW,
    "lamb": LAMB,
}


@pytest.mark.parametrize("shapes", [MLP, GPT, resnet18()], ids=["mlp", "gpt", "resnet18"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_update_of_all_parameters_is_a_handful_of_kernels(name, shapes):
    params = [Tensor.empty(*shape, device="NULL", requires_grad=True) for shape in shapes]
    optimizer = OPTIMIZERS[name](params)
    for param in params:
        param.grad = Tensor.empty(*param.shape, device="NULL")
    with Tensor.train():
        made = plan_of(structure(*optimizer.schedule_step()))
    assert len(made.steps) <= MOST[name]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_captured_update_counts_its_launches(name):
    model = [nn.Linear(9, 17), nn.Linear(17, 5)]
    optimizer = OPTIMIZERS[name](nn.state.get_parameters(model))
    gradients = [numbers(*param.shape) for param in optimizer.params]

    @TinyJit
    def step(*gradients):
        for param, gradient in zip(optimizer.params, gradients, strict=True):
            param.grad = gradient
        optimizer.step()

    with Tensor.train():
        counts = [kernels(lambda: step(*gradients)) for _ in range(4)]
    assert counts[-1] == counts[-2] <= (4 if name == "lamb" else 3)  # it also needs norms


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_update_is_bit_for_bit_that_of_each_parameter_alone(name):
    def train(together):
        params = [numbers(n) / 7 for n in SIZES] + [(numbers(6, 5) / 9).T.contiguous()]
        for param in params:
            param.realize().requires_grad = True
        groups = [params] if together else [[param] for param in params]
        optimizers = [OPTIMIZERS[name](group) for group in groups]
        for turn in range(2):
            for param in params:
                param.grad = (param.detach() * (turn + 0.3)).contiguous().realize()
            with Tensor.train():
                for optimizer in optimizers:
                    optimizer.step()
        return [param.numpy() for param in params]

    for one, other in zip(train(True), train(False), strict=True):
        assert one.tobytes() == other.tobytes()


def test_clipping_by_norm_takes_few_kernels_more():
    params = [numbers(n) for n in SIZES]
    for param in params:
        param.requires_grad = True
    optimizer = AdamW(params)
    for param in params:
        param.grad = numbers(*param.shape)
    with Tensor.train():
        clip_grad_norm_(params, 1.0)
        made = plan_of(structure(*optimizer.schedule_step()))
    assert len(made.steps) <= 4


def test_the_numbers_that_begin_a_model_are_one_kernel():
    Tensor.manual_seed(1)
    weights = [Tensor.zeros(n).contiguous() for n in SIZES]
    assert kernels(lambda: weights[0].realize(*weights[1:])) == 1


def test_ranges_of_random_numbers_are_one_kernel():
    model = [nn.Linear(8 + i, 5 + 2 * i) for i in range(5)]
    (step,) = plan_of(structure(*nn.state.get_parameters(model))).steps
    assert step.ast.op is Ops.BUNDLE and len(step.ast.src) == 1


@pytest.mark.parametrize("device", ["CPU", "PYTHON", "CL", "CLANG"])
def test_members_that_differ_in_constants_share_a_kernel(device):
    given = [numbers(n).to(device).realize() for n in (7, 64, 65, 65)]
    factors = [(np.float32(n), np.float32(n / 4)) for n in (0.3, -7.5, 1e-30, 3.3)]
    factors[2] = np.float32(np.inf), np.float32(0.7)
    made = [x * float(k) + float(d) for x, (k, d) in zip(given, factors, strict=True)]
    (step,) = plan_of(structure(*made)).steps
    assert step.ast.op is Ops.BUNDLE and len(step.ast.src) == 1
    made[0].realize(*made[1:])
    for x, (k, d), y in zip(given, factors, made, strict=True):
        np.testing.assert_array_equal(y.numpy(), x.numpy() * k + d)
    for kernel in kernels_of(step.ast):
        assert Ops.DEFINE_VAR not in {n.op for n in kernel.toposort()}


# ---- members -------------------------------------------------------------------------------------


def test_a_number_that_changes_and_one_that_stays_are_different_members():
    x, y = numbers(1), numbers(1)
    for share in (0.5, 0.25, 2.0):
        x.assign(x * share)
        y.assign(y * 0.5)
        Tensor.realize(x, y)
    assert (x.item(), y.item()) == (0.25, 0.125)


@pytest.mark.parametrize("device", ["CPU", "PYTHON", "CL", "CLANG"])
def test_members_of_any_size_share_a_kernel(device):
    sizes = (*SIZES, 4160, 9001) if device != "PYTHON" else SIZES
    given = [numbers(n).to(device).realize() for n in sizes]
    factor = numbers(1).to(device).realize()
    made = [x * 2 + factor.expand(x.shape) for x in given]
    (step,) = plan_of(structure(*made)).steps
    assert step.ast.op is Ops.BUNDLE and len(step.ast.src) == 2  # one element needs no loop
    made[0].realize(*made[1:])
    for x, y in zip(given, made, strict=True):
        np.testing.assert_array_equal(y.numpy(), x.numpy() * 2 + 1)


@pytest.mark.parametrize("device", present(("CPU", "PYTHON", "CL", "WEBGPU", "TOY")))
def test_members_of_all_kinds(device):
    a, b = numbers(6, 5).to(device).realize(), numbers(40).to(device).realize()
    c = numbers(33, dtype=np.int32).to(device).realize()
    made = [a.T + 1, a.sum(0), a.max(1), b.flip(0) * 2, c // 3, b.pad((2, 3)), a.sum() * 2]
    assert len(plan_of(structure(*made)).steps) < 3
    made[0].realize(*made[1:])
    x, y, z = a.numpy(), b.numpy(), c.numpy()
    wanted = [x.T + 1, x.sum(0), x.max(1), y[::-1] * 2, z // 3, np.pad(y, (2, 3)), x.sum() * 2]
    for got, want in zip(made, wanted, strict=True):
        np.testing.assert_array_equal(got.numpy(), want)


def test_each_member_of_a_shared_kernel_is_a_kernel_of_its_own_size():
    (step,) = plan_of(structure(*(numbers(n) + 1 for n in SIZES))).steps
    sizes = [
        kernel.src[0].src[2].vmax + 1 if n > 1 else 1
        for n, kernel in zip(SIZES, kernels_of(step.ast), strict=True)
    ]
    assert sorted(sizes) == sorted(SIZES)


def test_a_bundle_takes_no_more_buffers_than_a_kernel_may():
    given = [numbers(n) for n in (5, 6, 7, 8, 9)]
    sink = structure(*(x + 1 for x in given))
    assert [len(step.storages) for step in plan(sink).steps] == [10]
    assert max(len(step.storages) for step in plan(sink, Wishes(buffers=8)).steps) <= 6


def test_targets_without_pointers_as_values_get_a_body_for_each_member():
    (step,) = plan_of(structure(*(numbers(n) + 1 for n in SIZES))).steps
    assert len(shared(step.ast, Target("TOY"))) == len(SIZES)
    assert len(shared(step.ast, Target("TOY", native=frozenset(("PICK",))))) == 2


# ---- what must not change ------------------------------------------------------------------------


def test_what_overwrites_comes_after_what_reads():
    x, y = numbers(40), numbers(50)
    before, after = x + 1, y * 2
    x.assign(x * 3)
    y.assign(after + 1)
    before.realize(x, y, after)
    n, m = np.arange(40) % 13 + 1, np.arange(50) % 13 + 1
    np.testing.assert_array_equal(before.numpy(), n + 1)
    np.testing.assert_array_equal(x.numpy(), n * 3)
    np.testing.assert_array_equal(after.numpy(), m * 2)
    np.testing.assert_array_equal(y.numpy(), m * 2 + 1)


def test_draws_are_those_that_each_gets_alone():
    def draw(together):
        Tensor.manual_seed(5)
        made = [Tensor.rand(n) for n in SIZES]
        for some in [made] if together else [[each] for each in made]:
            some[0].realize(*some[1:])
        return [each.numpy().tobytes() for each in made]

    assert draw(True) == draw(False)


def test_bound_variables_reach_their_members():
    x = numbers(8)
    n = Variable("n", 1, 8)
    made = [(x * Tensor(n.bind(k)).cast(dtypes.float32)).contiguous() for k in (3, 5)]
    made[0].realize(*made[1:])
    assert [t.tolist()[1] for t in made] == [6, 10]


def test_a_bundle_has_a_name():
    assert "b5_E" in explain(*(numbers(n) + 1 for n in SIZES))


def test_bundles_are_kernels_in_a_graph_too():
    made = [numbers(n) + 1 for n in SIZES]
    made[0].kernelize(*made[1:])
    assert {t.uop.base.src[1].arg.name[:3] for t in made} == {"b5_"}
    assert [t.tolist()[0] for t in made] == [2] * len(SIZES)


def test_planning_is_linear_in_units_that_find_no_room(monkeypatch):
    looks = []
    asked = Ready._growth
    monkeypatch.setattr(Ready, "_growth", lambda *given: looks.append(1) or asked(*given))

    def looked(depth):
        looks.clear()
        x = y = Tensor.empty(3, device="NULL", requires_grad=True)
        factor = Tensor.empty(3, device="NULL")
        for _ in range(depth):
            y = (y * factor).sin()
        plan_of(structure(y, *y.sum().gradient(x)))
        return len(looks)

    assert looked(400) < 2.2 * looked(200)


# ---- lanes that meet in one of a launch's kernels ------------------------------------------------


@pytest.mark.parametrize("device", [name for name in present() if name != "NULL"])
@pytest.mark.parametrize("rows, columns", [(24, 20), (17, 5), (40, 30)])
def test_rows_behind_those_that_a_product_fills_are_left(device, rows, columns):
    rng = np.random.default_rng(0)
    shapes = (rows, 20), (20, 16), (columns, 24), (24, 16)
    a, b, c, d = arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    held = [Tensor(each, device=device).realize() for each in arrays]
    first, second = (Tensor.ones(64, 16, device=device).contiguous().realize() for _ in "ab")

    def write():
        first[:rows], second[:columns] = held[0] @ held[1], held[2] @ held[3]
        first.realize(second)

    assert kernels(write) == 1
    np.testing.assert_allclose(first.numpy()[:rows], a @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(second.numpy()[:columns], c @ d, rtol=1e-5, atol=1e-5)
    assert (first.numpy()[rows:] == 1).all() and (second.numpy()[columns:] == 1).all()
