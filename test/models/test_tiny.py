"""The nets of MLPerf Tiny have the published numbers of parameters, and train."""

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit
from tinygrad.models.tiny import AnomalyAutoencoder, KeywordSpotting, ResNet8, VisualWakeWords
from tinygrad.nn.optim import Adam
from tinygrad.nn.state import get_state_dict

# numbers of the reference models, which count moving averages and the biases that a normalization
# after a convolution undoes; ours lack those biases
ROWS = [
    (KeywordSpotting, (1, 49, 10), (12,), 24_908),
    (VisualWakeWords, (3, 96, 96), (2,), 221_794),
    (ResNet8, (3, 32, 32), (10,), 78_666),
    (AnomalyAutoencoder, (640,), (640,), 269_992),
]


@pytest.mark.parametrize(("kind", "given", "gives", "numbers"), ROWS)
def test_shapes_and_sizes(kind, given, gives, numbers):
    model = kind()
    assert model(Tensor.ones(2, *given)).shape == (2, *gives)
    state = {n: t for n, t in get_state_dict(model).items() if not n.endswith("tracked")}
    convs = [n for n, t in state.items() if t.ndim == 4]
    biases = sum(state[n].shape[0] for n in convs if n.replace("weight", "bias") not in state)
    assert sum(t.numel() for t in state.values()) + biases == numbers


def test_a_step_of_training_lowers_the_loss():
    model = AnomalyAutoencoder(size=32, width=16)
    x = Tensor(np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)).realize()
    optimizer = Adam(list(get_state_dict(model).values()), lr=0.01)

    @TinyJit
    def step():
        optimizer.zero_grad()
        loss = model.error(x).mean().backward()
        optimizer.step()
        return loss.realize()

    with Tensor.train():
        losses = [step().item() for _ in range(30)]
    assert losses[-1] < 0.9 * losses[0]
