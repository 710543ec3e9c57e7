"""Floor 1: the one IR, from a tensor's expression to a linear program. In the order of reading:

op              the table of operations: what each means
node            UOp: an interned node, and what follows from its sources
infer, bounds   its shape and device; between which numbers its value lies
build           the vocabulary: operators, for nodes, patterns and tensors alike
pattern         patterns, and rules as data
rewrite         rules applied everywhere, until none fits
verify          which operations are legal at which of the three stages
instructions    the third stage: the ops of a linear program, for who writes a backend
text            graphs as text, and back
scan            a counted loop as one node
placement       where a value on several devices lies
natural         how e**x is written with EXP2
questions       what programs ask of nodes, and the compiler doesn't
ops             a face: these under the path by which programs import them
"""

from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

__all__ = ["Ops", "UOp"]
