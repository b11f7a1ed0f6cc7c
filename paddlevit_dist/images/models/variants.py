"""From a name and the options that differ from it to a model."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Union

from ...errors import UserError
from ...registry import closest


def build_variant(
    model: Callable[..., Any],
    variants: Mapping[str, Mapping[str, Any]],
    name: str,
    num_classes: int,
    image_size: Optional[Union[int, Tuple[int, int]]],
    options: Mapping[str, Any],
):
    """``model(...)`` with the dimensions of ``variants[name]``, overridden by ``options`` and ``image_size``.

    Raises:
        UserError: an option that the model does not take; the message lists those it takes.
    """
    valid = [key for key in inspect.signature(model).parameters if key not in ("num_classes", "image_size")]
    for key in options:
        if key not in valid:
            hint = closest(key, valid)
            raise UserError(f"model '{name}' has no option '{key}': {hint}valid options: {', '.join(sorted(valid))}")
    dimensions: Dict[str, Any] = {**variants[name], **options}
    if image_size is not None:
        dimensions["image_size"] = image_size
    return model(num_classes=num_classes, **dimensions)
