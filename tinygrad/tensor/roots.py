"""What a node is a view of, to a tensor that stands for it: storage, what will be stored, or a
*root*, a copy that is yet to be made; and what holds its value now that others have computed or
written."""

from __future__ import annotations

from tinygrad.backends import keeps
from tinygrad.engine.aliases import bottom_of, on_bottom
from tinygrad.engine.storage import latest
from tinygrad.schedule.bases import beneath
from tinygrad.schedule.strides import is_plain_window, is_window, repeats, steps_between
from tinygrad.uop import GroupOp, Ops, UOp

STORED = (Ops.BUFFER, Ops.ASSIGN)  # versions of storage
VIEWS = GroupOp.Movement.union(STORED)  # what may show a buffer's newest version
WITHOUT_SOURCES = frozenset((Ops.BUFFER, Ops.CONST, Ops.ARANGE, Ops.DETACH))


def settled(node: UOp, whole: bool = False) -> UOp:
    """What holds the value of `node` now: a view of a buffer if it was computed, else itself.
    With `whole`, a part that was computed alone, into a buffer of its own, doesn't count; a copy,
    such as a padded view, does.

    DETACH stays, because what was computed must not let gradients through afterwards either.
    """
    if whole and node.op in GroupOp.Movement:
        below = end_of_views(node)
        now = settled(below)
        return node if now is below else on_bottom(node, below, now)
    if node.op is Ops.DETACH:
        inner = settled(node.src[0], whole)
        return node if inner is node.src[0] else inner.detach(*node.src[1:])
    if (known := node.known) is not None:
        node = known.detach() if is_detached(node) else known
    if node.op not in VIEWS:
        return node
    below = node
    while below.op in GroupOp.Movement and below.known is None:
        below = below.src[0]
    if below.op in GroupOp.Movement:  # a copy, computed; latest() would read what it is a copy of
        return on_bottom(node, below, settled(below))
    if below.op is Ops.DETACH:
        inner = settled(below)
        return node if inner is below else node.viewed(inner)
    return latest(node)


def equals_known(node: UOp) -> bool:
    """Whether an equal expression was computed before: who made this node did not."""
    return node.known is not None or node.base.known is not None


def copied_part(node: UOp) -> UOp | None:
    """What has the elements of `node`, a copy yet to be made, in their order."""
    top = beneath(node, (Ops.RESHAPE, Ops.DETACH))
    return top if top.op in GroupOp.Movement else None


def root_of(node: UOp) -> UOp | None:
    """Where a family begins whose first tensor is `node`: at its top, if that is a copy yet to be
    made (a constant repeated has no storage, and is no view of one element)."""
    top = copied_part(node)
    if top is None or is_plain_window(top):
        return None
    return top if repeats(top, bottom_of(top)) else None


def end_of_views(node: UOp, root: UOp | None = None) -> UOp:
    """What `node` is a view of: its family's `root` or what lies below all movement, or the last
    copy on the way that is yet to be made."""
    bottom = bottom_of(node, root)
    steps = (bottom, *steps_between(node, bottom))
    return next(below for below in steps if is_window(node, below))


def has_no_sources(node: UOp) -> bool:
    """Whether no gradient can go through a node, as a template sees it: to that, a padded copy is a
    value like any other."""
    base = node.base
    if base.op is Ops.BUFFER or base.op not in WITHOUT_SOURCES:
        return base.op is Ops.BUFFER or is_of_list(base)
    return all(step.op is not Ops.PAD for step in steps_between(node, base))


def is_of_list(node: UOp) -> bool:
    """Whether it is a COPY that brings the numbers of a list to a device that computes."""
    if node.op is not Ops.COPY or (host := node.src[0]).op is not Ops.BUFFER:
        return False
    is_list = host.device == "PYTHON" and host.storage is not None
    return is_list and type(node.device) is str and not keeps(node.device)


def is_detached(node: UOp) -> bool:
    """Whether a DETACH that lets no gradient pass stands among the views at the top of `node`."""
    top = beneath(node, GroupOp.Movement)
    return top.op is Ops.DETACH and len(top.src) == 1


def tape_end(node: UOp, bottom: UOp) -> UOp:
    """The `bottom` of `node`, under what says that its gradients go elsewhere, if that is there."""
    end = bottom
    for step in steps_between(node, bottom):
        if step.op is Ops.DETACH and len(step.src) > 1:
            end = step
        elif step.op is not Ops.RESHAPE and not _is_used_room(step, bottom):
            break
    return end


def is_all_of_storage(node: UOp) -> bool:
    """Whether the node was computed, in its order, into storage of its own."""
    return node.known is not None and node.known is node.known.base.in_room(node.shape)


def computed_part(node: UOp, end: UOp) -> UOp:
    """The part of `end` in a view that is all of some storage; else `end`."""
    while node is not end and not is_all_of_storage(node):
        node = node.src[0]
    return node


def without_past(node: UOp) -> UOp:
    """A view of storage that says where gradients go on, without that, once it is computed; unless
    they go to a start, which is there in all of its versions."""
    below = beneath(node, GroupOp.Movement)
    if below.op is not Ops.DETACH or below.src[0].base.op is not Ops.BUFFER:
        return node
    if len(below.src) == 1 or below.src[1].op is Ops.UNIQUE:
        return node
    return below.src[0].moved_by(steps_between(node, below))


def _is_used_room(step: UOp, bottom: UOp) -> bool:
    """Whether a SHRINK of all of storage leaves what a symbolic size uses of its room."""
    is_all = step.op is Ops.SHRINK and step.room == step.src[0].shape
    return is_all and bottom.in_room(step.shape) is step
