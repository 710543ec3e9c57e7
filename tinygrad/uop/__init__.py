"""Floor 1: the one IR. `op` says what operations mean, `node` makes interned nodes of them,
`build` is the vocabulary to write them in, `pattern` and `rewrite` change them."""

from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

__all__ = ["Ops", "UOp"]
