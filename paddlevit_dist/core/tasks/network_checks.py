"""Checks of a network that may be a user's: the names of its attributes, and what it returns."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import paddle
from paddle import nn

from ..registry.required_methods import is_builtin
from ..runtime.errors import UserError
from ..runtime.printing import describe_value

# Kinds of values of a base class's attributes, by the kind of their default, or by name if that is None.
_KINDS: dict[Any, Any] = {tuple: (tuple, list), dict: Mapping, int: Integral, float: Real, str: str}
_KINDS |= {"image_size": (Integral, tuple, list), "layer_names": str}
_NOT_OWN = (f"{__name__.partition('.')[0]}.", "paddle.")
_OF_CLASSES = ("fixed_options", "variants", "works_on")  # never read from an object


def require_free(cls: type, name: str, value: object, is_of_class: bool = False) -> None:
    """Check an attribute that a network is given, or with ``is_of_class`` its new class.

    Raises:
        UserError: a class of this package uses the name for something else, or an attribute of a class hides a layer.
    """
    owner: Any = next((base for base in cls.__mro__[is_of_class:] if name in vars(base)), None)
    if owner is None or name.startswith("__") or isinstance(value, property):
        return
    used, is_fine = vars(owner)[name], True
    if isinstance(value, (nn.Layer, paddle.Tensor)):
        is_fine = isinstance(used, property) and used.fset is not None
    elif not is_builtin(owner):
        return
    elif isinstance(used, classmethod):
        is_fine = not is_of_class or isinstance(value, classmethod)
    elif inspect.isfunction(used):
        is_fine = callable(value) or isinstance(value, (classmethod, staticmethod))
    elif value is not used and (is_of_class or name not in _OF_CLASSES):
        is_fine = isinstance(value, _KINDS.get(name if used is None else type(used), object))
    if not is_fine:
        raise UserError(
            f"{cls.__name__}: {owner.__name__} has an attribute '{name}' of another kind, which yours "
            f"({type(value).__name__}) hides or is hidden by: rename yours, for example to own_{name}"
        )


def check_network(model: Any, meaning: str, *shape: int | None, keeps_size: bool = False) -> Callable[[Any], Any]:
    """Return a function from a batch to the outputs of a network, checked by ``require_output``.

    Of inputs (N, ...), they are (N, *shape), with ``keeps_size`` followed by the input's axes from the third on.
    """

    def compute(inputs: paddle.Tensor) -> paddle.Tensor:
        expected = inputs.shape[0], *shape, *(inputs.shape[2:] if keeps_size else ())
        return require_output(model(inputs), expected, model, meaning)

    return compute


def require_output(outputs: Any, shape: Sequence[int | None], model: Any, meaning: str) -> paddle.Tensor:
    """Return what a network returns if it is a floating-point tensor of this shape, in which None is any length.

    Nothing waits for the device. ``meaning`` names the tensor and its axes, such as "logits (images, classes)". Raises
    UserError: it is something else; the message says what, and what to do.
    """
    is_alone = isinstance(outputs, paddle.Tensor) and outputs.is_floating_point() and outputs.ndim == len(shape)
    if is_alone and all(expected in (None, length) for length, expected in zip(outputs.shape, shape)):
        return outputs
    network = getattr(model, "_layers", model)  # without the data-parallel wrapper
    mode = "training" if getattr(network, "training", False) else "evaluation"
    sizes = ", ".join("any" if length is None else str(length) for length in shape)
    raise UserError(
        f"{type(network).__name__} returns {describe_value(outputs)} in {mode} mode, expected {meaning}, a float "
        f"tensor ({sizes}): return it alone, or register a task for other outputs (docs/guides/extending.md)"
    )


def has_own_layers(model: nn.Layer) -> bool:
    """Return whether a layer of a network is neither of this package nor of Paddle."""
    return any(not type(layer).__module__.startswith(_NOT_OWN) for layer in model.sublayers(include_self=True))


@contextlib.contextmanager
def keep_buffers(model: nn.Layer) -> Iterator[None]:
    """Give a network back the buffers that it had before the block, such as a counter of its calls.

    An evaluation then scores what is saved and trained on, for any number of batches and processes.
    """
    kept = [
        (layer, name, buffer, buffer.clone())
        for layer in model.sublayers(include_self=True)
        for name, buffer in layer._buffers.items()
        if buffer is not None and buffer.size
    ]
    try:
        yield
    finally:
        with paddle.no_grad():
            for layer, name, buffer, copy in kept:
                paddle.assign(copy, buffer)
                layer._buffers[name] = buffer


@contextlib.contextmanager
def require_unchanged(model: nn.Layer) -> Iterator[None]:
    """Raise UserError if a parameter that is not trained, such as running statistics, changes in the block."""
    kept = [(name, value, value.clone()) for name, value in model.named_parameters() if value.stop_gradient]
    yield
    current = dict(model.named_parameters())
    for name, value, copy in kept:
        if current.get(name) is not value or not bool(((value == copy) | (copy != copy)).all()):
            raise UserError(
                f"{type(model).__name__} changes its parameter {name} in evaluation mode, so that its score is of "
                "other weights than those that are saved: change it only if self.training, or use register_buffer"
            )
