"""`kernelize`: scheduled but not run. The graph then shows its kernels: each result is
ASSIGN(BUFFER, KERNEL(buffers...)), as a person or a test may look at it; realizing it runs them."""

from __future__ import annotations

from tinygrad.engine.cold import making
from tinygrad.engine.realize import in_memory, same_view
from tinygrad.engine.storage import Buffer, bind, latest, learn
from tinygrad.engine.structure import structure_of
from tinygrad.schedule.bases import stored_base
from tinygrad.schedule.plan import KernelInfo, Plan
from tinygrad.schedule.shard import is_sharded
from tinygrad.uop import Ops, UOp


def kernelize(*roots: UOp) -> None:
    """Schedules the roots; afterwards `latest(root)` is a view of buffers with their kernels."""
    wanted = [root for root in map(latest, roots) if not in_memory(root)]
    if not wanted:
        return
    structure = structure_of(wanted)
    if is_sharded(structure.sink):
        return  # each device has kernels of its own
    made = making.plan_of(structure.sink)
    if any(step.op not in (Ops.KERNEL, Ops.COPY) for step in made.steps) or structure.binds:
        return  # host functions and bound variables stay as they are until they run
    current = [_storage(number, made, structure.params) for number in range(len(made.storages))]
    for step in made.steps:
        ast, name = step.ast, ""
        if ast is None:
            ast = UOp(Ops.COPY, src=(UOp.on(step.device),))
        else:
            name = making.kernel_name(ast)[0]
        info = KernelInfo(ast, step.writes, name)
        kernel = UOp(Ops.KERNEL, src=tuple(current[n] for n in step.storages), arg=info)
        for number in step.storages[: step.writes]:
            target = current[number].base
            buffer = target.src[0] if target.op is Ops.ASSIGN else target
            current[number] = UOp(Ops.ASSIGN, buffer.dtype, (buffer, kernel))
    for root, number in zip(wanted, made.results, strict=True):
        base = stored_base(root)
        if base.known is None:
            learn(base, current[number].in_room(base.shape))
        if root.known is None:
            learn(root, same_view(root))


def _storage(number: int, made: Plan, params: tuple[UOp, ...]) -> UOp:
    kept = made.storages[number]
    if kept.kind == "param":
        return params[kept.place]
    node = UOp.new_buffer(kept.device, kept.size, kept.dtype)
    return bind(node, Buffer(kept.device, kept.nbytes))
