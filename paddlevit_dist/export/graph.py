"""An ONNX graph that can be edited: values by name, nodes in order of computation, constants as numpy arrays."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

DOMAIN = "com.microsoft"  # of onnxruntime's own operators


class PatternMismatch(Exception):
    """A part of a graph is not what a rule expects."""


def require(is_so: bool) -> None:
    """
    Raises:
        Unlike: it is not so.
    """
    if not is_so:
        raise PatternMismatch


class WeightedProduct(NamedTuple):
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


class OnnxGraph:
    """The graph of ``model``, an ``onnx.ModelProto``, which this object may change from now on.

    Values are named; a value that no node computes is an input or a constant. Nodes that nobody reads are dropped by
    ``sweep``. A rule is a function of the graph and a node that asks for what it expects around that node, and then
    changes it; ``PatternMismatch``, which all that it asks for may raise, ends it before.
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

    def maker(self, name: str, *kinds: str, order: Sequence[int] | None = None) -> Any:
        """The node that computes a value.

        Args:
            kinds: which it may be; none: any.
            order: it is a Transpose to this order of axes.
        Raises:
            Unlike: there is none, or it is another.
        """
        return _check(next((node for node in self.nodes if name in node.output), None), kinds, order)

    def reader(self, name: str, *kinds: str, order: Sequence[int] | None = None) -> Any:
        """The only node that reads a value, which the graph does not give away; arguments and errors of ``maker``."""
        (reader, *others) = self.readers(name) or [None]
        return _check(None if others else reader, kinds, order)

    def readers(self, name: str) -> list[Any]:
        """The nodes that read a value; the graph's own output counts as one, None."""
        found = [node for node in self.nodes for one in node.input if one == name]
        return [None, *found] if name in self.outputs else found

    def constant(self, name: str) -> np.ndarray:
        """The constant of this name.

        Raises:
            Unlike: it is computed.
        """
        require(name in self.constants)
        return self.constants[name]

    def is_number(self, name: str, number: float) -> bool:
        """Whether a value is this constant."""
        value = self.constants.get(name)
        return value is not None and value.size == 1 and abs(float(value.item()) - number) < 1e-6

    def bias_place(self, add: Any) -> int:
        """Which of the two inputs of an addition is a constant (channels,).

        Raises:
            Unlike: neither or both.
        """
        places = [n for n, name in enumerate(add.input) if name in self.constants and self.constants[name].ndim == 1]
        require(len(places) == 1)
        return places[0]

    def weighted(self, name: str) -> WeightedProduct:
        """The product with constant weights, with or without a bias, that computes the value ``name``.

        Raises:
            Unlike: that is not how it is computed.
        """
        node, bias = self.maker(name, "Add", "MatMul"), None
        if node.op_type == "Add":
            place = self.bias_place(node)
            bias, node = self.constants[node.input[place]], self.maker(node.input[1 - place], "MatMul")
        weight = self.constant(node.input[1])
        require(weight.ndim == 2)
        return WeightedProduct(node.input[0], weight, bias, node)

    # ---- changing ----------------------------------------------------------------------------------------------

    def apply(self, kind: str, rule: Callable[["OnnxGraph", Any], None]) -> bool:
        """Apply a rule to the nodes of one kind; whether any was as it expects."""
        is_changed = False
        for node in [node for node in self.nodes if node.op_type == kind]:
            with contextlib.suppress(PatternMismatch):
                rule(self, node)
                is_changed = True
        return is_changed

    def add_constant(self, value: np.ndarray, like: str = "constant") -> str:
        """A new constant; returns its name."""
        name = self._new_name(like)
        self.constants[name] = np.ascontiguousarray(value)
        return name

    def make(self, kind: str, inputs: Sequence[str], outputs: int | Sequence[str] = 1, **attributes: Any) -> Any:
        """A node that is not in the graph yet; ``put`` puts it there. ``domain`` is among the attributes."""
        from onnx import helper

        names = [self._new_name(kind) for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        return helper.make_node(kind, list(inputs), names, name=self._new_name(kind), **attributes)

    def put(self, nodes: Sequence[Any], before: Any, instead_of: Sequence[Any] = ()) -> None:
        """Put ``nodes``, in their order, in front of the node ``before``, and take others out of the graph."""
        index = next(number for number, node in enumerate(self.nodes) if node is before)
        self.nodes[index:index] = nodes
        gone = {id(node) for node in instead_of}
        self.nodes = [node for node in self.nodes if id(node) not in gone]

    def redirect(self, old: str, new: str) -> None:
        """Let whoever reads the value ``old`` read ``new``. The graph's outputs keep their names."""
        if old in self.outputs:
            producer = self.maker(new)
            producer.output[list(producer.output).index(new)] = old
            old, new = new, old
        for node in self.nodes:
            for number, name in enumerate(node.input):
                if name == old:
                    node.input[number] = new

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
        """A name that nothing has; an earlier ``OnnxGraph`` of the same model may have given names, too."""
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


def attributes(node: Any) -> dict[str, Any]:
    """A node's attributes as plain values."""
    from onnx import helper

    return {one.name: helper.get_attribute_value(one) for one in node.attribute}


def simplify(model: Any) -> Any:
    """Drop what a converter leaves behind: copies, constants written as nodes, arithmetic of constants, additions of 0.

    Args:
        model: an ``onnx.ModelProto``; it is changed.
    """
    graph = OnnxGraph(model)
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
    graph.apply("Conv", _merge_bias)
    return graph.finish()


def _is_constant(node: Any, graph: OnnxGraph) -> bool:
    """Whether a node computes from constants alone; what would only make the file larger is left alone."""
    if node.op_type in ("Expand", "ConstantOfShape") or any(name in graph.outputs for name in node.output):
        return False
    return all(name in graph.constants for name in node.input if name)


def _evaluate(node: Any, graph: OnnxGraph) -> list[np.ndarray]:
    from onnx import numpy_helper
    from onnx.reference import ReferenceEvaluator

    if node.op_type == "Constant" and node.attribute[0].name == "value":  # nearly all of them
        return [numpy_helper.to_array(node.attribute[0].t)]
    values = {name: graph.constants[name] for name in node.input if name}
    evaluator = ReferenceEvaluator(node, opsets={"": graph.model.opset_import[0].version})
    return [np.asarray(value) for value in evaluator.run(None, values)]


def _adds_nothing(node: Any, graph: OnnxGraph) -> bool:
    value = graph.constants.get(node.input[1]) if node.op_type == "Add" else None
    return value is not None and value.size == 1 and not value.any()


def _merge_bias(graph: OnnxGraph, conv: Any) -> None:
    """Let a convolution add its bias itself: Conv, then Add of (1, channels, 1, ...)."""
    require(len(conv.input) == 2)
    after = graph.reader(conv.output[0], "Add")
    bias, channels = graph.constant(after.input[1]), graph.constant(conv.input[1]).shape[0]
    require(bias.size == channels and bias.ndim >= 2 and bias.shape[1] == channels)
    conv.input.append(graph.add_constant(bias.reshape(channels), "bias"))
    conv.output[0] = after.output[0]
    graph.put([], conv, instead_of=[after])


def fix_shapes(model: Any, run: Callable[[Any, int], dict[str, np.ndarray]]) -> Any:
    """Write shapes that depend on nothing but the batch as constants, with -1 for the batch.

    Args:
        model: simplified; it is changed.
        run: (model, batch) to the values of all its outputs by name, for images of that many.
    """
    from onnx import ValueInfoProto

    graph = OnnxGraph(model)
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
