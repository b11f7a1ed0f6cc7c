"""Drawn images as transforms take them, with their masks."""

import numpy as np

from paddlevit_dist.images.detection.data.synthetic_shapes import SyntheticShapes
from paddlevit_dist.images.detection.data.transforms import whole_view
from paddlevit_dist.images.run_lengths import decode

SHAPES = SyntheticShapes(None, "train", None, sides=(30, 90), per_image=(1, 5))


def make_view(index, dataset=SHAPES):
    image, annotations = dataset.read(index)
    masks = [decode(mask, *dataset.size(index)) for mask in annotations.masks]
    return whole_view(image, annotations.boxes, np.arange(len(masks))), masks


def edges(mask):
    rows, columns = np.nonzero(mask)
    return np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) if len(rows) else np.zeros(4)
