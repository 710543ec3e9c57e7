"""What layers, models of them, and what surrounds these print."""

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, data, nn
from tinygrad.data import ArrayDataset, ConcatDataset, DataLoader, Subset
from tinygrad.nn import optim
from tinygrad.nn.utils import described


class Model:
    def __init__(self):
        self.first = nn.Linear(2, 3)
        self.itself = self
        self.rest = [nn.ReLU(), Tensor.relu, nn.Sequential(nn.Dropout(0.5))]
        self.scale, self._hidden, self.nothing, self.sizes = 2.0, 1, None, [3, (4, 5)]


MODEL = """Model(scale=2.0, sizes=[3, (4, 5)]
  first: Linear(in_features=2, out_features=3, weight=(3, 2), bias=(3,))
  rest: list(
    0: ReLU(inplace=False)
    1: relu
    2: Sequential(
      0: Dropout(p=0.5, inplace=False)
    )
  )
)"""

PRINTED = {
    "Linear(in_features=3, out_features=4, weight=(4, 3))": lambda: nn.Linear(3, 4, bias=False),
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


def layer():
    return nn.Linear(2, 3)


def sgd():
    return optim.SGD([layer().weight], lr=0.1)


def half(turn):
    return 0.5


PARTS = "lr=0.1, momentum=0.0, weight_decay=0.0, nesterov=False, classic=False, "
PARTS += "dampening=0.0, maximize=False, params="
AROUND = {
    f"SGD({PARTS}[(3, 2)])": sgd,
    f"OptimizerGroup(\n  0: SGD({PARTS}[(3,)])\n  1: SGD({PARTS}[(1,)])\n)": lambda: optim.SGD(
        [{"params": [layer().bias]}, {"params": [Tensor([1.0])]}], lr=0.1
    ),
    f"[Options({PARTS}[(3, 2)])]": lambda: sgd().param_groups,
    "EMA(decay=0.9, averages=[(3, 2), (3,)])": lambda: optim.EMA(layer(), 0.9),
    "GradScaler(scale=8.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, "
    "enabled=True)": lambda: optim.GradScaler(8.0),
    "StepLR(step_size=3, gamma=0.1)": lambda: optim.StepLR(sgd(), 3),
    "LambdaLR(\n  factor: half\n)": lambda: optim.LambdaLR(sgd(), half),
    "ArrayDataset(arrays=((4, 2), (4,)))": lambda: ArrayDataset(np.ones((4, 2)), np.ones(4)),
    "Subset(dataset='abc', indices=[2, 0])": lambda: Subset("abc", [2, 0]),
    "ConcatDataset(ends=[3, 4]\n  datasets: list(\n    0: ArrayDataset(arrays=((3,),))\n"
    "    1: range(0, 1)\n  )\n)": lambda: ConcatDataset([ArrayDataset(np.ones(3)), range(1)]),
    "DataLoader(dataset=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, .. 90 more], batch_size=5, shuffle=False, "
    "seed=0, drop_last=False, num_workers=0, prefetch=2\n  collate_fn: collate\n)": lambda: (
        DataLoader(list(range(100)), 5)
    ),
}


@pytest.mark.parametrize("text", AROUND)
def test_what_surrounds_a_model_prints_what_it_was_made_with(text):
    assert repr(AROUND[text]()) == text


def test_long_lists_are_cut():
    text = described([nn.ReLU() for _ in range(103)])
    assert text.count("ReLU") == 100 and text.endswith("  .. 3 more\n)")
    assert described([Tensor([1.0])]) == "list(\n  0: (1,)\n)"


def test_printing_asks_for_no_number_while_a_step_is_captured():
    optimizer = sgd()
    step = TinyJit(lambda x: (repr(optimizer), x + 1)[1].realize())
    assert [step(Tensor([n]).realize()).item() for n in range(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", [*optim.__all__, *data.__all__])
def test_nothing_around_a_model_prints_its_address(name):
    kind = getattr(optim, name, None) or getattr(data, name)
    assert not isinstance(kind, type) or kind.__repr__ is not object.__repr__
