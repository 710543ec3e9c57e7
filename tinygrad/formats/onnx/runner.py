"""Runs an ONNX graph node by node. A node is a row of the tables, a function of the model's own, or
an operator that the standard defines as a graph of others, which is then run.

Constants, initialisers and shapes stay NumPy arrays on the host until an operator needs a tensor,
and arithmetic on small arrays alone is done by NumPy. So a model's shape arithmetic makes no
kernels, and a captured step has only the kernels of the model itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from tinygrad.base.errors import (
    ArgumentError,
    DTypeError,
    FileError,
    JitError,
    ShapeError,
    TinygradError,
)
from tinygrad.engine.jit import TinyJit
from tinygrad.engine.storage import numpy_dtype
from tinygrad.formats.onnx.host import FOLDED, checked, numbers_for
from tinygrad.formats.onnx.model import OUR_DOMAIN, model_of
from tinygrad.formats.onnx.movement import MOVES
from tinygrad.formats.onnx.registry import Array, Row, Value, row_for
from tinygrad.formats.onnx.tables import TABLES
from tinygrad.formats.onnx.values import (
    array_of,
    dtype_of,
    fits_tensor,
    is_foreign,
    kind_of,
    numpy_dtype_of,
    to_host,
    to_tensor,
)
from tinygrad.tensor import Tensor

BROKEN = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, MemoryError)
SMALL = 1 << 12  # elements that are worth NumPy's time on the host
MOST_BODIES = 1 << 10  # definitions that are remembered; they depend on shapes
Scope = dict[str, Value]


class OnnxRunner:
    """A model that takes and gives tensors by name.

    Args:
        model: a path, the file's bytes, or a ModelProto.

    Raises:
        FileError: the model is broken; ArgumentError: an operator that has no meaning here.

    >>> from onnx.parser import parse_model
    >>> head = '<ir_version: 8, opset_import: ["": 18]>'
    >>> model = parse_model(head + "f (float[2] x) => (float[2] y) {y = Relu(x)}")
    >>> OnnxRunner(model)({"x": Tensor([-1.0, 2.0])})["y"].tolist()
    [0.0, 2.0]
    """

    def __init__(self, model: Any) -> None:
        self.model, self.folder = model_of(model)
        graph = self.model.graph
        self.versions = {each.domain: each.version for each in self.model.opset_import}
        self.functions = {(each.domain, each.name): each for each in self.model.functions}
        self._constants: dict[int, tuple[Any, Array]] = {}  # by id of a proto, which is kept
        self._tensors: dict[int, Tensor | None] = {}  # by id of an array among the constants
        self._bodies: dict[bytes, Any] = {}
        self.constants = self._initialisers(graph)
        self.graph_inputs = {
            item.name: item.type for item in graph.input if item.name not in self.constants
        }
        self.graph_outputs = {item.name: item.type for item in graph.output}

    def __call__(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The outputs by name.

        Args:
            inputs: tensors, arrays, numbers or nested lists by name; lists of them for sequences.

        Returns:
            Tensors, lazily computed; arrays of strings and of element types that tensors lack;
            lists for sequences; None for an optional without a value.
        """
        if not isinstance(inputs, Mapping | None):
            raise ArgumentError(f"onnx: inputs that are a {type(inputs).__name__}; legal is a dict")
        given = dict(inputs or {})
        known = {*self.graph_inputs, *self.constants}
        missing = [
            name
            for name, kind in self.graph_inputs.items()
            if name not in given and kind.WhichOneof("value") != "optional_type"
        ]
        unknown = [name for name in given if name not in known]
        if missing or unknown:
            raise ArgumentError(
                f"onnx: inputs {', '.join(given) or 'none'}; legal are "
                f"{', '.join(self.graph_inputs) or 'none'}"
            )
        scope: Scope = dict.fromkeys(self.graph_inputs)
        for name, value in given.items():
            scope[name] = _input(name, value, self.graph_inputs.get(name))
        graph = self.model.graph
        results = self.run(graph, scope, {}, self.versions)
        names = [item.name for item in graph.output]
        return dict(zip(names, map(self._result, results), strict=True))

    def captured(self) -> TinyJit[..., Any]:
        """The model as a function of tensors, one an input in order, that returns the outputs in
        order (one alone as it is), captured as one step by TinyJit.

        >>> from onnx.parser import parse_model
        >>> head = '<ir_version: 8, opset_import: ["": 18]>'
        >>> model = parse_model(head + "f (float[2] x) => (float[2] y) {y = Relu(x)}")
        >>> OnnxRunner(model).captured()(Tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]
        """

        def step(*values: Any) -> Any:
            results = self(dict(zip(self.graph_inputs, values, strict=True)))
            out = tuple(results.values())
            return out[0] if len(out) == 1 else out

        return TinyJit(step)

    def _result(self, value: Value) -> Value:
        if isinstance(value, list):
            return [self._result(item) for item in value]
        return to_tensor(value)

    # ---- graphs ----------------------------------------------------------------------------------

    def run(
        self, graph: Any, scope: Scope, bound: Mapping[str, Any], versions: Mapping[str, int]
    ) -> list[Value]:
        """The outputs of a graph whose inputs, and what is around it, are in `scope`. `bound` are
        the attributes of the function around it, `versions` those of its operator sets.

        >>> from onnx.parser import parse_model
        >>> head = '<ir_version: 8, opset_import: ["": 18]>'
        >>> model = parse_model(head + "f (float[2] x) => (float[2] y) {y = Relu(x)}")
        >>> runner = OnnxRunner(model)
        >>> [y.shape for y in runner.run(model.graph, {"x": Tensor.ones(2)}, {}, runner.versions)]
        [(2,)]
        """
        if graph is not self.model.graph:
            scope = {**scope, **self._initialisers(graph)}
        else:
            scope = {**self.constants, **scope}
        for node in graph.node:
            self._run_node(node, scope, bound, versions)
        return [scope[item.name] for item in graph.output]

    def _initialisers(self, graph: Any) -> Scope:
        found: Scope = {}
        for proto in graph.initializer:
            found[proto.name] = self._constant(proto)
        for proto in graph.sparse_initializer:
            found[proto.values.name] = _dense(proto)
        return found

    def _constant(self, proto: Any) -> Array:
        if id(proto) not in self._constants:
            array = array_of(proto, self.folder)
            self._constants[id(proto)] = proto, array
            self._tensors[id(array)] = None
        return self._constants[id(proto)][1]

    # ---- nodes -----------------------------------------------------------------------------------

    def _run_node(
        self, node: Any, scope: Scope, bound: Mapping[str, Any], versions: Mapping[str, int]
    ) -> None:
        """Runs one node and puts its results into the scope."""
        values = [scope[name] if name else None for name in node.input]
        attributes = self._attributes(node, bound)
        where = f"onnx {node.op_type} {node.name!r}" if node.name else f"onnx {node.op_type}"
        try:
            results = self._evaluated(node, values, attributes, scope, versions, bound, where)
        except (ArgumentError, DTypeError, ShapeError, JitError) as error:
            if str(error).startswith("onnx"):
                raise
            raise type(error)(f"{where} of {_described(values)}: {error}") from error
        except TinygradError:
            raise
        except BROKEN as error:
            raise ArgumentError(f"{where} of {_described(values)}: {error}") from error
        for name, value in zip(node.output, results, strict=False):
            if name:
                scope[name] = value
        if len(results) < len(node.output):
            raise ArgumentError(f"{where}: {len(node.output)} outputs; it has {len(results)}")

    def _evaluated(
        self,
        node: Any,
        values: list[Value],
        attributes: dict[str, Any],
        scope: Scope,
        versions: Mapping[str, int],
        bound: Mapping[str, Any],
        where: str,
    ) -> tuple[Value, ...]:
        domain = "" if node.domain in OUR_DOMAIN else node.domain
        local = self.functions.get((node.domain, node.op_type))
        if local is not None:
            return self._called(local, values, attributes)
        version = versions.get(domain, versions.get("ai.onnx", 1) if not domain else 1)
        row = row_for(TABLES.get(domain, {}), node.op_type, version)
        if row is None:
            return self._by_definition(_resolved(node, bound), domain, version, values, attributes)
        if "outputs" in row.wants:
            attributes["outputs"] = len(node.output)
        if "graph" in row.wants:
            attributes["graph"] = lambda graph, inner: self.run(
                graph, {**scope, **inner}, bound, versions
            )
        folded = FOLDED.get(node.op_type) if not domain else None
        if folded is not None and _is_host(values):
            with np.errstate(all="ignore"):
                return _several(folded(*values, **attributes))
        moves = not domain and node.op_type in MOVES and "reduction" not in attributes
        if moves and any(map(is_foreign, values)):
            numbered, elements = numbers_for(values)
            ready = [self._ready(value, i, row, where) for i, value in enumerate(numbered)]
            moved = _several(row.function(*ready, **attributes))
            return tuple(elements[to_host(numbers, where)] for numbers in moved)
        ready = [self._ready(value, i, row, where) for i, value in enumerate(values)]
        return _several(row.function(*ready, **attributes))

    def _ready(self, value: Value, place: int, row: Row, where: str) -> Value:
        """An input as its row wants it."""
        if place in row.host:
            return to_host(value, where)
        if isinstance(value, np.ndarray) and fits_tensor(value):
            made = self._tensors.get(id(value))
            if made is None:
                made = to_tensor(value)
                if id(value) in self._tensors:
                    self._tensors[id(value)] = made
            return made
        return value

    def _attributes(self, node: Any, bound: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for attribute in node.attribute:
            if attribute.name == "consumed_inputs":  # of the first versions; it never had an effect
                continue
            if not attribute.ref_attr_name:
                found[attribute.name] = self._attribute(attribute)
            elif attribute.ref_attr_name in bound:
                found[attribute.name] = bound[attribute.ref_attr_name]
        return found

    def _attribute(self, attribute: Any) -> Any:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            return self._constant(attribute.t)
        if isinstance(value, onnx.SparseTensorProto):
            return _dense(value)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if attribute.type == onnx.AttributeProto.STRINGS:
            return [text.decode("utf-8", "replace") for text in value]
        return list(value) if attribute.type in (6, 7) else value

    # ---- functions -------------------------------------------------------------------------------

    def _called(
        self, function: Any, values: list[Value], attributes: dict[str, Any]
    ) -> tuple[Value, ...]:
        """The results of a function of the model's, or of the standard's definition."""
        given = [*values, *[None] * (len(function.input) - len(values))]
        scope: Scope = dict(zip(function.input, given, strict=False))
        bound = {a.name: self._attribute(a) for a in function.attribute_proto}
        bound.update(attributes)
        versions = {each.domain: each.version for each in function.opset_import}
        for node in function.node:
            self._run_node(node, scope, bound, {**self.versions, **versions})
        return tuple(scope.get(name) for name in function.output)

    def _by_definition(
        self, node: Any, domain: str, version: int, values: list[Value], attributes: dict[str, Any]
    ) -> tuple[Value, ...]:
        """An operator without a row, by the graph of others that the standard defines it as."""
        try:
            schema: Any = defs.get_schema(node.op_type, version, domain)
        except defs.SchemaError:
            schema = None
        types = [_type_of(value) for value in values]
        key = node.SerializeToString() + b"|".join(types) + str(version).encode()
        if len(self._bodies) >= MOST_BODIES:
            self._bodies.clear()
        if key not in self._bodies and schema is not None:
            self._bodies[key] = _definition(schema, node, version, types)
        body = self._bodies.get(key)
        if body is None:
            name = f"{domain}.{node.op_type}" if domain else node.op_type
            raise ArgumentError(f"onnx: operator {name} of set {version} has no meaning here")
        defaults = {a.name: self._attribute(a.default_value) for a in schema.attributes.values()
                    if a.default_value.name}  # fmt: skip
        return self._called(body, values, {**defaults, **attributes})


def _resolved(node: Any, bound: Mapping[str, Any]) -> Any:
    """A node inside a function with the function's attributes in place of their names."""
    if not any(attribute.ref_attr_name for attribute in node.attribute):
        return node
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            made.attribute.append(attribute)
        elif attribute.ref_attr_name in bound:
            value = bound[attribute.ref_attr_name]
            value = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
            made.attribute.append(helper.make_attribute(attribute.name, value))
    return made


def _definition(schema: Any, node: Any, version: int, types: list[bytes]) -> Any:
    body = onnx.FunctionProto()
    if schema.has_function:
        known = [v for v in schema.function_opset_versions if v <= version]
        raw = schema.get_function_with_opset_version(max(known)) if known else schema.function_body
        body.ParseFromString(raw if isinstance(raw, bytes) else raw.SerializeToString())
        return body
    if not schema.has_context_dependent_function:
        return None
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
    raw = schema.get_context_dependent_function_with_opset_version(
        max(versions, default=version), node.SerializeToString(), types
    )
    body.ParseFromString(raw)
    return body


def _type_of(value: Value) -> bytes:
    """The serialised type of a value; empty where there is none."""
    if isinstance(value, list):
        inner = onnx.TypeProto()
        inner.ParseFromString(_type_of(value[0]) if value else b"")
        proto: Any = helper.make_sequence_type_proto(inner)
    elif value is None:
        return b""
    else:
        dtype = numpy_dtype(value.dtype) if isinstance(value, Tensor) else value.dtype
        proto = helper.make_tensor_type_proto(kind_of(dtype), list(value.shape))
    raw: bytes = proto.SerializeToString()
    return raw


def _several(result: Value) -> tuple[Value, ...]:
    return result if isinstance(result, tuple) else (result,)


def _is_host(values: list[Value]) -> bool:
    """Whether NumPy should do it: all is known on the host, and small or of a type that tensors
    lack."""
    if not all(value is None or isinstance(value, np.ndarray) for value in values):
        return False
    arrays = [value for value in values if value is not None]
    if any(map(is_foreign, arrays)):
        return True
    return bool(sum(array.size for array in arrays) <= SMALL)


def _described(values: list[Value]) -> str:
    shown = []
    for value in values:
        if isinstance(value, (Tensor, np.ndarray)):
            kind = value.dtype.name
            shown.append(f"{kind}{list(value.shape)}")
        else:
            shown.append("none" if value is None else f"a {type(value).__name__}")
    return ", ".join(shown) or "nothing"


def _dense(proto: Any) -> Array:
    """A sparse tensor's array."""
    values, places, shape = array_of(proto.values), array_of(proto.indices), tuple(proto.dims)
    try:
        checked(math.prod(shape))
        dense = np.zeros(shape, values.dtype)
        if places.ndim == 1:
            dense.reshape(-1)[places] = values
        else:
            dense[tuple(places.T)] = values
    except (ArgumentError, *BROKEN) as error:
        raise FileError(f"onnx: a sparse tensor of shape {shape} is broken: {error}") from error
    return dense


def _input(name: str, value: Any, kind: Any) -> Value:
    """What a caller gave, as the graph's input `name` says it should be."""
    which = None if kind is None else kind.WhichOneof("value")
    if which == "optional_type":
        return None if value is None else _input(name, value, kind.optional_type.elem_type)
    if which == "sequence_type":
        inner = kind.sequence_type.elem_type
        return [_input(name, item, inner) for item in value]
    elem = kind.tensor_type.elem_type if which == "tensor_type" else 0
    if isinstance(value, Tensor):
        made: Value = value
        if elem and dtype_of(elem) is not None and dtype_of(elem) is not value.dtype:
            raise DTypeError(
                f"onnx: input {name!r} is {value.dtype!r}; legal is {dtype_of(elem)!r}"
            )
    else:
        wanted = numpy_dtype_of(elem) if elem else None
        array = np.asarray(value)
        if array.dtype.kind in "US":
            array = array.astype(object)
        if wanted is not None and array.dtype != wanted:
            if isinstance(value, np.ndarray) or array.dtype.kind == "O":
                raise DTypeError(f"onnx: input {name!r} is {array.dtype}; legal is {wanted}")
            array = array.astype(wanted)
        made = to_tensor(array)
    if which == "tensor_type" and kind.tensor_type.HasField("shape"):
        _check_shape(name, tuple(made.shape), kind.tensor_type.shape)
    return made


def _check_shape(name: str, shape: tuple[Any, ...], wanted: Any) -> None:
    sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in wanted.dim]
    fits = len(shape) == len(sizes) and all(
        isinstance(want, str) or want == got or not isinstance(got, int)
        for got, want in zip(shape, sizes, strict=True)
    )
    if not fits:
        raise ArgumentError(f"onnx: input {name!r} has shape {shape}; legal is {tuple(sizes)}")
