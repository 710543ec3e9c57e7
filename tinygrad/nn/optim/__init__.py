"""Optimizers, schedules of the learning rate, and what surrounds a step: gradient clipping, loss
scaling, averages of weights."""

from typing import TYPE_CHECKING

from tinygrad.base.helpers import no_such_name
from tinygrad.data.printed import print_as_described
from tinygrad.nn.optim.adaptive import Adadelta, Adagrad, RMSprop, Rprop
from tinygrad.nn.optim.average import ASGD, EMA
from tinygrad.nn.optim.cycles import CyclicLR, OneCycleLR
from tinygrad.nn.optim.factored import Adafactor
from tinygrad.nn.optim.gradients import GradScaler, clip_grad_norm_, clip_grad_value_
from tinygrad.nn.optim.lbfgs import LBFGS
from tinygrad.nn.optim.moments import LAMB, Adam, Adamax, AdamW, NAdam, RAdam
from tinygrad.nn.optim.momentum import LARS, SGD, Lion, Muon, orthogonalized
from tinygrad.nn.optim.optimizer import Optimizer, OptimizerGroup
from tinygrad.nn.optim.rows import SparseAdam
from tinygrad.nn.optim.schedule import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    ReduceLROnPlateau,
    Scheduler,
    SequentialLR,
    StepLR,
)
from tinygrad.nn.optim.zero import zero
from tinygrad.nn.spellings import OTHERS, spell

__all__ = [
    "ASGD",
    "EMA",
    "LAMB",
    "LARS",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "GradScaler",
    "LambdaLR",
    "LinearLR",
    "Lion",
    "MultiStepLR",
    "MultiplicativeLR",
    "Muon",
    "NAdam",
    "OneCycleLR",
    "Optimizer",
    "OptimizerGroup",
    "PolynomialLR",
    "RAdam",
    "RMSprop",
    "Rprop",
    "ReduceLROnPlateau",
    "Scheduler",
    "SequentialLR",
    "SparseAdam",
    "StepLR",
    "clip_grad_norm_",
    "clip_grad_value_",
    "orthogonalized",
    "zero",
]

# tinygrad's optimizers are told where their state lies; here it lies where the parameters do
spell(globals(), __all__, {**OTHERS, "": (*OTHERS[""], "device")})
print_as_described(globals()[name] for name in __all__)


INSTEAD = {
    "AveragedModel": "EMA(model, decay=None), whose averages `applied` puts in",
    "LRScheduler": "Scheduler",
    "SWALR": "SequentialLR, of the schedule so far and a ConstantLR",
    "lr_scheduler": "nn.optim itself, which has the schedules",
    "swa_utils": "EMA(model, decay=None), whose averages `applied` puts in",
    "update_bn": "a pass over the data while Tensor.training, with BatchNorm(momentum=None)",
}
"""What PyTorch's programs look for: what does the same here."""


if not TYPE_CHECKING:  # which knows what there is
    __getattr__ = no_such_name("nn.optim", INSTEAD)
