"""A step that was computed before is computed again without building its graph: a cache of plans
by traces of promises.

The promises (`tensor/promise`) of a step say what it computes in a few *lines*: which templates,
applied to which storage and to the results of which others. The first time that such lines occur,
the step takes the long way, by a graph, and is observed: which plan ran, which of the storage it
was given, and where its results were. From then on only that plan runs. No node is looked at, so it
must be certain that none would change the outcome. If any of these conditions fails, the step takes
the long way again:

- Storage that is overwritten belongs to one tensor, or to one family of views, and no node reads
  it that is yet to be computed. If promises of other live tensors read it, those tensors are
  computed too, and are part of the lines.
- No step is being captured, and no other library sees the storage.
- All storage has the same contents as when it was promised.

With SPEC a step is done both ways, and both must give the same bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Sequence
from operator import attrgetter
from sys import getrefcount
from typing import Any, NamedTuple

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import CompileError
from tinygrad.base.helpers import Recent, dedup
from tinygrad.base.settings import SPEC
from tinygrad.engine.chains import Runs
from tinygrad.engine.faults import noted, spoilt
from tinygrad.engine.holders import Promised, holders
from tinygrad.engine.layout import Source as Place
from tinygrad.engine.plans import settings_of_plans
from tinygrad.engine.realize import (
    Run,
    capturing,
    computing,
    in_memory,
    open_inputs,
    realize,
    telling,
)
from tinygrad.engine.replay import Execution, Replay
from tinygrad.engine.storage import NOTHING, Buffer, is_expected, is_read, overwritten, unknown
from tinygrad.engine.structure import nodes_below
from tinygrad.engine.turns import in_turn, keeping
from tinygrad.schedule.bases import stored_base
from tinygrad.tensor.lines import Lines
from tinygrad.tensor.modes import recording
from tinygrad.tensor.past import past_of_promised
from tinygrad.tensor.promise import DEEP, Expression, Promise, Source, Written, from_below
from tinygrad.tensor.roots import is_all_of_storage
from tinygrad.tensor.sources import brought, source_of, writes_waiting
from tinygrad.tensor.version import Bound, Version
from tinygrad.transforms.gradient import followed
from tinygrad.uop import Ops, UOp

TRIES = 3  # of a step that can't be known
MOST = 128  # steps that are known; the least recently used goes first
LARGEST_KEPT = 1 << 21  # bytes of temporaries that a known step keeps for the next time
MOST_KEPT = 1 << 25  # bytes of temporaries that all known steps keep
LARGEST_RESULT = 1 << 19  # bytes of a result whose place is kept for the next time
MOST_HELD = 2  # such places of a result: loops hold the last loss while they make the next

LongWay = Callable[[Sequence[Any]], object]
"""Does a step by graphs, and what some more tensors are waiting for."""


class Known(NamedTuple):
    """A plan as a replay of its own, and how it stands to the lines that it was made for."""

    replay: Replay
    inputs: list[int]  # which of the lines' leaves it is given
    values: list[int]  # of its variables
    taken: list[tuple[int, int]]  # (variable, begin): those that are begins of the lines
    begins: list[int | None]  # what the others must be, None for those
    kept: list[list[int]]  # the promises that each of its results is
    pasts: list[list[int]]  # for each of these the sources that it is made of, if that matters
    written: list[int]  # which of the given tensors it overwrites
    made_of: list[list[int]]  # the same as `pasts` for these
    origins: list[dict[Any, Any]]  # the user's lines, for its CHECKs
    grown: list[int]  # which of the lines grow (`engine/chains`)
    last: list[list[Buffer]]  # of each result that is small, of the last times

    def results(self) -> list[Buffer]:
        """Buffers for its results: those of the last times that are nobody's now, and new ones."""
        made: list[Buffer] = []
        if noted or spoilt:  # what failed there is no fault of what comes
            for several in self.last:
                several.clear()
        for several, (_, device, nbytes) in zip(self.last, self.replay.fresh, strict=True):
            buffer = several[-1] if several else NOTHING  # which the caches have
            if getrefcount(buffer) > 3 or buffer.others:
                buffer = several.pop(0) if len(several) == MOST_HELD else NOTHING
                if getrefcount(buffer) > 2 or buffer.others:
                    buffer = Buffer(device, nbytes)
                if nbytes <= LARGEST_RESULT:
                    several.append(buffer)
            buffer.version = buffer.expression = buffer.past = None
            made.append(buffer)
        return made

    def is_for(self, begins: Sequence[int]) -> bool:
        """Whether the boxes that it reads begin at these places."""
        return all([mine is None or mine == n for mine, n in zip(self.begins, begins, strict=True)])

    def values_at(self, begins: Sequence[int]) -> Sequence[int]:
        """The values of its variables if boxes begin at these places."""
        if not self.taken:
            return self.values
        values = self.values.copy()
        for place, number in self.taken:
            values[place] = begins[number]
        return values


_known: Recent[Hashable, Known | int] = Recent(MOST)
"""How often it was tried of what can't be known: the first time others may still have nodes."""


def compute(tensors: Sequence[Any]) -> None:
    """Computes these, together; those without elements need nothing."""
    promised, others = [], []
    for tensor in tensors:
        source = tensor._source
        if isinstance(source, Promise):
            if not source.is_computed and 0 not in source.like.shape:
                promised.append(tensor)
        elif 0 not in tensor.shape and not in_memory(tensor._value):
            others.append(tensor)
    if promised and not others:
        again("realize", promised, lambda more: _realize_with(promised, more))
    elif others:
        realize(*[tensor._value for tensor in (*promised, *others)])


def _realize_with(tensors: Sequence[Any], waiting: Sequence[Any]) -> None:
    """Computes tensors, and what waits for storage that they overwrite, unless that has no plan:
    who asks for it hears that."""
    try:
        realize(*[tensor._value for tensor in (*tensors, *waiting)])
    except CompileError:
        if not waiting:
            raise
        realize(*[tensor._value for tensor in tensors])


def again(name: Hashable, given: Sequence[Any], long_way: LongWay, writes: bool = False) -> None:
    """Computes promised tensors, or does the step `name`, which `writes` to some of the `given`
    tensors. If this was done before on tensors that look alike, the same plan runs again; else it
    is done the long way."""
    if capturing() or open_inputs or computing.done is not None:  # who is told wants graphs
        long_way(())
    else:
        _ask(name, given, long_way, writes)


@in_turn
def _ask(name: Hashable, given: Sequence[Any], long_way: LongWay, writes: bool) -> None:
    with keeping.now:
        asked = _Asked(given, writes)
        more = [*asked.given[len(given) :], *asked.waiting]
        key = (name, settings_of_plans(), *asked.key)
        found = _known.get(key, 0) if asked.is_clear else TRIES
        if isinstance(found, Known) and not found.is_for(asked.lines.begins):
            found = 0
        if isinstance(found, Known) and asked.may_be_done(found):
            _known.used(key)
            asked.do_again(found, lambda: long_way(more))
            return
    with recording.written_down(None):
        if isinstance(found, Known) or found == TRIES:
            long_way(more)
        else:
            _known[key] = asked.watch(lambda: long_way(more)) or found + 1
    if asked.writes:
        _let_go(asked.given)


def _let_go(given: Sequence[Any]) -> None:
    """Lets tensors that were written hold storage instead of the graph of the step. That graph
    reads what the next step builds on, so the next step could not look like this one."""
    for tensor in given:
        if not isinstance(tensor._source, Promise):
            _ = tensor._value


class _Asked:
    """What is to be computed: `promises`, of a step all that may stand on what it overwrites."""

    def __init__(self, given: Sequence[Any], writes: bool) -> None:
        self.lines, self.writes = _lines_for(given), writes
        self.given: list[Any] = []
        self.sources: list[Any] = []  # of each, None where there is none
        self.rewritten: list[tuple[Any, Written]] = []  # those that wait for a write
        self.homes: list[Version | None] = []  # the storage that each is, or is written to
        self.key: list[Hashable] = []
        self.promises: list[Promise] = []
        self.waiting: list[Any] = []  # other tensors, which may stand on what it overwrites
        self.read: list[UOp] = []  # what will be overwritten while nodes read it
        self._take(given)
        self.is_clear = None not in self.sources
        if not self.is_clear:
            return
        lines = self.lines
        waiting = self._wait() if self.writes else self.sources
        self.promises = dedup([each._of or each for each in waiting if type(each) is Promise])
        for promise in self.promises:
            self.key += (lines.add(promise), promise.number)
        self.key += lines.key
        self.is_clear = not (lines.is_over or lines.is_lent)

    def _take(self, tensors: Sequence[Any]) -> None:
        """Adds tensors to those that are given, and what they hold to the lines."""
        self.given += tensors
        lines, places, key = self.lines, self.lines.places, self.key
        for tensor in tensors:
            source: Any = tensor._source
            if not isinstance(source, Promise):
                source = source_of(tensor)
            if source is not None:
                key.append(places[source] if source in places else lines.add(source))
                if source.number:
                    key.append(-source.number)
            kind, home = type(source), None
            if kind is Version:
                home = brought(source)
            elif kind is Written:
                self.writes, home = True, source.place
                key.append((lines.add(home),))
                self.rewritten.append((tensor, source))
            self.sources.append(source)
            self.homes.append(home)

    def _wait(self) -> list[Any]:
        """Finds everything else that depends on storage which may be overwritten. All writes that
        are waiting are done now, too."""
        while True:
            waiting = waiting_for({home.base.storage for home in self.homes if home is not None})
            found = [holder._source for holder in waiting]
            more = [each for each in writes_waiting() if each._source not in self.sources]
            if more:
                self._take(more)
                continue
            mine = set(map(id, self.given))
            self.waiting = [holder for holder in waiting if id(holder) not in mine]
            return [*self.sources, *found]

    def may_be_done(self, known: Known) -> bool:
        """Whether what will be overwritten is seen by nobody but the given tensors, and read by no
        node that is yet to be computed."""
        for number in known.written:
            kin, base = self.given[number]._kin, self.homes[number].base  # type: ignore[union-attr]
            families = base.families
            if base.storage.expression is not None and is_expected(base):
                return False
            if base.readers and is_read(base):
                self.read.append(base)
            if families is not None and (
                families.copied or any([family is not kin for family in families.living()])
            ):
                return False
        return not self.read or not _is_awaited(self.read)

    def do_again(self, known: Known, long_way: Callable[[], object]) -> None:
        """Does what is known, and tells those that depend on it. With SPEC, the long way is done as
        well, and both are compared."""
        if SPEC:
            with recording.written_down(None):
                self.check(known, long_way)
        else:
            self.do(known)

    def do(self, known: Known) -> None:
        """Runs the plan, and says so."""
        leaves, replay = self.lines.leaves, known.replay
        for words, origins in zip(replay.faults, known.origins, strict=True):
            words.origins = origins
        made = known.results()
        inputs: list[Any] = [leaves[number].buffer for number in known.inputs]
        written = [(buffer, buffer.era + 1) for buffer in self._written(known)]
        over: list[Any] = []
        try:
            replay.run(inputs, known.values_at(self.lines.begins), made, over)
            self._is_done(known, made, written)
            Runs.count += 1
            if known.grown:
                lines: list[Any] = list(self.lines.places)
                for number in known.grown:
                    lines[number].grown = True
        except BaseException:
            if over:  # what was written must not be again
                self._is_done(known, made, written)
            raise

    def _is_done(
        self, known: Known, made: Sequence[Buffer], written: Sequence[tuple[Buffer, int]]
    ) -> None:
        """Tells what depends on it; some of that may have been told already. `written`: what was
        overwritten, and its era now."""
        sources = self.lines.sources() if any(known.pasts) or any(known.made_of) else []
        for numbers, buffer, past in zip(known.kept, made, known.pasts, strict=True):
            first, *equal = [self.promises[number] for number in numbers]
            for promise in (first, *equal):
                promise.buffer, promise.expression.lines = buffer, None
            for promise in equal:
                promise.equal = first
            if past:
                buffer.past = past_of_promised([sources[place] for place in past])
        numbers_over = zip(known.written, written, known.made_of, strict=True)
        for number, (buffer, era), past in numbers_over:
            buffer.era, buffer.expression = era, None
            if past:
                buffer.past = past_of_promised([sources[place] for place in past])
            elif type(self.sources[number]) is Written:
                buffer.past = None  # else a part was written, and the rest is what it was
        if SPEC:
            return  # it is undone, and done the long way
        for base in self.read:  # what reads it can't be followed to what is there now
            if base.storage is not None:
                overwritten(base)
        # nodes that were made of promises hear where these were computed, and tensors that their
        # storage was written
        for promise in self.promises:
            promise.tell()
        for tensor, source in self.rewritten:
            tensor._uop, tensor._source = source.place.view, source.before
        for number in known.written if self.read else ():
            self.given[number]._follow_writes()

    def _written(self, known: Known) -> list[Any]:
        return [self.homes[number].buffer for number in known.written]  # type: ignore[union-attr]

    def watch(self, long_way: Callable[[], object]) -> Known | None:
        """Does it the long way. Returns what is to be remembered of it; None if more happened than
        can be remembered."""
        done: list[Run] = []
        with telling(done.append), unknown(_numbers_known(self.promises)):
            long_way()
        return self._known(done[0]) if len(done) == 1 else None

    def _known(self, done: Run) -> Known | None:
        """What was done the long way, in terms of the lines; None if the lines don't tell all of
        it."""
        plan = done.plan
        inputs, over = self._inputs(done), self._overwritten(done)
        kept = self._results(done, over or {})
        where = self.lines.numbers()
        if inputs is None or over is None or kept is None or set(done.structure.binds) - {*where}:
            return None
        if any(made.nbytes < plan.plan.storages[n].nbytes for n, made in done.results.items()):
            return None  # of a plan for any size, which has room for the largest
        taken = [(i, where[number]) for i, number in enumerate(done.numbers) if number in where]
        begins: list[int | None] = list(self.lines.begins)
        for _, number in taken:
            begins[number] = None
        sources = [Place("input", number) for number in range(len(inputs))]
        execution = Execution(plan, sources, [("", value) for value in done.values])
        others = [each for each in _known.held() if isinstance(each, Known)]
        room = MOST_KEPT - sum([each.replay.keeps for each in others])
        replay = Replay([execution], [], kept, min(room, LARGEST_KEPT))
        order = [kept[place] for place in replay.made]
        pasts = [self._past(self.promises[first]) for first, *_ in order]
        origins = [words.origins for words in plan.faults]
        written = list(over.values())
        made_of = [self._past(self.sources[number]) for number in written]
        grown = [i for i, each in enumerate(self.lines.places) if _grows(each)]
        last: list[list[Buffer]] = [[] for _ in order]
        return Known(
            *(replay, inputs, done.values, taken, begins, order),
            *(pasts, written, made_of, origins, grown, last),
        )

    def _inputs(self, done: Run) -> list[int] | None:
        """Which of the lines' leaves the plan was given; None if that is not all."""
        at = {
            leaf.base: number
            for number, leaf in enumerate(self.lines.leaves)
            if not isinstance(leaf, Bound)
        }
        params = done.structure.params
        return [at[node] for node in params] if at.keys() >= set(params) else None

    def _overwritten(self, done: Run) -> dict[UOp, int] | None:
        """The storage that the plan overwrote, and which of the given tensors that is; None if it
        overwrote more, or less than was asked for."""
        plan, params = done.plan, done.structure.params
        given = {home.base: number for number, home in enumerate(self.homes) if home is not None}
        over = {params[plan.plan.storages[number].place] for number in plan.chain.written}
        asked = {source.place.base for source in self.sources if type(source) is Written}
        waits = asked - over  # for something else
        if over - given.keys() or waits or (self.writes and not over):  # that of a copy is none
            return None
        return {base: given[base] for base in over}

    def _results(self, done: Run, over: Collection[UOp]) -> dict[Place, list[int]] | None:
        """The promises that each result of the plan is: those that were asked for, or that wait for
        what it overwrites. None if it made something else."""
        made = {buffer: number for number, buffer in done.results.items()}
        kept: dict[Place, list[int]] = {}
        ends: set[UOp] = set()
        for number, promise in enumerate(self.promises):
            end = promise.computed_end
            storage = None if end is None else made.get(_storage(end))
            if end is not None and storage is not None and is_all_of_storage(end):
                numbers = kept.setdefault(Place("made", 0, storage), [])
                if numbers and self.promises[numbers[0]].wants is not promise.wants:
                    return None  # their gradients go on differently
                numbers.append(number)
                ends.add(end)
            elif not self.writes or not _storage_below(promise).isdisjoint(over):
                return None  # this knew it from elsewhere
        wanted = {end for end in map(stored_base, done.wanted) if end.op is not Ops.ASSIGN}
        return kept if wanted == ends and len(kept) == len(ends) else None

    def _past(self, promise: Source) -> list[int]:
        """Which of the lines' sources a gradient would go on to, if that is to be remembered of
        what was computed (`tensor/past`), or written."""
        if not isinstance(promise, Promise) or promise.wants is not None:
            return []
        if not dtypes.is_float(promise.like.dtype):
            return []
        nodes = set(followed(promise.node))
        return [i for i, source in enumerate(self.lines.sources()) if source.node in nodes]

    def check(self, known: Known, long_way: Callable[[], object]) -> None:
        """Does it both ways, and compares all results and all storage that was written."""
        written = self._written(known)
        before = [bytes(buffer.read()) for buffer in written]
        self.do(known)
        results = [self.promises[first] for first, *_ in known.kept]
        mine = [bytes(buffer.read()) for buffer in (*written, *[each.buffer for each in results])]
        for buffer, data in zip(written, before, strict=True):
            buffer.write(memoryview(data))
            buffer.era -= 1
        for number in itertools.chain(*known.kept):
            self.promises[number].buffer = self.promises[number].equal = None
        long_way()
        ends = [promise.computed_end for promise in results]
        right = [*written, *[None if end is None else _storage(end) for end in ends]]
        # what the long way left to be computed isn't compared
        theirs = [m if b is None else bytes(b.read()) for m, b in zip(mine, right, strict=True)]
        assert mine == theirs, "a step done again is another"


def _lines_for(given: Sequence[Any]) -> Lines:
    """Those of the gradients among these, if there are some: what else is asked for stands on the
    same. Else new ones."""
    for tensor in given:
        source = tensor._source
        if isinstance(source, Promise) and (lines := source.expression.lines) is not None:
            return lines.continued(source.expression.template)  # type: ignore[no-any-return]
    return Lines()


def _numbers_known(promises: Sequence[Promise]) -> dict[UOp, UOp | None]:
    """The nodes below these that are made of numbers alone, and where others have computed them. A
    plan must not read these, as they are no part of the lines."""
    plain: set[UOp] = set()
    for node in UOp.sink(*[promise.node for promise in promises]).toposort():
        if node.op in _NUMBERS or (node.src and plain.issuperset(node.src)):
            plain.add(node)
    return {node: node.known for node in plain if node.known is not None}


_NUMBERS = frozenset((Ops.CONST, Ops.ARANGE, Ops.DEVICE))


def _is_awaited(bases: Collection[UOp]) -> bool:
    """Whether a tensor that is yet to be computed, and has a node, reads some of this storage."""
    alive: list[Any] = list(holders)
    held = [tensor.uop for tensor in alive if not isinstance(tensor._source, Promise)]
    pending = [node for node in held if not in_memory(node)]
    return not set(bases).isdisjoint(nodes_below(pending))


def waiting_for(buffers: Collection[Buffer | None]) -> list[Any]:
    """The living tensors that are promised, not yet computed, and depend on some of this storage,
    in order of creation."""
    known: dict[Expression, bool] = {}
    found: list[Any] = []
    living: list[Any] = Promised.holders.living()
    for holder in living:
        source = holder._source
        if (
            isinstance(source, Promise)
            and (source._of or source).buffer is None
            and _reads(source.expression, buffers, known)
        ):
            found.append(holder)
    return sorted(found, key=attrgetter("serial"))


def _reads(
    expression: Expression, buffers: Collection[Buffer | None], known: dict[Expression, bool]
) -> bool:
    found = known.get(expression)
    if found is None:
        for deep in from_below(expression, known) if expression.depth > DEEP else ():
            _reads(deep, buffers, known)
        found = False
        for source in expression.sources:
            if type(source) is Version:
                found = source.base.storage in buffers
            elif isinstance(source, Promise) and source.buffer is None:
                found = _reads(source.expression, buffers, known)
            else:
                found = source.buffer in buffers
            if found:
                break
        known[expression] = found
    return found


def _storage(node: UOp) -> Any:
    """Where a node was computed."""
    assert node.known is not None, "it was"
    return node.known.base.storage


def _grows(line: Expression | Source) -> bool:
    return isinstance(line, Expression) and line.grows


def _storage_below(promise: Promise) -> set[UOp]:
    """The BUFFERs that a promise depends on; of one without nodes all that its expression does."""
    if promise.expression.nodes is not None:
        return {n for n in promise.node.toposort() if n.op is Ops.BUFFER}
    lines = Lines()
    lines.add(promise)
    return {leaf.base for leaf in lines.leaves if not isinstance(leaf, Bound)}
