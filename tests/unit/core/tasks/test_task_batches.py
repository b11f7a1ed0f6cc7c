"""Which arrays a batch of each task has, their types and numbers of axes: what kernels take, and what memory holds."""

import numpy as np
import pytest

from paddlevit_dist.core import settings as config
from paddlevit_dist.core.tasks.task_factory import make_task

IMAGES = "images: uint8 4, "
SIZES = f"{IMAGES}sizes: int64 2, "
BOXES = f"{SIZES}box_counts: int64 1, boxes: float32 3, labels: int64 2, "
SCORED = f"{SIZES}indices: int64 1, original_sizes: int64 2, seconds: float64 0"
NOISE = (
    "denoising_labels: int64 2, denoising_places: float32 3, denoising_groups: int64 2, denoising_objects: int64 2, "
    "denoising_weights: float32 2"
)
ERASED = "erase_rows: int64 1, erase_boxes: int32 3"
POINTS = "coordinates: int32 2, features: float32 2, inverse: int64 1, labels: int64 1, offsets: int32 1"
OBJECTS = f"{POINTS}, xyz: float32 2, instance_labels: int32 1, instance_centers: float32 2"
BATCHES = {  # words -> arrays of a batch in training and in evaluation
    "-cfg=vit_digits": (f"{IMAGES}labels: int64 1",) * 2,
    "-cfg=vit_digits TRAIN.RANDOM_ERASE_PROB 1": (f"{IMAGES}labels: int64 1, {ERASED}", f"{IMAGES}labels: int64 1"),
    "-cfg=multi_digits": (f"{IMAGES}labels: int8 2",) * 2,
    "-cfg=dfine_shapes": (BOXES + NOISE, SCORED),
    "-cfg=mask_rcnn_shapes": (f"{BOXES}masks: uint8 4", SCORED),
    "-cfg=segformer_b0_shapes": (f"{IMAGES}labels: uint8 3", "pixels: uint8 1, labels: uint8 1"),
    "-cfg=minkunet_tutorial": (POINTS, POINTS),
    "-cfg=pointgroup_synthetic_rooms": (OBJECTS, OBJECTS),
    "-cfg=mink_classifier_solids": ("coordinates: int32 2, labels: int64 1",) * 2,
    "-cfg=landmark_unet3d": (
        "points: float32 3, volume: float32 5",
        "points: float32 3, affine: float64 3, index: int64 1, sizes: int64 2, volume: float32 5",
    ),
    "-cfg=volume_unet3d_phantoms": ("volume: float32 5, labels: uint8 4", "volume 0: float32 4, labels 0: uint8 3"),
}


FEW = "DATA.SHAPES.TRAIN 4 DATA.SHAPES.VAL 2".split()  # each of the segmentation's is read to name its classes


@pytest.mark.parametrize("words", BATCHES)
def test_a_batch_has_arrays_of_the_types_that_the_task_computes_with(words, tmp_path):
    for split, expected in zip(("train", "val"), BATCHES[words], strict=True):
        task = make_task(config.load([*words.split(), *(FEW if "shapes" in words else [])]).values)
        samples = task.build_dataset(split, tmp_path)
        chosen = range(2 if split == "train" else 1)
        batch = task.collate([samples.sample(index, np.random.default_rng(index)) for index in chosen])
        found = {name: np.asarray(value) for name, value in batch.items() if name != "__host__"}
        assert ", ".join(f"{name}: {array.dtype} {array.ndim}" for name, array in found.items()) == expected
