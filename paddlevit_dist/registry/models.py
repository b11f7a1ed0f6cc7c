"""Names of models: list them, and tell names of weights from names of networks."""

import fnmatch
import os

from .lookup import MODELS, find_name
from .model_sources import list_bridged_models
from .other_names import OTHER_NAMES, spellings

_WEIGHT_FILES = (".pdparams", ".safetensors", ".npz", ".pth", ".pt", ".bin")


def list_models(pattern: str = "*") -> list[str]:
    """Return the registered names that match a shell pattern such as "vit*", ignoring case, in alphabetical order.

    A pattern such as "paddle:*" lists models of another package.

    Raises:
        UserError: there is no such package.
    """
    source, colon, _ = pattern.partition(":")
    names = list_bridged_models(source.lower()) if colon else [name for name in sorted(MODELS) if ":" not in name]
    return [name for name in names if fnmatch.fnmatchcase(name.lower(), pattern.lower())]


def is_weights_name(name: str) -> bool:
    """Return whether a model's name stands for weights: with timm's tag, an owner, a path or a URL.

    Building a model by such a name would lack the weights it promises.
    """
    model = find_name("model", name)
    return name != model and all(
        OTHER_NAMES["model"].get(other, other) != model for other in spellings(name, with_weights=False)
    )


def as_source(name: str) -> str:
    """Complete a name of weights for ``load_weights``: repositories are on Hugging Face, single names are timm's."""
    is_there = ":" in name or name.startswith(("/", ".", "~")) or os.path.exists(name)
    if is_there or name.count("/") > 1 or name.endswith(_WEIGHT_FILES):
        return name
    return f"hf:{name}" if "/" in name else f"hf:timm/{name}"
