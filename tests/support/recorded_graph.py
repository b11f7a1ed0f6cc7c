"""A graph of operations on a CPU that behaves as Paddle's CUDA graphs do, for tests of captured passes.

It records each call of an operation with its inputs. A replay makes the same calls again, on the same tensors, and
writes the results over the recorded ones. So it repeats numbers that Python passed and what was drawn; only dropout
draws anew, from Paddle's generator, after the first replay. What the host reads, an array that becomes a tensor, and
an operation whose result has a length that the host waits for raise. A backward pass is one operation, and so is a
function with an own gradient (``PyLayer``): its Python runs anew.
"""

import contextlib
import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import paddle
import pytest
from paddle.autograd import PyLayer
from paddle.base import core

from paddlevit_dist.core.runtime import device_graph, paddle_versions

_ARITHMETIC = ("add", "sub", "mul", "truediv", "div", "floordiv", "pow", "matmul", "mod")
_METHODS = (
    *(f"__{side}{name}__" for name in _ARITHMETIC for side in ("", "r")),
    *(f"__{name}__" for name in ("gt", "ge", "lt", "le", "eq", "ne")),
    *("_getitem_dygraph", "_setitem_dygraph", "clone", "contiguous", "copy_", "detach", "_tensor_use_gpudnn"),
)
_READS = ("numpy", "item", "tolist", "cpu", "_copy_to", *(f"__{name}__" for name in ("bool", "int", "float", "index")))
_WAITING = ("bincount", "masked_select", "nonzero", "unique", "unique_consecutive", "where_index")
_FROZEN = ("uniform", "gaussian", "randint", "randperm", "bernoulli", "multinomial", "truncated_gaussian_random")
_ANEW = ("dropout",)


class _Call(NamedTuple):
    """A call: its inputs and result, and for an operation that draws the generator's state before it."""

    name: str
    function: Callable[..., Any]
    inputs: Any
    result: Any
    has_gradients: bool
    state: Any


class _Leaf(NamedTuple):
    """A tensor that a backward pass reaches, the address of its gradient, and whether that was there before."""

    tensor: Any
    address: int
    is_older: bool


class RecordedGraph:
    """Has the methods of ``paddle.device.cuda.graphs.CUDAGraph``; ``replays`` is their number so far."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.calls: list[_Call] = []
        self._leaves: list[_Leaf] = []
        self._reached: dict[int, Any] = {}  # trained tensors that operations have read
        self._own: dict[int, Any] = {}  # what operations have made, in memory of the graph
        self._undo: list[Callable[[], None]] = []
        self._patch = pytest.MonkeyPatch()
        self._is_inside = False
        self.replays = 0

    def capture_begin(self) -> None:
        """Record operations from now on."""
        operations = {id(each): (name, each) for name, each in vars(paddle._C_ops).items() if type(each) is type(len)}
        for module in [one for name, one in sys.modules.items() if name.partition(".")[0] == "paddle"]:
            for name, found in list(vars(module).items()):
                if id(found) in operations:
                    known, operation = operations[id(found)]
                    self._patch.setattr(
                        module, name, _refuse if known in _WAITING else self._recording(known, operation)
                    )
                elif found is paddle.to_tensor:
                    self._patch.setattr(module, name, _refuse)
        for name in _METHODS:
            if hasattr(paddle.Tensor, name):
                self._patch.setattr(paddle.Tensor, name, self._recording(name, getattr(paddle.Tensor, name)))
        for name in _READS:
            self._patch.setattr(paddle.Tensor, name, _refuse)
        self._patch.setattr(core.eager, "run_backward", self._recording("backward", core.eager.run_backward))
        apply = classmethod(lambda cls, *inputs: self._call("PyLayer", super(PyLayer, cls).apply, inputs, {}))
        self._patch.setattr(PyLayer, "apply", apply, raising=False)

    def capture_end(self) -> None:
        """Stop recording: until the first replay nothing is computed."""
        self._patch.undo()
        for undo in self._undo:
            undo()
        for made in self._own.values():
            if made.dtype in (paddle.float32, paddle.float64):
                _write(made, np.nan)

    def reset(self) -> None:
        """Forget all calls."""
        self.calls = []

    def replay(self) -> None:
        """Make the calls again, and write their results over the recorded ones."""
        now: dict[int, Any] = {}
        for call in self.calls:
            inputs, options = _replace(call.inputs, now)
            with paddle.set_grad_enabled(call.has_gradients), self._same_draws(call):
                if call.name == "backward":
                    self._pass_backward(call.function, inputs)
                    continue
                result = call.function(*inputs, **options)
            for old, new in zip(_tensors(call.result), _tensors(result), strict=True):
                if new is not old:
                    now[id(old)] = new
                    new.stop_gradient = old.stop_gradient
        for number, made in self._own.items():
            _write(made, _read(now[number].detach()))
        self.replays += 1

    def _recording(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *inputs, **options: self._call(name, function, inputs, options)

    def _call(self, name: str, function: Callable[..., Any], inputs: Any, options: Any) -> Any:
        if name == "add_n" and len(inputs[0]) > 2:
            raise NotImplementedError(
                "a graph would copy the addresses of three tensors from memory that is free again"
            )
        if self._is_inside:
            if name in _FROZEN:
                raise NotImplementedError(f"{name} inside of a function with an own gradient would be drawn anew")
            return function(*inputs, **options)
        read = _tensors((inputs, options))
        for tensor in read:
            if id(tensor) not in self._own and tensor.is_leaf and not tensor.stop_gradient:
                self._reached[id(tensor)] = tensor
        state = paddle.get_rng_state() if name in (*_FROZEN, *_ANEW) else None
        older = {}
        if name == "backward":
            gradients = {number: one._grad_ivar() for number, one in self._reached.items()}
            older = {number: (one, _read(one)) for number, one in gradients.items() if one is not None}
        self._is_inside = True
        try:
            result = function(*inputs, **options)
        finally:
            self._is_inside = False
        kept = _replace((inputs, options), {})
        outer = [one for one in read if one.size and one._is_initialized() and id(one) not in self._own]
        self.calls.append(_Call(name, function, kept, result, paddle.is_grad_enabled(), state))
        for made in _tensors(result):
            if made.size and made._is_initialized() and not any(map(made._is_shared_buffer_with, outer)):
                self._own[id(made)] = made
        if name == "backward":
            self._note_gradients(older)
        return result

    def _note_gradients(self, older: dict[int, tuple[Any, np.ndarray]]) -> None:
        """Note where a backward pass wrote gradients, and that a GPU would not have done so yet."""
        for number, leaf in self._reached.items():
            gradient = leaf._grad_ivar()
            if gradient is None or number in self._own:
                continue
            self._leaves.append(_Leaf(leaf, gradient.data_ptr(), number in older))
            values = older[number][1] if number in older else np.nan
            self._undo.append(functools.partial(_write, gradient, values))

    def _pass_backward(self, function: Callable[..., Any], inputs: Any) -> None:
        """Add to gradients that were there before the recorded pass, and replace the others."""
        for leaf in self._leaves:
            gradient = leaf.tensor._grad_ivar()
            if gradient is None or gradient.data_ptr() != leaf.address:
                raise AssertionError("a gradient has moved since the capture: a graph would write elsewhere")
            if not leaf.is_older:
                _write(gradient, 0.0)
        function(*inputs)

    @contextlib.contextmanager
    def _same_draws(self, call: _Call) -> Iterator[None]:
        """Let an operation draw what it drew in the capture, if a graph would."""
        if call.state is None or (call.name in _ANEW and self.replays):
            yield
            return
        present = paddle.get_rng_state()
        paddle.set_rng_state(call.state)
        yield
        paddle.set_rng_state(present)


_read = paddle.Tensor.numpy  # before it is replaced


def _refuse(*_: Any, **__: Any) -> Any:
    raise OSError("(External) CUDA error(906), operation would make the legacy stream depend on a capturing stream")


def _tensors(values: Any) -> list[Any]:
    """List the tensors in nested sequences and dictionaries."""
    if isinstance(values, paddle.Tensor):
        return [values]
    parts = values.values() if isinstance(values, dict) else values if isinstance(values, list | tuple) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def _replace(values: Any, by: dict[int, Any]) -> Any:
    """Copy nested sequences and dictionaries, with other tensors for some, by their ids."""
    if isinstance(values, paddle.Tensor):
        return by.get(id(values), values)
    if isinstance(values, dict):
        return {name: _replace(value, by) for name, value in values.items()}
    return type(values)(_replace(value, by) for value in values) if type(values) in (list, tuple) else values


def _write(tensor: Any, values: Any) -> None:
    """Write values into the memory of a tensor, which notices nothing."""
    size = tensor.element_size()
    strides = [size * stride for stride in tensor.get_strides()]
    length = size + sum((number - 1) * stride for number, stride in zip(tensor.shape, strides))
    memory = (ctypes.c_char * length).from_address(tensor.data_ptr())
    name = str(tensor.dtype).rpartition(".")[2]
    np.ndarray(tensor.shape, name, memory, strides=strides)[...] = values


@contextlib.contextmanager
def recorded_graphs() -> Iterator[list[RecordedGraph]]:
    """Let the package capture such graphs inside the block, as if this were a GPU; yields those that it made."""
    made: list[RecordedGraph] = []

    def create() -> RecordedGraph:
        made.append(RecordedGraph())
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_graph, "_create", create)
        patch.setattr(device_graph, "reason_against", lambda: "")
        patch.setattr(
            paddle_versions, "list_unrepeatable", lambda: {"where_index"}
        )  # of Paddle 3 on GPUs alone: others
        yield made
