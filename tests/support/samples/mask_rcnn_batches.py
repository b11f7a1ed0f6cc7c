"""Random images with rectangular objects, and a Mask R-CNN that is small enough for tests."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.mask_rcnn.network import MaskRCNN
from paddlevit_dist.tasks.model_factory import create_model

NAME, CLASSES = "mask_rcnn_small", 3
EVERY_SAMPLE = {"anchor_samples": 10**6, "region_samples": 10**6}  # then nothing is drawn at random


def model(dtype: str = "float64", seed: int = 0, **rules: Any) -> MaskRCNN:
    paddle.seed(seed)
    return create_model(NAME, CLASSES, rules={**MaskRCNN.variants[NAME]["rules"], **rules}).to(dtype=dtype)


def images(
    counts: Sequence[int], side: int = 64, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (N, 3, side, side), boxes (N, M, 4), labels (N, M), masks (N, M, side, side)."""
    rng = np.random.default_rng(seed)
    number, most = len(counts), max(*counts, 1)
    images = rng.normal(size=(number, 3, side, side))
    boxes = np.zeros((number, most, 4))
    labels = np.full((number, most), -1)
    masks = np.zeros((number, most, side, side), np.uint8)
    for image, count in enumerate(counts):
        for which in range(count):
            x, y, width, height = (int(value) for value in rng.integers(6, side // 2, 4))
            boxes[image, which] = x, y, x + width, y + height
            labels[image, which] = rng.integers(0, CLASSES)
            masks[image, which, y : y + height, x : x + width] = 1
    return images, boxes, labels, masks


def batch(arrays: tuple, rows: slice = slice(None), dtype: str = "float64") -> tuple[paddle.Tensor, DetectionTargets]:
    images, boxes, labels, masks = (array[rows] for array in arrays)
    sizes = np.full((len(images), 2), images.shape[-1], np.int64)
    tensors = [paddle.to_tensor(array) for array in (boxes, labels, sizes)]
    counts = (labels >= 0).sum(axis=1)
    return paddle.to_tensor(images.astype(dtype)), DetectionTargets(*tensors, counts, paddle.to_tensor(masks))
