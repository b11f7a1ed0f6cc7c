"""TRAIN.LORA: frozen layers with trained matrices of low rank in addition to their weights."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import paddle

from ..checkpoint.low_rank import FACTORS
from ..runtime import autocast
from ..runtime.errors import UserError
from ..tasks.model import as_model

_MIXING = ("proj_l", "proj_w")  # layers that mix CaiT's heads


class LowRankTerm:
    """Mixin that adds ``scale * (x @ lora_a) @ lora_b``, at first 0, to a linear layer's output.

    Source: E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", arXiv 2106.09685, section 4.1.
    """

    lora_scale: float

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map (..., in) to (..., out)."""
        own = super().forward(x)  # type: ignore[misc]
        inner = autocast.linear(x, self.lora_a, None)  # type: ignore[attr-defined]
        return own + autocast.linear(inner * self.lora_scale, self.lora_b, None)  # type: ignore[attr-defined]


def add_low_rank_terms(
    model: paddle.nn.Layer, rank: int, alpha: float, targets: Sequence[str], log: Callable[[str], None]
) -> None:
    """Freeze a model apart from its head, and add trained matrices to linear layers of its blocks, in place.

    Names of the model's parameters stay. Raises UserError if the model has no such layers, or does not call them.

    Args:
        rank: inner size of the matrices, at least 1.
        alpha: the term's factor is ``alpha / rank``.
        targets: a layer is chosen if one of the parts between dots of its name is among them.
    """
    groups = as_model(model).layer_groups()
    inner, head = {key for group in groups[1:-1] for key in group}, set(groups[-1])
    chosen = {
        key: sublayer
        for key, sublayer in model.named_sublayers()
        if f"{key}.weight" in inner and set(key.split(".")) & set(targets) and _get_widths(sublayer) is not None
    }
    wanted = ", ".join(targets)
    if not chosen:
        raise UserError(
            f"TRAIN.LORA: this model has no linear layers named {wanted} in numbered blocks; set TRAIN.LORA.TARGETS to "
            "parts of the names of its layers, or RANK to 0"
        )
    _require_called(model, chosen, wanted)
    for name, parameter in model.named_parameters():
        parameter.stop_gradient = parameter.stop_gradient or name not in head  # running statistics are not trained
    for layer in chosen.values():
        add_term(layer, rank, alpha / rank)
    parameters = dict(model.named_parameters())
    terms = sum(parameters[f"{key}.{factor}"].size for key in chosen for factor in FACTORS)
    in_head = sum(parameters[key].size for key in head if not parameters[key].stop_gradient)
    log(
        f"LoRA: {len(chosen)} layers have matrices of rank {rank} ({terms:,} parameters), which are trained with the "
        f"head ({in_head:,} parameters)"
    )


def _require_called(model: paddle.nn.Layer, chosen: Mapping[str, Any], wanted: str) -> None:
    """Raise UserError if a network multiplies by a layer's weights without calling the layer, which adds the term."""
    owners = dict(model.named_sublayers())
    for name, layer in chosen.items():
        owner, _, own_name = name.rpartition(".")
        is_joined = own_name == "qkv" and getattr(owners.get(owner), "q_bias", None) is not None
        if is_joined or (own_name in _MIXING and isinstance(layer, paddle.nn.Linear)):
            how = "together with separate biases" if is_joined else "from its weights"
            raise UserError(
                f"TRAIN.LORA.TARGETS: {name} of this model is computed {how} and takes no term; leave {own_name} out "
                f"of {wanted}"
            )


def _get_widths(layer: paddle.nn.Layer) -> tuple[int, int] | None:
    """Return the lengths (in, out) of a linear layer's input and output; None for another layer."""
    if isinstance(layer, paddle.nn.Linear):
        return tuple(layer.weight.shape)
    # Bridges build layers with PyTorch's attributes and weights (out, in).
    is_linear = hasattr(layer, "in_features") and list(layer.weight.shape) == [layer.out_features, layer.in_features]
    return (layer.in_features, layer.out_features) if is_linear else None


def add_term(layer: paddle.nn.Layer, rank: int, scale: float) -> None:
    """Add the factors of a low-rank term to a layer, in place."""
    kind, widths = type(layer), _get_widths(layer)
    assert widths is not None
    bound = 1.0 / math.sqrt(widths[0])
    start = paddle.nn.initializer.Uniform(-bound, bound)
    layer.lora_a = layer.create_parameter([widths[0], rank], default_initializer=start)
    layer.lora_b = layer.create_parameter([rank, widths[1]], default_initializer=paddle.nn.initializer.Constant(0.0))
    layer.lora_scale = scale
    layer.__class__ = type(kind.__name__, (LowRankTerm, kind), {})
