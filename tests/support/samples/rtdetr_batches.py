"""Random outputs of an RT-DETR or a D-FINE, and batches with denoising queries for them."""

import numpy as np
import paddle

from paddlevit_dist.images.detection.denoising import ContrastiveNoise, DenoisingQueries
from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.rtdetr.distributions import DistanceBins
from support.networks.small_detr import CLASSES, QUERIES, make_objects

SIZES = [(40, 32), (24, 40), (40, 40), (9, 30), (30, 30), (20, 40)]  # of the first images, as many as there are
LAYERS = 3
NOISE = ContrastiveNoise(CLASSES, queries=6)
BINS = DistanceBins(8, 0.5, 4.0)


def make_batch(numbers):
    """Boxes, labels and denoising arrays as they are collated."""
    boxes, labels = make_objects(numbers, SIZES)
    drawn = [
        NOISE.draw(boxes[row, :number], labels[row, :number], SIZES[row], np.random.default_rng(row))
        for row, number in enumerate(numbers)
    ]
    return {"boxes": boxes, "labels": labels, **NOISE.collate(drawn, list(numbers), labels.shape[1])}


def make_targets(batch, rows=slice(None)):
    tensors = {name: paddle.to_tensor(array[rows]) for name, array in batch.items()}
    sizes = paddle.to_tensor(np.array(SIZES)[: len(batch["labels"])][rows])
    return DetectionTargets(tensors["boxes"], tensors["labels"], sizes, denoising=DenoisingQueries.from_batch(tensors))


def make_arrays(denoising, seed=0, images=4):
    """What a D-FINE returns in training, float64, for that many denoising queries; an RT-DETR returns a part of it."""
    random = np.random.default_rng(seed)

    def head(shape):
        logits = random.standard_normal((*shape, CLASSES)) * 2
        boxes = np.concatenate([random.uniform(0.2, 0.8, (*shape, 2)), random.uniform(-0.05, 0.6, (*shape, 2))], -1)
        return {"logits": logits, "boxes": boxes}

    arrays = {}
    for prefix, queries in (("", QUERIES), ("denoising_", denoising)):
        for part, shape in (("layer", (LAYERS, images, queries)), ("first", (images, queries))):
            arrays.update({f"{prefix}{part}_{name}": array for name, array in head(shape).items()})
        arrays[f"{prefix}layer_corners"] = random.standard_normal((LAYERS, images, queries, 4 * (BINS.number + 1)))
        arrays[f"{prefix}references"] = random.uniform(0.2, 0.5, (images, queries, 4))
    arrays.update({f"encoder_{name}": array for name, array in head((images, QUERIES)).items()})
    return arrays


def make_index(rows, name):
    """Where an output has the images ``rows``."""
    return (slice(None), rows) if "layer_" in name else (rows,)
