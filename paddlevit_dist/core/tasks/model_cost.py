"""Cost of a model: parameters, multiply-accumulates and the activations that its backward pass needs."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import paddle
from paddle import nn


@dataclass
class LayerCost:
    """One layer of the model."""

    name: str  # by the model's structure, such as "blocks.0.attn.qkv"
    kind: str  # its class
    parameters: int  # number of the layer's, without its sublayers
    multiply_accumulates: int = 0  # for one image
    output_shape: tuple[int, ...] | None = None  # of one image, None for a layer that is not called as such


@dataclass
class ModelCost:
    """Sums over a model."""

    layers: list[LayerCost]  # in model order, including containers
    parameters: int  # number of trainable ones
    multiply_accumulates: int  # for one image, of linear layers, convolutions and layers with ``count_products``
    activation_bytes: int  # of all tensors that the backward pass of one image needs, without the weights


def count_parameters(model: nn.Layer) -> int:
    """Count the numbers in the model's trainable parameters; also if it was built under ``paddle.LazyGuard``.

    Paddle calls the running statistics of batch norms parameters as well.
    """
    return _count_numbers(model.parameters())


def _count_numbers(parameters: Iterable[paddle.Tensor]) -> int:
    return sum(math.prod(parameter.shape) for parameter in parameters if not parameter.stop_gradient)


def list_layers(model: nn.Layer) -> list[LayerCost]:
    """List the layers with their parameters; nothing is computed."""
    return [
        LayerCost(name, type(layer).__name__, _count_numbers(p for p in layer._parameters.values() if p is not None))
        for name, layer in model.named_sublayers(include_self=True)
    ]


def compute_cost(model: nn.Layer, image: paddle.Tensor) -> ModelCost:
    """Count during a forward pass of one image, (1, channels, height, width); the model should be in evaluation mode.

    Hooks do the counting, so that it follows what is computed; products of activations are seen where they are layers
    with ``count_products``, as in all models here, but not where a third-party model calls ``matmul``. What the
    backward pass needs is what Paddle's automatic differentiation sets aside, each memory once.
    """
    costs = {cost.name: cost for cost in list_layers(model)}
    hooks = [
        layer.register_forward_post_hook(_counter(costs[name]))
        for name, layer in model.named_sublayers(include_self=True)
    ]
    kept: dict[int, paddle.Tensor] = {}

    def keep(tensor: paddle.Tensor) -> paddle.Tensor:
        kept[tensor.data_ptr()] = tensor  # held until the end, so that no address is reused
        return tensor

    try:
        with paddle.autograd.saved_tensors_hooks(keep, lambda tensor: tensor):
            model(image)
    finally:
        for hook in hooks:
            hook.remove()
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    layers = list(costs.values())
    return ModelCost(
        layers=layers,
        parameters=count_parameters(model),
        multiply_accumulates=sum(cost.multiply_accumulates for cost in layers),
        activation_bytes=sum(
            int(tensor.size) * tensor.element_size() for address, tensor in kept.items() if address not in weights
        ),
    )


def _counter(cost: LayerCost) -> Callable[[nn.Layer, tuple[Any, ...], object], None]:
    def count(layer: nn.Layer, inputs: tuple[Any, ...], output: object) -> None:
        if not isinstance(output, paddle.Tensor):
            return
        cost.output_shape = tuple(output.shape)
        cost.multiply_accumulates += math.prod(output.shape) * _products_per_number(layer, inputs)

    return count


def _products_per_number(layer: nn.Layer, inputs: tuple[Any, ...]) -> int:
    """Return the multiplications per output element: the length of the sum that yields it."""
    if isinstance(layer, nn.Linear):
        return int(layer.weight.shape[0])
    if isinstance(layer, (nn.Conv1D, nn.Conv2D, nn.Conv3D)):
        return math.prod(layer.weight.shape[1:])  # (out, in / groups, *kernel)
    count = getattr(layer, "count_products", None)  # of a layer of a modality
    return 0 if count is None else count(*inputs)
