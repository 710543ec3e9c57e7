"""What a program may ask the namespace about itself."""

from __future__ import annotations

from typing import Any

from tinygrad.array_api.types import KINDS, NAMES
from tinygrad.base.dtype import DType, complex_of, dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.engine.devices import Device


class Info:
    """The standard's inspection functions."""

    def capabilities(self) -> dict[str, Any]:
        """What data-dependent shapes and boolean masks may do, and how many axes there may be."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> str:
        """Where arrays go that name no device."""
        return Device.DEFAULT

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The types of numbers that name none."""
        return {
            "real floating": dtypes.default_float,
            "complex floating": complex_of(dtypes.default_float),
            "integral": dtypes.default_int,
            "indexing": dtypes.default_int,
        }

    def dtypes(
        self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """The standard's types of a kind by name; of all kinds for None."""
        kinds = tuple(KINDS) if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for each in kinds:
            if each not in KINDS:
                raise ArgumentError(f"dtypes: kind {each!r}; legal are {', '.join(KINDS)}")
        wanted = {dtype for each in kinds for dtype in KINDS[each]}
        return {name: dtype for name, dtype in NAMES.items() if dtype in wanted}

    def devices(self) -> list[str]:
        """The devices that are open in this process."""
        return list(dict.fromkeys((Device.DEFAULT, *(d.name for d in Device.opened()))))


def __array_namespace_info__() -> Info:  # noqa: N807  the standard's name
    """The inspection functions."""
    return Info()
