"""Find the first non-finite tensor of a forward and backward pass, its layer and its samples."""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import paddle

from ...core.runtime.paddle_versions import check_operations
from ...core.runtime.printing import captured_output

_FLOATING = (paddle.float16, paddle.bfloat16, paddle.float32, paddle.float64)


class BadTensor(NamedTuple):
    """Tensor with non-finite values."""

    order: int  # number of tensors of the pass that were checked before it
    what: str  # its description, for example "the output of layer 'head' (Linear)"
    bad: int  # number of non-finite values
    size: int  # number of values
    rows: list[int] | None  # positions of affected samples in the batch; None if that is not the tensor's first axis


class LayerWatch:
    """Checks the output of each layer of a model and its gradients, and stores the first non-finite tensor.

    Args:
        model: gets hooks, which ``close`` removes.
        samples: number of samples in the batch.

    Attributes:
        first_bad: the first non-finite tensor; None if there is none yet.
    """

    def __init__(self, model: paddle.nn.Layer, samples: int) -> None:
        self.first_bad: BadTensor | None = None
        self._samples = samples
        self._num_checked = 0
        self._last_finite = "the input of the model"
        layers = model.named_sublayers(include_self=True)
        self._hooks = [layer.register_forward_post_hook(self._make_hook(name, layer)) for name, layer in layers]

    def close(self) -> None:
        """Remove the hooks from the model."""
        for hook in self._hooks:
            hook.remove()

    def check(self, tensor: paddle.Tensor, what: str) -> None:
        """Check a tensor, unless a non-finite one was found earlier."""
        if self.first_bad is not None or tensor.dtype not in _FLOATING:
            return
        self._num_checked += 1
        values = tensor.detach().astype("float32").numpy()
        bad = ~np.isfinite(values)
        if not bad.any():
            self._last_finite = what
            return
        rows = None
        if values.ndim and len(values) == self._samples:
            rows = np.flatnonzero(bad.reshape(len(values), -1).any(axis=1)).tolist()
        self.first_bad = BadTensor(self._num_checked, what, int(bad.sum()), values.size, rows)

    def check_gradients(self, model: paddle.nn.Layer) -> None:
        """Check the gradients of the parameters from the last to the first, the order of the backward pass."""
        for name, parameter in reversed(list(model.named_parameters())):
            if parameter.grad is not None:
                self.check(parameter.grad, f"the gradient of '{name}'")

    def _make_hook(self, name: str, layer: paddle.nn.Layer) -> Callable[..., None]:
        title = f"layer '{name}' ({type(layer).__name__})" if name else f"the model ({type(layer).__name__})"

        def check_output(_: object, inputs: object, output: object) -> None:
            if self.first_bad is not None:
                return
            for tensor in _iterate_tensors(inputs):
                # A bad input comes from a function between layers, or from a parameter that is used without a layer.
                self.check(tensor, f"the input of {title}, computed after {self._last_finite},")
            for tensor in _iterate_tensors(output):
                self.check(tensor, f"the output of {title}")
                if self.first_bad is None and not tensor.stop_gradient and tensor.dtype in _FLOATING:
                    tensor.register_hook(
                        lambda gradient: self.check(gradient, f"the gradient of the output of {title}")
                    )

        return check_output


def _iterate_tensors(value: object) -> Iterator[paddle.Tensor]:
    """Yield the tensors in nested lists, dictionaries and plain objects such as a ``SparseTensor``."""
    if isinstance(value, paddle.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _iterate_tensors(item)
    elif isinstance(value, dict):
        yield from _iterate_tensors(list(value.values()))
    elif hasattr(value, "__dict__") and not isinstance(value, paddle.nn.Layer):
        yield from (member for member in vars(value).values() if isinstance(member, paddle.Tensor))


def find_first_operation(model: paddle.nn.Layer, run: Callable[[], Any]) -> str | None:
    """Return the name of the first operation of Paddle in ``run`` whose result is not finite, or None.

    The check starts at the model's first layer: before it, ``batch_norm`` normalizes images, and some of its outputs
    are uninitialized memory.
    """
    with captured_output(), contextlib.ExitStack() as checks:  # Paddle's check prints pages from C++
        active: list[Any] = []

        def begin(*_: object) -> None:
            if not active:
                active.append(checks.enter_context(check_operations()))

        hook = model.register_forward_pre_hook(begin)
        try:
            run()
        except RuntimeError as error:
            match = re.search(r"\bop=(\w+)", str(error))
            return match[1] if match else None
        finally:
            hook.remove()
    return None
