"""An ONNX graph that can be edited: values by name, nodes in order of computation, constants as numpy arrays."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

DOMAIN = "com.microsoft"  # of onnxruntime's own operators


class Weighted(NamedTuple):
    """``x @ weight + bias``, found in a graph.

    Attributes:
        source: name of x.
        weight: (in, out).
        bias: (out,), or None.
        product: the node MatMul.
    """

    source: str
    weight: np.ndarray
    bias: np.ndarray | None
    product: Any


class Graph:
    """The graph of ``model``, an ``onnx.ModelProto``, which this object may change from now on.

    Values are named; a value that no node computes is an input or a constant. Nodes that nobody reads are dropped by
    ``sweep``.
    """

    def __init__(self, model: Any) -> None:
        from onnx import numpy_helper

        self.model = model
        graph = model.graph
        self.constants: dict[str, np.ndarray] = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        self.nodes: list[Any] = list(graph.node)
        self.inputs = [one.name for one in graph.input if one.name not in self.constants]
        self.outputs = [one.name for one in graph.output]
        self._count = 0
        self._names = {
            *self.constants,
            *self.inputs,
            *(name for node in self.nodes for name in [node.name, *node.output]),
        }

    # ---- reading -----------------------------------------------------------------------------------------------

    def producers(self) -> dict[str, Any]:
        """The node that computes each value."""
        return {name: node for node in self.nodes for name in node.output}

    def consumers(self) -> dict[str, list[Any]]:
        """The nodes that read each value; the graph's own outputs count as one reader, None."""
        readers: dict[str, list[Any]] = {name: [None] for name in self.outputs}
        for node in self.nodes:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        return readers

    def constant(self, name: str) -> np.ndarray | None:
        """The constant of this name, or None."""
        return self.constants.get(name)

    def weighted(self, name: str, producers: dict[str, Any]) -> Weighted | None:
        """The product with constant weights, with or without a bias, that computes the value ``name``; None if that is
        not how it is computed."""
        node, bias = producers.get(name), None
        if node is not None and node.op_type == "Add":
            variable = [one for one in node.input if one not in self.constants]
            constant = [self.constants[one] for one in node.input if one in self.constants]
            if len(variable) != 1 or constant[0].ndim != 1:
                return None
            bias, node = constant[0], producers.get(variable[0])
        if node is None or node.op_type != "MatMul":
            return None
        weight = self.constant(node.input[1])
        if weight is None or weight.ndim != 2:
            return None
        return Weighted(node.input[0], weight, bias, node)

    # ---- changing ----------------------------------------------------------------------------------------------

    def add_constant(self, value: np.ndarray, like: str = "constant") -> str:
        """A new constant; returns its name."""
        name = self._new_name(like)
        self.constants[name] = np.ascontiguousarray(value)
        return name

    def make(self, kind: str, inputs: Sequence[str], outputs: int | Sequence[str] = 1, **attributes: Any) -> Any:
        """A node that is not in the graph yet; ``insert_before`` puts it there. ``domain`` is among the attributes."""
        from onnx import helper

        names = [self._new_name(kind) for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        return helper.make_node(kind, list(inputs), names, name=self._new_name(kind), **attributes)

    def insert_before(self, place: Any, nodes: Sequence[Any]) -> None:
        """Put ``nodes``, in their order, in front of the node ``place``."""
        index = next(number for number, node in enumerate(self.nodes) if node is place)
        self.nodes[index:index] = nodes

    def redirect(self, old: str, new: str) -> None:
        """Let whoever reads the value ``old`` read ``new``. The graph's outputs keep their names."""
        if old in self.outputs:
            producer = self.producers()[new]
            producer.output[list(producer.output).index(new)] = old
            old, new = new, old
        for node in self.nodes:
            for number, name in enumerate(node.input):
                if name == old:
                    node.input[number] = new

    def remove(self, nodes: Sequence[Any]) -> None:
        """Take nodes out of the graph."""
        gone = {id(node) for node in nodes}
        self.nodes = [node for node in self.nodes if id(node) not in gone]

    def sweep(self) -> None:
        """Drop nodes and constants that nothing reads."""
        needed = set(self.outputs)
        kept = []
        for node in reversed(self.nodes):
            if any(name in needed for name in node.output):
                needed.update(name for name in node.input if name)
                kept.append(node)
        self.nodes = kept[::-1]
        self.constants = {name: value for name, value in self.constants.items() if name in needed}

    def finish(self) -> Any:
        """The ``onnx.ModelProto`` with everything that was changed."""
        from onnx import numpy_helper

        self.sweep()
        graph = self.model.graph
        del graph.node[:], graph.initializer[:], graph.value_info[:]
        graph.node.extend(self.nodes)
        graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in self.constants.items())
        return self.model

    def _new_name(self, like: str) -> str:
        """A name that nothing has; an earlier ``Graph`` of the same model may have given names, too."""
        while True:
            self._count += 1
            name = f"{like}.{self._count}"
            if name not in self._names:
                self._names.add(name)
                return name


def attributes(node: Any) -> dict[str, Any]:
    """A node's attributes as plain values."""
    from onnx import helper

    return {one.name: helper.get_attribute_value(one) for one in node.attribute}


def simplify(model: Any) -> Any:
    """Drop what a converter leaves behind: copies, constants written as nodes, arithmetic of constants, additions of 0.

    Args:
        model: an ``onnx.ModelProto``; it is changed.
    """
    graph = Graph(model)
    same: dict[str, str] = {}  # value -> the value that it is a copy of
    kept = []
    for node in graph.nodes:
        for number, name in enumerate(node.input):
            node.input[number] = same.get(name, name)
        if node.op_type == "Identity" and node.output[0] not in graph.outputs:
            same[node.output[0]] = node.input[0]
        elif _is_constant(node, graph):
            graph.constants.update(zip(node.output, _evaluate(node, graph)))
        elif _adds_nothing(node, graph) and node.output[0] not in graph.outputs:
            same[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    graph.nodes = kept
    _merge_convolution_biases(graph)
    return graph.finish()


def _is_constant(node: Any, graph: Graph) -> bool:
    """Whether a node computes from constants alone; what would only make the file larger is left alone."""
    if node.op_type in ("Expand", "ConstantOfShape") or any(name in graph.outputs for name in node.output):
        return False
    return all(name in graph.constants for name in node.input if name)


def _evaluate(node: Any, graph: Graph) -> list[np.ndarray]:
    from onnx import numpy_helper
    from onnx.reference import ReferenceEvaluator

    if node.op_type == "Constant" and node.attribute[0].name == "value":  # nearly all of them
        return [numpy_helper.to_array(node.attribute[0].t)]
    values = {name: graph.constants[name] for name in node.input if name}
    evaluator = ReferenceEvaluator(node, opsets={"": graph.model.opset_import[0].version})
    return [np.asarray(value) for value in evaluator.run(None, values)]


def _adds_nothing(node: Any, graph: Graph) -> bool:
    if node.op_type != "Add":
        return False
    value = graph.constant(node.input[1])
    return value is not None and value.size == 1 and not value.any()


def _merge_convolution_biases(graph: Graph) -> None:
    """Let a convolution add its bias itself: Conv, then Add of (1, channels, 1, ...)."""
    readers = graph.consumers()
    for node in [node for node in graph.nodes if node.op_type == "Conv" and len(node.input) == 2]:
        (after, *others) = readers[node.output[0]]
        if others or after is None or after.op_type != "Add":
            continue
        bias = graph.constant(after.input[1])
        channels = graph.constants[node.input[1]].shape[0]
        if bias is None or bias.size != channels or bias.ndim < 2 or bias.shape[1] != channels:
            continue
        node.input.append(graph.add_constant(bias.reshape(channels), "bias"))
        node.output[0] = after.output[0]
        graph.remove([after])


def fix_shapes(model: Any, run: Callable[[Any, int], dict[str, np.ndarray]]) -> Any:
    """Write shapes that depend on nothing but the batch as constants, with -1 for the batch.

    Args:
        model: simplified; it is changed.
        run: (model, batch) to the values of all its outputs by name, for pictures of that many.
    """
    from onnx import ValueInfoProto

    graph = Graph(model)
    unknown = [node for node in graph.nodes if node.op_type == "Reshape" and node.input[1] not in graph.constants]
    if not unknown:
        return model
    probe = type(model)()
    probe.CopyFrom(model)
    probe.graph.output.extend(ValueInfoProto(name=node.output[0]) for node in unknown)
    two, three = run(probe, 2), run(probe, 3)
    for node in unknown:
        shape, other = (np.array(values[node.output[0]].shape) for values in (two, three))
        growing = np.flatnonzero(shape != other)
        if len(growing) <= 1 and (not len(growing) or shape[growing[0]] * 3 == other[growing[0]] * 2):
            fixed = shape.copy()
            fixed[growing] = -1
            node.input[1] = graph.add_constant(fixed, "shape")
    return graph.finish()


def matching(graph: Graph, kind: str) -> Iterator[Any]:
    """The nodes of one kind; the graph may be changed meanwhile."""
    for node in list(graph.nodes):
        if node.op_type == kind:
            yield node


def only_reader(readers: dict[str, list[Any]], name: str) -> Any | None:
    """The node that reads a value, of ``Graph.consumers``, if there is just one and the graph does not give it away."""
    found = readers.get(name, [])
    return found[0] if len(found) == 1 else None


def is_turned(node: Any, order: list[int]) -> bool:
    """Whether a node transposes to this order of axes."""
    return node.op_type == "Transpose" and list(attributes(node)["perm"]) == order
