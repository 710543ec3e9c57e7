"""Every stage of a graph on its way to machine code, as plain data that becomes JSON: what the
explorer shows. Nothing was remembered but the graph; the stages are made again, as they were the
first time, with a listener where the rewriting happens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tinygrad.base.helpers import plural
from tinygrad.codegen.pipeline import kernel_name
from tinygrad.engine.devices import Device
from tinygrad.engine.explain import plan_text
from tinygrad.engine.plans import plan_of
from tinygrad.engine.recipes import kernel_id, lower_kernel
from tinygrad.engine.show import c_view, listing, plain_assembly
from tinygrad.loops.drawing import loop_lines
from tinygrad.loops.heuristic import schedule
from tinygrad.loops.recipe import Recipe, apply, to_text
from tinygrad.schedule.plan import Plan, Step
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops
from tinygrad.uop.rewrite import listeners
from tinygrad.uop.text import tree
from tinygrad.viz.drawing import svg
from tinygrad.viz.formula import difference

Json = dict[str, Any]

_turn = threading.Lock()  # the listeners are everybody's


def stages_of_graph(sink: UOp) -> tuple[list[Json], list[Step]]:
    """The stages from a structure's graph to its kernels; and one step for each distinct kernel."""
    with _watched() as rewrites:
        made = plan_of(sink)
    return [
        _drawn("Graph", "What the tensors hold. Buffers are numbered parameters.", sink),
        _rewritten("Scheduling's rewrites", rewrites),
        _text("Plan", "Kernels and copies in order, and where each value lies.", plan_text(made)),
    ], _kernels(made)


def stages_of_kernel(step: Step) -> tuple[str, list[Json]]:
    """A kernel's name, and its stages from loops to machine code."""
    assert step.ast is not None
    device = Device[step.device]
    with _watched() as rewrites:
        lowered, recipe = lower_kernel(step.ast, device)
    stages = [
        _drawn("Kernel", "Axes are loops; no recipe yet.", step.ast),
        _steps(step.ast, recipe),
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
            _text("Source" + of, f"What {step.device} compiles.", source.strip()),
            _text("Machine code" + of, "What runs.", plain_assembly(machine)),
        ]
    return lowered.name, stages


def name_of_kernel(step: Step) -> str:
    """The name that a kernel gets on its device."""
    assert step.ast is not None
    return kernel_name(schedule(step.ast, Device[step.device].target)[0])[0]


def _kernels(made: Plan) -> list[Step]:
    found: dict[tuple[str, str], Step] = {}
    for step in made.steps:
        if step.ast is not None and step.ast.op is Ops.SINK:
            found.setdefault((kernel_id(step.ast), step.device), step)
    return list(found.values())


# ---- what a page shows ---------------------------------------------------------------------------


def _text(title: str, about: str, text: str) -> Json:
    return {"title": title, "about": about, "text": text}


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
