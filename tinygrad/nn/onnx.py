"""ONNX models, imported and exported, under the names that tinygrad uses; `formats/onnx` does the
work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import prod
from tinygrad.engine.holders import holders
from tinygrad.engine.jit import TinyJit
from tinygrad.engine.realize import open_inputs, realize, version_below
from tinygrad.engine.structure import nodes_below
from tinygrad.formats.mapped import write_whole
from tinygrad.formats.onnx import OnnxRunner
from tinygrad.formats.onnx.export import model_of_graph
from tinygrad.nn.state import get_state_dict
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops, UOp

__all__ = ["OnnxRunner", "export_onnx"]


def export_onnx(
    model: Callable[..., Any],
    example_inputs: Tensor | Sequence[Tensor] | Mapping[str, Tensor],
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """What `model` computes for inputs of these shapes, as an ONNX model.

    Args:
        model: a function of tensors, such as a layer or a method, that returns one, several, or a
            dict of them. The tensors that its object holds (see `get_state_dict`) are the model's
            constants, under their names.
        example_inputs: one tensor, several, or by name; only shapes and dtypes count.
        path: where to write the model, or None.

    Returns:
        The ModelProto (package `onnx`), of constant shapes; in operator set 20, or in
        26 where it takes floats as bits, as argmax does.

    Raises:
        ArgumentError: the model computes what ONNX has no operator for, such as random numbers,
            reads a value on the host (`item`, `numpy`), or writes to what it holds, as a norm does
            that trains. A `realize` on the way does nothing; what is written to a result is.

    >>> made = export_onnx(lambda x: (x @ x).relu(), Tensor.ones(2, 2))
    >>> OnnxRunner(made)({"input": Tensor([[1.0, 2.0], [3.0, 4.0]])})["output"].tolist()
    [[7.0, 10.0], [15.0, 22.0]]
    """
    if isinstance(model, TinyJit):
        model = model.function  # what it replays has its inputs' memory, not names for them
    given = _named(example_inputs, "input")
    fresh = {
        name: Tensor(
            UOp.new_buffer(tensor.device, prod(tensor.shape), tensor.dtype).reshape(tensor.shape)
        )
        for name, tensor in given.items()
    }
    state = get_state_dict(getattr(model, "__self__", model))
    if state:
        first, *rest = state.values()
        first.realize(*rest)
    holes = {tensor.uop.base for tensor in fresh.values()}
    open_inputs.update(dict.fromkeys(holes, holders.now()))
    try:
        named = isinstance(example_inputs, Mapping)
        outputs = _named(model(**fresh) if named else model(*fresh.values()), "output")
        made_of = nodes_below([tensor.uop for tensor in outputs.values()])
        realize(*[node for node in made_of if node.op is Ops.ASSIGN])  # of no input: constants
    finally:
        for hole in holes:
            del open_inputs[hole]
    weights = {}
    for name, tensor in state.items():
        buffer, node = version_below(tensor.uop), tensor.uop
        while node.op is Ops.RESHAPE:
            node = node.src[0]
        weights[buffer] = name, tensor.shape if node is buffer else buffer.shape
    made = model_of_graph(
        {name: tensor.uop for name, tensor in fresh.items()},
        {name: tensor.uop for name, tensor in outputs.items()},
        weights,
    )
    if path is not None:
        write_whole(path, [made.SerializeToString()])
    return made


def _named(values: Any, word: str) -> dict[str, Tensor]:
    """Tensors by name: `word`, or `word0`, `word1`, .. for several."""
    if isinstance(values, Tensor):
        return {word: values}
    named: dict[str, Any]
    if isinstance(values, Mapping):
        named = dict(values)
    elif isinstance(values, Iterable):
        named = {f"{word}{i}": value for i, value in enumerate(values)}
    else:
        named = {}
    if not named or not all(isinstance(value, Tensor) for value in named.values()):
        raise ArgumentError(f"export_onnx: {word}s {values!r}; legal are tensors")
    return named
