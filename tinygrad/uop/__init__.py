"""Floor 1: the one IR, from a tensor's expression to a linear program. In reading order:

op              the table of operations and their meaning
node            UOp: an interned node, and what is derived from its sources (interning: the table
                of all nodes; services: what higher floors do for a node)
infer, bounds   a node's shape and device; the interval in which its value lies
build           operators and elementary functions, shared by nodes, patterns and tensors
pattern         patterns, and rewrite rules as data
rewrite         applies rules everywhere until none fits
verify          which operations are legal at which of the three stages
instructions    the third stage: the ops of a linear program, for authors of backends
text            graphs as text, and back
scan            a counted loop as one node
placement       where a value on several devices lies
natural         how e**x is written with EXP2
questions       questions that programs ask of nodes, and the compiler does not
ops             a face: the names of this floor under the path by which programs import them
"""

from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops

__all__ = ["GroupOp", "Ops", "UOp"]
