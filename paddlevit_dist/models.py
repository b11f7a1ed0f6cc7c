"""Models by name: what is known, what a name stands for, and how to build it."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Optional, Tuple, Union

from .registry import MODELS, SPELLINGS, resolve


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
    name = SPELLINGS.get(name, name)
    return resolve("model", name)(name, num_classes=num_classes, image_size=image_size, **chosen)


def list_models() -> List[str]:
    """All registered names in alphabetical order; imports no model."""
    return sorted(MODELS)


def variant_options(name: str) -> Dict[str, Any]:
    """The dimensions that ``name`` stands for, empty for a model registered without a table of variants.

    Raises:
        UserError: unknown name.
    """
    name = SPELLINGS.get(name, name)
    module = sys.modules[resolve("model", name).__module__]
    return dict(getattr(module, "VARIANTS", {}).get(name, {}))
