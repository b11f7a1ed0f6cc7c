"""Models by name: what is known, what a name stands for, and how to build it."""

from __future__ import annotations

import inspect
import sys
import typing
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

from .registry import MODELS, SPELLINGS, known_name, resolve


def create_model(
    name: str,
    num_classes: int = 1000,
    image_size: Optional[Union[int, Tuple[int, int]]] = None,
    **options: Any,
):
    """Build a model with fresh weights.

    Args:
        name: one of ``list_models()``.
        num_classes: outputs of the classifier; 0 builds a model that returns features.
        image_size: side of the square input or ``(height, width)`` in pixels; None is the size of the variant.
        **options: dimensions and regularisation that differ from the variant (``patch_size``, ``embed_dim``,
            ``in_channels``, ``dropout``, ``drop_path`` and others that the model's class documents). An option that is
            None keeps the variant's value.

    Returns:
        A ``paddle.nn.Layer`` with ``forward``, ``forward_features`` and ``reset_classifier``.

    Raises:
        UserError: unknown name or option, or dimensions that do not fit together.
    """
    chosen = {key: value for key, value in options.items() if value is not None}
    name = _own_name(name)
    return resolve("model", name)(name, num_classes=num_classes, image_size=image_size, **chosen)


def list_models() -> List[str]:
    """All registered names in alphabetical order; imports no model."""
    return sorted(MODELS)


def variant_options(name: str) -> Dict[str, Any]:
    """The dimensions that ``name`` stands for, empty for a model registered without a table of variants.

    Raises:
        UserError: unknown name.
    """
    name = _own_name(name)
    module = sys.modules[resolve("model", name).__module__]
    return dict(getattr(module, "VARIANTS", {}).get(name, {}))


def _own_name(name: str) -> str:
    name = known_name("model", name)
    return SPELLINGS.get(name, name)


class ModelOptions(NamedTuple):
    """What can be set about a model.

    Attributes:
        defaults: every option with the value that the name stands for.
        of_variant: the options that its table of variants sets.
        fixed: dimensions that have names in recipes but one value only.
    """

    defaults: Dict[str, Any]
    of_variant: Dict[str, Any]
    fixed: Dict[str, Any]


def model_options(name: str) -> ModelOptions:
    """The options of a registered model: those of the class that its build function is annotated to return, or of
    the function itself where that says no class.

    Raises:
        UserError: unknown name.
    """
    target = resolve("model", _own_name(name))
    built = target if inspect.isclass(target) else typing.get_type_hints(target).get("return", target)
    parameters = inspect.signature(built if inspect.isclass(built) else target).parameters.values()
    named = {p.name: p.default for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    variant = variant_options(name)
    for other in ("name", "num_classes", "image_size"):
        named.pop(other, None)
    return ModelOptions({**named, **variant}, variant, dict(getattr(built, "fixed_options", {})))
