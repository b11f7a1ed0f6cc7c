"""Which input the weights of a run expect: what a configuration that does not say otherwise is completed with."""

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
from .models.variants import ExpectedInput, expected_input

_WEIGHTS = ("model.safetensors", "pytorch_model.bin", "pytorch_model.safetensors")  # beside which those files lie
_TIMM_INPUT = "paddlevit_dist.images.models.bridges.timm_model:get_expected_input"
_TIMM, _HUGGING_FACE = "config.json", "preprocessor_config.json"
# By Pillow's numbers, which Hugging Face writes.
_RESAMPLING = dict(enumerate(("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")))


def find_starting_weights(values: CfgNode) -> PublishedWeights | None:
    """The published weights that a run starts from, or that its recipe needs.

    In a recipe that needs weights they are those of its model's published ones, so that a run of it can be evaluated
    and fine-tuned on by its path.
    """
    weights = find_published(values.MODEL.PRETRAINED)
    if weights is None and values.MODEL.PRETRAINED_REQUIRED:
        weights = find_published_for(values.MODEL.NAME)
    return weights if weights is not None and values.DATA.IMAGE_CHANNELS == len(weights.mean) else None


# Weights with a classifier that are free to use and score best on ImageNet-1k, the best first: size of their images,
# and MB that a training keeps for each, and for its weights, gradients and moments. Source: ``inspect NAME``.
_BEST = (
    ("eva02_base_patch14_448.mim_in22k_ft_in22k_in1k", 448, 1572, 1400),
    ("eva02_small_patch14_336.mim_in22k_ft_in1k", 336, 342, 355),
)
_SPARE = 1.25  # of what is computed, for what libraries and the memory's fragments take


def format_better_weights(values: Any, device_bytes: int) -> str | None:
    """Offer better weights than the published ones that a recipe begins with, where a training fits the device.

    Args:
        values: the configuration of a training.
        device_bytes: memory of an accelerator; 0 on a CPU, where larger networks than the recipe's take hours.
    """
    now = find_published(values.MODEL.PRETRAINED)
    if values.TASK != "classification" or not values.MODEL.PRETRAINED_REQUIRED or now is None or now.top1 is None:
        return None
    for name, size, of_image, of_weights in _BEST:
        row, needed = PUBLISHED[name], of_weights + _SPARE * of_image * values.DATA.BATCH_SIZE
        if now.top1 < (row.top1 or 0) and needed * 1e6 <= device_bytes:
            return (
                f"note: this device has room for better weights: -pretrained={name} -image_size={size} ({row.license}; "
                f"{row.top1:.1f} % on ImageNet-1k, {now.name} has {now.top1:.1f}; about {needed / 1000:.0f} GB)"
            )
    return None


def find_expected_input(values: CfgNode, is_hub_asked: bool = True) -> tuple[ExpectedInput, str] | None:
    """Find what the weights of this configuration expect, and who says so: published weights by their name, the files
    of timm and Hugging Face beside weights, or the model's variant. None: nobody does.

    Args:
        is_hub_asked: for those files of weights that are kept at Hugging Face, where no copies are here.

    Raises:
        UserError: a file beside the weights is damaged, or says what images are not prepared by here.
    """
    model = SPELLINGS.get(values.MODEL.NAME, values.MODEL.NAME)
    if values.DATA.IMAGE_CHANNELS != 3:
        return None
    named, of_variant = _of_timm_name(values) if model.startswith("timm:") else (model, expected_input(model))
    weights = find_starting_weights(values)
    if weights is not None:
        size = (of_variant or ExpectedInput()).image_size
        crop = weights.crop_pct, weights.interpolation, size, weights.crop_mode
        return ExpectedInput(weights.mean, weights.std, *crop), weights.name
    if named.startswith("timm:") and named == str(values.MODEL.PRETRAINED).partition("#")[0]:
        return of_variant, named
    described = _describe(values.MODEL.PRETRAINED, model, of_variant or ExpectedInput(), is_hub_asked)
    return described or (of_variant and (of_variant, named))


def _of_timm_name(values: CfgNode) -> tuple[str, ExpectedInput]:
    """Return what timm says of the weights that the configuration names, else of the first ones of the model, and the
    name."""
    source = str(values.MODEL.PRETRAINED).partition("#")[0]
    name = source if source.startswith("timm:") else values.MODEL.NAME
    return name, _of_timm(import_object(_TIMM_INPUT)(name), name, ExpectedInput())


def format_expected_input(values: CfgNode) -> str | None:
    """Return the line about the input for the start of a run, and what its weights expect of it where the configuration
    says otherwise; None where nobody knows what they expect."""
    found = find_expected_input(values, is_hub_asked=False)
    if found is None:
        return None
    expected, source = found
    data = values.DATA
    mean, std = tuple(data.IMAGENET_MEAN), tuple(data.IMAGENET_STD)
    used = _facts(ExpectedInput(mean, std, data.CROP_PCT, data.INTERPOLATION, data.IMAGE_SIZE, data.CROP_MODE))
    other = {name: said for name, said in _facts(expected).items() if said != used[name]}
    line = f"input: {', '.join(used.values())}"
    if not other:
        return f"{line} ({source})"
    # A run from scratch expects nothing.
    return f"{line}; {source} expects {', '.join(other.values())}" if values.MODEL.PRETRAINED else line


def _facts(found: ExpectedInput) -> dict[str, str]:
    """Return what is said of each fact of an input."""
    mean, std = (", ".join(f"{value:g}" for value in part) for part in (found.mean, found.std))
    return {
        "size": f"{found.image_size} pixels",
        "crop": f"crop {found.crop_pct:g}" + (" of a square" if found.crop_mode == "squash" else ""),
        "interpolation": found.interpolation,
        "mean": f"mean {mean}",
        "std": f"deviation {std}",
    }


def not_known(values: CfgNode, found: tuple[ExpectedInput, str] | None) -> str | None:
    """A note where weights are kept at Hugging Face, and what they expect could not be asked; else None.

    Args:
        found: what ``find_expected_input`` says.
    """
    source = values.MODEL.PRETRAINED
    is_known = found is not None and (os.path.isfile(found[1]) or found[1] == str(source).partition("#")[0])
    if find_starting_weights(values) is not None or is_known:
        return None
    reason = next(filter(None, (find_sibling_file(source, name, True)[1] for name in (_TIMM, _HUGGING_FACE))), None)
    return reason and f"note: what {source} expects of images is not known: {reason}"


def _describe(
    source: Any, model: str, otherwise: ExpectedInput, is_hub_asked: bool
) -> tuple[ExpectedInput, str] | None:
    """Read what timm's or Hugging Face's file beside weights says; None without one, or if it is of another model."""
    file = _beside(source, _TIMM, is_hub_asked)
    if file is not None:
        content = _read(file)
        found = content.get("pretrained_cfg", content)
        if isinstance(found, Mapping) and "mean" in found and _belongs_to(content.get("architecture"), model):
            return _of_timm(found, file, otherwise), file
    file = _beside(source, _HUGGING_FACE, is_hub_asked)
    return None if file is None else (_of_hugging_face(_read(file), file, otherwise), file)


def _beside(source: Any, name: str, is_hub_asked: bool) -> str | None:
    """The path of a file of this name beside weights, here or at Hugging Face; None without one."""
    if not isinstance(source, str):
        return None
    folder = source if os.path.isdir(source) else os.path.dirname(source)
    if folder == source or os.path.basename(source) in _WEIGHTS:
        file = os.path.join(folder, name)
        return file if os.path.isfile(file) else None
    found = find_sibling_file(source, name, is_hub_asked)[0]
    return None if found is None else str(found)


def _read(file: str) -> Mapping[str, Any]:
    try:
        content = read_json(file)
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}; restore it, or remove it") from error
    return content if isinstance(content, Mapping) else {}


def _belongs_to(architecture: Any, model: str) -> bool:
    if model.startswith("timm:"):
        return architecture in (None, model.removeprefix("timm:"))
    try:
        return architecture is None or SPELLINGS.get(known := find_name("model", architecture), known) == model
    except UserError:
        return False


def _of_timm(found: Mapping[str, Any], file: str, otherwise: ExpectedInput) -> ExpectedInput:
    """Source: timm/models/_pretrained.py, ``PretrainedCfg``."""
    size = found.get("input_size") or (3, otherwise.image_size, otherwise.image_size)
    how, mode = (found.get(name) or getattr(otherwise, name) for name in ("interpolation", "crop_mode"))
    crop = found.get("crop_pct") or otherwise.crop_pct
    return _check(file, found["mean"], found.get("std", otherwise.std), crop, how, size[-1], mode)


def _of_hugging_face(found: Mapping[str, Any], file: str, otherwise: ExpectedInput) -> ExpectedInput:
    """Source: transformers, the image processors of its classifiers: height and width mean exactly these, the shortest
    edge keeps the image's proportions, and nothing is cut off unless it is said."""
    size, cropped = found.get("size"), _side(found.get("crop_size"), file)
    resized, mode = _side(size, file), "squash" if _is_square(size, found) else "center"
    if found.get("do_center_crop") is False or (cropped and resized and cropped > resized):
        cropped = None
    crop = found.get("crop_pct")
    if crop is not None and _kind(found).startswith("ConvNext") and (resized or 0) >= _CONVNEXT_SQUARE:
        crop, mode = 1.0, "squash"
    if crop is None and resized:
        crop = 1.0 if not cropped else _share(cropped, resized)
    crop = otherwise.crop_pct if crop is None else crop
    mean, std = (
        found.get(f"image_{name}", value) for name, value in (("mean", otherwise.mean), ("std", otherwise.std))
    )
    if found.get("do_normalize") is False:
        mean, std = [0.0] * 3, [1.0] * 3
    how = _RESAMPLING.get(found.get("resample", -1), otherwise.interpolation)
    return _check(file, mean, std, crop, how, cropped or resized or otherwise.image_size, mode)


_CONVNEXT_SQUARE = 384  # from this size on its processor squashes
# Processors to which a single number was the shortest edge, before sizes had names; to the others it was a square's.
_BY_SHORTEST_EDGE = ("ConvNext", "CLIP", "Bit")


def _kind(found: Mapping[str, Any]) -> str:
    return str(found.get("image_processor_type") or found.get("feature_extractor_type") or "")


def _is_square(size: Any, found: Mapping[str, Any]) -> bool:
    if isinstance(size, Mapping):
        return "height" in size
    return size is not None and "crop_pct" not in found and not _kind(found).startswith(_BY_SHORTEST_EDGE)


def _side(size: Any, file: str) -> int | None:
    """Return that of ``{"height": 224, "width": 224}``, ``{"shortest_edge": 256}`` or 224."""
    if isinstance(size, Mapping):
        if size.get("height") != size.get("width"):
            said = f"{size.get('height')} x {size.get('width')}"
            raise UserError(f"{file}: a size of {said}: expected a square; images of other shapes are not made here")
        size = size.get("height", size.get("shortest_edge"))
    return size if isinstance(size, int) else None


def _share(cropped: int, resized: int) -> float:
    """Return the share from which ``EvaluationTransform`` computes exactly this resize."""
    share = cropped / resized
    return share if math.floor(cropped / share) == resized else math.nextafter(share, 0.0)


def _check(file: str, mean: Any, std: Any, crop: Any, how: str, size: Any, mode: str) -> ExpectedInput:
    if mode not in ("center", "squash"):
        raise UserError(f"{file}: crop_mode {mode}: expected center or squash; write one of them there")
    if how not in ("bicubic", "bilinear"):
        raise UserError(f"{file}: interpolation {how}: expected bicubic or bilinear; write one of them there")
    try:
        expected = ExpectedInput(tuple(map(float, mean)), tuple(map(float, std)), float(crop), how, int(size), mode)
    except (TypeError, ValueError) as error:
        raise UserError(f"{file}: not what timm and Hugging Face write: {error}; restore it, or remove it") from error
    if not (len(expected.mean) == len(expected.std) == 3 and min(expected.std) > 0 and 0 < expected.crop_pct <= 1):
        said = f"mean {json.dumps(mean)}, std {json.dumps(std)}, crop {crop}"
        raise UserError(f"{file}: {said}: expected three numbers each, and a share; restore it, or remove it")
    return expected
