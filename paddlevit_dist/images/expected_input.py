"""The input of images with three channels that pretrained weights expect: defaults for keys that are not set."""

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from yacs.config import CfgNode

from ..core.checkpoint.published import (
    PUBLISHED,
    find_published,
    find_sibling_file,
    is_fetched,
)
from ..core.registry.lookup import find_built_in, find_name
from ..core.registry.model_sources import find_bridged_input
from ..core.registry.names import REGISTRY
from ..core.runtime.errors import UserError
from ..core.runtime.files import readable
from ..core.runtime.text_files import parse_yaml, read_bytes, read_json_facts
from .described_input import (
    describes_images,
    is_of_timms_training,
    parse_object_processor,
    parse_processor,
    parse_timm_arguments,
    parse_timm_config,
    parse_timm_file,
    select_processor_fields,
    select_timm_arguments,
    select_timm_fields,
)
from .image_size import format_size
from .models.pretrained_input import IMAGENET_MEAN, IMAGENET_STD, ExpectedInput, find_variant_input

# Names of weights that the files of their folder describe, even if it contains other weights, too.
_WEIGHTS = ("model.safetensors", "pytorch_model.bin", "pytorch_model.safetensors", "model.safetensors.index.json")
_TIMM, _HUGGING_FACE = "config.json", "preprocessor_config.json"
_TIMM_RUN = "args.yaml"  # of timm's train.py
_RUN_KEYS = {"IMAGE_CHANNELS", "IMAGENET_MEAN", "IMAGENET_STD", "CROP_PCT", "INTERPOLATION", "IMAGE_SIZE", "CROP_MODE"}
_CROP_WORDS = {"squash": " of a square", "border": " with borders"}


# Weights with a classifier and a free license that score best on ImageNet-1k, best first: image size, MB of training
# memory for each image, and MB for weights, gradients and moments. Source: ``inspect NAME``.
_BEST = (
    ("eva02_base_patch14_448.mim_in22k_ft_in22k_in1k", 448, 1572, 1400),
    ("eva02_small_patch14_336.mim_in22k_ft_in1k", 336, 342, 355),
)
_SPARE = 1.25  # factor for the memory of libraries and fragmentation


def format_stronger_pretrained_hint(values: CfgNode, device_bytes: int) -> str | None:
    """Return a note that names better pretrained weights than the recipe's, if training them fits the device.

    ``device_bytes`` is 0 on a CPU, where networks larger than the recipe's take hours.
    """
    current = find_published(values.MODEL.PRETRAINED)
    if (
        find_built_in(values.TASK) != "classification"
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


class InputOfWeights(NamedTuple):
    """The input that weights of a classifier expect, and the source of this information."""

    expected: ExpectedInput
    source: str  # a file, weights or a model
    is_described: bool  # by the source; False: nothing describes the weights, and this is usual for their model


def find_expected_input(values: CfgNode, is_hub_asked: bool = True) -> InputOfWeights | None:
    """Find the input that the weights of this configuration expect, and the source of this information, if any.

    Sources, in this order: the run that wrote the weights, the published weights' entry, timm's or Hugging Face's file
    next to the weights, which is downloaded if ``is_hub_asked``, the arguments of timm's training, the model's variant.

    Raises:
        UserError: a file next to the weights is damaged, or describes preprocessing that this package does not have.
    """
    of_run = _read_run_input(values.MODEL.PRETRAINED, is_hub_asked)
    if of_run is not None:
        return InputOfWeights(of_run, values.MODEL.PRETRAINED, True)
    model = REGISTRY.aliases.get(values.MODEL.NAME, values.MODEL.NAME)
    weights_name, variant_input = (
        _find_timm_input(values) if model.startswith("timm:") else (model, find_variant_input(model))
    )
    weights = find_published(values.MODEL.PRETRAINED)
    if weights is not None:
        size = (variant_input or ExpectedInput()).image_size
        crop = weights.crop_pct, weights.interpolation, size, weights.crop_mode
        return InputOfWeights(ExpectedInput(weights.mean, weights.std, *crop), weights.name, True)
    is_of_timm = weights_name.startswith("timm:") and weights_name == str(values.MODEL.PRETRAINED).partition("#")[0]
    if is_of_timm and variant_input is not None:
        return InputOfWeights(variant_input, weights_name, True)
    described = _read_config(values, model, variant_input or ExpectedInput(), is_hub_asked)
    if described is not None:
        return InputOfWeights(*described, True)
    return None if variant_input is None else InputOfWeights(variant_input, weights_name, False)


def _find_timm_input(values: CfgNode) -> tuple[str, ExpectedInput | None]:
    """Return the name and timm's expected input of the configured weights, or of the model's default weights."""
    source = str(values.MODEL.PRETRAINED).partition("#")[0]
    name = source if source.startswith("timm:") else values.MODEL.NAME
    fields = find_bridged_input(name)
    return name, None if fields is None else parse_timm_config(fields, name, ExpectedInput(), values.EVAL)


def format_expected_input(values: CfgNode) -> str | None:
    """Return the log line about the input, with the differences to what its weights expect, or None if unknown."""
    match = find_expected_input(values, is_hub_asked=False)
    if match is None:
        return None
    expected, source, is_described = match
    used = _format_settings(ExpectedInput.from_settings(values.DATA))
    differences = {name: text for name, text in _format_settings(expected).items() if text != used[name]}
    line = f"input: {', '.join(used.values())}"
    if not differences:
        if values.EVAL and source == values.MODEL.PRETRAINED:  # a run's weights with the run's input
            return None
        is_assumed = not is_described and values.MODEL.PRETRAINED is not None
        unknown = f"usual for this model: nothing next to {values.MODEL.PRETRAINED} says what the weights expect"
        return f"{line} ({unknown if is_assumed else source})"
    # A run from scratch expects nothing.
    return f"{line}; {source} expects {', '.join(differences.values())}" if values.MODEL.PRETRAINED else line


def _read_run_input(source: object, is_hub_asked: bool) -> ExpectedInput | None:
    """Return the input of the run whose weights are at ``source``, a folder, a file or an address; None for others."""
    if not isinstance(source, str) or not (is_fetched(source) or os.path.exists(os.path.expanduser(source))):
        return None
    from ..core.checkpoint.model_record import read_stored_settings  # it needs NumPy

    data = (read_stored_settings(source, is_hub_asked) or {}).get("DATA") or {}
    if not _RUN_KEYS.issubset(data) or data["IMAGE_CHANNELS"] != len(IMAGENET_MEAN):
        return None
    return ExpectedInput.from_settings(data)


def _format_settings(expected: ExpectedInput) -> dict[str, str]:
    """Format each setting of an input, by name."""
    mean, std = (", ".join(f"{value:g}" for value in part) for part in (expected.mean, expected.std))
    return {
        "size": format_size(expected.image_size),
        "crop": f"crop {expected.crop_pct:g}{_CROP_WORDS.get(expected.crop_mode, '')}",
        "interpolation": expected.interpolation,
        "mean": f"mean {mean}",
        "std": f"deviation {std}",
    }


def format_unknown_input(values: CfgNode, expected: InputOfWeights | None) -> str | None:
    """Return a note if the weights are at Hugging Face and their ``expected`` input cannot be downloaded, or None."""
    source = values.MODEL.PRETRAINED
    if expected is not None and expected.is_described:
        return None
    reason = next(filter(None, (find_sibling_file(source, name, True)[1] for name in (_TIMM, _HUGGING_FACE))), None)
    return reason and _format_unknown(source, reason)


def _format_unknown(source: object, reason: str) -> str:
    return f"note: the input that {source} expects is not known: {reason}"


def _read_config(
    values: CfgNode, model: str, defaults: ExpectedInput, is_hub_asked: bool
) -> tuple[ExpectedInput, str] | None:
    """Read timm's or Hugging Face's file next to the weights; None without a file, or if it is for another model."""
    source = values.MODEL.PRETRAINED
    content, file = _read_facts(source, _TIMM, is_hub_asked)
    if content is not None and describes_images(content) and _belongs_to(content.get("architecture"), model):
        return parse_timm_file(content, file, defaults, values.EVAL), file
    content, file = _read_facts(source, _HUGGING_FACE, is_hub_asked)
    if content is not None:
        return parse_processor(content, file, defaults), file
    arguments, origin = _find_arguments(source)
    if is_of_timms_training(arguments) and _belongs_to(str(arguments["model"]).partition(".")[0], model):
        return parse_timm_arguments(arguments, origin, defaults), origin
    return None


def describe_input(source: str) -> dict[str, dict[str, Any]]:
    """Return what is known of the input that the weights at ``source`` expect, by the file that says it.

    ``find_expected_input`` and ``find_object_input`` read it again from ``described_by`` in the ``about.yaml`` of
    converted weights. Published weights are described as by timm's file, without the size, which is their model's.

    Raises:
        UserError: a file is damaged.
    """
    row = find_published(source)
    if row is not None:
        colors = {"mean": list(row.mean), "std": list(row.std)}
        return {_TIMM: {**colors, **{name: getattr(row, name) for name in ("crop_pct", "interpolation", "crop_mode")}}}
    described = {}
    content = _read_facts(source, _TIMM, True)[0]
    if content is not None and describes_images(content):
        described[_TIMM] = select_timm_fields(content)
    content = _read_facts(source, _HUGGING_FACE, True)[0]
    if content is not None:
        described[_HUGGING_FACE] = select_processor_fields(content)
    arguments = _find_arguments(source)[0]
    if is_of_timms_training(arguments):
        described[_TIMM_RUN] = select_timm_arguments(arguments)
    return described


def _read_stored(source: str) -> tuple[Mapping[str, Any], str]:
    """Return ``described_by`` in the ``about.yaml`` of converted weights, and this file; empty without."""
    from ..core.checkpoint.records import find_about_file, read_weights_info  # these need NumPy
    from ..core.checkpoint.weight_files import find_weights_file

    try:
        file = find_weights_file(source)
    except UserError:  # loading says that there are no weights
        return {}, ""
    return read_weights_info(file).get("described_by") or {}, str(find_about_file(file))


def _find_arguments(source: object) -> tuple[Any, str]:
    """Return the arguments of the program that trained weights, and their file; None without any.

    timm's ``train.py`` writes them to ``args.yaml`` in the folder of its checkpoints, and into each of these.
    """
    if not isinstance(source, str) or not os.path.exists(source):
        return None, ""
    from ..core.checkpoint.weight_files import find_weights_file  # it needs NumPy

    stored, about = _read_stored(source)
    if stored:
        return stored.get(_TIMM_RUN), about
    folder = source if os.path.isdir(source) else os.path.dirname(source)
    file = os.path.join(folder, _TIMM_RUN)
    if os.path.isfile(file):
        with readable(file, "; restore it or remove it"):
            return parse_yaml(read_bytes(file)), file
    if folder == source and not _is_alone(folder):
        return None, ""
    weights = find_weights_file(source) if folder == source else Path(source)
    return _read_saved_arguments(str(weights), weights.stat().st_mtime_ns), str(weights)


@functools.lru_cache(1)  # a configuration asks several times
def _read_saved_arguments(weights: str, changed: int) -> Any:
    """Return the arguments in a checkpoint of PyTorch that changed at this time; None for any other file."""
    from ..core.checkpoint.file_formats import find_format  # these need NumPy
    from ..core.checkpoint.torch_files import open_torch_file

    if find_format(Path(weights)) != "torch":
        return None
    with open_torch_file(weights) as content:
        return content.get("args") if isinstance(content, Mapping) else None


class ObjectInput(NamedTuple):
    """The input that weights of a detector or segmenter expect."""

    mean: list[float]  # of pixels from 0 to 1
    std: list[float]
    file: str | None = None  # Hugging Face's file that says so; None: they are ImageNet's
    sides: tuple[int, ...] = ()  # in pixels: height and width, or the shortest and perhaps the longest edge; or unknown


def find_object_input(values: CfgNode, is_hub_asked: bool) -> ObjectInput:
    """Find the input that the weights of a detector or segmenter expect.

    Raises:
        UserError: the file next to the weights is damaged, or describes preprocessing that this package does not have.
    """
    usual = ObjectInput(list(IMAGENET_MEAN), list(IMAGENET_STD))
    content, file = _read_facts(values.MODEL.PRETRAINED, _HUGGING_FACE, is_hub_asked)
    if content is None:
        return usual
    mean, std, sides = parse_object_processor(content, file, usual.mean, usual.std)
    return ObjectInput(mean, std, file, tuple(sides))


def format_object_input(values: CfgNode, is_hub_asked: bool) -> list[str]:
    """Return notes about what a detector's or segmenter's weights expect otherwise than configured."""
    data, expected = values.DATA, find_object_input(values, is_hub_asked=False)
    if expected.file is None:
        reason = find_sibling_file(values.MODEL.PRETRAINED, _HUGGING_FACE, is_hub_asked)[1]
        return [_format_unknown(values.MODEL.PRETRAINED, reason)] if reason else []
    notes = []
    for name, value in (("IMAGENET_MEAN", expected.mean), ("IMAGENET_STD", expected.std)):
        if list(data[name]) != value:
            notes.append(f"note: {expected.file} expects DATA.{name} {value}, and it is {list(data[name])}")
    shortest, longest = data.EVAL_SHORTEST_SIDE, data.EVAL_LONGEST_SIDE
    used = [(shortest,), (shortest, longest), (shortest, shortest)]
    if expected.sides and expected.sides not in used:
        sides = " x ".join(map(str, expected.sides))
        now = f"DATA.EVAL_SHORTEST_SIDE is {shortest}, EVAL_LONGEST_SIDE {longest}"
        notes.append(f"note: {expected.file} resizes images to {sides} pixels, and {now}")
    return notes


def _read_facts(source: object, name: str, is_hub_asked: bool) -> tuple[Mapping[str, Any] | None, str]:
    """Return what the file ``name`` says of the weights, and the path of what was read; None without such a file.

    It is next to the weights, local or at Hugging Face, or its content is in the ``about.yaml`` of converted ones. A
    file describes the weights of its folder if they have a usual name, or if there are no others.
    """
    if not isinstance(source, str):
        return None, ""
    stored, about = _read_stored(source) if os.path.exists(source) else ({}, "")
    if stored:
        return stored.get(name), about
    folder = source if os.path.isdir(source) else os.path.dirname(source)
    file = os.path.join(folder, name)
    if os.path.exists(source) and os.path.isfile(file):
        is_described = folder == source or os.path.basename(source) in _WEIGHTS or _is_alone(folder)
        return (read_json_facts(file), file) if is_described else (None, "")
    path = find_sibling_file(source, name, is_hub_asked)[0]
    return (None, "") if path is None else (read_json_facts(path), str(path))


def _is_alone(folder: str) -> bool:
    """Return whether a folder contains a single file of weights."""
    from ..core.checkpoint.file_formats import may_be_weights  # it needs NumPy

    return sum(map(may_be_weights, Path(folder or ".").iterdir())) == 1


def _belongs_to(architecture: str | None, model: str) -> bool:
    if model.startswith("timm:"):
        return architecture in (None, model.removeprefix("timm:"))
    try:
        return architecture is None or REGISTRY.aliases.get(name := find_name("model", architecture), name) == model
    except UserError:
        return False
