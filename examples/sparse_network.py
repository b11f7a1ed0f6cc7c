"""A sparse convolutional network on points, in a loop of one's own: which solid is it, a ball or a box?"""

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from paddlevit_dist import Accuracy
from paddlevit_dist.points import sparse

VOXEL, CLASSES = 0.1, ["ball", "box"]


def draw(index: int) -> tuple:
    """800 points on the surface of a solid, float (points, 3), and its class."""
    generator, label = np.random.default_rng(index), index % 2
    points = generator.normal(size=(800, 3))
    points /= np.abs(points).max(axis=1, keepdims=True) if label else np.linalg.norm(points, axis=1, keepdims=True)
    return points * generator.uniform(0.6, 1.0) + generator.normal(0, 0.01, points.shape), label


def batch_of(indices) -> tuple:
    solids, labels = zip(*map(draw, indices))
    voxels = [np.unique(np.floor(points / VOXEL).astype(np.int32), axis=0) for points in solids]
    rows = [np.concatenate([np.full((len(own), 1), place, np.int32), own], axis=1) for place, own in enumerate(voxels)]
    coordinates = np.concatenate(rows)  # (voxels, 4): which solid, x, y, z
    features = np.concatenate([own * VOXEL for own in voxels]).astype(np.float32)  # (voxels, 3)
    return sparse.SparseTensor(paddle.to_tensor(features), paddle.to_tensor(coordinates)), np.array(labels)


class Network(nn.Layer):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            sparse.Convolution(3, 16, kernel_size=3),
            sparse.ReLU(),
            sparse.Convolution(16, 32, kernel_size=2, stride=2),
            sparse.ReLU(),
            sparse.GlobalMaxPooling(),
        )
        self.head = nn.Linear(32, len(CLASSES))

    def forward(self, x):
        return self.head(self.body(x).features)
