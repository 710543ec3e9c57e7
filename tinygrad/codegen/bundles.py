"""One function for many kernels: the members of a bundle (`schedule/bundles`).

The tasks of a bundle are those of its members, one member after the other. A task finds its kernel
by branches on its number, and the member of that kernel by binary search in a table; then it PICKs
that member's pointers and numbers. For a target that can't pick pointers, the code of a kernel is
repeated for each member. A kernel that can't share a function with others (several phases, another
group size) gets a function of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.helpers import once, prod
from tinygrad.base.target import Target
from tinygrad.codegen.linear import at_head
from tinygrad.codegen.names import bundle_name
from tinygrad.codegen.pipeline import Lowered, Phase
from tinygrad.schedule.bundles import Member, Values, alone, members_of
from tinygrad.schedule.plan import variable_number
from tinygrad.simplify.forms import number
from tinygrad.uop import Ops, UOp
from tinygrad.uop.bounds import bounds

MOST_TEXT = 8000
"""The most instructions of a function that combines several."""


@dataclass(frozen=True)
class Part:
    """A kernel of a bundle as linear programs, and the members that run it."""

    lowered: Lowered
    members: tuple[Member, ...]

    @property
    def phase(self) -> Phase:
        return self.lowered.phases[0]

    @once
    def tasks(self) -> list[int]:
        """The number of tasks for each member."""
        found = {values: self._tasks(values) for values in {m.values for m in self.members}}
        return [found[member.values] for member in self.members]

    def _tasks(self, values: Values) -> int:
        below = (n for end in self.phase.ends for n in end.toposort())
        given = {n: values[variable_number(n.arg[0])] for n in below if n.op is Ops.DEFINE_VAR}
        known = {n: (value, value) for n, value in given.items() if isinstance(value, int)}
        ends = [bounds(end, known)[1] for end in self.phase.ends]
        return int(max(1, min([self.phase.tasks[0], *ends])))


def shared(bundle: UOp, target: Target) -> list[tuple[UOp, tuple[Member, ...]]]:
    """The kernels that a bundle's functions are made of on this target, and the members that run
    each."""
    found = members_of(bundle)
    if "PICK" in target.native:
        return [(kernel, tuple(members)) for kernel, members in found]
    return [(alone(kernel, m.values), (m,)) for kernel, members in found for m in members]


def joined(bundle: UOp, parts: Sequence[Part], target: Target) -> Lowered:
    """The functions of a bundle, as few as possible."""
    together: list[list[Part]] = []
    apart: list[tuple[Part, Member]] = []
    for part in parts:
        if not _is_plain(part.lowered, target):
            apart += [(part, member) for member in part.members]
            continue
        room = next((each for each in together if _fit([*each, part], target)), None)
        if room is None:
            together.append(room := [])
        room.append(part)
    first = parts[0].lowered
    name, colored = (bundle_name(bundle, given) for given in (first.name, first.colored))
    phases = []
    for i, several in enumerate(together):
        phases.append(_Function(f"{name}_{i}" if i else name, several, target).phase())
    temporaries: list[int] = []
    used = 1 + max(slot for _, own, _ in bundle.arg for slot in own)  # temporaries follow
    for nth, (part, member) in enumerate(apart):
        begin, own = used + len(temporaries), part.lowered.temporaries
        temporaries += own
        whole = Member((*member.slots, *range(begin, begin + len(own))), member.values)
        for phase in part.lowered.phases:
            single = replace(part, lowered=replace(part.lowered, phases=(phase,)), members=(whole,))
            phases.append(_Function(f"{phase.name}_of{nth}", [single], target).phase())
    return Lowered(name, colored, bundle, tuple(phases), tuple(temporaries), ())


def _is_plain(lowered: Lowered, target: Target) -> bool:
    """Whether this is one function whose tasks are numbered along one axis, and in which each array
    is bound once."""
    (*before, phase) = lowered.phases
    arrays = (n.arg[1] * n.dtype.itemsize for n in phase.program if n.op is Ops.PARAM)
    is_bound = not target.window_limit or max(arrays, default=0) <= target.window_limit
    return not before and not lowered.temporaries and prod(phase.tasks[1:]) == 1 and is_bound


def _fit(parts: Sequence[Part], target: Target) -> bool:
    """Whether these parts may share a function."""
    phases = [part.phase for part in parts]
    return (
        len({phase.block for phase in phases}) == 1
        and (target.meets_in_branches or not any(map(_meets, phases)))
        and sum(len(phase.program) for phase in phases) <= MOST_TEXT
        and (not target.has_groups or sum(p.scratch for p in phases) <= target.local_memory)
        and sum(sum(part.tasks) for part in parts) <= target.grid_limit[0]
    )


def _meets(phase: Phase) -> bool:
    """Whether lanes wait for each other."""
    return any(node.op is Ops.BARRIER for node in phase.program)


@dataclass
class _Function:
    """One function under construction."""

    name: str
    parts: Sequence[Part]
    target: Target
    heads: dict[tuple[Ops, object], UOp] = field(default_factory=dict)  # by op and name
    body: list[UOp] = field(default_factory=list)
    tag: int = 0  # makes the nodes of each part distinct

    def phase(self) -> Phase:
        phases = [part.phase for part in self.parts]
        counts = [sum(part.tasks) for part in self.parts]
        total, given = sum(counts), phases[0]
        if len(self.parts) == len(self.parts[0].members) == 1:  # as it is, on other buffers
            self._write(self.parts[0], {})
        else:
            word = "gid0" if self.target.has_groups else "task"
            task = UOp(Ops.SPECIAL, dtypes.index, arg=(word, total))
            before = 0
            for part, count in zip(self.parts, counts, strict=True):
                self._part(part, task, before, count, total)
                before += count
            self._argument(task)
        listed = [*at_head(self.heads.values()), *self.body]
        buffers = tuple(n.arg[0] for n in listed if n.op is Ops.PARAM)
        grid = (total, 1, 1) if prod(given.tasks[1:]) == 1 else given.tasks
        nest = "\n".join(f"for {len(p.members)} members:\n{p.phase.nest}" for p in self.parts)
        scratch = sum(phase.scratch for phase in phases)
        return Phase(self.name, tuple(listed), grid, given.block, scratch, buffers, nest)

    # ---- one part --------------------------------------------------------------------------------

    def _part(self, part: Part, task: UOp, before: int, count: int, total: int) -> None:
        """Emits the part's tasks, which start at number `before`."""
        self.tag += 1
        inside: list[UOp] = []
        if before > 0:
            inside.append(self._add(Ops.CMPLT, dtypes.bool, number(before - 1), task))
        if before + count < total:
            inside.append(self._add(Ops.CMPLT, dtypes.bool, task, number(before + count)))
        if len(inside) == 2:
            inside = [self._add(Ops.AND, dtypes.bool, *inside)]
        opened = None
        if inside:
            opened = self._add(Ops.IF, dtypes.void, *inside, arg=("part", self.tag))
        own = self._add(Ops.ADD, dtypes.index, task, number(-before)) if before else task
        starts = [0, *itertools.accumulate(part.tasks)]
        which = None
        if len(part.members) > 1:
            which = self._member(own, starts)
            if starts[-1] > len(part.members):
                start = self._pick(which, [number(n) for n in starts[:-1]])
                start = self._add(Ops.MUL, dtypes.index, start, number(-1))
                own = self._add(Ops.ADD, dtypes.index, own, start)
            else:
                own = number(0)
        self._write(part, {"task": own, "gid0": own}, which)
        if opened is not None:
            self._add(Ops.ENDIF, dtypes.void, opened)

    def _member(self, task: UOp, starts: Sequence[int]) -> UOp:
        """The member whose tasks begin at the last start that is not above `task`."""
        members = len(starts) - 1
        if starts[-1] == members:
            return task
        half = 1 << (members - 1).bit_length()
        table = [number(n) for n in (*starts[:-1], *[starts[-1]] * (half - members))]
        found: UOp = number(0)
        while half := half // 2:
            next_one = self._add(Ops.ADD, dtypes.index, found, number(half))
            start = self._pick(next_one, table)
            is_before = self._add(Ops.CMPLT, dtypes.bool, task, start)
            found = self._add(Ops.WHERE, dtypes.index, is_before, found, next_one)
        return found

    def _write(self, part: Part, tasks: dict[str, UOp], which: UOp | None = None) -> None:
        """Emits the program of a part, with its members' arguments in place of its own."""
        changes: dict[UOp, UOp] = {}
        for node in part.phase.program:
            if node.op is Ops.PARAM:
                slots = [member.slots[node.arg[0]] for member in part.members]
                params = [self._argument(node.replace(arg=(s, *node.arg[1:]))) for s in slots]
                changes[node] = self._pick(which, params)
            elif node.op is Ops.DEFINE_VAR:
                number = variable_number(node.arg[0])
                values = [member.values[number] for member in part.members]
                changes[node] = self._pick(which, [self._value(node, v) for v in values])
            elif node.op is Ops.LOCAL:
                name, size = node.arg
                changes[node] = self._argument(node.replace(arg=(f"{name}.{self.tag}", size)))
            elif node.op is Ops.SPECIAL:
                given = tasks.get(node.arg[0])
                changes[node] = self._special(node) if given is None else given
            else:
                src = tuple([changes.get(s, s) for s in node.src])
                changes[node] = UOp(node.op, node.dtype, src, node.arg, self.tag)
                self.body.append(changes[node])

    def _special(self, node: UOp) -> UOp:
        if node.arg[0] == "task":  # it opens the loop of tasks where it is
            self.body.append(node)
            return node
        return self._argument(node)

    def _argument(self, node: UOp) -> UOp:
        return self.heads.setdefault((node.op, node.arg[0]), node)

    def _value(self, variable: UOp, value: int | str) -> UOp:
        if isinstance(value, int):
            return UOp.const(variable.dtype, value)
        return self._argument(variable.replace(arg=(value, *variable.arg[1:])))

    def _pick(self, which: UOp | None, choices: Sequence[UOp]) -> UOp:
        if all(choice is choices[0] for choice in choices):
            return choices[0]
        assert which is not None, "one member has one of each"
        return self._add(Ops.PICK, choices[0].dtype, which, *choices)

    def _add(self, op: Ops, dtype: DType, *src: UOp, arg: object = None) -> UOp:
        node = UOp(op, dtype, src, arg, self.tag)
        self.body.append(node)
        return node
