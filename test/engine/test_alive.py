"""The list of what is alive, while threads add, discard and look, and objects die."""

from __future__ import annotations

import sys

from tinygrad.engine.alive import Alive


class Thing:
    pass


def test_an_object_may_be_discarded_and_die_while_another_thread_has_the_list(monkeypatch):
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    alive, thing = Alive(), Thing()
    alive.add(thing)
    held = alive.references()
    alive.discard(thing)
    del thing
    assert [reference() for reference in held] == [None]
    assert not told


def test_what_is_discarded_is_not_there_until_it_is_added_again():
    alive, things = Alive(), [Thing() for _ in range(3)]
    for thing in things:
        alive.add_once(thing)
    for _ in range(2):
        alive.discard(things[1])
        assert alive.living() == list(alive) == [things[0], things[2]]
        assert [thing in alive for thing in things] == [True, False, True]
        alive.add_once(things[1])
        assert alive.living() == list(alive) == things
    del thing, things
    assert alive.references() == []
