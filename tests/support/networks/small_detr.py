"""A DETR of a few thousand parameters, and batches for it."""

import contextlib

import numpy as np
import paddle

from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.detection.detector import DetectionTargets

CLASSES, QUERIES = 4, 5
OPTIONS = {
    "backbone": "resnet18",
    "backbone_options": {"depths": (1, 1), "dims": (4, 8)},
    "frozen_stages": 0,
    "embed_dim": 16,
    "num_heads": 2,
    "feedforward": 24,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "num_queries": QUERIES,
}


@contextlib.contextmanager
def default_dtype(dtype):
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        yield
    finally:
        paddle.set_default_dtype(before)


def small_detr(dtype="float32", num_classes=CLASSES, **options):
    with default_dtype(dtype):
        paddle.seed(0)
        return create_model("detr_resnet18", num_classes, **{**OPTIONS, **options})


def make_criterion(model, **losses):
    queries = model.query_embed.weight.shape[0]
    return model.criterion("detr_resnet18", model.num_classes, losses, **{**OPTIONS, "num_queries": queries})


def make_images(sizes, dtype="float32", seed=0):
    """Images (N, 3, H, W) of noise, padded with zeros, and their sizes."""
    random, sizes = np.random.default_rng(seed), np.asarray(sizes)
    images = np.zeros((len(sizes), 3, *sizes.max(axis=0)))
    for number, (height, width) in enumerate(sizes):
        images[number, :, :height, :width] = random.standard_normal((3, height, width))
    return paddle.to_tensor(images.astype(dtype)), paddle.to_tensor(sizes)


def make_objects(numbers, sizes, seed=0, classes=CLASSES):
    """Random objects of images, arrays padded as batches are: boxes (N, M, 4), labels (N, M)."""
    random, most = np.random.default_rng(seed), max(1, *numbers)
    boxes, labels = np.zeros((len(numbers), most, 4), np.float32), np.full((len(numbers), most), -1, np.int64)
    for image, (number, (height, width)) in enumerate(zip(numbers, sizes)):
        corners = np.sort(random.random((number, 2, 2)), axis=1) * [width, height]  # two points, left and upper first
        boxes[image, :number] = corners.reshape(number, 4)
        labels[image, :number] = random.integers(classes, size=number)
    return boxes, labels


def make_targets(numbers, sizes, seed=0, classes=CLASSES):
    boxes, labels = make_objects(numbers, sizes, seed, classes)
    return DetectionTargets(paddle.to_tensor(boxes), paddle.to_tensor(labels), paddle.to_tensor(np.asarray(sizes)))
