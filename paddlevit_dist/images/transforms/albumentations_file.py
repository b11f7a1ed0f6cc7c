"""Augmentation that a file of Albumentations describes, as ``albumentations.save`` writes it (YAML or JSON).

All random numbers come from the sample's generator: it replaces the generators of all transforms, which so draw
independently of each other, and a sample is the same in any process.
"""

import os
import random
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...runtime.errors import UserError
from ...runtime.printing import shorten
from ...runtime.text_files import read_yaml
from ...tasks.sample_checks import BadSample
from .described import draw_image

KEY = "DATA.ALBUMENTATIONS"
_TRIED_SIZE = 480, 640  # height and width of the image that a file is tried with
_NAME = "__class_fullname__"  # key of a transform in the file


def require_albumentations() -> Any:
    """Import ``albumentations`` without its request for a newer version, and turn OpenCV's threads off.

    Raises:
        UserError: it is not installed.
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
    """An image with its n visible objects after augmentation.

    Attributes:
        image: Pillow image in mode "RGB".
        boxes: float64 (n, 4), x0, y0, x1, y1 in its pixels.
        objects: int64 (n,), the position of each object before augmentation.
        masks: n masks, uint8 (height, width); None without masks.
    """

    image: Image.Image
    boxes: np.ndarray
    objects: np.ndarray
    masks: list[np.ndarray] | None


class AlbumentationsFile:
    """The transforms of a file; pickled as its content, and built once in each process.

    Args:
        path: YAML or JSON file.
        has_boxes: whether boxes are transformed, too. The file's ``bbox_params`` may limit the size and the visible
            share of boxes; their format and the fields of labels are set here.

    Raises:
        UserError: Albumentations is not installed, or the file is not one that it can apply to a color image with an
            RGB image of integer levels as the result.
    """

    def __init__(self, path: str, has_boxes: bool = False) -> None:
        self.path = path
        self.content = _read(path, has_boxes)
        self._pipeline: Any = None
        self.has_boxes = has_boxes
        example = draw_image(*_TRIED_SIZE)
        try:
            arguments = {"bboxes": np.zeros((0, 4)), "objects": np.zeros(0, np.int64)} if has_boxes else {}
            self._apply(np.random.default_rng(0), image=example, **arguments)
        except BadSample as error:
            raise UserError(f"{KEY}: tried with an image of 640 x 480 pixels, {error}") from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pipeline": None}

    def augment_image(self, image: Image.Image, generator: np.random.Generator) -> Image.Image:
        """Augment an image in mode "RGB" or "L".

        Raises:
            BadSample: a transform cannot be applied to it.
        """
        return Image.fromarray(self._apply(generator, image=np.array(image))["image"])

    def augment_label_map(
        self, image: Image.Image, labels: np.ndarray, generator: np.random.Generator
    ) -> tuple[Image.Image, np.ndarray]:
        """Augment an RGB image together with its labels, uint8 (height, width).

        Raises:
            BadSample: a transform cannot be applied to them.
        """
        result = self._apply(generator, image=np.array(image), mask=labels)
        return Image.fromarray(result["image"]), np.ascontiguousarray(result["mask"])

    def augment_objects(
        self,
        image: Image.Image,
        boxes: np.ndarray,
        masks: Sequence[np.ndarray] | None,
        generator: np.random.Generator,
    ) -> AugmentedObjects:
        """Augment an RGB image together with its n objects.

        Args:
            image: the image.
            boxes: float64 (n, 4), x0, y0, x1, y1 in its pixels; none is empty or outside.
            masks: n masks, uint8 (height, width); None: there are none.
            generator: generator of the sample.

        Raises:
            BadSample: a transform cannot be applied to them.
        """
        arguments: dict[str, Any] = {"bboxes": boxes, "objects": np.arange(len(boxes))}
        if masks:
            arguments["masks"] = np.stack(masks)
        result = self._apply(generator, image=np.array(image), **arguments)
        objects = np.asarray(result["objects"], np.int64).reshape(-1)
        boxes = np.asarray(result["bboxes"], np.float64).reshape(-1, 4)
        visible = None if masks is None else [np.ascontiguousarray(result["masks"][index]) for index in objects]
        return AugmentedObjects(Image.fromarray(result["image"]), boxes, objects, visible)

    def _apply(self, generator: np.random.Generator, **arguments: Any) -> dict[str, Any]:
        """Apply the transforms and check the image; any error inside Albumentations is an error of the file."""
        if self._pipeline is None:
            self._pipeline = require_albumentations().from_dict(self.content)
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


def _read(path: str, has_boxes: bool) -> dict[str, Any]:
    """Return the content of a file with the parameters of boxes that ``AlbumentationsFile`` needs.

    Raises:
        UserError: the file cannot be read, or its transforms cannot be built.
    """
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
        **_replace_always_apply(top),
        "bbox_params": boxes if has_boxes else None,
        "keypoint_params": None,
        "additional_targets": {},
    }
    content = {"transform": top}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # it only warns of unknown arguments
            library.from_dict(content)
    except Exception as error:  # unknown names, bad arguments: pydantic's errors and others
        text = shorten(" ".join(str(error).split()), 300)
        raise UserError(
            f"{KEY} {path}: albumentations {library.__version__} cannot build it: {type(error).__name__}: {text}"
        ) from error
    return content


def _replace_always_apply(transform: dict[str, Any]) -> dict[str, Any]:
    """Return a transform without ``always_apply``, which files of older versions have: true means p = 1."""
    plain = {name: value for name, value in transform.items() if name != "always_apply"}
    if transform.get("always_apply"):
        plain["p"] = 1.0
    inner = plain.get("transforms")
    if isinstance(inner, list):
        plain["transforms"] = [_replace_always_apply(item) if isinstance(item, dict) else item for item in inner]
    return plain
