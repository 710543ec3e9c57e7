"""A face, as programs import it: all of this floor that works on graphs. (The table is in `op`.)"""

from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops
from tinygrad.uop.pattern import PatternMatcher, Rule, UPat
from tinygrad.uop.rewrite import graph_rewrite

__all__ = ["GroupOp", "Ops", "PatternMatcher", "Rule", "UOp", "UPat", "graph_rewrite"]
