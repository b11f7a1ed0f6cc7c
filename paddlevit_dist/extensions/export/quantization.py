"""Static quantization of an ONNX graph to int8 by onnxruntime: convolutions and products with weights, nothing else."""

import collections
import contextlib
import inspect
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.printing import captured_output
from .onnx_files import compute, first_line

WHOLE = "whole.onnx"  # the graph in float32
OPERATORS = ("Conv", "MatMul", "Gemm")
_RANGES = "calibration_cache_path"  # argument of ``quantize_static``
_SMALLEST = 1e-30  # divisor of noise: a layer's output may be all zeros
MOST_NOISE = 0.01  # sum of squared errors of a layer's output, relative to its sum of squares; 0.0001 is usual


class StoredInputs:
    """Batches of inputs by name in the files of a folder, as onnxruntime's functions read them, one by one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0  # of files
        self._next = 0
        folder.mkdir()

    def add(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Store a batch."""
        np.savez(self._folder / f"{self._number}.npz", **inputs)
        self._number += 1

    def read(self, number: int) -> dict[str, np.ndarray]:
        """Read a batch."""
        with np.load(self._folder / f"{number}.npz") as file:
            return dict(file)

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next batch; None after the last one, and from then on those from the first again."""
        if self._next >= self._number:
            self._next = 0
            return None
        self._next += 1
        return self.read(self._next - 1)


class QuantizedGraph:
    """Quantizes the graph in ``WHOLE`` of a folder several times, each time with other layers left in float32.

    Weights are int8, symmetric, with a scale for each channel; values before and after a layer are uint8, with the
    smallest and largest that occur in ``inputs``. Raises a UserError if onnxruntime cannot quantize the graph.

    Attributes:
        layers: names of the layers that can be quantized, in the graph's order.
        prepared: file of the graph in float32, with names for its layers.
    """

    def __init__(self, folder: Path, inputs: StoredInputs) -> None:
        import onnx
        from onnxruntime.quantization.shape_inference import quant_pre_process

        self._folder, self._inputs = folder, inputs
        self.prepared = folder / "prepared.onnx"
        with _explained():
            # Symbolic shapes fail for plain vision transformers; ONNX's own inference is enough.
            quant_pre_process(str(folder / WHOLE), str(self.prepared), skip_symbolic_shape=True)
        model = onnx.load(str(self.prepared))
        weights = {weight.name for weight in model.graph.initializer}
        constants = {name for node in model.graph.node if node.op_type == "Constant" for name in node.output}
        times = collections.Counter(node.name for node in model.graph.node)
        for number, node in enumerate(model.graph.node):
            if not node.name or times[node.name] > 1:
                node.name = f"{node.op_type}_{number}"
        onnx.save(model, str(self.prepared))
        self._nodes = [
            node for node in model.graph.node if node.op_type in OPERATORS and {node.input[1]} & (weights | constants)
        ]
        self.layers = [node.name for node in self._nodes]
        if not self.layers:
            raise UserError(f"export: -precision=int8: the graph has no {', '.join(OPERATORS)} with weights")

    def quantize(self, file: Path, kept: Collection[str] = ()) -> None:
        """Write the graph with all layers in int8 except those ``kept``."""
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

        has_cache = _RANGES in inspect.signature(quantize_static).parameters  # onnxruntime 1.19 has none
        # The ranges of all layers are measured once: which ones are quantized does not change them.
        stored: dict[str, Any] = {_RANGES: self._folder / "ranges.json"} if has_cache else {}
        with _explained():
            quantize_static(
                str(self.prepared),
                str(file),
                self._inputs,
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=list(OPERATORS),
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                nodes_to_quantize=[name for name in self.layers if name not in kept],
                **stored,
            )

    def find_rough_layers(self, file: Path) -> list[str]:
        """Return the layers that int8 rounds most, in the graph's order: those with more noise than ``MOST_NOISE``.

        If none has that much, the quarter with the most noise is returned.
        It is measured for the first batch of inputs, of each layer as in the quantized ``file``, which reads what it
        reads in float32: the errors of other layers do not count.
        """
        import onnx
        from onnx.helper import make_node, make_tensor_value_info

        model, quantized = onnx.load(str(self.prepared)), onnx.load(str(file)).graph
        graph, layers = model.graph, {node.name: node for node in quantized.node}
        producers = {node.output[0]: node for node in quantized.node}
        rounding = {node.input[0]: node for node in quantized.node if node.op_type == "QuantizeLinear"}
        known = {each.name for each in graph.initializer}
        graph.initializer.extend(each for each in quantized.initializer if each.name not in known)
        del graph.output[:]

        def add(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
            graph.node.append(make_node(kind, inputs, [output], **attributes))
            return output

        def add_rounding(values: str, like: Any, output: str) -> str:
            integers = add("QuantizeLinear", [values, *like.input[1:]], f"{output} integers")
            return add("DequantizeLinear", [integers, *like.input[1:]], output)

        for node in self._nodes:
            layer, exact, name = layers[node.name], node.output[0], node.name
            weight, after = producers[layer.input[1]], rounding.get(layer.output[0])
            weight.name, weight.output[0] = "", f"{name} weight"
            graph.node.append(weight)
            values = add_rounding(node.input[0], producers[layer.input[0]], f"{name} input")
            layer.name, layer.output[0] = "", f"{name} output"
            layer.input[:] = [values, weight.output[0], *node.input[2:]]
            graph.node.append(layer)
            found = layer.output[0] if after is None else add_rounding(layer.output[0], after, f"{name} rounded")
            error = add("Sub", [found, exact], f"{name} error")
            for values, power in ((error, f"{name} noise"), (exact, f"{name} signal")):
                add("ReduceSumSquare", [values], power, keepdims=0)
                graph.output.append(make_tensor_value_info(power, onnx.TensorProto.FLOAT, ()))
        augmented = self._folder / "augmented.onnx"
        with _explained():
            onnx.save(model, str(augmented))
        powers = compute(augmented, self._inputs.read(0))
        noise = [float(powers[f"{name} noise"] / max(powers[f"{name} signal"], _SMALLEST)) for name in self.layers]
        most = MOST_NOISE if max(noise) > MOST_NOISE else float(np.quantile(noise, 0.75))
        return [name for name, share in zip(self.layers, noise) if share > most]


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Hide the output of onnxruntime's Python code, and make its exceptions a UserError."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it advises on what is done here anyway
    try:
        with captured_output():
            yield
    except UserError:
        raise
    except Exception as error:  # its exceptions have no common class
        raise UserError(
            f"export: onnxruntime cannot quantize this model: {first_line(error)}; try -precision=float32"
        ) from error
    finally:
        logging.disable(level)
