"""PointGroup: classes and offsets of points, their clusters, and a score for every cluster.

Source: L. Jiang et al., "PointGroup: Dual-Set Point Grouping for 3D Instance Segmentation", CVPR 2020, arXiv
2004.01658.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.autograd import PyLayerContext

from ...core.checkpoint.foreign_names import from_torch_names
from ...core.distributed import build_zero
from ...core.runtime.errors import UserError
from ...core.runtime.transfers import read, to_device
from ...core.tasks.model import as_model
from ...core.tasks.model_factory import create_model
from ..sparse.coordinate_plan import PAIRS, PlanSpec, build_plan
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

_EPSILON = 1e-4  # of every batch normalization; momentum is 0.1 in PyTorch's convention
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
        """Return (N, out_channels) on the voxels of ``x``."""
        return self.conv_branch(x) + self.i_branch(x)


class UBlock(nn.Layer):
    """One level of the U-Net, with ``repeats`` residual blocks each way, containing all deeper ones of ``widths``."""

    def __init__(self, widths: Sequence[int], repeats: int = 2):
        super().__init__()
        width = widths[0]
        self.blocks = _build_blocks([width] * (repeats + 1))
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
        self.blocks_tail = _build_blocks([2 * width] + [width] * repeats)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Return (N, widths[0]) on the voxels of ``x``."""
        x = self.blocks(x)
        if self.is_deepest:
            return x
        from_below = self.deconv(self.u(self.conv(x)))
        return self.blocks_tail(cat(x, from_below))


def _build_blocks(channels: Sequence[int]) -> nn.Sequential:
    steps = zip(channels[:-1], channels[1:])
    return nn.Sequential(*((f"block{i}", PreNormResidualBlock(*step)) for i, step in enumerate(steps)))


_DUMMY_POINTS = 50


class GroupingInput(NamedTuple):
    """Positions of a batch's points, and parameters of grouping."""

    xyz: np.ndarray  # float32 (P, 3), meters
    scenes: np.ndarray  # integers (P,), scene of each point
    is_thing: np.ndarray  # bool (classes,), whether a class has instances
    radius_m: float  # points of a class closer than this are grouped together
    min_points: int  # minimum points of a cluster
    grid: int  # side in voxels of the cube in which a cluster is scored
    scale: float  # maximum voxels per meter in that cube
    shares: np.ndarray  # float (3,) from 0 to 1, placement of small clusters in their cubes


class PointGroupOutput(NamedTuple):
    """Network output for P points."""

    semantic_scores: paddle.Tensor  # float32 (P, classes), logits
    offsets: paddle.Tensor  # float32 (P, 3), meters to the center of the point's instance
    # of the original positions, then of the shifted ones; their points are indices into the P; None: grouping was off
    clusters: PointClusters | None = None
    # (clusters,), logits; None without clusters. In training it is then a single 0 that depends on the score branch: it
    # contributes zero gradients to the loss, and lets a rank take part in the others' backward pass.
    scores: paddle.Tensor | None = None


class PointGroup(SparseNetwork):
    """A seven-level U-Net with semantic scores, offsets to instance centers, and a score branch for clusters.

    The score branch is a two-level U-Net over the voxels of each cluster. All is computed in ``forward``, as
    data-parallel training requires. The original's strided convolution drops voxels at the upper border of a grid of
    odd size; this one keeps them.

    ``in_channels`` is 6 for color and position. Level i has i times ``width`` channels (``m`` in the paper's code) and
    ``repeats`` residual blocks in each direction. A ``backbone``, the name of a serialized network such as ptv3, takes
    the place of the U-Net, and its number of features that of ``width``. UserError for another network.
    """

    classifier_layers = ("linear",)
    key_maps = {"PointGroup": from_torch_names}
    telling_name = "offset_linear.weight"
    least_values = {"width": 1, "repeats": 1}

    def __init__(
        self,
        num_classes: int = 20,
        in_channels: int = 6,
        width: int = 16,
        repeats: int = 2,
        backbone: str | None = None,
        backbone_options: Mapping[str, Any] | None = None,
    ):
        super().__init__(in_channels, 3)
        self.backbone: SparseNetwork | None = None
        if backbone is None:
            self.input_conv = nn.Sequential(SubmanifoldConv3D(in_channels, width, 3))
            self.unet = UBlock([width * level for level in range(1, NUM_LEVELS + 1)], repeats)
            self.output_layer = nn.Sequential(BatchNorm(width, epsilon=_EPSILON), ReLU())
        else:
            self.backbone = create_model(backbone, num_classes=0, in_channels=in_channels, **(backbone_options or {}))
            width = getattr(self.backbone, "num_features", 0)
            if not width:
                raise UserError(
                    f"backbone is '{backbone}': expected a serialized network, such as ptv3 or sonata_decoder"
                )
            maps = as_model(self.backbone).key_maps.items()
            self.key_maps = {naming: functools.partial(_rename_backbone, rename) for naming, rename in maps}
        self.width, self.repeats = width, repeats
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
        """Return features (N, width) on the voxels of ``x``, which is (N, in_channels) at stride 1."""
        if self.backbone is not None:
            return self.backbone.forward_features(x)
        return self.output_layer(self.unet(self.input_conv(x)))

    def plan_spec(self) -> PlanSpec:
        """Return the ``PlanSpec`` for ``build_plan`` in the loader process."""
        return super().plan_spec() if self.backbone is None else self.backbone.plan_spec()

    def list_license_notices(self, naming: str) -> list[str]:
        """Return the lines of the backbone."""
        return [] if self.backbone is None else as_model(self.backbone).list_license_notices(naming)

    def predict_points(
        self, x: SparseTensor, inverse: paddle.Tensor | None = None
    ) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
        """Return features (P, width), semantic scores (P, num_classes) and offsets (P, 3) in the unit of the positions.

        ``inverse`` is the voxel row of each point, int (P,); None if points are voxels.
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
        """Return classes and offsets of the points and, with ``grouping``, scored clusters.

        ``x`` has the voxels (M, in_channels), ``inverse`` int (P,) the voxel of each point; None if points are voxels.
        ``grouping`` is called after all work up to the clusters has been launched on the device, so that arrays copied
        from the device do not cause a wait.
        """
        features, semantic_scores, offsets = self.predict_points(x, inverse)
        if grouping is None:
            unused = build_zero(*self._score_parameters()).reshape([1]) if self.training else None
            return PointGroupOutput(semantic_scores, offsets, None, unused)
        settings = grouping()
        clusters = group_points(semantic_scores, offsets, settings)
        scores = self.scores(features, clusters, settings, (semantic_scores, offsets))
        return PointGroupOutput(semantic_scores, offsets, clusters, scores)

    def score_features(self, clusters: SparseTensor) -> paddle.Tensor:
        """Return features (N, width) of clusters' voxels, with the cluster's number in column 0, to be max-pooled."""
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
        """Return a logit for each cluster, (clusters,), from features (P, width); None without clusters in evaluation.

        The backward pass of ``heads`` waits for that of the scores.
        """
        if clusters.number:
            return self._compute_scores(features, clusters, grouping, heads)
        if not self.training:
            return None
        return 0.0 * self._compute_scores(features, _build_dummy_cluster(features.shape[0]), grouping, heads)

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
        parts = [clusters.points, voxels.voxel_rows, voxels.coordinates[:, 0], plan[PAIRS]]  # int32
        points, voxel_rows, cluster_numbers, plan[PAIRS] = paddle.split(
            to_device(np.concatenate(parts)), [*map(len, parts)]
        )
        pooled = pool_to_voxels(paddle.gather(features, points), voxel_rows, len(voxels.coordinates))  # (M, width)
        pooled = _OrderFunction.apply(pooled, *heads)
        voxel_features = self.score_features(SparseTensor(pooled, plan=Plan.of_batch(plan)))
        # The max over a cluster's voxels equals the max over its points, and a voxel with many points is not a tie.
        largest = paddle.geometric.segment_max(voxel_features, cluster_numbers)  # (clusters, width)
        return self.score_linear(largest).squeeze(-1)


def _rename_backbone(rename: Callable[..., dict[str, Any]], state: Mapping[str, Any]) -> dict[str, Any]:
    """Name the weights of a network that is the backbone here."""
    return {f"backbone.{name}": value for name, value in rename(state).items()}


def _build_dummy_cluster(num_points: int) -> PointClusters:
    """Return a dummy cluster of the first points, for ranks without clusters.

    It takes the rank through the score branch, where ranks exchange statistics; its score is ignored.
    """
    number = min(num_points, _DUMMY_POINTS)
    offsets = np.array([0, number], np.int32)
    return PointClusters(np.zeros(number, np.int32), np.arange(number, dtype=np.int32), offsets)


def group_points(semantic_scores: paddle.Tensor, offsets: paddle.Tensor, grouping: GroupingInput) -> PointClusters:
    """Return clusters of thing points, by their positions and by their shifted positions; on the host."""
    classes, moves = read(semantic_scores.argmax(axis=-1), offsets.astype("float32"))
    things = np.flatnonzero(grouping.is_thing[classes])
    positions = grouping.xyz[things]
    shifted = positions + moves[things]
    scenes = grouping.scenes[things]
    cluster_sets = [
        cluster_points(xyz, classes[things], scenes, grouping.radius_m, grouping.min_points)
        for xyz in (positions, shifted)
    ]
    clusters = cluster_sets[0].concat(cluster_sets[1])
    return clusters._replace(points=things[clusters.points].astype(np.int32))


class _OrderFunction(paddle.autograd.PyLayer):
    """Return the first tensor unchanged, but dependent on the others in the graph.

    The backward pass then reaches the others only after finishing everything downstream of this, on every rank and for
    any loss. Otherwise ranks could call the collectives of different normalizations at the same time.
    """

    @staticmethod
    def forward(ctx: PyLayerContext, x: paddle.Tensor, *others: paddle.Tensor) -> paddle.Tensor:
        ctx.save_for_backward(x, *others)
        return x.clone()

    @staticmethod
    def backward(ctx: PyLayerContext, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        x, *others = ctx.saved_tensor()
        zeros = [None if tensor.stop_gradient else paddle.zeros(tensor.shape, dtype=tensor.dtype) for tensor in others]
        return (None if x.stop_gradient else gradient, *zeros)


_EPSILON_M = 1e-8  # of the published program, which damps directions to centers nearer than that
_MIN_LENGTH_M = 1e-3


def offset_losses(
    offsets: paddle.Tensor, xyz: paddle.Tensor, centers: paddle.Tensor, instances: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Compute the L1 distance of the offsets to the true ones, and minus the cosine of the angle between both.

    Both are summed over the points that belong to an instance. The direction of an offset shorter than a millimeter is
    scaled by its length. The original always divides by the length, so that a single point with all-zero features can
    send a gradient of 1e8 through the network. Offsets, points and centers are float32 (P, 3), meters; ``instances``
    (P,) is negative for none.
    """
    valid = (instances >= 0).astype("float32")  # (P,)
    truth = centers - xyz
    distance = ((offsets - truth).abs().sum(axis=-1) * valid).sum()
    direction = offsets / paddle.clip(_length(offsets), min=_MIN_LENGTH_M)
    cosine = (truth / (_length(truth) + _EPSILON_M) * direction).sum(axis=-1)
    return distance, -(cosine * valid).sum()


def _length(vectors: paddle.Tensor) -> paddle.Tensor:
    """Return (P, 1); the epsilon keeps the gradient of a zero vector finite and is rounded away for any other."""
    return paddle.sqrt((vectors * vectors).sum(axis=-1, keepdim=True) + 1e-20)


def score_loss(scores: paddle.Tensor, targets: paddle.Tensor) -> paddle.Tensor:
    """Compute the summed binary cross-entropy of logits (clusters,) with targets (clusters,) from 0 to 1."""
    return F.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
