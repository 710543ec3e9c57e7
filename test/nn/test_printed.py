"""What layers, and models of them, print."""

import pytest

from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.utils import described


class Model:
    def __init__(self):
        self.first = nn.Linear(2, 3)
        self.itself = self
        self.rest = [nn.ReLU(), Tensor.relu, nn.Sequential(nn.Dropout(0.5))]
        self.scale, self._hidden, self.nothing, self.sizes = 2.0, 1, None, [3, (4, 5)]


MODEL = """Model(scale=2.0, sizes=[3, (4, 5)]
  first: Linear(weight=(3, 2), bias=(3,))
  rest: list(
    0: ReLU(inplace=False)
    1: relu
    2: Sequential(
      0: Dropout(p=0.5, inplace=False)
    )
  )
)"""

PRINTED = {
    "Linear(weight=(4, 3))": lambda: nn.Linear(3, 4, bias=False),
    "Embedding(vocab_sz=3, embed_sz=4, norm_type=2.0, scale_grad_by_freq=False, weight=(3, 4))": (
        lambda: nn.Embedding(3, 4)
    ),
    "Sequential()": nn.Sequential,
    "LazyLinear()": lambda: nn.LazyLinear(3),
    "TinyJit(described)": lambda: TinyJit(described),
}


@pytest.mark.parametrize("text", PRINTED)
def test_a_layer_prints_its_settings_and_shapes(text):
    assert repr(PRINTED[text]()) == text


def test_any_object_can_be_described_also_one_that_holds_itself():
    assert described(Model()) == MODEL


@pytest.mark.parametrize("name", [n for n in nn.__all__ if isinstance(getattr(nn, n), type)])
def test_no_layer_prints_its_address(name):
    assert getattr(nn, name).__repr__ is not object.__repr__
