"""The first value of a forward and backward pass that is not finite: which layer made it, from which samples."""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..runtime.paddle_versions import check_operations
from ..runtime.printing import captured_output

_FLOATING = (paddle.float16, paddle.bfloat16, paddle.float32, paddle.float64)


class BadTensor(NamedTuple):
    """A tensor that is not finite.

    Attributes:
        order: how many tensors of the pass were looked at before it.
        what: its name, "the output of layer 'head' (Linear)" for example.
        bad: how many of its values are not finite.
        size: how many values it has.
        rows: the samples whose values are not finite, by their place in the batch; None where the first axis of the
            tensor does not count samples.
    """

    order: int
    what: str
    bad: int
    size: int
    rows: list[int] | None


class LayerWatch:
    """Looks at what each layer of a model puts out, and at the gradients of that, and keeps the first that is bad.

    Args:
        model: is left as it was when ``close`` is called.
        samples: in the batch.

    Attributes:
        found: the first tensor that is not finite; None so far.
    """

    def __init__(self, model: paddle.nn.Layer, samples: int) -> None:
        self.found: BadTensor | None = None
        self._samples = samples
        self._looked_at = 0
        self._before = "the input of the model"  # the last one that was finite
        layers = model.named_sublayers(include_self=True)
        self._hooks = [layer.register_forward_post_hook(self._make_hook(name, layer)) for name, layer in layers]

    def close(self) -> None:
        """Take the hooks off the model."""
        for hook in self._hooks:
            hook.remove()

    def look(self, tensor: paddle.Tensor, what: str) -> None:
        """Look at a tensor unless an earlier one was not finite already."""
        if self.found is not None or tensor.dtype not in _FLOATING:
            return
        self._looked_at += 1
        values = tensor.detach().astype("float32").numpy()
        bad = ~np.isfinite(values)
        if not bad.any():
            self._before = what
            return
        rows = None
        if values.ndim and len(values) == self._samples:
            rows = np.flatnonzero(bad.reshape(len(values), -1).any(axis=1)).tolist()
        self.found = BadTensor(self._looked_at, what, int(bad.sum()), values.size, rows)

    def look_at_gradients(self, model: paddle.nn.Layer) -> None:
        """Look at the gradients of the parameters, the last one's first, as the backward pass makes them."""
        for name, parameter in reversed(list(model.named_parameters())):
            if parameter.grad is not None:
                self.look(parameter.grad, f"the gradient of '{name}'")

    def _make_hook(self, name: str, layer: paddle.nn.Layer) -> Callable[..., None]:
        said = f"layer '{name}' ({type(layer).__name__})" if name else f"the model ({type(layer).__name__})"

        def look_at_output(_: Any, inputs: Any, output: Any) -> None:
            if self.found is not None:
                return
            for tensor in _tensors_in(inputs):
                # Its maker is no layer: a function between layers, or a parameter that is used without one.
                self.look(tensor, f"the input of {said}, made after {self._before},")
            for tensor in _tensors_in(output):
                self.look(tensor, f"the output of {said}")
                if self.found is None and not tensor.stop_gradient and tensor.dtype in _FLOATING:
                    tensor.register_hook(lambda gradient: self.look(gradient, f"the gradient of the output of {said}"))

        return look_at_output


def _tensors_in(value: Any) -> Iterator[paddle.Tensor]:
    """The tensors of a layer's input or output: itself, or in lists, dictionaries and plain objects such as a
    ``SparseTensor``."""
    if isinstance(value, paddle.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_in(item)
    elif isinstance(value, dict):
        yield from _tensors_in(list(value.values()))
    elif hasattr(value, "__dict__") and not isinstance(value, paddle.nn.Layer):
        yield from (item for item in vars(value).values() if isinstance(item, paddle.Tensor))


def first_operation(model: paddle.nn.Layer, run: Callable[[], Any]) -> str | None:
    """The name of the first operation of Paddle in ``run`` whose result is not finite, or None.

    Looked at from the model's first layer on: among what ``batch_norm`` returns, which normalizes images before that,
    is memory that it leaves as it was.
    """
    with captured_output(), contextlib.ExitStack() as checks:  # Paddle's check prints pages from C++
        begun: list[Any] = []

        def begin(*_: Any) -> None:
            if not begun:
                begun.append(checks.enter_context(check_operations()))

        hook = model.register_forward_pre_hook(begin)
        try:
            run()
        except RuntimeError as error:
            named = re.search(r"\bop=(\w+)", str(error))
            return named[1] if named else None
        finally:
            hook.remove()
    return None
