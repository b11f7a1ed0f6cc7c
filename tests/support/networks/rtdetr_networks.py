"""Small real-time detectors, and images with objects for them."""

import numpy as np
import paddle

from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.detection.denoising import ContrastiveNoise, DenoisingQueries
from paddlevit_dist.images.detection.detector import DetectionTargets
from support.networks.small_detr import default_dtype, make_objects

SMALL = ["rtdetr_small", "dfine_small"]
CLASSES, SIZE = 3, (64, 96)  # height and width of images


def make_network(name, dtype="float64", num_classes=CLASSES, **options):
    """In evaluation, with boxes and points that differ from query to query."""
    with default_dtype(dtype):
        paddle.seed(0)
        network = create_model(name, num_classes, **options)
    random = np.random.default_rng(0)
    for parameter_name, parameter in network.named_parameters():
        if not parameter_name.startswith("backbone.") and parameter.ndim > 1:
            noise = random.standard_normal(parameter.shape) / np.sqrt(parameter.shape[0])
            parameter.set_value(noise.astype(dtype))
    network.eval()
    return network


def make_images(number, dtype="float64"):
    random = np.random.default_rng(1)
    return paddle.to_tensor(random.standard_normal((number, 3, *SIZE)).astype(dtype))


def make_targets(numbers, change=None):
    sizes = [SIZE] * len(numbers)
    boxes, labels = make_objects(numbers, sizes, classes=CLASSES)
    noise = ContrastiveNoise(CLASSES, queries=6)
    drawn = [
        noise.draw(boxes[row, :number], labels[row, :number], sizes[row], np.random.default_rng(row))
        for row, number in enumerate(numbers)
    ]
    batch = noise.collate(drawn, list(numbers), labels.shape[1])
    if change is not None:
        batch["denoising_places"][:, change] += 1.0
    queries = DenoisingQueries.from_batch({name: paddle.to_tensor(array) for name, array in batch.items()})
    given = paddle.to_tensor(boxes), paddle.to_tensor(labels), paddle.to_tensor(np.array(sizes))
    return DetectionTargets(*given, denoising=queries)
