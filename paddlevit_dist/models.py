"""Models by name: which are known, what a name means, and how to build one."""

import fnmatch
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from .extension import extensions
from .registry import MODELS, SPELLINGS, bridged_names, find_name, is_of_weights, require_derived, resolve
from .runtime.errors import UserError

_WEIGHT_FILES = (".pdparams", ".safetensors", ".npz", ".pth", ".pt", ".bin")


def create_model(
    name: str,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    **options: Any,
):
    """Build a model with fresh weights.

    Args:
        name: one of ``list_models()``.
        num_classes: outputs of the classifier; 0 builds a model that returns features. None: 1,000, or as many as timm
            builds the model with.
        image_size: side of the square input or ``(height, width)`` in pixels; None uses the variant's size.
        **options: dimensions and regularization that differ from the variant (``patch_size``, ``embed_dim``,
            ``in_channels``, ``dropout``, ``drop_path`` and others documented by the model's class). An option set to
            None keeps the variant's value.

    Returns:
        A ``tasks.model.Model``, or whatever a registered function returns.

    Raises:
        UserError: unknown name or option, incompatible dimensions, or a name of weights (``hf:timm/resnet18.a1_in1k``).
    """
    if is_of_weights(name):
        raise UserError(
            f"create_model: {name} names weights, and a model is built with fresh ones: "
            f"model = create_model('{find_name('model', name)}'), then load_weights(model, '{as_source(name)}')"
        )
    chosen = {key: value for key, value in options.items() if value is not None}
    name = _own_name(name)
    classes = default_classes(name) if num_classes is None else num_classes
    return prepare(_family(name).build(name, num_classes=classes, image_size=image_size, **chosen))


def default_classes(name: str) -> int:
    """Return how many classes the model called ``name`` has where nobody says it."""
    return int(_family(name).default_classes(_own_name(name)))


def prepare(model: Any) -> Any:
    """Prepare a new model: running variances as PyTorch has them, and fast layers on CPUs from the extensions.

    A second call changes nothing.
    """
    from .distributed import unbias_running_variance

    if hasattr(model, "sublayers"):
        unbias_running_variance(model)
    for one in extensions():
        one.prepare_model(model)
    return model


def list_models(pattern: str = "*") -> list[str]:
    """List the registered names that fit the shell's ``pattern``, such as "vit*" in any case, in alphabetical order.

    A pattern such as "paddle:*" lists those of another package.

    Raises:
        UserError: there is no such package.
    """
    source, colon, _ = pattern.partition(":")
    names = bridged_names(source.lower()) if colon else [name for name in sorted(MODELS) if ":" not in name]
    return [name for name in names if fnmatch.fnmatchcase(name.lower(), pattern.lower())]


def variant_options(name: str) -> dict[str, Any]:
    """Look up the dimensions that ``name`` implies; empty for a model registered without a table of variants.

    Raises:
        UserError: unknown name.
    """
    name = _own_name(name)
    return dict(_family(name).variants.get(name, {}))


def as_source(name: str) -> str:
    """Complete a name of weights for ``load_weights``: a repository is Hugging Face's, and a name alone is timm's."""
    is_there = ":" in name or name.startswith(("/", ".", "~")) or os.path.exists(name)
    if is_there or name.count("/") > 1 or name.endswith(_WEIGHT_FILES):
        return name
    return f"hf:{name}" if "/" in name else f"hf:timm/{name}"


def _own_name(name: str) -> str:
    name = find_name("model", name)
    return SPELLINGS.get(name, name)


def _family(name: str) -> Any:
    from .tasks.model import Model  # not at the top: listing names must not import Paddle

    return require_derived(resolve("model", name), Model)


class ModelOptions(NamedTuple):
    """Hold the configurable options of a model.

    Attributes:
        defaults: every option with the value that the name implies.
        of_variant: the options that the table of variants sets.
        fixed: dimensions that recipes name but that have only one value.
        notices: what a user should know of the model.
    """

    defaults: dict[str, Any]
    of_variant: dict[str, Any]
    fixed: dict[str, Any]
    notices: list[str]


def model_options(name: str) -> ModelOptions:
    """Look up the options of a registered model: those of its class, if known.

    Raises:
        UserError: unknown name.
    """
    family, variant = _family(_own_name(name)), variant_options(name)
    return ModelOptions({**family.options(), **variant}, variant, dict(family.fixed_options), family.list_notices(name))


# What a detector or segmenter asks of a backbone whatever its family; the other options of a variant are dimensions.
_BACKBONE_USES = ("any_size", "dilation", "frozen_batch_norm", "frozen_stages", "norm_features")


def fit_backbone_options(variant: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the variant's ``backbone_options`` if ``options`` name another backbone.

    Args:
        variant: options of the configured variant, of which ``backbone`` and ``backbone_options`` are read.
        options: options that the user gives; ``backbone_options`` among them win.

    Returns:
        ``options``, with the uses of a backbone that the other one supports: images of any size, dilation, frozen
        layers. The variant's dimensions do not apply to another backbone.
    """
    backbone = options.get("backbone")
    if backbone is None or backbone == variant.get("backbone"):
        return dict(options)
    known = model_options(backbone).defaults
    uses = {"any_size": True, **(variant.get("backbone_options") or {})}
    kept = {key: value for key, value in uses.items() if key in _BACKBONE_USES and key in known}
    return {"backbone_options": kept, **options}
