"""All operators, by domain."""

from __future__ import annotations

from collections.abc import Mapping

from tinygrad.formats.onnx import (
    classic,
    control,
    elementwise,
    images,
    movement,
    normalisation,
    products,
    quantised,
    recurrent,
    reduction,
    sequences,
    signals,
    text,
)
from tinygrad.formats.onnx.registry import Table

FAMILIES = (
    control,
    elementwise,
    images,
    movement,
    normalisation,
    products,
    quantised,
    recurrent,
    reduction,
    sequences,
    signals,
    text,
)

TABLES: Mapping[str, Table] = {
    "": {name: row for family in FAMILIES for name, row in family.ROWS.items()},
    "ai.onnx.ml": classic.ROWS,
    "ai.onnx.preview.training": classic.TRAINING,
}
