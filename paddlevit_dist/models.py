"""Models by name: what is known, what a name stands for, and how to build it."""

from __future__ import annotations

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
        A ``contracts.model.Model``, or what a registered function returns.

    Raises:
        UserError: unknown name or option, or dimensions that do not fit together.
    """
    chosen = {key: value for key, value in options.items() if value is not None}
    name = _own_name(name)
    return _family(name).build(name, num_classes=num_classes, image_size=image_size, **chosen)


def list_models() -> List[str]:
    """All registered names in alphabetical order; imports no model."""
    return sorted(MODELS)


def variant_options(name: str) -> Dict[str, Any]:
    """The dimensions that ``name`` stands for, empty for a model registered without a table of variants.

    Raises:
        UserError: unknown name.
    """
    name = _own_name(name)
    return dict(_family(name).variants.get(name, {}))


def _own_name(name: str) -> str:
    name = known_name("model", name)
    return SPELLINGS.get(name, name)


def _family(name: str) -> Any:
    from .contracts.user_models import family_of  # not at the top: listing names imports no Paddle

    return family_of(resolve("model", name))


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
    """The options of a registered model: those of its class, where that is known.

    Raises:
        UserError: unknown name.
    """
    family, variant = _family(_own_name(name)), variant_options(name)
    return ModelOptions({**family.options(), **variant}, variant, dict(family.fixed_options))
