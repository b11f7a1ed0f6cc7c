"""A sparse network with four axes (x, y, z and time) that finds which of two balls moves."""

import numpy as np
from paddlevit_dist.points.sparse import BatchNorm, Convolution, ReLU, SparseTensor, TransposedConvolution, cat
import paddle
import paddle.nn.functional as F
from paddle import nn


def sequence(number, frames=4):
    """Return the voxels (N, 4) of two balls in x, y, z and time, and which voxels belong to the moving ball."""
    noise = np.random.default_rng(number)
    grid = np.stack(np.meshgrid(*[np.arange(-2, 3)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    ball = grid[np.linalg.norm(grid, axis=1) < 2.3]
    start, speed = noise.integers(0, 20, (2, 3)), noise.choice([-1, 1], 3)
    labels_by_voxel = {}
    for time in range(frames):
        for is_moving, middle in enumerate((start[0], start[1] + speed * time)):
            for voxel in (ball + middle).tolist():
                labels_by_voxel[(*voxel, time)] = is_moving
    return np.array(list(labels_by_voxel)), np.array(list(labels_by_voxel.values()))


def batch(numbers):
    pairs = [sequence(number) for number in numbers]
    coordinates = np.concatenate([np.c_[np.full(len(voxels), n), voxels] for n, (voxels, _) in enumerate(pairs)])
    return coordinates, paddle.to_tensor(np.concatenate([labels for _, labels in pairs]))


class Network(nn.Layer):
    """U-Net with two levels, whose kernels also cover the frames before and after."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(Convolution(1, 16, 3, dimension=4), BatchNorm(16), ReLU())
        self.down = nn.Sequential(Convolution(16, 32, (2, 2, 2, 3), (2, 2, 2, 1), dimension=4), BatchNorm(32), ReLU())
        self.up = TransposedConvolution(32, 16, (2, 2, 2, 1), (2, 2, 2, 1), dimension=4)
        self.head = Convolution(32, 2, 1, bias=True, dimension=4)

    def forward(self, x):
        stem = self.stem(x)
        return self.head(cat(stem, self.up(self.down(stem)))).features


paddle.seed(0)
network = Network()
optimizer = paddle.optimizer.AdamW(0.01, parameters=network.parameters())
for step in range(40):
    coordinates, labels = batch(range(step * 4, step * 4 + 4))
    logits = network(SparseTensor(np.ones((len(coordinates), 1), np.float32), coordinates))
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
accuracy = (logits.argmax(axis=1) == labels).astype("float32").mean().item()
print(f"loss {loss.item():.3f} accuracy {accuracy:.3f}")
