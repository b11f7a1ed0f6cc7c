"""Objects with four points of two classes, and a small DETRPose for them."""

import numpy as np
import paddle

from paddlevit_dist.images.detection.denoising import DenoisingQueries
from paddlevit_dist.images.keypoints.detrpose.criterion import PoseTargets
from paddlevit_dist.images.keypoints.detrpose.denoising import PoseNoise
from support.networks.rtdetr_networks import SIZE, make_network

SIGMAS = ((0.05, 0.1, 0.02, 0.08), (0.03, 0.03, 0.2, 0.1))
POINTS, CLASSES = len(SIGMAS[0]), len(SIGMAS)
NOISE = PoseNoise(SIGMAS, 4)


def make_objects(numbers, seed=0):
    """Points in pixels with visibility, areas and labels of each image, padded."""
    random, most = np.random.default_rng(seed), max(1, *numbers)
    points = np.zeros((len(numbers), most, POINTS, 3))
    areas, labels = np.zeros((len(numbers), most)), np.full((len(numbers), most), -1, np.int64)
    for row, number in enumerate(numbers):
        points[row, :number, :, :2] = random.random((number, POINTS, 2)) * SIZE[::-1]
        points[row, :number, :, 2] = random.integers(3, size=(number, POINTS))
        points[row, :number, 0, 2] = 2  # at least one
        areas[row, :number] = 100 + 900 * random.random(number)
        labels[row, :number] = random.integers(CLASSES, size=number)
    points[points[..., 2] == 0] = 0
    return points, areas, labels


def make_targets(numbers, with_noise=False, seed=0):
    points, areas, labels = make_objects(numbers, seed)
    sizes = np.tile(SIZE, (len(numbers), 1))
    targets = PoseTargets(*map(paddle.to_tensor, (points, areas, labels, sizes)), np.array(numbers))
    if not with_noise:
        return targets
    drawn = [
        NOISE.draw(points[row, :number], areas[row, :number], labels[row, :number], SIZE, np.random.default_rng(row))
        for row, number in enumerate(numbers)
    ]
    batch = NOISE.collate(drawn, list(numbers), labels.shape[1])
    return targets._replace(
        denoising=DenoisingQueries.from_batch({name: paddle.to_tensor(part) for name, part in batch.items()})
    )


def make_pose_network():
    """In evaluation, in float64, with poses that differ from query to query."""
    return make_network("detrpose_small", num_classes=CLASSES, keypoints=POINTS, denoising=NOISE.queries)
