"""Augmentation that a file of Albumentations describes, as ``albumentations.save`` writes it (YAML or JSON).

All random numbers come from the sample's generator: it replaces the generators of all transforms, which so draw
independently of each other, and a sample is the same in any process.
"""

import copy
import os
import random
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...core.runtime.errors import UserError
from ...core.runtime.printing import shorten
from ...core.runtime.text_files import read_yaml
from ...core.tasks.sample_checks import BadSample
from .described import draw_image
from .visible_objects import count_least_pixels, find_visible_box

KEY = "DATA.ALBUMENTATIONS"
_TRIED_SIZE = 480, 640  # height and width of the image that a file is tried with
_OTHER_SCALES = 0.125, 2.0  # of further ones, for crops and limits of boxes in pixels that are for other images
_DRAWS = 10  # of random numbers, in which a file has to leave a box
_ROUNDING_PX = 0.01  # by which boxes change that no transform moves
_MOST_POINTS = 1000  # of a mask's pixels that are followed
_NAME = "__class_fullname__"  # key of a transform in the file


def require_albumentations() -> Any:
    """Import ``albumentations`` without its request for a newer version, and turn OpenCV's threads off.

    A ``UserError`` says that it is not installed.
    """
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    try:
        import albumentations
        import cv2
    except ImportError as error:
        raise UserError(f"{KEY} needs Albumentations: pip install '.[albumentations]' in a clone") from error
    cv2.setNumThreads(0)  # loader processes already use the cores
    return albumentations


class AugmentedObjects(NamedTuple):
    """An RGB image with its n visible objects after augmentation.

    ``boxes`` are float64 (n, 4), x0, y0, x1, y1 in its pixels, ``objects`` int64 (n,), the position of each object
    before augmentation, ``masks`` n of uint8 (height, width), or None, ``keypoints`` the moved ones or None.
    """

    image: Image.Image
    boxes: np.ndarray
    objects: np.ndarray
    masks: list[np.ndarray] | None
    keypoints: np.ndarray | None = None


class AlbumentationsFile:
    """The transforms of a YAML or JSON file; pickled as its content, and built once in each process.

    If it ``has_boxes``, they are transformed, too. The file's ``bbox_params`` may limit the size and the visible share
    of boxes; their format and the fields of labels are set here. A ``UserError`` says that Albumentations is not
    installed, that the file cannot be applied to a color image with an RGB image of integer levels as the result, or
    that it removes every box.
    """

    def __init__(self, path: str, has_boxes: bool = False) -> None:
        self.path = path
        self.content = _read(path, has_boxes)
        self._pipeline: Any = None
        self.has_boxes = has_boxes
        try:
            if not has_boxes:
                self._apply(np.random.default_rng(0), image=draw_image(*_TRIED_SIZE))
            elif not self._keeps_a_box(1.0):
                self._require_box_at_other_scales()
        except BadSample as error:
            raise UserError(f"{KEY}: tried with an image of 640 x 480 pixels, {error}") from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pipeline": None}

    def _keeps_a_box(self, scale: float) -> bool:
        """Return whether a box of the image that is tried, at this scale, is left in one of several draws."""
        height, width = (round(scale * side) for side in _TRIED_SIZE)
        image, boxes, generator = draw_image(height, width), _lay_boxes(height, width), np.random.default_rng(0)
        arguments = {"image": image, "bboxes": boxes, "objects": np.arange(len(boxes))}
        return any(len(self._apply(generator, **arguments)["bboxes"]) for _ in range(_DRAWS))

    def _require_box_at_other_scales(self) -> None:
        """Raise UserError if the file leaves no box of smaller and larger images either."""
        for scale in _OTHER_SCALES:
            try:
                if self._keeps_a_box(scale):
                    return
            except BadSample:  # such as a crop that is larger than the small image: says nothing of boxes
                continue
        raise UserError(
            f"{KEY}: {self.path} removes every box of the images that it was tried with, so that nothing would be "
            "learned: lower min_area, min_visibility, min_width and min_height of its bbox_params, or let its crops "
            "keep more of the image"
        )

    def augment_image(self, image: Image.Image, generator: np.random.Generator) -> Image.Image:
        """Augment an image in mode "RGB" or "L"; a ``BadSample`` if a transform cannot be applied to it."""
        return Image.fromarray(self._apply(generator, image=np.array(image))["image"])

    def augment_label_map(
        self, image: Image.Image, labels: np.ndarray, generator: np.random.Generator
    ) -> tuple[Image.Image, np.ndarray]:
        """Augment an RGB image together with its labels, uint8 (height, width); raises what ``augment_image`` does."""
        result = self._apply(generator, image=np.array(image), mask=labels)
        return Image.fromarray(result["image"]), np.ascontiguousarray(result["mask"])

    def augment_objects(
        self,
        image: Image.Image,
        boxes: np.ndarray,
        masks: Sequence[np.ndarray] | None,
        generator: np.random.Generator,
        keypoints: np.ndarray | None = None,
    ) -> AugmentedObjects:
        """Augment an RGB image together with its n objects; raises what ``augment_image`` does.

        Where an object's mask or box changes, its box becomes that of the mask, and without a visible pixel it is
        removed, unless its mask was only shrunk: holes that are not filled in the masks do not shrink boxes. Borders
        that mirror or repeat the image show an object several times: each is an object. ``boxes`` are float64 (n, 4),
        x0, y0, x1, y1 in pixels, none empty or outside; ``masks`` uint8 (height, width); ``keypoints`` float64 (m, 3),
        x, y and a number that stays with its point, also outside of the result.
        """
        arguments: dict[str, Any] = {"bboxes": boxes, "objects": np.arange(len(boxes))}
        if masks:
            arguments["masks"] = np.stack(masks)
        if keypoints is not None:
            arguments["keypoints"] = keypoints
        arguments["image"], bits = np.array(image), copy.deepcopy(generator.bit_generator)
        result = self._apply(generator, **arguments)
        given = np.asarray(boxes, np.float64)
        objects = np.asarray(result["objects"], np.int64).reshape(-1)
        boxes = np.array(result["bboxes"], np.float64).reshape(-1, 4)
        pixels = Image.fromarray(result["image"])
        keypoints = None if keypoints is None else np.reshape(result["keypoints"], (-1, 3))
        if masks is None:
            return AugmentedObjects(pixels, boxes, objects, None, keypoints)
        visible, seen_masks = [], []
        is_repeated = np.bincount(objects, minlength=len(masks)) > 1
        moved: np.ndarray | None = None
        for row, index in enumerate(objects.tolist()):
            before, after = masks[index], np.ascontiguousarray(result["masks"][index])
            if before.any() and np.count_nonzero(after) < count_least_pixels(boxes[row]):
                if moved is None:
                    again = self._apply(np.random.Generator(bits), **{**arguments, "keypoints": _list_points(masks)})
                    moved = np.reshape(again["keypoints"], (-1, 3))  # of two columns without a point
                    moved = moved[((moved[:, :2] >= 0) & (moved[:, :2] < pixels.size)).all(axis=1)]
                columns, rows = np.floor(moved[moved[:, 2] == index, :2] + _ROUNDING_PX).astype(np.int64).T
                after[np.minimum(rows, after.shape[0] - 1), np.minimum(columns, after.shape[1] - 1)] = 1
            if is_repeated[index]:
                after = _keep_inside(after, boxes[row])
            is_moved = np.abs(given[index] - boxes[row]).max() > _ROUNDING_PX
            is_changed = is_moved or not np.array_equal(before, after)
            box = find_visible_box(boxes[row], before, after, is_changed)
            if box is None:
                continue
            boxes[row] = box
            visible.append(row)
            seen_masks.append(after)
        return AugmentedObjects(pixels, boxes[visible], objects[visible], seen_masks, keypoints)

    def _apply(self, generator: np.random.Generator, **arguments: Any) -> dict[str, Any]:
        """Apply the transforms and check the image; any error inside Albumentations is an error of the file."""
        if self._pipeline is None:
            self._pipeline = _build(self.content)
        self._pipeline.set_random_state(generator, random.Random(int(generator.integers(2**63))))
        try:
            result = self._pipeline(**arguments)
        except Exception as error:
            text = str(error).split("\n")[0]
            raise BadSample(f"{self.path} cannot be applied: {type(error).__name__}: {text}") from error
        before, after = arguments["image"], result["image"]
        if not isinstance(after, np.ndarray) or after.dtype != np.uint8 or after.shape[2:] != before.shape[2:]:
            kind = f"{getattr(after, 'dtype', type(after).__name__)} {tuple(getattr(after, 'shape', ()))}"
            raise BadSample(
                f"{self.path} returns an image {kind}: expected uint8 (height, width, 3); remove Normalize, ToFloat "
                "and ToTensorV2 from the file, because the model's input is normalized on the device"
            )
        return dict(result, image=np.ascontiguousarray(after))


def _lay_boxes(height: int, width: int) -> np.ndarray:
    """Return boxes of an image, float64 (n, 4): the whole image, its quarters, and a small box in each sixteenth."""
    boxes = [(0.0, 0.0, float(width), float(height))]
    for parts, share in ((2, 1.0), (4, 0.5)):
        down, across = height / parts, width / parts
        corners = [(row * down, column * across) for row in range(parts) for column in range(parts)]
        boxes += [(left, top, left + share * across, top + share * down) for top, left in corners]
    return np.array(boxes, np.float64)


def _list_points(masks: Sequence[np.ndarray]) -> np.ndarray:
    """Return x, y and object of pixels in each mask, float64 (n, 3): transforms move points without resampling."""
    pixels = [np.insert(np.argwhere(mask)[:, ::-1], 2, index, axis=1) for index, mask in enumerate(masks)]
    return np.concatenate([each[:: len(each) // _MOST_POINTS + 1] for each in pixels]).astype(np.float64)


def _keep_inside(mask: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Return the part of a mask in a box, whose sides are rounded outwards."""
    (left, top), (right, low) = np.floor(box[:2]).astype(int), np.ceil(box[2:]).astype(int)
    inside = np.zeros_like(mask)
    inside[top:low, left:right] = mask[top:low, left:right]
    return inside


def _read(path: str, has_boxes: bool) -> dict[str, Any]:
    """Return the content of a file with the parameters of boxes that are needed, or raise a ``UserError``."""
    library = require_albumentations()
    try:
        content = read_yaml(path)  # JSON is YAML
    except OSError as error:
        raise UserError(f"{KEY} {path}: {error.strerror}: expected a file that albumentations.save wrote") from error
    except ValueError as error:
        raise UserError(f"{KEY} {path}: {error}: expected YAML or JSON as albumentations.save writes it") from error
    top = content.get("transform") if isinstance(content, dict) else None
    if not isinstance(top, dict) or not isinstance(top.get(_NAME), str):
        raise UserError(f"{KEY} {path}: expected a mapping with 'transform', as albumentations.save writes it")
    if top[_NAME].rpartition(".")[2] != "Compose":
        top = {_NAME: "Compose", "transforms": [top]}
    given = top.get("bbox_params") or {}
    if not isinstance(given, dict):
        raise UserError(f"{KEY} {path}: bbox_params is not a mapping, as albumentations.save writes it")
    boxes = {**given, "format": "pascal_voc", "label_fields": ["objects"], "clip": True, "filter_invalid_bboxes": True}
    top = {
        **_adapt(top, has_boxes),
        "bbox_params": boxes if has_boxes else None,
        # A third column stays with its point.
        "keypoint_params": {"format": "xy", "remove_invisible": False} if has_boxes else None,
        "additional_targets": {},
    }
    content = {"transform": top}
    try:
        _build(content)
    except Exception as error:  # unknown names, bad arguments: pydantic's errors and others
        text = shorten(" ".join(str(error).split()), 300)
        raise UserError(
            f"{KEY} {path}: albumentations {library.__version__} cannot build it: {type(error).__name__}: {text}"
        ) from error
    return content


def _build(content: dict[str, Any]) -> Any:
    """Build the transforms, and raise ValueError for arguments that the library would ignore with a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # such as that a transform is a special case of another
        pipeline = require_albumentations().from_dict(content)
        _require_known(content["transform"], pipeline.to_dict()["transform"])
    return pipeline


def _require_known(given: dict[str, Any], built: dict[str, Any]) -> None:
    """Raise ValueError if a transform has an argument that the library never writes for it, or no probability."""
    unknown = sorted(set(given) - set(built) - {"additional_targets"})
    if unknown:
        raise ValueError(f"{given.get(_NAME)} has no argument {', '.join(unknown)}")
    if "p" not in given and "transforms" not in given:
        raise ValueError(f"{given.get(_NAME)} has no 'p', its probability")
    for inner, written in zip(given.get("transforms", ()), built.get("transforms", ())):
        _require_known(inner, written)


def _adapt(transform: dict[str, Any], has_boxes: bool) -> dict[str, Any]:
    """Return a transform as the installed version reads it, which fills the masks of objects with 0.

    Files of older versions have ``always_apply``: true means p = 1. The label of filled pixels, such as 255, is for
    label maps: in an object's mask it would be a part of the object.
    """
    plain = {name: value for name, value in transform.items() if name != "always_apply"}
    if transform.get("always_apply"):
        plain["p"] = 1.0
    if has_boxes and plain.get("fill_mask") is not None:
        plain["fill_mask"] = 0
    inner = plain.get("transforms")
    if isinstance(inner, list):
        plain["transforms"] = [_adapt(item, has_boxes) if isinstance(item, dict) else item for item in inner]
    return plain
