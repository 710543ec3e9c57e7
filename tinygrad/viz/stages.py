"""Every stage of a graph on its way to machine code, as plain data that becomes JSON for the
explorer. Only the graph was kept; the stages are made again, exactly as the first time, with a
listener on the rewriting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tinygrad.base.helpers import plural
from tinygrad.codegen.names import bundle_name, kernel_name
from tinygrad.engine.devices import Device
from tinygrad.engine.making import plan_of
from tinygrad.engine.recipes import kernel_id, lower_kernel
from tinygrad.engine.show import c_view, listing, plain_assembly
from tinygrad.loops.heuristic import schedule
from tinygrad.loops.recipe import Recipe, apply, to_text
from tinygrad.schedule.bundles import members_of
from tinygrad.schedule.plan import Plan
from tinygrad.uop import Ops, UOp
from tinygrad.uop.rewrite import listeners
from tinygrad.uop.text import tree
from tinygrad.viz.drawing import svg
from tinygrad.viz.explain import plan_text
from tinygrad.viz.formula import difference
from tinygrad.viz.loops import loop_lines

Json = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """A kernel and the device that runs it."""

    ast: UOp
    device: str


_turn = threading.Lock()  # the listeners are everybody's


def stages_of_graph(sink: UOp) -> tuple[list[Json], list[Found]]:
    """The stages from a structure's graph to its kernels; and each distinct kernel."""
    with _watched() as rewrites:
        made = plan_of(sink)
    return [
        _drawn("Graph", "What the tensors hold. Buffers are numbered parameters.", sink),
        _rewritten("Scheduling's rewrites", rewrites),
        _text("Plan", "Kernels and copies in order, and where each value lies.", plan_text(made)),
    ], _kernels(made)


def stages_of_kernel(found: Found) -> tuple[str, list[Json]]:
    """A kernel's name, and its stages from loops to machine code."""
    ast, device = found.ast, Device[found.device]
    with _watched() as rewrites:
        lowered, recipe = lower_kernel(ast, device)
    if ast.op is Ops.BUNDLE:
        stages = [_members(ast)]
    else:
        stages = [
            _drawn("Kernel", "Axes are loops; no recipe yet.", ast),
            _steps(ast, recipe),
            _drawn("Kernel with its recipe", "The loops split, with roles.", lowered.kernel),
            _rewritten("Lowering's rewrites", rewrites),
        ]
    for phase in lowered.phases:
        source = device.renderer.render(phase.name, phase.program)
        readable = c_view(phase)
        machine = device.compiler.disassemble(device.compiler.compile(source))
        part = phase.name.removeprefix(lowered.name).strip("_")
        of = f" of {part}" if part else ""
        stages += [
            _text("Loops" + of, "When each thing happens.", phase.nest),
            _text("Linear program" + of, "One instruction a line.", listing(phase.program)),
            *([_text("C" + of, "A view for people.", readable)] if readable else []),
            _text("Source" + of, f"What {found.device} compiles.", source.strip()),
            _text("Machine code" + of, "What runs.", plain_assembly(machine)),
        ]
    return lowered.name, stages


def name_of_kernel(found: Found) -> str:
    """The name that a kernel gets on its device."""
    first = found.ast.src[0] if found.ast.op is Ops.BUNDLE else found.ast
    name = kernel_name(schedule(first, Device[found.device].target)[0])[0]
    return bundle_name(found.ast, name) if found.ast.op is Ops.BUNDLE else name


def _kernels(made: Plan) -> list[Found]:
    """Each kernel once; behind a bundle those that it joins."""
    found: dict[tuple[UOp, str], Found] = {}
    for step in made.steps:
        if step.ast is None or step.ast.op not in (Ops.SINK, Ops.BUNDLE):
            continue
        inside = step.ast.src if step.ast.op is Ops.BUNDLE else ()
        for ast in (step.ast, *inside):
            found.setdefault((ast, step.device), Found(ast, step.device))
    return list(found.values())


# ---- what a page shows ---------------------------------------------------------------------------


def _text(title: str, about: str, text: str) -> Json:
    return {"title": title, "about": about, "text": text}


def _members(bundle: UOp) -> Json:
    about = "Kernels that need nothing of each other, as one: which runs on which buffers."
    lines = [
        f"kernel {kernel_id(kernel)} on {member.slots}"
        + (f" with {member.values}" if member.values else "")
        for kernel, members in members_of(bundle)
        for member in members
    ]
    return _text("Bundle", about, "\n".join(lines))


def _drawn(title: str, about: str, root: UOp) -> Json:
    return {**_text(title, about, tree(root)), "svg": svg(root)}


def _steps(kernel: UOp, recipe: Recipe) -> Json:
    """The recipe's steps, with the loops after each."""
    about = "How, as a list of steps; after each of them the loops of stages, sums and stores."
    steps = [{"title": "the loops as they came", "after": "\n".join(loop_lines(kernel))}]
    for count, step in enumerate(recipe, 1):
        before, kernel = kernel, apply(kernel, recipe[count - 1 : count])
        steps.append(
            {
                "title": to_text((step,)),
                "before": "\n".join(loop_lines(before)),
                "after": "\n".join(loop_lines(kernel)),
            }
        )
    return {**_text("Recipe", about, to_text(recipe)), "steps": steps}


def _rewritten(title: str, rewrites: list[tuple[str, UOp, UOp]]) -> Json:
    about = f"A rule fitted {plural(len(rewrites), 'time')}: the node before, and what it became."
    steps = [_rewrite(*each) for each in rewrites]
    return {**_text(title, about, ""), "steps": steps}


def _rewrite(rule: str, before: UOp, after: UOp) -> Json:
    old, new, where = difference(before, after)
    return {"title": rule, "before": f"{old}\n\n{where}".strip(), "after": new}


@contextmanager
def _watched() -> Iterator[list[tuple[str, UOp, UOp]]]:
    """What this thread rewrites meanwhile: (rule, before, after)."""
    found: list[tuple[str, UOp, UOp]] = []
    own = threading.get_ident()

    def listen(before: UOp, after: UOp, rule: str) -> None:
        if threading.get_ident() == own:
            found.append((rule, before, after))

    with _turn:
        listeners.append(listen)
        try:
            yield found
        finally:
            listeners.remove(listen)
