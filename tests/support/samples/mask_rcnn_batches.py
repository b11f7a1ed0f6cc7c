"""Random images with rectangular objects, and a Mask R-CNN that is small enough for tests."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.mask_rcnn.network import MaskRCNN

NAME, CLASSES = "mask_rcnn_small", 3
EVERY_SAMPLE = {"anchor_samples": 10**6, "region_samples": 10**6}  # then nothing is drawn at random


def model(dtype: str = "float64", seed: int = 0, **rules: Any) -> MaskRCNN:
    paddle.seed(seed)
    return create_model(NAME, CLASSES, rules={**MaskRCNN.variants[NAME]["rules"], **rules}).to(dtype=dtype)


def images(
    counts: Sequence[int], height: int = 64, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (N, 3, height, width), three quarters as wide as high, boxes (N, M, 4), labels (N, M), and masks
    (N, M, height, width)."""
    rng, width = np.random.default_rng(seed), height * 3 // 4
    number, most = len(counts), max(*counts, 1)
    images = rng.normal(size=(number, 3, height, width))
    boxes = np.zeros((number, most, 4))
    labels = np.full((number, most), -1)
    masks = np.zeros((number, most, height, width), np.uint8)
    for image, count in enumerate(counts):
        for which in range(count):
            (x, y), (across, down) = rng.integers(6, [width // 2, height // 2], (2, 2)).tolist()
            boxes[image, which] = x, y, x + across, y + down
            labels[image, which] = rng.integers(0, CLASSES)
            masks[image, which, y : y + down, x : x + across] = 1
    return images, boxes, labels, masks


def batch(arrays: tuple, rows: slice = slice(None), dtype: str = "float64") -> tuple[paddle.Tensor, DetectionTargets]:
    images, boxes, labels, masks = (array[rows] for array in arrays)
    sizes = np.tile(np.array(images.shape[2:], np.int64), (len(images), 1))
    tensors = [paddle.to_tensor(array) for array in (boxes, labels, sizes)]
    counts = (labels >= 0).sum(axis=1)
    return paddle.to_tensor(images.astype(dtype)), DetectionTargets(*tensors, counts, paddle.to_tensor(masks))
