"""Samples of keypoints by heatmaps: in training the crop of an object, else an image with the crops of its objects."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ....core.runtime.files import map_array
from ...data.held_out import write_rows
from ...data.image_samples import ImageSamples
from ...detection.data.samples import DetectionSample
from ...detection.data.samples import collate as collate_detection
from ...detection.prediction import DetectionInput
from ...transforms.policies import ColorJitter
from ..data.augmented_objects import hide_outside
from ..data.keypoint_dataset import KeypointDataset, KeypointsPart
from .boxes import FindObjects, ObjectBoxes, WholeImages
from .channels import PointChannels
from .crops import build_matrix, crop_image, fit_regions, transform_points
from .targets import find_cells, weigh_points

HOST = "__host__"  # key of a batch for values that a step reads without the device
DETECTOR, STORED = "detector", "stored"  # keys of a batch whose objects a detector finds
_SHIFTED, _TURNED = 0.3, 0.6  # shares of crops that are shifted, and turned, as of mmpose's recipes
_CUT = 2.0  # deviations at which drawn shifts and rotations are cut

Size = tuple[int, int]  # height, width


class CropConfig(NamedTuple):
    """How objects are cropped.

    Attributes:
        crop_size, heatmap_size: height and width in pixels, rows and columns.
        box_scale: size of a region relative to its box.
        deviation: of a target, in cells.
        shift, scale, rotation: how much crops change in training, see ``HeatmapKeys``.
        flip: probability of a mirrored crop in training.
        jitter: range of brightness, contrast and saturation in training.
    """

    crop_size: Size
    heatmap_size: Size
    box_scale: float
    deviation: float
    shift: float = 0.0
    scale: float = 0.0
    rotation: float = 0.0
    flip: float = 0.0
    jitter: float = 0.0


class TrainingCrop(NamedTuple):
    """The crop of an object, and the places of its points."""

    image: np.ndarray  # uint8 (3, height, width)
    cells: np.ndarray  # float32 (heatmaps, 2), x and y
    weights: np.ndarray  # float32 (heatmaps,), 1 for a labeled point


class ImageCrops(NamedTuple):
    """An image of an evaluation or prediction with n objects."""

    index: int  # type: ignore[assignment]  # hides a method of tuples that is not used
    size: Size  # of the stored image
    objects: ObjectBoxes | None  # None: a detector finds them
    crops: np.ndarray  # uint8 (n, 3, height, width)
    stored: np.ndarray | None = None  # uint8 (3, height, width), for a detector
    detected: DetectionSample | None = None  # the input of the detector


class ObjectCrops(ImageSamples):
    """Training samples: an object with labeled points each, so that an image with several has several samples."""

    def __init__(
        self, dataset: KeypointDataset, config: CropConfig, channels: PointChannels, cache_folder: Path
    ) -> None:
        objects = dataset.posed_objects()  # (objects, 2), image and place in it
        rows = write_rows(cache_folder, "keypoint-images", np.ascontiguousarray(objects[:, 0]))
        super().__init__(KeypointsPart(dataset, rows))
        self.whole = dataset  # every image once
        self.config, self.channels = config, channels
        self.augment: Callable[..., Any] | None = None  # changes stored images and their points
        self._places_file = str(write_rows(cache_folder, "keypoint-objects", np.ascontiguousarray(objects[:, 1])))
        self._places: np.ndarray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_places": None}

    def read_sample(self, index: int, generator: np.random.Generator) -> TrainingCrop:
        """Read an image, crop one of its objects, and change the crop at random."""
        image, annotations = self.dataset.read(index)
        place = self.place(index)
        box, points, label = annotations.boxes[place], annotations.points[place], int(annotations.labels[place])
        if self.augment is not None:
            image, box, points = self.augment(image, box, points, label, generator)
        points = hide_outside(points, image.height, image.width)
        return crop_object(image, box, points, label, self.config, self.channels, generator)

    def place(self, index: int) -> int:
        """Return the position of the object of sample ``index`` in its image."""
        if self._places is None:
            self._places = map_array(self._places_file)
        return int(self._places[index])


def crop_object(
    image: Image.Image,
    box: np.ndarray,
    points: np.ndarray,
    label: int,
    config: CropConfig,
    channels: PointChannels,
    generator: np.random.Generator,
) -> TrainingCrop:
    """Crop an object for training; all randomness is the generator's.

    Args:
        box: x, y, width, height.
        points: float64 (K, 3), x, y, visibility.
        label: category of the object.
    """
    region = fit_regions(box, config.crop_size, config.box_scale)[0]
    region, angle = change_region(region, config, generator)
    is_mirrored = generator.random() < config.flip
    matrix = build_matrix(region, config.crop_size, angle)
    if config.jitter:
        image = ColorJitter(config.jitter)(image, generator)
    crop = crop_image(to_planes(image), matrix, config.crop_size)
    places = transform_points(matrix, points[:, :2])
    spread = channels.spread(np.column_stack([places, points[:, 2]])[None], np.array([label]))[0]
    places, visible = spread[:, :2], spread[:, 2] > 0
    if is_mirrored:
        crop = np.ascontiguousarray(crop[:, :, ::-1])
        places = places[channels.mirror]
        visible = visible[channels.mirror]
        places[:, 0] = config.crop_size[1] - 1 - places[:, 0]
    cells = find_cells(places, config.crop_size, config.heatmap_size)
    return TrainingCrop(crop, cells, weigh_points(cells, visible, config.heatmap_size, config.deviation))


def change_region(region: np.ndarray, config: CropConfig, generator: np.random.Generator) -> tuple[np.ndarray, float]:
    """Return a shifted and scaled region, and a rotation in degrees.

    As in mmpose's recipes of ViTPose, shares of the regions are shifted and turned, and sizes follow a normal
    distribution around 1 that is cut at its ``scale``.
    """
    shift, spread, turn = generator.standard_normal(2), generator.standard_normal(), generator.standard_normal()
    is_shifted, is_turned = generator.random(2) < (_SHIFTED, _TURNED)
    shift = np.clip(shift, -_CUT, _CUT) * config.shift * is_shifted
    factor = 1.0 + float(np.clip(spread * config.scale, -config.scale, config.scale))
    angle = float(np.clip(turn, -_CUT, _CUT)) * config.rotation if is_turned else 0.0
    return np.concatenate([region[:2] + shift * region[2:], region[2:] * factor]), angle


class ObjectsOfImages(ImageSamples):
    """Samples of an evaluation: images with the crops of all objects that ``find_objects`` returns.

    Args:
        find_objects: finds the objects of an image; None: a detector finds them in a step.
        prepare: makes the detector's sample of a stored image.
    """

    sample_name = "images"

    def __init__(
        self,
        dataset: KeypointDataset,
        config: CropConfig,
        find_objects: FindObjects | None,
        prepare: DetectionInput | None = None,
    ) -> None:
        super().__init__(dataset)
        self.config, self.find_objects, self.prepare = config, find_objects, prepare

    def read_sample(self, index: int, generator: np.random.Generator) -> ImageCrops:
        """Read an image and crop its objects."""
        image, annotations = self.dataset.read(index)
        if self.find_objects is None:
            return prepare_detection(index, image, self.prepare, generator)
        objects = self.find_objects(index, (image.height, image.width), annotations)
        return crop_all(index, image, objects, self.config)


class ImageInput(NamedTuple):
    """Prepares an image without annotations: all of it is one object, or a detector finds the objects."""

    config: CropConfig
    find_objects: WholeImages | None
    prepare: DetectionInput | None = None

    def __call__(self, stored: Image.Image, generator: np.random.Generator) -> ImageCrops:
        """Return the sample of a stored image."""
        if self.find_objects is None:
            return prepare_detection(-1, stored, self.prepare, generator)
        return crop_all(-1, stored, self.find_objects(-1, (stored.height, stored.width), None), self.config)


def prepare_detection(index: int, image: Image.Image, prepare: Any, generator: np.random.Generator) -> ImageCrops:
    """Return the sample of an image whose objects a detector finds."""
    planes = to_planes(image)
    nothing = np.zeros((0, 3, 1, 1), np.uint8)
    return ImageCrops(index, planes.shape[1:], None, nothing, planes, prepare(image, generator)._replace(index=index))


def crop_all(index: int, image: Image.Image, objects: ObjectBoxes, config: CropConfig) -> ImageCrops:
    """Return the sample of an image with known objects."""
    crops = cut_crops(to_planes(image), objects.boxes, config)
    return ImageCrops(index, (image.height, image.width), objects, crops)


def cut_crops(planes: np.ndarray, boxes: np.ndarray, config: CropConfig) -> np.ndarray:
    """Crop boxes (n, 4) of an image, uint8 (3, height, width), to uint8 (n, 3, crop height, crop width)."""
    regions = fit_regions(boxes, config.crop_size, config.box_scale)
    crops = [crop_image(planes, build_matrix(region, config.crop_size), config.crop_size) for region in regions]
    return np.stack(crops) if crops else np.zeros((0, 3, *config.crop_size), np.uint8)


def to_planes(image: Image.Image) -> np.ndarray:
    """Return the pixels of an RGB image, uint8 (3, height, width)."""
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def collate(samples: Sequence[Any]) -> dict[str, Any]:
    """Collate crops for training, or images of an evaluation.

    Returns, in training, ``images`` uint8 (N, 3, height, width), ``cells`` float32 (N, heatmaps, 2) and ``weights``
    float32 (N, heatmaps). In an evaluation ``images``, the crops of all images one after the other, and in host memory
    index, size and objects of each image; with a detector its batch and the stored pixels.
    """
    if isinstance(samples[0], TrainingCrop):
        return {
            "images": np.stack([sample.image for sample in samples]),
            "cells": np.stack([sample.cells for sample in samples]),
            "weights": np.stack([sample.weights for sample in samples]),
        }
    number = len(samples)
    objects = [sample.objects for sample in samples if sample.objects is not None]
    facts: dict[str, Any] = {
        "indices": [sample.index for sample in samples],
        "sizes": [list(sample.size) for sample in samples],
        "objects": [[column.tolist() for column in each] for each in objects],
    }
    if len(objects) == number:
        return {"images": np.concatenate([sample.crops for sample in samples]), HOST: facts}
    found = collate_detection([sample.detected for sample in samples if sample.detected is not None])
    facts[DETECTOR] = found.pop(HOST)
    stored = np.concatenate([sample.stored.ravel() for sample in samples if sample.stored is not None])
    return {**{f"{DETECTOR}.{name}": value for name, value in found.items()}, STORED: stored, HOST: facts}


def list_objects(batch: dict[str, Any]) -> list[ObjectBoxes]:
    """Return the objects of each image of an evaluation's batch; none if a detector finds them."""
    return [
        ObjectBoxes(
            np.array(boxes, np.float64).reshape(-1, 4), np.array(labels, np.int64), np.array(scores, np.float64)
        )
        for boxes, labels, scores in batch[HOST]["objects"]
    ]


def split_detection(batch: dict[str, Any]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return the batch of the detector and the stored pixels, uint8 (3, height, width), of a batch with a detector."""
    facts, before = batch[HOST], f"{DETECTOR}."
    found = {name.removeprefix(before): value for name, value in batch.items() if name.startswith(before)}
    sizes = [(3, height, width) for height, width in facts["sizes"]]
    ends = np.cumsum([math.prod(size) for size in sizes])
    pixels = np.split(batch[STORED].numpy(), ends[:-1])
    return {**found, HOST: facts[DETECTOR]}, [part.reshape(size) for part, size in zip(pixels, sizes)]


def count_cells(crop_size: Size, stride: int) -> Size:
    """Return rows and columns of the heatmaps of a crop."""
    return crop_size[0] // stride, crop_size[1] // stride
