"""Train a sparse convolutional network in a custom loop: do these surface points belong to a ball or to a box?"""

import numpy as np
from paddlevit_dist import Accuracy
from paddlevit_dist.points import sparse

import paddle
import paddle.nn.functional as F
from paddle import nn


VOXEL, CLASSES = 0.1, ["ball", "box"]


def draw(index):
    """Return 400 points on the surface of a solid, (points, 3), and its class."""
    generator, label = np.random.default_rng(index), index % 2
    points = generator.normal(size=(400, 3))
    lengths = np.abs(points).max(axis=1) if label else np.linalg.norm(points, axis=1)
    return points / lengths[:, None] * generator.uniform(0.7, 1.0), label


def get_batch(indices):
    """Return a sparse tensor of the solids' voxels, and their classes."""
    solids = [draw(index) for index in indices]
    rows = [np.c_[np.full(len(points), number), points / VOXEL] for number, (points, _) in enumerate(solids)]
    points = np.concatenate(rows)  # (points, 4): which solid, and where, in voxels
    field = sparse.PointFeatures(np.ones((len(points), 1), np.float32), points)
    return field.voxels("mean")[0], paddle.to_tensor([label for _, label in solids])


def block(inputs, outputs):
    return nn.Sequential(
        sparse.Convolution(inputs, outputs, 3, stride=2), sparse.BatchNorm(outputs), sparse.Pointwise(nn.GELU())
    )


if __name__ == "__main__":
    paddle.seed(0)
    network = nn.Sequential(block(1, 16), block(16, 32), sparse.GlobalPooling("max"), nn.Linear(32, len(CLASSES)))
    optimizer = paddle.optimizer.AdamW(0.01, parameters=network.parameters())
    for step in range(25):
        voxels, labels = get_batch(range(step * 12, step * 12 + 12))
        loss = F.cross_entropy(network(voxels), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
    network.eval()
    meter = Accuracy(CLASSES)
    with paddle.no_grad():
        for first in range(1000, 1120, 30):
            voxels, labels = get_batch(range(first, first + 30))
            meter.update(network(voxels), labels)
    scores = meter.compute()
    print(f"ball or box: {scores.values['top-1']:.1f} % of {scores.values['samples']}")
