"""Editable ONNX graph: values by name, nodes in order of computation, constants as numpy arrays."""

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

DOMAIN = "com.microsoft"  # domain of onnxruntime's operators


class PatternMismatch(Exception):
    """Exception for a part of a graph that a rule does not apply to."""


def require(condition: bool) -> None:
    """Check a condition of a rule; raises ``PatternMismatch`` if it is false."""
    if not condition:
        raise PatternMismatch


class WeightedProduct(NamedTuple):
    """Product ``x @ weight + bias`` in a graph."""

    source: str  # name of x
    weight: np.ndarray  # (in, out)
    bias: np.ndarray | None  # (out,)
    product: "NodeProto"  # MatMul


class OnnxGraph:
    """Editable graph of ``model``, which this object changes.

    Values are named; a value that no node computes is an input or a constant. ``sweep`` drops nodes without readers. A
    rule is a function of the graph and a node: it first queries the nodes around, where each query may raise
    ``PatternMismatch`` to end it, and then changes the graph.
    """

    def __init__(self, model: "ModelProto") -> None:
        from onnx import numpy_helper

        self.model = model
        graph = model.graph
        self.constants: dict[str, np.ndarray] = {
            tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer
        }
        self.nodes: list[Any] = list(graph.node)
        self.inputs = [value.name for value in graph.input if value.name not in self.constants]
        self.outputs = [value.name for value in graph.output]
        self._count = 0
        self._names = {
            *self.constants,
            *self.inputs,
            *(name for node in self.nodes for name in [node.name, *node.output]),
        }

    def producer(self, name: str, *kinds: str, order: Sequence[int] | None = None) -> Any:
        """Return the node that computes a value, of an allowed kind (none given: any).

        With ``order``, it has to be a Transpose to this order of axes. ``PatternMismatch``: no node does, or it does
        not fit.
        """
        return _check(next((node for node in self.nodes if name in node.output), None), kinds, order)

    def reader(self, name: str, *kinds: str, order: Sequence[int] | None = None) -> Any:
        """Return the only reader of a value that is not an output; arguments and errors of ``producer``."""
        (reader, *others) = self.readers(name) or [None]
        return _check(None if others else reader, kinds, order)

    def readers(self, name: str) -> list[Any]:
        """Return the nodes that read a value; None in the list is the graph's output."""
        nodes = [node for node in self.nodes for source in node.input if source == name]
        return [None, *nodes] if name in self.outputs else nodes

    def constant(self, name: str) -> np.ndarray:
        """Return a constant by name; raises ``PatternMismatch`` if the value is not a constant."""
        require(name in self.constants)
        return self.constants[name]

    def is_number(self, name: str, number: float) -> bool:
        """Return whether a value is a constant equal to ``number``."""
        value = self.constants.get(name)
        return value is not None and value.size == 1 and abs(float(value.item()) - number) < 1e-6

    def bias_index(self, add: "NodeProto") -> int:
        """Return the index of an addition's input that is a constant (channels,); ``PatternMismatch``: none or both."""
        places = [n for n, name in enumerate(add.input) if name in self.constants and self.constants[name].ndim == 1]
        require(len(places) == 1)
        return places[0]

    def match_product(self, name: str) -> WeightedProduct:
        """Return the product with constant weights, with or without a bias, that computes the value ``name``.

        Raises:
            PatternMismatch: the value is not such a product.
        """
        node, bias = self.producer(name, "Add", "MatMul"), None
        if node.op_type == "Add":
            place = self.bias_index(node)
            bias, node = self.constants[node.input[place]], self.producer(node.input[1 - place], "MatMul")
        weight = self.constant(node.input[1])
        require(weight.ndim == 2)
        return WeightedProduct(node.input[0], weight, bias, node)

    def apply(self, kind: str, rule: Callable[["OnnxGraph", Any], None]) -> bool:
        """Apply a rule to the nodes of one kind; return whether it changed any."""
        is_changed = False
        for node in [op for op in self.nodes if op.op_type == kind]:
            with contextlib.suppress(PatternMismatch):
                rule(self, node)
                is_changed = True
        return is_changed

    def add_constant(self, value: np.ndarray, like: str = "constant") -> str:
        """Add a constant and return its name."""
        name = self._new_name(like)
        self.constants[name] = np.ascontiguousarray(value)
        return name

    def make_node(self, kind: str, inputs: Sequence[str], outputs: int | Sequence[str] = 1, **attributes: Any) -> Any:
        """Create a node that ``insert`` can add to the graph; ``attributes`` may contain ``domain``."""
        from onnx import helper

        names = [self._new_name(kind) for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        return helper.make_node(kind, list(inputs), names, name=self._new_name(kind), **attributes)

    def insert(self, nodes: "Sequence[NodeProto]", before: "NodeProto", instead_of: "Sequence[NodeProto]" = ()) -> None:
        """Insert ``nodes`` in order in front of the node ``before``, and remove the nodes ``instead_of``."""
        index = next(number for number, node in enumerate(self.nodes) if node is before)
        self.nodes[index:index] = nodes
        removed = {id(node) for node in instead_of}
        self.nodes = [node for node in self.nodes if id(node) not in removed]

    def redirect(self, old: str, new: str) -> None:
        """Make readers of the value ``old`` read ``new``. The graph's outputs keep their names."""
        if old in self.outputs:
            node = self.producer(new)
            node.output[list(node.output).index(new)] = old
            old, new = new, old
        for node in self.nodes:
            for number, name in enumerate(node.input):
                if name == old:
                    node.input[number] = new

    def sweep(self) -> None:
        """Drop nodes and constants without readers."""
        needed = set(self.outputs)
        nodes = []
        for node in reversed(self.nodes):
            if any(name in needed for name in node.output):
                needed.update(name for name in node.input if name)
                nodes.append(node)
        self.nodes = nodes[::-1]
        self.constants = {name: value for name, value in self.constants.items() if name in needed}

    def finish(self) -> Any:
        """Return the ``onnx.ModelProto`` with all changes."""
        from onnx import numpy_helper

        self.sweep()
        graph = self.model.graph
        del graph.node[:], graph.initializer[:], graph.value_info[:]
        graph.node.extend(self.nodes)
        graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in self.constants.items())
        return self.model

    def _new_name(self, like: str) -> str:
        """Return an unused name; an earlier ``OnnxGraph`` of the same model may have added names."""
        while True:
            self._count += 1
            name = f"{like}.{self._count}"
            if name not in self._names:
                self._names.add(name)
                return name


def _check(node: Any, kinds: Sequence[str], order: Sequence[int] | None) -> Any:
    require(node is not None and (not kinds or node.op_type in kinds))
    require(order is None or (node.op_type == "Transpose" and list(attributes(node)["perm"]) == list(order)))
    return node


def attributes(node: "NodeProto") -> dict[str, Any]:
    """Return a node's attributes as plain values."""
    from onnx import helper

    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def simplify(model: "ModelProto") -> Any:
    """Drop redundant nodes of a converter: copies, constants as nodes, arithmetic of constants, additions of 0.

    The model is changed.
    """
    graph = OnnxGraph(model)
    originals: dict[str, str] = {}  # copy -> original
    nodes = []
    for node in graph.nodes:
        for number, name in enumerate(node.input):
            node.input[number] = originals.get(name, name)
        if node.op_type == "Identity" and node.output[0] not in graph.outputs:
            originals[node.output[0]] = node.input[0]
        elif _is_constant(node, graph):
            graph.constants.update(zip(node.output, _evaluate(node, graph)))
        elif _adds_nothing(node, graph) and node.output[0] not in graph.outputs:
            originals[node.output[0]] = node.input[0]
        else:
            nodes.append(node)
    graph.nodes = nodes
    graph.apply("Conv", _merge_bias)
    return graph.finish()


def _is_constant(node: "NodeProto", graph: OnnxGraph) -> bool:
    """Return whether a node has only constant inputs; nodes whose result makes the file larger do not count."""
    if node.op_type in ("Expand", "ConstantOfShape") or any(name in graph.outputs for name in node.output):
        return False
    return all(name in graph.constants for name in node.input if name)


def _evaluate(node: "NodeProto", graph: OnnxGraph) -> list[np.ndarray]:
    from onnx import numpy_helper
    from onnx.reference import ReferenceEvaluator

    if node.op_type == "Constant" and node.attribute[0].name == "value":  # the usual case
        return [numpy_helper.to_array(node.attribute[0].t)]
    values = {name: graph.constants[name] for name in node.input if name}
    evaluator = ReferenceEvaluator(node, opsets={"": graph.model.opset_import[0].version})
    return [np.asarray(value) for value in evaluator.run(None, values)]


def _adds_nothing(node: "NodeProto", graph: OnnxGraph) -> bool:
    value = graph.constants.get(node.input[1]) if node.op_type == "Add" else None
    return value is not None and value.size == 1 and not value.any()


def _merge_bias(graph: OnnxGraph, conv: "NodeProto") -> None:
    """Merge an Add of (1, channels, 1, ...) after a Conv into the Conv's bias."""
    require(len(conv.input) == 2)
    after = graph.reader(conv.output[0], "Add")
    bias, channels = graph.constant(after.input[1]), graph.constant(conv.input[1]).shape[0]
    require(bias.size == channels and bias.ndim >= 2 and bias.shape[1] == channels)
    conv.input.append(graph.add_constant(bias.reshape(channels), "bias"))
    conv.output[0] = after.output[0]
    graph.insert([], conv, instead_of=[after])


def fix_shapes(model: "ModelProto", run: Callable[[Any, int], dict[str, np.ndarray]]) -> Any:
    """Write shapes that depend on the batch only as constants, with -1 for the batch; the simplified model is changed.

    ``run``: (model, batch size) -> all outputs by name.
    """
    from onnx import ValueInfoProto

    graph = OnnxGraph(model)
    unknown = [op for op in graph.nodes if op.op_type == "Reshape" and op.input[1] not in graph.constants]
    if not unknown:
        return model
    model.graph.output.extend(ValueInfoProto(name=op.output[0]) for op in unknown)
    two, three = run(model, 2), run(model, 3)
    del model.graph.output[-len(unknown) :]
    for node in unknown:
        shape, other = (np.array(values[node.output[0]].shape) for values in (two, three))
        growing = np.flatnonzero(shape != other)
        if len(growing) <= 1 and (not len(growing) or shape[growing[0]] * 3 == other[growing[0]] * 2):
            fixed = shape.copy()
            fixed[growing] = -1
            node.input[1] = graph.add_constant(fixed, "shape")
    return graph.finish()
