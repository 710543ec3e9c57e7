"""A face: the names of this floor that work on graphs, as programs import them. (The table itself
is in `op`.)"""

from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops
from tinygrad.uop.pattern import PatternMatcher, Rule, UPat
from tinygrad.uop.rewrite import graph_rewrite

__all__ = ["GroupOp", "Ops", "PatternMatcher", "Rule", "UOp", "UPat", "graph_rewrite"]
