"""A machine without some of what it has, by its setting `<device>_WITHOUT`: an older one is this
one without what it lacks, so code for it can be made, run and timed here; and what turns out not to
work on a machine is left out without losing the rest."""

from __future__ import annotations

from collections.abc import Iterable


def permitted(present: Iterable[str], without: str) -> set[str]:
    """The features that don't begin with one of the words in the setting.

    >>> sorted(permitted(("avx", "avx2", "fma"), "avx2, avx512"))
    ['avx', 'fma']
    """
    prefixes = tuple(filter(None, without.replace(",", " ").split()))
    return {name for name in present if not name.startswith(prefixes)}
