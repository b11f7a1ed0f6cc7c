"""The complete PointGroup: classes and offsets of points, their clusters, and a score for every cluster.

Source: L. Jiang et al., "PointGroup: Dual-Set Point Grouping for 3D Instance Segmentation", CVPR 2020, arXiv
2004.01658.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

from ...checkpoint.load import from_torch_names
from ...distributed import build_zero
from ...runtime.transfers import read, to_device
from ..sparse.coordinate_plan import PAIRS, build_plan
from ..sparse.device_plan import Plan
from ..sparse.layers import (
    BatchNorm,
    InverseConv3D,
    ReLU,
    RowsBatchNorm,
    SparseNetwork,
    StridedConv3D,
    SubmanifoldConv3D,
)
from ..sparse.tensor import SparseTensor, cat
from .batches import pool_to_voxels
from .grouping import PointClusters, cluster_points
from .proposals import voxelize_clusters

_EPSILON = 1e-4  # for every batch normalization; momentum is 0.1 in PyTorch's convention
NUM_LEVELS = 7


class PreNormResidualBlock(nn.Layer):
    """Two convolutions, each preceded by normalization and ReLU, with a shortcut."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        same = in_channels == out_channels
        self.i_branch = nn.Sequential(nn.Identity() if same else SubmanifoldConv3D(in_channels, out_channels, 1))
        self.conv_branch = nn.Sequential(
            BatchNorm(in_channels, epsilon=_EPSILON),
            ReLU(),
            SubmanifoldConv3D(in_channels, out_channels, 3),
            BatchNorm(out_channels, epsilon=_EPSILON),
            ReLU(),
            SubmanifoldConv3D(out_channels, out_channels, 3),
        )

    def forward(self, x: SparseTensor) -> SparseTensor:
        return self.conv_branch(x) + self.i_branch(x)


class UBlock(nn.Layer):
    """One level of the U-Net, containing all deeper ones.

    Args:
        widths: channels of this level and of those below it.
        repeats: residual blocks on the way down, and as many on the way up.
    """

    def __init__(self, widths: Sequence[int], repeats: int = 2):
        super().__init__()
        width = widths[0]
        self.blocks = _blocks([width] * (repeats + 1))
        self.is_deepest = len(widths) == 1
        if self.is_deepest:
            return
        self.conv = nn.Sequential(
            BatchNorm(width, epsilon=_EPSILON), ReLU(), StridedConv3D(width, widths[1], 2, stride=2)
        )
        self.u = UBlock(widths[1:], repeats)
        self.deconv = nn.Sequential(
            BatchNorm(widths[1], epsilon=_EPSILON), ReLU(), InverseConv3D(widths[1], width, 2, stride=2)
        )
        self.blocks_tail = _blocks([2 * width] + [width] * repeats)

    def forward(self, x: SparseTensor) -> SparseTensor:
        x = self.blocks(x)
        if self.is_deepest:
            return x
        from_below = self.deconv(self.u(self.conv(x)))
        return self.blocks_tail(cat(x, from_below))


def _blocks(channels: Sequence[int]) -> nn.Sequential:
    steps = zip(channels[:-1], channels[1:])
    return nn.Sequential(*((f"block{i}", PreNormResidualBlock(*step)) for i, step in enumerate(steps)))


_STAND_IN_POINTS = 50


class GroupingInput(NamedTuple):
    """Positions of a batch's points, and how to group them.

    Attributes:
        xyz: float32 (P, 3), meters.
        scenes: integers (P,), scene of each point.
        is_thing: bool (classes,), whether a class has instances.
        radius_m: points of a class closer than this are grouped together.
        smallest: minimum points of a cluster.
        grid: side in voxels of the cube in which a cluster is scored.
        scale: maximum voxels per meter in that cube.
        shares: float (3,) from 0 to 1, placement of small clusters in their cubes.
    """

    xyz: np.ndarray
    scenes: np.ndarray
    is_thing: np.ndarray
    radius_m: float
    smallest: int
    grid: int
    scale: float
    shares: np.ndarray


class PointGroupOutput(NamedTuple):
    """Network output for P points.

    Attributes:
        semantic_scores: float32 (P, classes), logits.
        offsets: float32 (P, 3), meters to the center of the point's instance.
        clusters: None if grouping was off. Those of the original positions precede those of the shifted ones; their
            points are indices into the P.
        scores: (clusters,), logits; None without clusters. In training it is then a single 0 that depends on the score
            branch: it contributes zero gradients to the loss, and lets a rank take part in the others' backward pass.
    """

    semantic_scores: paddle.Tensor
    offsets: paddle.Tensor
    clusters: PointClusters | None = None
    scores: paddle.Tensor | None = None


class PointGroup(SparseNetwork):
    """A seven-level U-Net, semantic scores, offsets to the center of a point's instance, and the score branch: a
    two-level U-Net over the voxels of each cluster. All is done in ``forward``, as data-parallel training requires.

    The original's strided convolution drops voxels at the upper border of a grid of odd size; this one keeps them.

    Args:
        num_classes: semantic classes.
        in_channels: of the voxel features; 6 for color and position.
        width: channels of the first level, ``m`` in the paper's code; level i has i times as many.
        repeats: residual blocks of a level in each direction.
    """

    classifier_layers = ("linear",)
    key_maps = {"PointGroup": from_torch_names}

    def __init__(self, num_classes: int = 20, in_channels: int = 6, width: int = 16, repeats: int = 2):
        super().__init__(in_channels, 3)
        self.width, self.repeats = width, repeats
        self.input_conv = nn.Sequential(SubmanifoldConv3D(in_channels, width, 3))
        self.unet = UBlock([width * level for level in range(1, NUM_LEVELS + 1)], repeats)
        self.output_layer = nn.Sequential(BatchNorm(width, epsilon=_EPSILON), ReLU())
        self.reset_classifier(num_classes)
        self.offset = nn.Sequential(nn.Linear(width, width), RowsBatchNorm(width, epsilon=_EPSILON), nn.ReLU())
        self.offset_linear = nn.Linear(width, 3)
        self.score_unet = UBlock([width, 2 * width], repeats)
        self.score_outputlayer = nn.Sequential(BatchNorm(width, epsilon=_EPSILON), ReLU())
        self.score_linear = nn.Linear(width, 1)

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the semantic head with a new one."""
        self.num_classes = num_classes
        self.linear = nn.Linear(self.width, num_classes)

    def forward_features(self, x: SparseTensor) -> SparseTensor:
        """Features (N, width) on the voxels of ``x``, which is (N, in_channels) at stride 1."""
        return self.output_layer(self.unet(self.input_conv(x)))

    def of_points(
        self, x: SparseTensor, inverse: paddle.Tensor | None = None
    ) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
        """Features (P, width), semantic scores (P, num_classes) and offsets (P, 3) in the unit of the positions.

        Args:
            x: voxels.
            inverse: int (P,), the voxel row of each point; None if points are voxels.
        """
        voxels = self.forward_features(x)
        features = voxels.features if inverse is None else voxels.slice(inverse)  # (P, width)
        return features, self.linear(features), self.offset_linear(self.offset(features))

    def forward(
        self,
        x: SparseTensor,
        inverse: paddle.Tensor | None = None,
        grouping: Callable[[], GroupingInput] | None = None,
    ) -> PointGroupOutput:
        """Classes and offsets of the points and, with ``grouping``, scored clusters.

        Args:
            x: voxels (M, in_channels).
            inverse: integers (P,), the voxel of each point; None if points are voxels.
            grouping: called when the device has been given all work up to the clusters, so that arrays which come from
                there need not be waited for.
        """
        features, semantic_scores, offsets = self.of_points(x, inverse)
        if grouping is None:
            unused = build_zero(*self._score_parameters()).reshape([1]) if self.training else None
            return PointGroupOutput(semantic_scores, offsets, None, unused)
        how = grouping()
        clusters = group(semantic_scores, offsets, how)
        scores = self.scores(features, clusters, how, (semantic_scores, offsets))
        return PointGroupOutput(semantic_scores, offsets, clusters, scores)

    def score_features(self, clusters: SparseTensor) -> paddle.Tensor:
        """Features (N, width) of the clusters' voxels, to be max-pooled over each cluster for scoring.

        Args:
            clusters: features (N, width), the cluster's number in column 0 of the coordinates.
        """
        return self.score_outputlayer(self.score_unet(clusters)).features

    def _score_parameters(self) -> tuple[paddle.Tensor, ...]:
        layers = (self.score_unet, self.score_outputlayer, self.score_linear)
        return tuple(p for layer in layers for p in layer.parameters())

    def scores(
        self,
        features: paddle.Tensor,
        clusters: PointClusters,
        grouping: GroupingInput,
        heads: tuple[paddle.Tensor, ...],
    ) -> paddle.Tensor | None:
        """A logit for each cluster, (clusters,), from the features (P, width) of the points; None without clusters in
        evaluation. ``heads`` are outputs whose backward pass must wait for that of the scores."""
        if clusters.number:
            return self._compute_scores(features, clusters, grouping, heads)
        if not self.training:
            return None
        return 0.0 * self._compute_scores(features, _stand_in(features.shape[0]), grouping, heads)

    def _compute_scores(
        self,
        features: paddle.Tensor,
        clusters: PointClusters,
        grouping: GroupingInput,
        heads: tuple[paddle.Tensor, ...],
    ) -> paddle.Tensor:
        voxels = voxelize_clusters(clusters, grouping.xyz, grouping.grid, grouping.scale, grouping.shares)
        spec = self.find_spec("score", self.score_features, self.width)
        plan = build_plan(voxels.coordinates, spec, clusters.number)
        parts = [clusters.points, voxels.voxel_of, voxels.coordinates[:, 0], plan[PAIRS]]  # int32
        points, voxel_of, cluster_of, plan[PAIRS] = paddle.split(to_device(np.concatenate(parts)), [*map(len, parts)])
        pooled = pool_to_voxels(paddle.gather(features, points), voxel_of, len(voxels.coordinates))  # (M, width)
        pooled = _OrderFunction.apply(pooled, *heads)
        of_voxels = self.score_features(SparseTensor(pooled, plan=Plan.of_batch(plan)))
        # The max over a cluster's voxels equals the max over its points, and a voxel of many points is not a tie.
        largest = paddle.geometric.segment_max(of_voxels, cluster_of)  # (clusters, width)
        return self.score_linear(largest).squeeze(-1)


def _stand_in(num_points: int) -> PointClusters:
    """A dummy cluster of the first points: a rank without clusters runs it through the score branch, where the others
    exchange statistics, and its score is ignored."""
    number = min(num_points, _STAND_IN_POINTS)
    offsets = np.array([0, number], np.int32)
    return PointClusters(np.zeros(number, np.int32), np.arange(number, dtype=np.int32), offsets)


def group(semantic_scores: paddle.Tensor, offsets: paddle.Tensor, grouping: GroupingInput) -> PointClusters:
    """Clusters of thing points, by their positions and by their shifted positions; on the host."""
    classes, moves = read(semantic_scores.detach().argmax(axis=-1), offsets.detach().astype("float32"))
    things = np.flatnonzero(grouping.is_thing[classes])
    places = grouping.xyz[things]
    shifted = places + moves[things]
    scenes = grouping.scenes[things]
    found = [
        cluster_points(xyz, classes[things], scenes, grouping.radius_m, grouping.smallest) for xyz in (places, shifted)
    ]
    clusters = found[0].followed_by(found[1])
    return clusters._replace(points=things[clusters.points].astype(np.int32))


class _OrderFunction(paddle.autograd.PyLayer):
    """Return the first tensor unchanged, but dependent on the others in the graph.

    The backward pass then reaches the others only after finishing everything downstream of this, on every rank,
    whatever the loss. Otherwise ranks could call the collectives of different normalizations at the same time.
    """

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, *others: paddle.Tensor) -> paddle.Tensor:
        ctx.save_for_backward(x, *others)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> Any:
        x, *others = ctx.saved_tensor()
        zeros = [None if t.stop_gradient else paddle.zeros(t.shape, dtype=t.dtype) for t in others]
        return (None if x.stop_gradient else gradient, *zeros)


_SMALL = 1e-8
_SHORTEST_M = 1e-3


def offset_losses(
    offsets: paddle.Tensor, xyz: paddle.Tensor, centers: paddle.Tensor, instances: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """L1 distance of the offsets to the true ones, and minus the cosine of the angle between both; summed over the
    points that belong to an instance.

    The direction of an offset shorter than a millimeter is scaled by its length. The original always divides by the
    length, so that a single point with all-zero features can send a gradient of 1e8 through the network.

    Args:
        offsets: float32 (P, 3), meters, predicted.
        xyz: float32 (P, 3), meters.
        centers: float32 (P, 3), meters, mean of the point's instance.
        instances: integers (P,), negative for points without one.
    """
    valid = (instances >= 0).astype("float32")  # (P,)
    truth = centers - xyz
    distance = ((offsets - truth).abs().sum(axis=-1) * valid).sum()
    direction = offsets / paddle.clip(_length(offsets), min=_SHORTEST_M)
    cosine = (truth / (_length(truth) + _SMALL) * direction).sum(axis=-1)
    return distance, -(cosine * valid).sum()


def _length(vectors: paddle.Tensor) -> paddle.Tensor:
    """(P, 1); the epsilon keeps the gradient of a zero vector finite and is rounded away in any other."""
    return paddle.sqrt((vectors * vectors).sum(axis=-1, keepdim=True) + 1e-20)


def score_loss(scores: paddle.Tensor, targets: paddle.Tensor) -> paddle.Tensor:
    """Binary cross-entropy of logits (clusters,) with targets (clusters,) from 0 to 1, summed."""
    return F.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
