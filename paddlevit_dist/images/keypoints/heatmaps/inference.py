"""Forward passes over the crops of a batch, and the objects that they show."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

from ....core.runtime.transfers import read_later, to_device
from ....core.tasks.network_checks import check_network
from ..detected_keypoints import DetectedKeypoints
from ..keypoint_set import KeypointSet
from .boxes import BoxDetector, ObjectBoxes
from .channels import PointChannels
from .crops import fit_regions, map_cells
from .decoding import decode_heatmaps
from .samples import CropConfig, cut_crops, list_objects, split_detection
from .settings import HeatmapKeys
from .targets import flip_back

HEATMAPS = "heatmaps (crops, points, rows, columns)"
_MOST_CROPS = 64  # of a forward pass


class KeypointFinder:
    """Finds the keypoints of the objects of a batch.

    Args:
        keys: those below HEATMAPS.
        config: how objects are cropped.
        channels: the heatmaps of the points.
        keypoint_sets: the points of each category.
        normalize: maps crops, uint8 (n, 3, height, width), to the network's input.
        detector: finds the objects; None: the batch has them.
        mirrors: whether mirrored crops are averaged.
        has_scores: whether boxes have scores, so that objects may be found twice.
    """

    def __init__(
        self,
        keys: HeatmapKeys,
        config: CropConfig,
        channels: PointChannels,
        keypoint_sets: Sequence[KeypointSet],
        normalize: Callable[[paddle.Tensor], paddle.Tensor],
        detector: BoxDetector | None,
        mirrors: bool,
        has_scores: bool,
    ) -> None:
        self.keys, self.config, self.channels, self.keypoint_sets = keys, config, channels, keypoint_sets
        self.normalize, self.detector, self.mirrors, self.has_scores = normalize, detector, mirrors, has_scores

    def __call__(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[DetectedKeypoints]:
        """Return the objects of each image, with points in the pixels of the stored image."""
        if self.detector is None:
            objects, crops = list_objects(batch), batch["images"]
        else:
            found, stored = split_detection(batch)
            objects = self.detector.detect(found)
            crops = np.concatenate([cut_crops(pixels, own.boxes, self.config) for pixels, own in zip(stored, objects)])
            crops = to_device(crops)
        number = sum(len(own.labels) for own in objects)
        readers = [
            read_later(self.compute_maps(model, crops[first : first + _MOST_CROPS]))
            for first in range(0, number, _MOST_CROPS)
        ]
        maps = [array for read in readers for array in read()]
        joined = np.concatenate(maps) if maps else np.zeros((0, len(self.channels), 1, 1), np.float32)
        ends = np.cumsum([len(own.labels) for own in objects])[:-1]
        return [self.decode(part, own) for part, own in zip(np.split(joined, ends), objects)]

    def compute_maps(self, model: paddle.nn.Layer, crops: paddle.Tensor) -> paddle.Tensor:
        """Return the heatmaps of crops, float32 (n, heatmaps, rows, columns), with a mirrored second view if asked."""
        images = self.normalize(crops)
        network = check_network(model, HEATMAPS, len(self.channels), *self.config.heatmap_size)
        maps = network(images).astype("float32")
        if not self.mirrors:
            return maps
        mirrored = network(paddle.flip(images, axis=[3])).astype("float32")
        return (maps + flip_back(mirrored, self.channels.mirror.tolist())) * 0.5

    def decode(self, maps: np.ndarray, objects: ObjectBoxes) -> DetectedKeypoints:
        """Return the objects of an image from their heatmaps, float32 (n, heatmaps, rows, columns)."""
        own = self.channels.collect(maps, objects.labels) if len(maps) else maps
        cells, scores = decode_heatmaps(own, self.keys.KERNEL)
        regions = fit_regions(objects.boxes, self.config.crop_size, self.config.box_scale)
        places = map_cells(cells, regions, self.config.heatmap_size)
        scores = np.maximum(scores, 0.0)
        corners = np.concatenate([objects.boxes[:, :2], objects.boxes[:, :2] + objects.boxes[:, 2:]], axis=1)
        detected = DetectedKeypoints(
            np.concatenate([places, scores[:, :, None]], axis=2).astype(np.float32),
            (objects.scores * score_objects(scores, self.keys.POINT_SCORE)).astype(np.float32),
            objects.labels,
            corners.astype(np.float32),
        )
        if not self.has_scores:
            return detected
        return detected.only(suppress_similar(detected, self.keypoint_sets, self.keys.NMS_OKS))


def score_objects(scores: np.ndarray, least: float) -> np.ndarray:
    """Return the mean of each object's scores of points, (n, K), above ``least``; 0 without one. As in mmpose."""
    is_counted = scores > least
    return (scores * is_counted).sum(axis=1) / np.maximum(is_counted.sum(axis=1), 1)


def suppress_similar(detected: DetectedKeypoints, keypoint_sets: Sequence[KeypointSet], threshold: float) -> np.ndarray:
    """Return the places of the objects that are not similar to a better one of their category, best first.

    The similarity is COCO's OKS, of all points, with the mean area of both boxes. Source: mmpose, ``oks_nms``.
    """
    boxes = detected.boxes if detected.boxes is not None else detected.span_boxes()
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1).astype(np.float64)
    kept: list[int] = []
    for place in np.argsort(-detected.scores, kind="stable").tolist():
        label = int(detected.labels[place])
        rivals = [other for other in kept if detected.labels[other] == label]
        sigmas = np.array(keypoint_sets[label].sigmas)
        if rivals and len(sigmas):
            points = detected.points[:, : len(sigmas), :2].astype(np.float64)
            distances = ((points[rivals] - points[place]) ** 2).sum(axis=2)  # (rivals, K)
            mean_areas = (areas[rivals] + areas[place]) / 2 + np.spacing(1.0)
            similarity = np.exp(-distances / (2 * (2 * sigmas) ** 2) / mean_areas[:, None]).mean(axis=1)
            if similarity.max() > threshold:
                continue
        kept.append(place)
    return np.array(kept, np.int64)
