"""The input that pretrained weights expect: defaults for keys that a configuration does not set.

These weights are for images with three channels.
"""

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from yacs.config import CfgNode

from ..checkpoint.published import PUBLISHED, PublishedWeights, find_published, find_published_for, find_sibling_file
from ..registry import SPELLINGS, find_name
from ..runtime.errors import UserError
from ..runtime.lazy_names import import_object
from ..runtime.text_files import read_json
from .models.pretrained_input import ExpectedInput, find_variant_input

_WEIGHTS = ("model.safetensors", "pytorch_model.bin", "pytorch_model.safetensors")  # the configs are next to these
_TIMM_INPUT = "paddlevit_dist.images.models.bridges.timm_model:get_expected_input"
_TIMM, _HUGGING_FACE = "config.json", "preprocessor_config.json"
# Indexed by Pillow's numbers, which Hugging Face writes.
_RESAMPLING = dict(enumerate(("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")))


def find_starting_weights(values: CfgNode) -> PublishedWeights | None:
    """Return the published weights that a run starts from, or that its recipe requires; None without such weights.

    A recipe that requires weights falls back to its model's published ones, so that a checkpoint given by its path
    is evaluated or fine-tuned with their input.
    """
    weights = find_published(values.MODEL.PRETRAINED)
    if weights is None and values.MODEL.PRETRAINED_REQUIRED:
        weights = find_published_for(values.MODEL.NAME)
    return weights


# Weights with a classifier and a free license that score best on ImageNet-1k, best first: image size, MB of training
# memory for each image, and MB for weights, gradients and moments. Source: ``inspect NAME``.
_BEST = (
    ("eva02_base_patch14_448.mim_in22k_ft_in22k_in1k", 448, 1572, 1400),
    ("eva02_small_patch14_336.mim_in22k_ft_in1k", 336, 342, 355),
)
_SPARE = 1.25  # factor for the memory of libraries and fragmentation


def format_stronger_pretrained_hint(values: Any, device_bytes: int) -> str | None:
    """Return a note that names better pretrained weights than the recipe's, if training them fits the device.

    Args:
        values: configuration of a training run.
        device_bytes: memory of an accelerator; 0 on a CPU, where networks larger than the recipe's take hours.
    """
    current = find_published(values.MODEL.PRETRAINED)
    if (
        values.TASK != "classification"
        or not values.MODEL.PRETRAINED_REQUIRED
        or current is None
        or current.top1 is None
    ):
        return None
    for name, size, image_mb, weights_mb in _BEST:
        row, needed = PUBLISHED[name], weights_mb + _SPARE * image_mb * values.DATA.BATCH_SIZE
        if current.top1 < (row.top1 or 0) and needed * 1e6 <= device_bytes:
            return (
                f"note: this device has room for better weights: -pretrained={name} -image_size={size} ({row.license}; "
                f"{row.top1:.1f} % on ImageNet-1k, {current.name} has {current.top1:.1f}; about {needed / 1000:.0f} GB)"
            )
    return None


def find_expected_input(values: CfgNode, is_hub_asked: bool = True) -> tuple[ExpectedInput, str] | None:
    """Find the input that the weights of this configuration expect, and the source of this information.

    Sources, in this order: the published weights' entry, timm's or Hugging Face's file next to the weights, the model's
    variant.

    Args:
        values: the configuration.
        is_hub_asked: download these files for weights at Hugging Face that have no local copy.

    Returns:
        The expected input and its source, or None if there is no source.

    Raises:
        UserError: a file next to the weights is damaged, or describes preprocessing that this package does not have.
    """
    model = SPELLINGS.get(values.MODEL.NAME, values.MODEL.NAME)
    weights_name, variant_input = (
        _find_timm_input(values) if model.startswith("timm:") else (model, find_variant_input(model))
    )
    weights = find_starting_weights(values)
    if weights is not None:
        size = (variant_input or ExpectedInput()).image_size
        crop = weights.crop_pct, weights.interpolation, size, weights.crop_mode
        return ExpectedInput(weights.mean, weights.std, *crop), weights.name
    is_of_timm = weights_name.startswith("timm:") and weights_name == str(values.MODEL.PRETRAINED).partition("#")[0]
    if is_of_timm and variant_input is not None:
        return variant_input, weights_name
    described = _read_config(values.MODEL.PRETRAINED, model, variant_input or ExpectedInput(), is_hub_asked)
    return described or (variant_input and (variant_input, weights_name))


def _find_timm_input(values: CfgNode) -> tuple[str, ExpectedInput]:
    """Return the name and timm's expected input of the configured weights, or of the model's default weights."""
    source = str(values.MODEL.PRETRAINED).partition("#")[0]
    name = source if source.startswith("timm:") else values.MODEL.NAME
    return name, _parse_timm_config(import_object(_TIMM_INPUT)(name), name, ExpectedInput())


def format_expected_input(values: CfgNode) -> str | None:
    """Return the log line about the input, with the differences to what its weights expect.

    None if it is not known what the weights expect.
    """
    match = find_expected_input(values, is_hub_asked=False)
    if match is None:
        return None
    expected, source = match
    data = values.DATA
    mean, std = tuple(data.IMAGENET_MEAN), tuple(data.IMAGENET_STD)
    used = _format_settings(
        ExpectedInput(mean, std, data.CROP_PCT, data.INTERPOLATION, data.IMAGE_SIZE, data.CROP_MODE)
    )
    differences = {name: text for name, text in _format_settings(expected).items() if text != used[name]}
    line = f"input: {', '.join(used.values())}"
    if not differences:
        return f"{line} ({source})"
    # A run from scratch expects nothing.
    return f"{line}; {source} expects {', '.join(differences.values())}" if values.MODEL.PRETRAINED else line


def _format_settings(expected: ExpectedInput) -> dict[str, str]:
    """Format each setting of an input, by name."""
    mean, std = (", ".join(f"{value:g}" for value in part) for part in (expected.mean, expected.std))
    return {
        "size": f"{expected.image_size} pixels",
        "crop": f"crop {expected.crop_pct:g}" + (" of a square" if expected.crop_mode == "squash" else ""),
        "interpolation": expected.interpolation,
        "mean": f"mean {mean}",
        "std": f"deviation {std}",
    }


def format_unknown_input(values: CfgNode, expected: tuple[ExpectedInput, str] | None) -> str | None:
    """Return a note if the weights are at Hugging Face and their expected input cannot be downloaded; None otherwise.

    Args:
        values: the configuration.
        expected: result of ``find_expected_input``.
    """
    source = values.MODEL.PRETRAINED
    is_known = expected is not None and (os.path.isfile(expected[1]) or expected[1] == str(source).partition("#")[0])
    if find_starting_weights(values) is not None or is_known:
        return None
    reason = next(filter(None, (find_sibling_file(source, name, True)[1] for name in (_TIMM, _HUGGING_FACE))), None)
    return reason and f"note: the input that {source} expects is not known: {reason}"


def _read_config(
    source: Any, model: str, defaults: ExpectedInput, is_hub_asked: bool
) -> tuple[ExpectedInput, str] | None:
    """Read timm's or Hugging Face's file next to the weights; None without a file, or if it is for another model."""
    file = _find_config(source, _TIMM, is_hub_asked)
    if file is not None:
        content = _read(file)
        config = content.get("pretrained_cfg", content)
        if isinstance(config, Mapping) and "mean" in config and _belongs_to(content.get("architecture"), model):
            return _parse_timm_config(config, file, defaults), file
    file = _find_config(source, _HUGGING_FACE, is_hub_asked)
    return None if file is None else (_parse_hugging_face_config(_read(file), file, defaults), file)


def _find_config(source: Any, name: str, is_hub_asked: bool) -> str | None:
    """Return the path of the file ``name`` next to the weights, local or at Hugging Face; None if there is none."""
    if not isinstance(source, str):
        return None
    folder = source if os.path.isdir(source) else os.path.dirname(source)
    if folder == source or os.path.basename(source) in _WEIGHTS:
        file = os.path.join(folder, name)
        return file if os.path.isfile(file) else None
    path = find_sibling_file(source, name, is_hub_asked)[0]
    return None if path is None else str(path)


def _read(file: str) -> Mapping[str, Any]:
    try:
        content = read_json(file)
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}; restore it or remove it") from error
    return content if isinstance(content, Mapping) else {}


def _belongs_to(architecture: Any, model: str) -> bool:
    if model.startswith("timm:"):
        return architecture in (None, model.removeprefix("timm:"))
    try:
        return architecture is None or SPELLINGS.get(name := find_name("model", architecture), name) == model
    except UserError:
        return False


def _parse_timm_config(config: Mapping[str, Any], file: str, defaults: ExpectedInput) -> ExpectedInput:
    """Parse timm's format. Source: timm/models/_pretrained.py, ``PretrainedCfg``."""
    size = config.get("input_size") or (3, defaults.image_size, defaults.image_size)
    interpolation, mode = (config.get(name) or getattr(defaults, name) for name in ("interpolation", "crop_mode"))
    crop = config.get("crop_pct") or defaults.crop_pct
    return _check(file, config["mean"], config.get("std", defaults.std), crop, interpolation, size[-1], mode)


def _parse_hugging_face_config(config: Mapping[str, Any], file: str, defaults: ExpectedInput) -> ExpectedInput:
    """Parse the format of Hugging Face's image processors. Source: transformers, the processors of its classifiers.

    Height and width are an exact size, the shortest edge keeps the aspect ratio, and images are cropped only if the
    file sets a crop.
    """
    size, cropped = config.get("size"), _parse_side(config.get("crop_size"), file)
    resized, mode = _parse_side(size, file), "squash" if _is_square(size, config) else "center"
    if config.get("do_center_crop") is False or (cropped and resized and cropped > resized):
        cropped = None
    crop = config.get("crop_pct")
    if crop is not None and _processor_type(config).startswith("ConvNext") and (resized or 0) >= _CONVNEXT_SQUARE:
        crop, mode = 1.0, "squash"
    if crop is None and resized:
        crop = 1.0 if not cropped else _share(cropped, resized)
    crop = defaults.crop_pct if crop is None else crop
    mean, std = (config.get(f"image_{name}", value) for name, value in (("mean", defaults.mean), ("std", defaults.std)))
    if config.get("do_normalize") is False:
        mean, std = [0.0] * 3, [1.0] * 3
    interpolation = _RESAMPLING.get(config.get("resample", -1), defaults.interpolation)
    return _check(file, mean, std, crop, interpolation, cropped or resized or defaults.image_size, mode)


_CONVNEXT_SQUARE = 384  # from this size on, ConvNext's processor squashes
# Processors that read a single number as the shortest edge; the others read it as the side of a square.
_BY_SHORTEST_EDGE = ("ConvNext", "CLIP", "Bit")


def _processor_type(config: Mapping[str, Any]) -> str:
    return str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")


def _is_square(size: Any, config: Mapping[str, Any]) -> bool:
    if isinstance(size, Mapping):
        return "height" in size
    return size is not None and "crop_pct" not in config and not _processor_type(config).startswith(_BY_SHORTEST_EDGE)


def _parse_side(size: Any, file: str) -> int | None:
    """Parse ``{"height": 224, "width": 224}``, ``{"shortest_edge": 256}`` or 224 to a side in pixels."""
    if isinstance(size, Mapping):
        if size.get("height") != size.get("width"):
            shown = f"{size.get('height')} x {size.get('width')}"
            raise UserError(f"{file}: a size of {shown}: expected a square; other shapes are not supported")
        size = size.get("height", size.get("shortest_edge"))
    return size if isinstance(size, int) else None


def _share(cropped: int, resized: int) -> float:
    """Return the share for which ``EvaluationTransform`` computes exactly this resized side."""
    share = cropped / resized
    return share if math.floor(cropped / share) == resized else math.nextafter(share, 0.0)


def _check(file: str, mean: Any, std: Any, crop: Any, interpolation: str, size: Any, mode: str) -> ExpectedInput:
    if mode not in ("center", "squash"):
        raise UserError(f"{file}: crop_mode {mode}: expected center or squash; edit the file")
    if interpolation not in ("bicubic", "bilinear"):
        raise UserError(f"{file}: interpolation {interpolation}: expected bicubic or bilinear; edit the file")
    try:
        expected = ExpectedInput(
            tuple(map(float, mean)), tuple(map(float, std)), float(crop), interpolation, int(size), mode
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"{file}: not in timm's or Hugging Face's format: {error}; restore it or remove it") from error
    if not (len(expected.mean) == len(expected.std) == 3 and min(expected.std) > 0 and 0 < expected.crop_pct <= 1):
        shown = f"mean {json.dumps(mean)}, std {json.dumps(std)}, crop {crop}"
        raise UserError(f"{file}: {shown}: expected three numbers each, and a share; restore it or remove it")
    return expected
