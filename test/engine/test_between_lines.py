"""What another thread does between any two lines of what looks at, or changes, what all threads
have: done at each line in turn, where chance would find the one that matters once in a million."""

from __future__ import annotations

import functools
import itertools
import operator
import weakref
from typing import Any

import numpy as np
import pytest
from fuzz_between import asks, steps
from together import at_each_line

from tinygrad import Tensor
from tinygrad.backends.disk import DiskFile
from tinygrad.base.helpers import Recent
from tinygrad.engine import keeping as files
from tinygrad.engine import plans
from tinygrad.engine.holders import ask_all
from tinygrad.engine.sharing import adopt, device_at, lend
from tinygrad.engine.storage import Buffer, supersede
from tinygrad.engine.structure import nodes_below, structure_of
from tinygrad.tensor import interop, template
from tinygrad.tensor.core import Core
from tinygrad.tensor.writing import Writing


def test_memory_may_be_lent_while_another_thread_looks_whose_it_is():
    loans = [lend(Buffer("CPU", 4)) for _ in range(3)]
    functions = [device_at, weakref.WeakSet.__iter__]
    for _ in at_each_line(
        functions, lambda: device_at(0), lambda: loans.append(lend(Buffer("CPU", 4)))
    ):
        del loans[3:]


def test_memory_that_two_threads_bring_at_once_is_one_buffer():
    made: list[Tensor] = []

    def bring() -> None:
        made.append(Tensor.from_blob(memory.ctypes.data, (4,)))

    memory = np.zeros(4, np.float32)
    for _ in at_each_line([adopt, interop._adopted, Tensor._borrow.__func__], bring, bring):
        first, *more = made
        first += 1  # is promised, and done when it is read
        assert [t.tolist() for t in more] == [[1] * 4] * len(more)
        made.clear()
        memory = np.zeros(4, np.float32)


def test_memory_that_is_lent_while_another_thread_writes_is_the_tensors():
    t = Tensor(np.zeros(4, np.float32)).realize()
    t += 1
    arrays: list[Any] = []
    for _ in at_each_line(
        [Tensor._lent_view], lambda: arrays.append(np.asarray(t)), lambda: t.add_(1).realize()
    ):
        t.add_(1)
        now = t.tolist()
        assert arrays[-1].tolist() == now


def test_a_file_that_two_threads_open_at_once_is_one(tmp_path):
    (tmp_path / "file").write_bytes(bytes(8))
    files: list[Any] = []

    def opens() -> None:
        files.append(DiskFile.open(str(tmp_path / "file")))

    for _ in at_each_line([DiskFile.open, DiskFile.__init__], opens, opens):
        assert len(set(files)) == 1
        files.clear()


def test_who_borrows_a_file_while_another_thread_writes_it_keeps_what_it_saw(tmp_path):
    (tmp_path / "file").write_bytes(bytes(8))
    seen: list[Any] = []
    number = 1

    def borrow() -> None:
        mine = Tensor(tmp_path / "file").to("CPU")
        seen.append((mine, mine.tolist()))

    def write() -> None:
        Tensor(tmp_path / "file").assign(Tensor([number] * 8, dtype="uint8"))

    borrow()
    for _ in at_each_line([files.write, weakref.WeakSet.__iter__], write, borrow):
        assert all(mine.tolist() == then for mine, then in seen)
        number += 1
        del seen[:-1]


def test_a_plan_may_be_dropped_while_another_thread_finds_it(monkeypatch):
    monkeypatch.setattr(plans, "_plans", Recent(1))
    roots = [(Tensor([1.0, 2.0]).realize() * 3).uop]
    structure = structure_of(roots, nodes_below(roots))
    functions = [plans.known_plan, Recent.used]
    drop = functools.partial(operator.setitem, plans._plans, "another", None)
    plans.make_plan(structure)
    for _ in at_each_line(functions, lambda: plans.known_plan(structure), drop):
        plans.make_plan(structure)


@pytest.mark.parametrize("other", [asks, steps])
def test_a_write_that_another_thread_does_is_read_by_what_is_being_made_of_it(other):
    def reads() -> None:
        state.assign(state + 1)
        seen.append((state * 2).realize())

    state, seen = Tensor.zeros(3).contiguous().realize(), list[Tensor]()
    wanted = 0.0
    other()
    functions = [template.looks_of, template._source_seen, template._promised]
    for _ in at_each_line(functions, reads, other):
        wanted += 1
        assert seen.pop().tolist() == [wanted * 2] * 3


def test_a_plan_may_be_made_while_another_thread_computes_what_it_is_for_and_ends():
    def reads() -> None:
        state = Tensor.zeros(next(sizes)).contiguous().realize()  # each has plans of its own
        state.assign(state + 1)
        seen.append((state * 2).realize())

    sizes, seen = itertools.count(2), list[Tensor]()
    for _ in at_each_line([plans.make_plan, plans.known_plan], reads, asks):
        assert set(seen.pop().tolist()) == {2}


def test_a_write_that_another_thread_makes_a_node_of_is_seen_whole_or_not_yet():
    def reads() -> None:
        seen.append((state * 2).realize())

    state, seen = Tensor.zeros(3).contiguous().realize(), list[Tensor]()
    functions = [Core._hold_promised, Core._show, Writing._write_down, Writing._overwrite]
    functions += [Writing._write_to_storage, Writing._store, supersede]
    state.assign(state + 1)
    for wanted, _ in enumerate(at_each_line(functions, asks, reads), 1):
        assert [made.tolist() for made in seen] == [[wanted * 2] * 3] * len(seen)
        assert state.tolist() == [wanted] * 3
        seen.clear()
        state.assign(state + 1)


def test_a_view_may_be_asked_for_its_node_while_it_is_made():
    def views() -> None:
        seen.append((Tensor.arange(6).reshape(2, 3) * 2).contiguous()[1])

    seen: list[Tensor] = []
    views()
    functions = [Core._promised, Core._view, Core._enter, template.Output.promised]
    for _ in at_each_line(functions, views, ask_all):
        assert seen.pop().tolist() == [6, 8, 10]
