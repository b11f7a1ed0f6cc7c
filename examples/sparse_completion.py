"""Completion with a generative sparse network: from half a sphere to the whole, by adding and pruning voxels."""

import numpy as np
from paddlevit_dist.points.sparse import (
    BatchNorm,
    Convolution,
    GenerativeConvolution,
    Plan,
    ReLU,
    SparseTensor,
    prune,
    union,
)
import paddle
import paddle.nn.functional as F
from paddle import nn


def sphere(number):
    """Return the voxels (N, 3) of the lower half of a sphere, and of the whole sphere."""
    noise = np.random.default_rng(number)
    grid = np.stack(np.meshgrid(*[np.arange(16)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    middle, radius = noise.uniform(6, 9, 3), noise.uniform(3.5, 6)
    whole = grid[np.abs(np.linalg.norm(grid - middle, axis=1) - radius) < 0.6]
    return whole[whole[:, 2] <= middle[2]], whole


def batch(numbers):
    sides = zip(*[sphere(number) for number in numbers])
    half, whole = [
        np.concatenate([np.c_[np.full(len(voxels), n), voxels] for n, voxels in enumerate(side)]) for side in sides
    ]
    return SparseTensor(np.ones((len(half), 1), np.float32), half), Plan.of_coordinates(whole)


def block(kind, inputs, outputs, *sizes):
    return nn.Sequential(kind(inputs, outputs, *sizes), BatchNorm(outputs), ReLU())


class Completion(nn.Layer):
    """Network that goes down to a quarter of the resolution, and back up by adding voxels and pruning wrong ones."""

    def __init__(self):
        super().__init__()
        self.stem = block(Convolution, 1, 16, 3)
        self.down = nn.LayerList([block(Convolution, 16, 32, 3, 2), block(Convolution, 32, 64, 3, 2)])
        self.wide = block(GenerativeConvolution, 64, 64, 3, 1)  # beyond the input's voxels
        self.up = nn.LayerList([block(GenerativeConvolution, 64, 32, 2, 2), block(GenerativeConvolution, 32, 16, 2, 2)])
        self.mix = nn.LayerList([block(Convolution, 32, 32, 3), block(Convolution, 16, 16, 3)])
        self.keep = nn.LayerList([Convolution(32, 1, 1, bias=True), Convolution(16, 1, 1, bias=True)])

    def forward(self, x, truth=None):
        """Return the voxels of the whole sphere, and with ``truth`` the loss of all pruning decisions."""
        skipped, losses = [self.stem(x)], []
        for down in self.down:
            skipped.append(down(skipped[-1]))
        x = self.wide(skipped.pop())
        for up, mix, keep in zip(self.up, self.mix, self.keep):
            x = mix(union(up(x), skipped.pop()))  # the sum, on the voxels of both
            logits = keep(x).features[:, 0]
            chosen = logits.numpy() > 0
            if truth is not None:
                is_true = truth.find(x.stride, x.coordinates) >= 0
                losses.append(F.binary_cross_entropy_with_logits(logits, paddle.to_tensor(is_true, "float32")))
                chosen |= is_true  # correct voxels stay while the network learns
            x = prune(x, chosen)
        return x, sum(losses)


paddle.seed(0)
network = Completion()
optimizer = paddle.optimizer.AdamW(0.005, parameters=network.parameters())
for step in range(200):
    x, truth = batch(range(step * 4, step * 4 + 4))
    _, loss = network(x, truth)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
network.eval()
x, truth = batch(range(10_000, 10_008))
predicted, true_count = network(x)[0].coordinates, truth.rows(1)
correct = np.count_nonzero(truth.find(1, predicted) >= 0)
iou = correct / (len(predicted) + true_count - correct)
print(f"loss {loss.item():.3f} IoU {iou:.3f} of the half {len(x.C) / true_count:.3f}")
