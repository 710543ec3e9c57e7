"""Random numbers: their distributions, by SciPy's tests at fixed seeds; and that they follow from
seed and position alone: not from the device, the order of computing, or what others draw."""

import math

import numpy as np
import pytest
import scipy.stats as stats

from tinygrad import Context, Generator, Tensor, TinyJit, Variable, dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, JitError, RuntimeCheckError, ShapeError
from tinygrad.nn import init

N = 4000
LEAST = 1e-3  # the chance of such numbers under the right distribution; seeds are fixed


def seeded(seed=11):
    return {"generator": Generator(seed)}


CONTINUOUS = {
    "rand": (lambda m: Tensor.rand(N, **m), stats.uniform()),
    "rand double": (lambda m: Tensor.rand(N, dtype=dtypes.double, **m), stats.uniform()),
    "randn": (lambda m: Tensor.randn(N, **m), stats.norm()),
    "randn double": (lambda m: Tensor.randn(N, dtype=dtypes.double, **m), stats.norm()),
    "uniform": (lambda m: Tensor.uniform(N, low=-2, high=6, **m), stats.uniform(-2, 8)),
    "normal": (lambda m: Tensor.normal(N, mean=3, std=2, **m), stats.norm(3, 2)),
    "exponential": (lambda m: Tensor.exponential(N, rate=3, **m), stats.expon(scale=1 / 3)),
    "gumbel": (lambda m: Tensor.gumbel(N, loc=1, scale=2, **m), stats.gumbel_r(1, 2)),
    "cauchy_": (lambda m: Tensor.zeros(N).cauchy_(1, 2, **m), stats.cauchy(1, 2)),
    "log_normal_": (
        lambda m: Tensor.zeros(N).log_normal_(0, 0.5, **m), stats.lognorm(0.5, scale=1)
    ),
    "kaiming": (
        lambda m: Tensor.kaiming_uniform(N, 6, **m)[:, 0],
        stats.uniform(-((1 / (1 + 1e-4)) ** 0.5), 2 * (1 / (1 + 1e-4)) ** 0.5),
    ),
    "glorot": (lambda m: Tensor.glorot_uniform(8, N // 8, **m), stats.uniform(
        -math.sqrt(6 / (8 + N // 8)), 2 * math.sqrt(6 / (8 + N // 8)))),
    "truncated normal": (
        lambda m: init.trunc_normal_(Tensor.empty(N), 1, 2, -2, 3), stats.truncnorm(-1.5, 1, 1, 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9, 1.0])
def test_trials_until_one_succeeds(p):
    values = Tensor.zeros(N).geometric_(p, **seeded()).numpy()
    assert values.min() == 1 and (values == np.floor(values)).all()
    for tries in (1, 2, 5):
        chance = 1 - (1 - p) ** tries
        found = (values <= tries).mean()
        assert abs(found - chance) <= 4 * math.sqrt(chance * (1 - chance) / N)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name):
    draw, expected = CONTINUOUS[name]
    values = draw(seeded()).numpy().ravel().astype(np.float64)
    assert stats.kstest(values, expected.cdf).pvalue > LEAST
    pairs = stats.pearsonr(values[:-1], values[1:])
    assert pairs.pvalue > LEAST, "neighbours have nothing to do with each other"


WEIGHTS = [1.0, 0.0, 3.0, 0.5, 2.5, 0.0]
DISCRETE = {
    "randint": (lambda m: Tensor.randint(N, low=-2, high=5, **m) + 2, [1] * 7),
    "randint wide": (lambda m: Tensor.randint(N, low=0, high=7 << 40, dtype="int64", **m) >> 40,
                     [1] * 7),
    "uniform of ints": (lambda m: Tensor.uniform(N, low=0, high=7, dtype="int", **m), [1] * 7),
    "bernoulli": (lambda m: Tensor.full((N,), 0.3).bernoulli(**m).int(), [0.7, 0.3]),
    "multinomial": (lambda m: Tensor(WEIGHTS).multinomial(N, replacement=True, **m), WEIGHTS),
    "multinomial, one of each row": (
        lambda m: Tensor([WEIGHTS] * N).multinomial(1, **m).flatten(), WEIGHTS
    ),
    "randperm": (
        lambda m: Tensor([Tensor.randperm(4, **m).tolist()[0] for _ in range(200)]),
        [1] * 4,
    ),
    "bits": (lambda m: Tensor.random_bits(N, **m).cast("int64") >> 28, [1] * 16),
    "poisson": (
        lambda m: Tensor.full((N,), 2.5).poisson(**m).minimum(8).int(),
        [*stats.poisson(2.5).pmf(range(8)), stats.poisson(2.5).sf(7)],
    ),
    "binomial": (
        lambda m: Tensor.full((N,), 5.0).binomial(0.3, **m).int(),
        stats.binom(5, 0.3).pmf(range(6)),
    ),
    "second of two without replacement": (
        lambda m: Tensor([[2.0, 1.0, 1.0]] * N).multinomial(2, **m)[:, 1],
        [1 / 4 * 2 / 3 * 2, 1 / 2 * 1 / 2 + 1 / 4 * 1 / 3, 1 / 2 * 1 / 2 + 1 / 4 * 1 / 3],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name):
    draw, weights = DISCRETE[name]
    counts = np.bincount(draw(seeded()).numpy(), minlength=len(weights)).astype(float)
    chances = np.array(weights) / sum(weights)
    assert not counts[chances == 0].any() and len(counts) == len(weights)
    counts, chances = counts[chances > 0], chances[chances > 0]
    assert stats.chisquare(counts, chances * counts.sum()).pvalue > LEAST


def test_dropout_keeps_each_element_alike():
    with Tensor.train():
        kept = Tensor.ones(N).dropout(0.3, **seeded()).numpy() > 0
    assert stats.binomtest(int(kept.sum()), N, 0.7).pvalue > LEAST
    runs = stats.chisquare(
        np.bincount(kept[:-1] * 2 + kept[1:]), np.outer((0.3, 0.7), (0.3, 0.7)).ravel() * (N - 1)
    )
    assert runs.pvalue > LEAST


DRAWS = {
    "rand": lambda m: Tensor.rand(3, 5, **m),
    "half": lambda m: Tensor.rand(7, dtype="half", **m),
    "randint": lambda m: Tensor.randint(9, low=-3, high=9, **m),
    "bits": lambda m: Tensor.random_bits(9, **m),
    "bernoulli": lambda m: Tensor.full((9,), 0.5, device=m["device"]).bernoulli(**m),
    "multinomial": lambda m: Tensor(WEIGHTS, device=m["device"]).multinomial(9, True, **m),
    "poisson": lambda m: Tensor.full((9,), 4.0, device=m["device"]).poisson(m["generator"]),
    "binomial": lambda m: Tensor.full((9,), 9.0, device=m["device"]).binomial(
        Tensor([0.5], device=m["device"]), m["generator"]
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_devices_and_captured_steps_draw_the_same(name):
    def drawn(device, jit):
        more = {"device": device, **seeded(5)}
        step = jit(lambda x: (DRAWS[name](more) + x * 0).realize())
        x = Tensor([0], dtype="uchar", device=device).realize()
        return [step(x).numpy().tolist() for _ in range(4)]

    plain = drawn("CPU", lambda f: f)
    assert len({str(v) for v in plain}) == 4
    for device in ("CPU", "PYTHON", "CL", "WEBGPU"):
        assert drawn(device, TinyJit) == plain


@pytest.mark.parametrize("device", ["PYTHON", "CL", "WEBGPU"])
def test_normal_numbers_differ_by_rounding_only(device):
    on = [Tensor.randn(50, device=d, **seeded()).numpy() for d in ("CPU", device)]
    np.testing.assert_allclose(*on, rtol=1e-5, atol=1e-6)


def test_the_order_of_computing_changes_nothing():
    first = [Tensor.rand(3, **m) for m in [seeded()] for _ in range(3)]
    again = [Tensor.rand(3, **m) for m in [seeded()] for _ in range(3)]
    later = [t.tolist() for t in reversed(again)]
    assert [t.tolist() for t in first] == later[::-1]


def test_generators_are_independent():
    a, b = Generator(1), Generator(2)
    alone = [Tensor.rand(4, generator=Generator(1)).tolist()]
    Tensor.manual_seed(1)
    drawn = [Tensor.rand(2, generator=a).tolist(), Tensor.rand(9, generator=b), Tensor.rand(3)]
    drawn += [Tensor.rand(2, generator=a).tolist()]
    assert alone[0] == drawn[0] + drawn[3]
    Tensor.manual_seed(1)
    Tensor.rand(3, generator=a)
    assert Tensor.rand(3).tolist() == drawn[2].tolist()


def test_forks_follow_from_the_seed_and_have_nothing_in_common():
    forks = Generator(3).split(3)
    assert [f.initial_seed() for f in forks] == [f.initial_seed() for f in Generator(3).split(3)]
    parent = Generator(3)
    one, two = parent.fork(), parent.fork()
    assert (one.initial_seed(), two.initial_seed()) == tuple(f.initial_seed() for f in forks[:2])
    values = np.array([Tensor.rand(500, generator=g).numpy() for g in [*forks, parent]])
    assert np.abs(np.corrcoef(values) - np.eye(4)).max() < 0.2


def test_state_is_seed_and_position():
    g = Generator(-5)
    Tensor.rand(3, generator=g)
    state = g.state_dict()
    assert state["position"] == 3 and state["seed"] == g.initial_seed() == -5 & (2**63 - 1)
    other = Generator()
    other.load_state_dict(state)
    assert Tensor.randn(4, generator=g).tolist() == Tensor.randn(4, generator=other).tolist()
    assert repr(g.manual_seed(3)) == "Generator(seed=3, position=0)"


def test_a_generator_in_a_captured_step():
    g = Generator(3)
    step = TinyJit(lambda x, g: (x + Tensor.rand(2, generator=g)).realize())
    x = Tensor([0.0, 0.0]).realize()
    found = [step(x, g).tolist() for _ in range(5)]
    plain = Generator(3)
    assert found == [Tensor.rand(2, generator=plain).tolist() for _ in range(5)]
    inside = TinyJit(lambda x: (x + Tensor.rand(2, generator=Generator(3))).realize())
    assert [inside(x).tolist() for _ in range(4)] == found[:1] * 4
    forks = TinyJit(lambda x: (x + Tensor.rand(2, generator=g.fork())).realize())
    forks(x)
    with pytest.raises(JitError, match="forks a generator inside"):
        forks(x)


def test_edges():
    n = Variable("n", 1, 9)
    for make in (Tensor.rand, Tensor.randn, Tensor.randint, Tensor.exponential, Tensor.gumbel):
        assert make(0).shape == (0,) and make(2, 0, 3).numpy().shape == (2, 0, 3)
        assert make().shape == () and make(1).numpy().shape == (1,)
        assert make(n.bind(3), 2).numpy().shape == (3, 2)
    assert Tensor.uniform(3, low=2, high=2).tolist() == [2.0] * 3
    assert Tensor.normal(3, mean=2, std=0).tolist() == [2.0] * 3
    assert Tensor.randint(3, low=-4, high=-3).tolist() == [-4] * 3
    assert Tensor.randint(-4, -3, (2, 1)).tolist() == [[-4], [-4]]  # as in PyTorch
    assert Tensor.randint(1, [3]).tolist() == [0] * 3
    assert Tensor.randint(-4, -3, size=(2, 1)).tolist() == [[-4], [-4]]
    assert Tensor.randint(1, size=[3], low=0).tolist() == [0] * 3
    assert Tensor.randint(4, 5, size=2).tolist() == [4, 4]
    assert Tensor.normal(2.0, 0.0, size=(2,)).tolist() == [2.0] * 2
    assert set(Tensor.randint(0, 2, (99,), dtype="bool").tolist()) == {False, True}
    assert Tensor.randint(2048, 2049, (2,), dtype="half").tolist() == [2048.0] * 2
    assert Tensor.uniform(2, low=255, high=256, dtype="uint8").tolist() == [255] * 2
    assert Tensor.uniform(2, low=-32752, high=32752, dtype="half").isfinite().all().item()
    order = Tensor.randperm(5, device=("CPU:0", "CPU:1"))
    assert sorted(order.tolist()) == [0, 1, 2, 3, 4] and order.device == ("CPU", "CPU:1")
    assert Tensor.randperm(0).tolist() == [] and Tensor.randperm(1).tolist() == [0]
    assert Tensor([0.0, 1.0, 0.0]).multinomial(1).tolist() == [1]
    assert sorted(Tensor([1.0, 0.0, 2.0]).multinomial(2).tolist()) == [0, 2]
    assert Tensor([0.0, 1.0, 0.5]).bernoulli().tolist()[:2] == [0.0, 1.0]
    assert Tensor.zeros(0, 2).poisson().shape == (0, 2)
    assert Tensor([[3.0], [0.0]]).half().binomial(Tensor([0.0, 1.0])).tolist() == [[0, 3], [0, 0]]
    assert Tensor([2.0], requires_grad=True).poisson().requires_grad is False
    assert Tensor.rand(2, requires_grad=True).requires_grad is True
    assert Tensor.gumbel(2, requires_grad=True).requires_grad is True


MISUSES = [
    (ArgumentError, "low below high", lambda: Tensor.randint(2, low=3, high=3)),
    (ArgumentError, "holds -128 to 127", lambda: Tensor.randint(2, low=0, high=500, dtype="int8")),
    (
        ArgumentError,
        "dtypes.half, which holds",
        lambda: Tensor.randint(0, 2050, (2,), dtype="half"),
    ),
    (ArgumentError, "dtypes.bool, which holds", lambda: Tensor.randint(0, 3, (2,), dtype="bool")),
    (DTypeError, "real numbers", lambda: Tensor.randint(0, 3, (2,), dtype="complex64")),
    (ArgumentError, "low up to high", lambda: Tensor.uniform(2, low=3, high=2)),
    (ArgumentError, "as dtypes.float", lambda: Tensor.uniform(2, low=-3e38, high=3e38)),
    (ArgumentError, "as dtypes.half", lambda: Tensor.uniform(2, high=7e4, dtype="half")),
    (ArgumentError, "as dtypes.uchar", lambda: Tensor.uniform(2, low=-1, high=9, dtype="uint8")),
    (ArgumentError, "as dtypes.char", lambda: Tensor.uniform(2, high=130, dtype="int8")),
    (ArgumentError, "as dtypes.half", lambda: Tensor.ones(2).half().uniform_(0, 7e4)),
    (ArgumentError, "std=-1", lambda: Tensor.normal(2, std=-1)),
    (ArgumentError, "rate = 0", lambda: Tensor.exponential(2, rate=0)),
    (ArgumentError, "scale=-1", lambda: Tensor.gumbel(2, scale=-1)),
    (DTypeError, "seed=1.5", lambda: Tensor.manual_seed(1.5)),
    (ShapeError, "-1", lambda: Tensor.rand(2, -1)),
    (ShapeError, "without replacement", lambda: Tensor([1.0, 2.0]).multinomial(3)),
    (ShapeError, "1 or 2 axes", lambda: Tensor.ones(1, 2, 3).multinomial(1)),
    (DTypeError, "bernoulli", lambda: Tensor([1, 0]).bernoulli()),
    (RuntimeCheckError, "outside 0 to 1", lambda: Tensor([1.5]).bernoulli().tolist()),
    (RuntimeCheckError, "a rate outside", lambda: Tensor([-1.0]).poisson().tolist()),
    (RuntimeCheckError, "a rate outside", lambda: Tensor([math.nan]).poisson().tolist()),
    (RuntimeCheckError, "a count outside", lambda: Tensor([math.inf]).binomial(0.5).tolist()),
    (RuntimeCheckError, "a chance outside", lambda: Tensor([1.0]).binomial(1.5).tolist()),
    (DTypeError, "legal are floats", lambda: Tensor([1]).poisson()),
    (RuntimeCheckError, "negative", lambda: Tensor([1.0, -1.0]).multinomial(1).tolist()),
    (RuntimeCheckError, "not finite", lambda: Tensor([1.0, math.nan]).multinomial(1).tolist()),
    (RuntimeCheckError, "than the 1", lambda: Tensor([0.0, 0.0]).multinomial(1, True).tolist()),
    (RuntimeCheckError, "than the 2", lambda: Tensor([1.0, 0.0]).multinomial(2).tolist()),
]


@pytest.mark.parametrize(("error", "words", "misuse"), MISUSES)
def test_misuse(error, words, misuse):
    with pytest.raises(error, match=words):
        misuse()
    assert Tensor([1.0]).tolist() == [1.0]


def test_a_tensor_for_a_number_of_bits():
    """It was refused after the stream's place had become a tensor: no later draw worked."""
    assert Tensor.random_bits(Tensor(4)).shape == Tensor.randperm(Tensor(4)).shape == (4,)
    with pytest.raises(ShapeError, match="random_bits: size -1"):
        Tensor.random_bits(-1)
    assert sorted(Tensor.randperm(3).tolist()) == [0, 1, 2]


def test_a_stream_s_seed_is_never_stored_however_few_operations_a_kernel_may_have():
    seen = []
    for most in (1, 20, 60, 1000):
        Tensor.manual_seed(3)
        with Context(FUSE_OPS=most):
            seen.append((Tensor.rand(4) * 2 + Tensor.randn(4)).relu().numpy())
    for each in seen[1:]:
        np.testing.assert_allclose(each, seen[0], 1e-6)
