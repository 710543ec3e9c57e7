"""Reads a model from a path, bytes, or a ModelProto of the `onnx` package, and checks what must
hold before it is run: names are defined before they are used, so no graph is cyclic, and external
data lies in the model's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from tinygrad.base.errors import FileError
from tinygrad.formats.mapped import bytes_of

NEWEST = 28
OUR_DOMAIN = ("", "ai.onnx")


def model_of(source: Any) -> tuple[Any, str]:
    """The ModelProto, and the folder where its data may lie.

    Raises:
        FileError: this is no model, its names are undefined or defined twice, or its operator set
            is newer than we know.
    """
    folder = ""
    if isinstance(source, (str, os.PathLike)):
        folder = str(Path(source).parent)
        model = parsed(bytes_of(source).tobytes(), f"onnx file {os.fspath(source)}")
    elif isinstance(source, (bytes, bytearray, memoryview)):
        model = parsed(bytes(source), "onnx bytes")
    elif isinstance(source, onnx.ModelProto):
        model = source
    else:
        raise FileError(
            f"onnx: a {type(source).__name__}; legal are a path, bytes, and a ModelProto"
        )
    for each in model.opset_import:
        if each.domain in OUR_DOMAIN and not 1 <= each.version <= NEWEST:
            raise FileError(f"onnx: operator set {each.version}; legal are 1 to {NEWEST}")
    if not model.opset_import or not model.graph.output:
        raise FileError("onnx: no operator set or no outputs: this is no model, or it is cut short")
    check_names(model.graph, frozenset())
    return model, folder


def parsed(raw: bytes, where: str) -> Any:
    """The ModelProto in some bytes."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(raw)
    except (DecodeError, RecursionError, ValueError) as error:
        raise FileError(f"{where}: no ONNX model, or cut short: {error}") from error
    return model


def check_names(graph: Any, outer: frozenset[str]) -> None:
    """Each name is defined once, before it is used: the nodes are in order and there is no circle.

    Raises:
        FileError: naming the node and the name.
    """
    known = {item.name for item in graph.input}
    known |= {item.name for item in graph.initializer}
    known |= {item.values.name for item in graph.sparse_initializer}
    made: set[str] = set()
    for node in graph.node:
        for name in node.input:
            if name and name not in known and name not in outer:
                raise FileError(
                    f"onnx: {node.op_type} {node.name!r} uses {name!r}, which no node before it "
                    "makes: the graph is cyclic, out of order, or cut short"
                )
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs] if attribute.type in (5, 10) else []:
                check_names(inner, outer | known)
        for name in node.output:
            if name and name in made:
                raise FileError(f"onnx: two nodes make {name!r}")
            made.add(name)
        known.update(node.output)
    missing = [item.name for item in graph.output if item.name not in known | outer]
    if missing:
        raise FileError(f"onnx: output {missing[0]!r} is made by no node")
