"""Which operations a GPU would compute in half precision, asked of the dispatcher of the Paddle that is installed.

A CPU has no kernels for half precision, but its dispatcher decides as a GPU's does, by the name of the operation, the
lists and the types of the inputs, and only then finds that it is on a CPU: it logs "Change conv2d's AMP type from
float16 to FP32" and computes in float32. So here each operation's result is put back into half precision where the log
says so, for the next operation to see what it would see on a GPU. Run as a program (the log's level is read when Paddle
is loaded); prints for each network what was computed in half precision, in float32, and of which type its results are.
"""

import collections
import functools
import itertools
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

LOG = {"GLOG_vmodule": "amp_utils=6", "GLOG_logtostderr": "1", "GLOG_minloglevel": "0"}
_DECISION = re.compile(rb"Change (\w+)'s AMP type from \w+ to FP32|GetAmpDestDtype: op\((\w+)\)")
_PASSED_ON = {"cast", "linear"}  # cast obeys; of linear see _Dispatcher._linear


class _Dispatcher:
    """Counts the decisions, and makes results what they would be."""

    def __init__(self, half: Any) -> None:
        import paddle

        self.paddle, self.half, self.is_inside, self.is_counting = paddle, half, False, False
        self.counts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
        handle, path = tempfile.mkstemp()
        self._log = open(path, "rb")  # noqa: SIM115
        sys.stderr = os.fdopen(os.dup(2), "w")  # Python's own errors go where they went
        os.dup2(handle, 2)
        os.unlink(path)

    def install(self) -> None:
        """Put itself before every operation of Paddle, under all the names that Paddle has given it."""
        operations = self.paddle._C_ops
        named = {name: getattr(operations, name) for name in dir(operations) if not name.startswith("_")}
        wrapped = {id(op): self._wrap(name, op) for name, op in named.items() if callable(op)}
        plain = {name: op for name, op in named.items() if callable(op)}
        wrapped[id(plain["linear"])] = self._linear(wrapped[id(plain["matmul"])], wrapped[id(plain["add"])])
        modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "paddle" and module]
        for module in modules:
            for name, value in list(vars(module).items()):
                if id(value) in wrapped and value is named.get(getattr(value, "__name__", "")):
                    setattr(module, name, wrapped[id(value)])
        tensor = self.paddle.Tensor
        for name in dir(tensor):
            method = getattr(tensor, name)
            if id(method) in wrapped:
                setattr(tensor, name, wrapped[id(method)])
            elif re.fullmatch(
                r"__r?(add|sub|mul|truediv|pow|matmul|neg|getitem|floordiv|mod|lt|le|gt|ge|eq|ne|and|or|invert|abs)__",
                name,
            ):
                setattr(tensor, name, self._wrap(name, method))

    @staticmethod
    def _linear(matmul: Callable, add: Callable) -> Callable:
        """Paddle's ``linear`` is two operations, each with a decision of its own, and only shows what both come to."""

        def linear(x: Any, weight: Any, bias: Any = None) -> Any:
            product = matmul(x, weight, False, False)
            return product if bias is None else add(product, bias)

        return linear

    def _wrap(self, name: str, operation: Callable) -> Callable:
        if name in _PASSED_ON:
            return operation

        @functools.wraps(operation)
        def decide(*inputs: Any, **options: Any) -> Any:
            if self.is_inside:
                return operation(*inputs, **options)
            self.is_inside = True
            try:
                return self._decided(name, operation, inputs, options)
            finally:
                self.is_inside = False

        return decide

    def _decided(self, name: str, operation: Callable, inputs: Any, options: Any) -> Any:
        level = self.paddle.base.framework._dygraph_tracer()._amp_level
        if level == self.paddle.base.core.AmpLevel.O0:  # a GPU's kernel would take what it is given
            is_half = any(one.dtype == self.half for one in _tensors(inputs))
            if self.is_counting and self._is_cast(inputs):
                self.counts[name][not is_half] += 1
            results = operation(*self._cast(inputs, self.half, "float32"), **options)
            return self._cast(results, self.paddle.float32, self.half) if is_half else results
        if escaped := self._decisions():
            raise RuntimeError(f"operations that no wrapper has seen: {escaped}")
        results = operation(*inputs, **options)
        decisions = self._decisions()
        is_half = False
        for before, (_, asked) in zip([(b"", b""), *decisions], decisions):
            if asked:
                is_half = bool(before[0])
                if self._is_cast(inputs):
                    self.counts[asked.decode()][not is_half] += 1
                if asked == b"batch_norm" and is_half:
                    _refuse_as_a_gpu(self.paddle, inputs)
        return self._cast(results, self.paddle.float32, self.half) if is_half else results

    def _is_cast(self, inputs: Any) -> bool:
        """Whether there is something to decide: integers and float64 are left alone."""
        return any(one.dtype in (self.half, self.paddle.float32) for one in _tensors(inputs))

    def _decisions(self) -> list[Any]:
        """What the dispatcher has logged since the last call."""
        return _DECISION.findall(self._log.read())

    def _cast(self, value: Any, dtype: Any, to: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast(one, dtype, to) for one in value)
        is_one = isinstance(value, self.paddle.Tensor) and value.dtype == dtype and value._is_initialized()
        return value.cast(to) if is_one else value


def _tensors(values: Any) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found += _tensors(value)
        elif hasattr(value, "stop_gradient"):
            found.append(value)
    return found


def _refuse_as_a_gpu(paddle: Any, inputs: Any) -> None:
    """Its batch norm takes half precision with statistics, scale and shift in float32; it would make up a scale or
    shift that it is not given in half precision, and refuse it."""
    if [one.dtype for one in _tensors(inputs[1:5])] != [paddle.float32] * 4:
        raise ValueError("batch_norm of half precision needs mean, variance, scale and shift in float32")


def observe(networks: dict[str, Callable[[Callable], Any]], levels: Sequence[str], dtype: str) -> dict[str, Any]:
    """What each network, see ``half_networks``, does at each level: {level: {network: half, float32, results}}."""
    import paddle
    from paddle.amp.auto_cast import _update_list

    from paddlevit_dist.core.runtime import autocast

    dispatcher, tracer = _Dispatcher(getattr(paddle, dtype)), paddle.base.framework._dygraph_tracer()
    dispatcher.install()
    seen: dict[str, Any] = {level: {} for level in levels}
    for level, (name, run) in itertools.product(levels, networks.items()):
        options = autocast.options(dtype, level)
        white, black = (options.get(key) for key in ("custom_white_list", "custom_black_list"))
        tracer._set_amp_op_list(*_update_list(white, black, level, dtype))
        tracer._amp_dtype, tracer._use_promote = dtype, options.get("use_promote", True)

        def start(level: str = level) -> None:
            tracer._amp_level, dispatcher.is_counting = getattr(paddle.base.core.AmpLevel, level), True

        results = run(start)
        tracer._amp_level, dispatcher.is_counting = paddle.base.core.AmpLevel.O0, False
        seen[level][name] = {
            "half": {op: half for op, (half, _) in dispatcher.counts.items() if half},
            "float32": {op: full for op, (_, full) in dispatcher.counts.items() if full},
            "results": [str(one.dtype).rpartition(".")[2] for one in _tensors(results)],
        }
        dispatcher.counts.clear()
    return seen


if __name__ == "__main__":
    from support.networks.half_networks import NETWORKS

    json.dump(observe(NETWORKS, sys.argv[2:], sys.argv[1]), sys.stdout)
