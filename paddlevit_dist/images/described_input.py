"""The input of weights as files next to them describe it: timm's ``config.json``, transformers' image processors.

Every field of such a file is read, has no effect on the images of an evaluation, or is refused by its name: a field
that was passed over would change scores without a word.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..core.runtime.errors import UserError
from .image_size import ImageSize, as_pair, as_setting
from .models.pretrained_input import HALF, IMAGENET_MEAN, IMAGENET_STD, ExpectedInput

_RGB = 3  # channels
_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
# Indexed by Pillow's numbers, which transformers writes.
_RESAMPLING = dict(enumerate(("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")))
_BILINEAR, _BICUBIC = 2, 3
_CONVNEXT_SQUARE = 384  # from this size on, ConvNext's processor squashes


class FieldTable(NamedTuple):
    """The fields of a file; a field in no part of the table is refused unless it is null or false."""

    read: frozenset[str]  # fields that are read
    irrelevant: frozenset[str]  # fields that do not change the images of an evaluation
    only: Mapping[str, tuple[Any, ...]]  # values that mean what is done here anyway; others are refused

    def check(self, file: str, content: Mapping[str, Any]) -> None:
        """Raise ``UserError`` for a field with a meaning that is not followed here."""
        for name, value in content.items():
            if name in self.read or name in self.irrelevant or name.startswith("_"):
                continue
            if value not in self.only.get(name, (None, False)):
                raise UserError(
                    f"{file}: {name} is {json.dumps(value)[:80]}, which is not supported: the images would differ from "
                    "those that the weights expect; use other weights, or remove the field if it changes no image "
                    "(from a checkpoint's arguments by an args.yaml next to it)"
                )

    def without_irrelevant(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that ``check`` looks at or that are read."""
        return {name: value for name, value in content.items() if name not in self.irrelevant and name[:1] != "_"}


# Source: timm/models/_pretrained.py, ``PretrainedCfg``, and ``timm/models/_hub.py``.
_TIMM_FIELDS = FieldTable(
    read=frozenset(
        "architecture crop_mode crop_pct input_size interpolation label_names labels mean std test_crop_pct "
        "test_input_size".split()
    ),
    # "fixed_input_size": networks are built for the size of the images.
    irrelevant=frozenset(
        "classifier custom_load description file first_conv fixed_input_size hf_hub_filename hf_hub_id "
        "label_descriptions license min_input_size notes num_classes num_features origin_url paper_ids paper_name "
        "pool_size source tag test_pool_size url".split()
    ),
    only={"label_offset": (None, 0)},
)
# Those that say which file it is: transformers' own ``config.json`` has none of them.
_LABELS = {"label_names", "labels"}
_IMAGE_FIELDS = _TIMM_FIELDS.read - _LABELS - {"architecture"}
_TIMM_FILE_FIELDS = FieldTable(
    read=_TIMM_FIELDS.read | {"pretrained_cfg", "model_args", "model_type"},
    irrelevant=_TIMM_FIELDS.irrelevant
    | frozenset(  # the second line: of transformers' wrapper of timm
        "architectures do_pooling dtype id2label initializer_range label2id problem_type torch_dtype "
        "transformers_version num_labels".split()
    ),
    # The pooled features of other kinds have equal shapes and other values.
    only={**_TIMM_FIELDS.only, "global_pool": (None, "", "avg", "token", "map", "fast")},
)
_TIMM_ARGUMENTS = FieldTable(
    read=frozenset(("img_size", "in_chans")),
    irrelevant=frozenset(
        "attn_drop_rate drop_path_rate drop_rate dynamic_img_size num_classes patch_drop_rate pos_drop_rate "
        "proj_drop_rate strict_img_size".split()
    ),
    only=_TIMM_FILE_FIELDS.only,
)

# Arguments of timm's train.py that make another network or other images; its many others are of the training.
_TIMM_RUN_FIELDS = FieldTable(
    read=frozenset(),
    irrelevant=frozenset(),
    only={
        **{"bn_eps": (None, 1e-5), "global_pool": _TIMM_FILE_FIELDS.only["global_pool"], "in_chans": (None, _RGB)},
        **{"gp": _TIMM_FILE_FIELDS.only["global_pool"], "input_img_mode": (None, "RGB"), "split_bn": (None, False)},
        "model_kwargs": (None, {}),
    },
)
_TIMM_RUN_MARKS = {"crop_pct", "img_size", "interpolation", "mean", "model", "std"}

# Source: transformers, the image processors of its classifiers.
_PROCESSOR_FIELDS = FieldTable(
    read=frozenset(
        "crop_pct crop_size do_center_crop do_normalize do_rescale do_resize feature_extractor_type image_mean "
        "image_processor_type image_std resample rescale_factor rescale_offset size".split()
    ),
    irrelevant=frozenset(
        "data_format default_to_square device disable_grouping do_convert_rgb do_reduce_labels image_seq_length "
        "input_data_format num_channels num_labels processor_class reduce_labels return_tensors".split()
    ),
    only={"antialias": (None, True), "resample_antialias": (None, True)},
)


class ProcessorKind(NamedTuple):
    """What a class of image processors does where its file says nothing."""

    size: int | None  # side in pixels
    crop: int | None  # side of the center crop; None: it does not crop
    resample: int | None  # Pillow's number of the filter
    mean: Sequence[float] | None
    std: Sequence[float] | None
    crop_pct: float | None = None  # share that the crop keeps, in place of two sides
    is_square: bool = True  # whether a size of a single number is the side of a square, not the shortest edge


_UNKNOWN_KIND = ProcessorKind(None, None, None, None, None)
_KINDS = {
    "": _UNKNOWN_KIND,
    "Beit": ProcessorKind(256, 224, _BICUBIC, HALF, HALF),
    "Bit": ProcessorKind(224, 224, _BICUBIC, _CLIP_MEAN, _CLIP_STD, is_square=False),
    "CLIP": ProcessorKind(224, 224, _BICUBIC, _CLIP_MEAN, _CLIP_STD, is_square=False),
    "ConvNext": ProcessorKind(384, None, _BICUBIC, HALF, HALF, 224 / 256, is_square=False),
    "DINOv3ViT": ProcessorKind(224, None, _BILINEAR, IMAGENET_MEAN, IMAGENET_STD),
    "DeiT": ProcessorKind(256, 224, _BICUBIC, HALF, HALF),
    "MobileNetV1": ProcessorKind(256, 224, _BILINEAR, HALF, HALF, is_square=False),
    "MobileNetV2": ProcessorKind(256, 224, _BILINEAR, HALF, HALF, is_square=False),
    "PoolFormer": ProcessorKind(224, 224, _BICUBIC, IMAGENET_MEAN, IMAGENET_STD, 0.9, is_square=False),
    "Pvt": ProcessorKind(224, None, _BILINEAR, IMAGENET_MEAN, IMAGENET_STD),
    "Segformer": ProcessorKind(512, None, _BILINEAR, IMAGENET_MEAN, IMAGENET_STD),
    "Siglip": ProcessorKind(224, None, _BICUBIC, HALF, HALF),
    "ViT": ProcessorKind(224, None, _BILINEAR, HALF, HALF),
}
_KIND_ENDINGS = ("Pil", "Fast", "ImageProcessor", "FeatureExtractor")


def describes_images(content: Mapping[str, Any]) -> bool:
    """Return whether a ``config.json`` is timm's and says what its weights expect of images."""
    return "pretrained_cfg" in content or not _IMAGE_FIELDS.isdisjoint(content)


def parse_timm_file(
    content: Mapping[str, Any], file: str, defaults: ExpectedInput, is_evaluated: bool
) -> ExpectedInput:
    """Parse timm's ``config.json``, in its older flat form, too; fields that it lacks have ``defaults``.

    If ``is_evaluated``, use the size and the crop of timm's tests, if the file has them.

    Raises:
        UserError: a field is invalid, or has a meaning that is not followed here.
    """
    _TIMM_FILE_FIELDS.check(file, content)
    arguments = _get_mapping(content, "model_args", file)
    _TIMM_ARGUMENTS.check(f"{file}: model_args", arguments)
    config = dict(content)
    if "pretrained_cfg" in content:
        config = dict(_get_mapping(content, "pretrained_cfg", file))
        _TIMM_FIELDS.check(file, config)
    size = arguments.get("img_size")
    if size is not None:
        sides = size if isinstance(size, list) else [size, size]
        config.update(input_size=[arguments.get("in_chans") or _RGB, *sides], test_input_size=None)
    return parse_timm_config(config, file, defaults, is_evaluated)


def select_timm_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``parse_timm_file`` reads or refuses of a file, without the names of classes."""
    selected = {
        name: value for name, value in _TIMM_FILE_FIELDS.without_irrelevant(content).items() if name not in _LABELS
    }
    if isinstance(config := content.get("pretrained_cfg"), Mapping):
        selected["pretrained_cfg"] = select_timm_fields(config)
    return selected


def is_of_timms_training(arguments: object) -> bool:
    """Return whether arguments of a training program come from timm's ``train.py``."""
    return isinstance(arguments, Mapping) and arguments.keys() >= _TIMM_RUN_MARKS


def parse_timm_arguments(arguments: Mapping[str, Any], file: str, defaults: ExpectedInput) -> ExpectedInput:
    """Parse the arguments of a training run of timm's ``train.py``; what they leave open is timm's for the model.

    Source: timm/data/config.py, ``resolve_data_config``.

    Args:
        file: ``args.yaml``, or the checkpoint that contains them.
        defaults: what the model's published weights expect.

    Raises:
        UserError: an argument is invalid, or makes other images or another network.
    """
    _TIMM_RUN_FIELDS.check(file, {name: arguments[name] for name in _TIMM_RUN_FIELDS.only if name in arguments})
    config = {name: arguments.get(name) for name in _IMAGE_FIELDS}
    side = arguments.get("img_size")
    config["input_size"] = config["input_size"] or (side and [_RGB, side, side])
    return parse_timm_config(config, file, defaults, is_evaluated=False)


def select_timm_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``parse_timm_arguments`` reads or refuses of arguments, which also name files of a computer."""
    names = _IMAGE_FIELDS | _TIMM_RUN_MARKS | _TIMM_RUN_FIELDS.only.keys()
    return {name: value for name, value in arguments.items() if name in names}


def _get_mapping(content: Mapping[str, Any], name: str, file: str) -> Mapping[str, Any]:
    value = content.get(name) or {}
    if not isinstance(value, Mapping):
        raise UserError(
            f"{file}: {name} is {json.dumps(value)[:80]}, expected a mapping; restore the file or remove it"
        )
    return value


def parse_timm_config(
    config: Mapping[str, Any], file: str, defaults: ExpectedInput, is_evaluated: bool
) -> ExpectedInput:
    """Parse timm's ``pretrained_cfg`` as ``parse_timm_file``; source: timm/data/config.py, ``resolve_data_config``."""
    tested = {name: config.get(f"test_{name}") if is_evaluated else None for name in ("input_size", "crop_pct")}
    size = tested["input_size"] or config.get("input_size") or (_RGB, *as_pair(defaults.image_size))
    if not isinstance(size, (list, tuple)) or len(size) != 3 or size[0] != _RGB:
        raise UserError(
            f"{file}: input_size {json.dumps(size)}: expected [3, HEIGHT, WIDTH]; gray ones: DATA.IMAGE_CHANNELS 1"
        )
    interpolation, mode = (config.get(name) or getattr(defaults, name) for name in ("interpolation", "crop_mode"))
    crop = tested["crop_pct"] or config.get("crop_pct") or defaults.crop_pct
    mean, std = (_parse_channels(config.get(name) or getattr(defaults, name), name, file) for name in ("mean", "std"))
    return _check(file, mean, std, crop, interpolation, size[1:], mode)


def parse_processor(config: Mapping[str, Any], file: str, defaults: ExpectedInput) -> ExpectedInput:
    """Parse transformers' ``preprocessor_config.json`` of a classifier; files of unknown classes may use ``defaults``.

    Height and width are an exact size, the shortest edge keeps the aspect ratio.

    Raises:
        UserError: a field is invalid, or has a meaning that is not followed here.
    """
    _PROCESSOR_FIELDS.check(file, config)
    name, kind = _find_kind(config, file)
    given = {field: value for field, value in config.items() if value is not None}
    if given.get("do_resize") is False:
        raise UserError(f"{file}: do_resize is false: images of any size are not supported; edit the file")
    crop_pct = given.get("crop_pct", kind.crop_pct)
    resized, is_exact = _parse_size(given.get("size", kind.size), kind.is_square and crop_pct is None, file)
    cropped = _find_crop(given, kind, file)
    mode = "squash" if is_exact else "center"
    if name == "ConvNext" and isinstance(resized, int):
        if resized >= _CONVNEXT_SQUARE:
            crop_pct, mode = 1.0, "squash"
    elif crop_pct is None and resized and cropped:
        crop_pct = _share(cropped, resized, is_exact, file)
    elif crop_pct is None and is_exact:
        crop_pct = 1.0
    elif crop_pct is None and resized:
        raise UserError(f"{file}: a shortest edge without a center crop: images of any shape are not supported")
    crop = defaults.crop_pct if crop_pct is None else crop_pct
    mean, std = parse_normalization(given, file, kind.mean or defaults.mean, kind.std or defaults.std)
    return _check(
        file,
        mean,
        std,
        crop,
        _find_filter(given, kind, file, defaults),
        cropped or resized or defaults.image_size,
        mode,
    )


# The fields of detectors and segmenters: sizes are compared with the run's, label maps are read by their own rules.
_OBJECT_FIELDS = FieldTable(
    read=_PROCESSOR_FIELDS.read - {"crop_size", "crop_pct", "do_center_crop"} | {"max_size"},
    irrelevant=_PROCESSOR_FIELDS.irrelevant
    | frozenset("do_convert_annotations do_pad format ignore_index pad_size size_divisor".split()),
    only=_PROCESSOR_FIELDS.only,
)


def select_processor_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``parse_processor`` or ``parse_object_processor`` reads or refuses of a file."""
    return _PROCESSOR_FIELDS.without_irrelevant(config)


def parse_object_processor(
    config: Mapping[str, Any], file: str, mean: Sequence[float], std: Sequence[float]
) -> tuple[list[float], list[float], list[int]]:
    """Parse transformers' ``preprocessor_config.json`` of a detector or segmenter, which may lack mean and deviation.

    Returns:
        Mean and deviation of pixels from 0 to 1, and sides in pixels: height and width, or the shortest and perhaps the
        longest edge; empty if there are none.

    Raises:
        UserError: a field is invalid, or has a meaning that is not followed here.
    """
    _OBJECT_FIELDS.check(file, config)
    given = {field: value for field, value in config.items() if value is not None}
    if given.get("resample", _BILINEAR) not in (_BILINEAR, _BICUBIC):
        raise UserError(f"{file}: resample {given['resample']}: images are resized bilinearly here; use other weights")
    size = given.get("size") if given.get("do_resize", True) else None
    sides = [size, given.get("max_size")] if isinstance(size, int) else size
    if isinstance(size, Mapping):
        names = ("height", "width") if "height" in size else ("shortest_edge", "longest_edge")
        sides = [size.get(name) for name in names]
        if None not in size.values() and size.keys() - set(names):
            raise UserError(
                f"{file}: size {json.dumps(size)}: expected height and width, or shortest_edge; edit the file"
            )
    return *parse_normalization(given, file, mean, std), [side for side in sides or () if side is not None]


def _find_kind(config: Mapping[str, Any], file: str) -> tuple[str, ProcessorKind]:
    """Return the name and the properties of the class of processors that a file is for."""
    stated = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    name = stated
    for ending in _KIND_ENDINGS:
        name = name.removesuffix(ending)
    if name not in _KINDS:
        known = ", ".join(sorted(_KINDS)[1:])
        raise UserError(
            f"{file}: image_processor_type {stated} is not supported: expected one of {known}; use other weights"
        )
    return name, _KINDS[name]


def _find_crop(given: Mapping[str, Any], kind: ProcessorKind, file: str) -> ImageSize | None:
    """Return the size of the center crop; None without one."""
    is_cropped = given.get("do_center_crop", kind.crop is not None or (kind is _UNKNOWN_KIND and "crop_size" in given))
    return _parse_size(given.get("crop_size", kind.crop or 224), True, file)[0] if is_cropped else None


def _find_filter(given: Mapping[str, Any], kind: ProcessorKind, file: str, defaults: ExpectedInput) -> str:
    number = given.get("resample", kind.resample)
    if number is None:
        return defaults.interpolation
    if type(number) is not int or number not in _RESAMPLING:
        raise UserError(f"{file}: resample {json.dumps(number)}: expected Pillow's number, from 0 to 5; edit the file")
    return _RESAMPLING[number]


def parse_normalization(
    given: Mapping[str, Any], file: str, mean: Sequence[float], std: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Return mean and deviation, for pixels from 0 to 1, of an image processor's fields that are not null.

    It computes ``(x * f - o - m) / s`` of pixels ``x`` from 0 to 255, which is ``(x / 255 - (m + o) / (255 f)) / (s /
    (255 f))``.

    Raises:
        UserError: a field is invalid, or the mean is not in [0, 1].
    """
    factor = given.get("rescale_factor", 1 / 255) if given.get("do_rescale", True) else 1
    if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not 0 < factor < math.inf:
        raise UserError(f"{file}: rescale_factor {json.dumps(factor)}: expected a number above 0; edit the file")
    scale = 255 * factor
    offset = float(bool(given.get("rescale_offset", False)) and bool(given.get("do_rescale", True)))
    if not given.get("do_normalize", True):
        mean, std = [0.0] * _RGB, [1.0] * _RGB
    else:
        mean, std = (
            _parse_channels(given.get(f"image_{name}", value), f"image_{name}", file)
            for name, value in (("mean", mean), ("std", std))
        )
    if not math.isclose(scale, 1, rel_tol=1e-9) or offset:
        mean = [_round((value + offset) / scale) for value in mean]
        std = [_round(value / scale) for value in std]
    if not all(0 <= value <= 1 for value in mean):
        stated = json.dumps(given.get("image_mean"))
        raise UserError(
            f"{file}: with rescale_factor {factor:g} and image_mean {stated}, pixels from 0 to 1 would have the mean "
            f"{mean}; expected 0 to 1; edit the file"
        )
    return list(mean), list(std)


def _round(value: float) -> float:
    """Round away the last digits, which are of the division."""
    return float(f"{value:.12g}")


def _parse_channels(values: object, name: str, file: str) -> list[float]:
    """Return a number for each channel; a single one is for all of them."""
    listed = values if isinstance(values, (list, tuple)) else [values]
    listed = [*listed] * _RGB if len(listed) == 1 else listed
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in listed):
        raise UserError(
            f"{file}: not in timm's or Hugging Face's format: {name} is {json.dumps(values)[:80]}; edit the file"
        )
    return list(map(float, listed))


def _parse_size(size: object, is_exact: bool, file: str) -> tuple[Any, bool]:
    """Return a size in pixels, and whether it is height and width: else it is the shortest edge.

    ``size`` is ``{"height": 224, "width": 320}``, ``{"shortest_edge": 256}``, 224 (of a square?), or None.
    """
    if size is None:
        return None, False
    if isinstance(size, list) and len(size) == 2:
        size = {"height": size[0], "width": size[1]}
    sides: list[Any] = [size, size]
    if isinstance(size, Mapping):
        stated = {name: side for name, side in size.items() if side is not None}
        if stated.keys() == {"height", "width"}:
            sides, is_exact = [stated["height"], stated["width"]], True
        elif stated.keys() == {"shortest_edge"}:
            sides, is_exact = [stated["shortest_edge"]] * 2, False
    if not all(type(side) is int and side > 0 for side in sides):
        raise UserError(
            f"{file}: size {json.dumps(size)} is not supported: expected height and width, or shortest_edge; use other "
            "weights, or edit the file"
        )
    return as_setting(sides), is_exact


def _share(cropped: ImageSize, resized: ImageSize, is_exact: bool, file: str) -> float:
    """Return the share for which ``EvaluationTransform`` computes exactly this resized size; UserError if none does."""
    crops, sizes = as_pair(cropped), as_pair(resized)
    if crops[0] > sizes[0] or crops[1] > sizes[1]:
        raise UserError(
            f"{file}: crop_size {cropped} is larger than size {resized}: images with a margin are not supported; edit "
            "the file"
        )
    share = min(crop / size for crop, size in zip(crops, sizes))
    for rounded in (share, math.nextafter(share, 0.0)):
        if all(math.floor(crop / rounded) == size for crop, size in zip(crops, sizes)):
            return rounded
    edge = "size" if is_exact else "the shortest edge"
    raise UserError(
        f"{file}: crop_size {cropped} of {edge} {resized}: expected one share of both sides; use other weights"
    )


def _check(
    file: str, mean: Sequence[float], std: Sequence[float], crop: float, interpolation: str, size: ImageSize, mode: str
) -> ExpectedInput:
    try:
        colors = tuple(map(float, mean)), tuple(map(float, std))
        expected = ExpectedInput(*colors, float(crop), interpolation, as_setting(size), mode)
    except (TypeError, ValueError) as error:
        raise UserError(f"{file}: not in timm's or Hugging Face's format: {error}; restore it or remove it") from error
    if not (len(expected.mean) == len(expected.std) == _RGB and min(expected.std) > 0 and 0 < expected.crop_pct <= 1):
        shown = f"mean {json.dumps(mean)}, std {json.dumps(std)}, crop {crop}"
        raise UserError(f"{file}: {shown}: expected three numbers each, and a share; restore it or remove it")
    return expected
