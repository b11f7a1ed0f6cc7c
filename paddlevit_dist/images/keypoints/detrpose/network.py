"""DETRPose: a backbone, D-FINE's encoder, and queries at the best cells, each an object with its keypoints.

Source: Janampa and Pattichis, DETRPose: Real-time end-to-end transformer model for multi-person pose estimation, 2025,
arXiv 2506.13027, with the authors' code (SebastianJanampa/DETRPose, a6ca202).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....core.runtime.transfers import constant
from ...detection.detector import Outputs, rank_queries, single_or_double, without_gradient
from ...detection.detr.transformer import HeadMlp, xavier
from ...detection.rtdetr.distributions import DistanceBins
from ...detection.rtdetr.encoder import HybridEncoder, unit_waves
from ...detection.rtdetr.hybrid_network import (
    Grids,
    HybridNetwork,
    cell_boxes,
    count_sampled_points,
    flatten_maps,
)
from ...models.layers import LayerNorm
from ..detected_keypoints import DetectedKeypoints
from . import key_names
from .criterion import PoseCriterion
from .decoder import PoseDecoder, PoseDecoderConfig
from .denoising import PoseNoise
from .variants import DETRPOSE

_EPSILON = 1e-5


class TopPoses(NamedTuple):
    """Objects with keypoints detected in N images, n in each, best first."""

    labels: paddle.Tensor  # int64 (N, n), from 0
    poses: paddle.Tensor  # float32 (N, n, K, 2), x and y of each point as fractions of the image
    scores: paddle.Tensor  # float32 (N, n)

    def read(self, original_sizes: np.ndarray) -> list[DetectedKeypoints]:
        """Copy the objects to host memory, for images of these heights and widths, int64 (N, 2).

        The network gives a score to objects, not to points: a point's is 1.
        """
        images, number, points = self.poses.shape[:3]
        parts = [self.poses.flatten(2), self.scores.unsqueeze(-1), self.labels.unsqueeze(-1)]
        packed = paddle.concat([part.astype("float32") for part in parts], axis=-1).numpy()  # (N, n, 2 K + 2)
        placed = packed[..., :-2].reshape(images, number, points, 2)
        placed = placed * np.asarray(original_sizes)[:, None, None, ::-1].astype(np.float32)
        placed = np.concatenate([placed, np.ones_like(placed[..., :1])], axis=-1)
        rows = zip(placed, packed[..., -2].copy(), packed[..., -1].astype(np.int64))
        return [DetectedKeypoints(*row) for row in rows]


class DetrPose(HybridNetwork):
    """Real-time detector of objects with keypoints, for images of one size.

    Names of the backbone's parameters begin with ``backbone.``. Arguments that are not listed have the meaning of
    ``HybridEncoder`` ("encoder_"), ``PoseDecoderConfig`` and ``DistanceBins``.

    Args:
        num_classes: number of outputs of the classifiers; 0: a network without a task yet.
        keypoints: points of an object, K; the largest number if categories have different ones.
        backbone: name of a model that has ``features``.
        frozen_batch_norm: freeze the backbone's batch norms, see ``ResNet``.
        frozen_stages: number of the backbone's frozen stages, see ``ResNet``.
        feature_levels: indices of the maps that are used, from fine to coarse; they may be negative.
        embed_dim: width of encoder and decoder.
        num_heads: number of attention heads, in encoder and decoder.
        num_queries: largest number of objects detected in an image.
        denoising: pairs of denoising queries of an image, see ``PoseNoise``; 0: none.
        points: number of places that a token samples on each map, or one number for all maps.
        bins: number of steps of distances.
        matchability: exponent of the matchability-aware loss of classes (MAL); None: the varifocal loss (VFL).
    """

    architecture = "DETRPose"
    batch_filter = "bilinear"
    variants = DETRPOSE
    coco_outputs = key_names.AUTHORS_OUTPUTS
    key_maps = key_names.DETRPOSE
    reference_normalizer = "as by DETRPose's authors: by the mean of the devices' objects, at least 1"

    def __init__(
        self,
        num_classes: int = 1,
        keypoints: int = 17,
        backbone: str = "hgnetv2_b4",
        backbone_options: Mapping[str, Any] | None = None,
        frozen_batch_norm: bool = True,
        frozen_stages: int = 0,
        feature_levels: Sequence[int] = (-3, -2, -1),
        encoder_layers: int = 1,
        encoder_feedforward: int = 1024,
        blocks: int = 3,
        expansion: float = 1.0,
        embed_dim: int = 256,
        num_heads: int = 8,
        feedforward: int = 1024,
        decoder_layers: int = 6,
        num_queries: int = 60,
        denoising: int = 20,
        points: int | Sequence[int] = 4,
        bins: int = 32,
        up: float = 0.5,
        reg_scale: float = 4.0,
        matchability: float | None = None,
    ):
        super().__init__()
        frozen = {"frozen_batch_norm": frozen_batch_norm, "frozen_stages": frozen_stages}
        self.build_maps(backbone, backbone_options, feature_levels, embed_dim, **frozen)
        levels = len(feature_levels)
        numbers = count_sampled_points(points, levels)
        attention = (encoder_layers, num_heads, encoder_feedforward)
        self.encoder = HybridEncoder(embed_dim, levels, *attention, blocks, expansion, True, unit_waves, True)
        self.enc_output = nn.Sequential(xavier(embed_dim, embed_dim), LayerNorm(embed_dim, epsilon=_EPSILON))
        self.enc_pose_head = HeadMlp(embed_dim, 2 * embed_dim, 2 * keypoints, 4, starts_at_zero=True)
        config = PoseDecoderConfig(embed_dim, num_heads, feedforward, decoder_layers, numbers, keypoints)
        self.decoder = PoseDecoder(config, DistanceBins(bins, up, reg_scale))
        self.keypoint_embedding, self.instance_embedding = (_embedding(rows, embed_dim) for rows in (keypoints, 1))
        self.tgt_embed = _embedding(num_queries, embed_dim)
        self.denoising_pose_embed = _embedding(keypoints, embed_dim, trainable=denoising > 0)
        self.embed_dim, self.num_queries, self.keypoints, self.denoising = embed_dim, num_queries, keypoints, denoising
        self.reset_classifier(num_classes)

    @classmethod
    def criterion(
        cls, name: str, num_classes: int, losses: Mapping[str, Any] | None = None, **options: Any
    ) -> PoseCriterion:
        """Build the losses of a model without building the model; ``losses`` contain ``sigmas`` of all classes."""
        (arguments, bins), losses = cls.read_loss_options(name, options), dict(losses or {})
        sigmas = losses.pop("sigmas")
        noise = PoseNoise(sigmas, arguments["denoising"]) if arguments["denoising"] else None
        own = {"noise": noise, "matchability": arguments["matchability"], "bins": bins}
        sizes = arguments["num_queries"], arguments["decoder_layers"]
        return PoseCriterion.build(name, losses, sigmas, *sizes, **own)

    def forward(self, images: paddle.Tensor, sizes: paddle.Tensor | None = None, targets: Any | None = None) -> Outputs:
        """Return class logits and poses of all queries.

        Args:
            targets: ``PoseTargets``, for training only.

        Returns:
            ``logits`` (N, queries, classes) and ``poses`` (N, queries, 2 K), x and y of each point as fractions; and
            the outputs of all layers (``layer_``), of the encoder and of denoising for the criterion.
        """
        maps = self.encode_maps(images)
        memory, grids = flatten_maps(maps)
        starts, encoder_logits = self.select_poses(memory, grids)
        start, content = without_gradient(starts), self._build_tokens(memory)
        denoising = targets.denoising if targets is not None else None
        blocked, extra = None, 0
        if denoising is not None:
            extra, blocked = denoising.labels.shape[1], denoising.blocked(self.num_queries).astype(start.dtype)
            content = paddle.concat([self._build_noisy_tokens(denoising.labels).astype(content.dtype), content], axis=1)
            noisy = denoising.places.astype(start.dtype)
            start = paddle.concat([noisy.reshape([*noisy.shape[:2], -1, 2]), start], axis=1)
        decoded = self.decoder(content, start, memory, grids, blocked)
        chosen = {"encoder_logits": encoder_logits, "encoder_poses": starts.flatten(2)}
        outputs = self.split_outputs(decoded, extra, chosen)
        return {"logits": outputs["layer_logits"][-1], "poses": outputs["layer_poses"][-1], **outputs}

    def best(self, outputs: Outputs) -> TopPoses:  # type: ignore[override]  # poses, not boxes
        """Return the best pairs of a query and a class, one for each query."""
        labels, queries, scores = rank_queries(outputs["logits"])
        poses = paddle.take_along_axis(outputs["poses"].astype("float32"), queries.unsqueeze(-1), axis=1)
        return TopPoses(labels, poses.reshape([*poses.shape[:2], -1, 2]), scores)

    def select_poses(self, memory: paddle.Tensor, grids: Grids) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return the poses (N, Q, K, 2), as fractions, and logits (N, Q, classes) of the best cells."""
        best, content, logits = self.choose_queries(memory, grids)
        deltas = single_or_double(self.enc_pose_head(content))
        anchors = paddle.gather(constant(_anchors, tuple(grids)).astype(deltas.dtype), best.numbers.flatten())
        deltas = deltas.reshape([*best.numbers.shape, self.keypoints, 2])
        poses = F.sigmoid(deltas + anchors.reshape([*best.numbers.shape, 1, 2]))
        return poses, logits

    def _build_tokens(self, memory: paddle.Tensor) -> paddle.Tensor:
        """Return the initial tokens of the queries, (N, Q, 1 + K, dim)."""
        queries = self.tgt_embed.weight.unsqueeze(1) + self.keypoint_embedding.weight.unsqueeze(0)  # (Q, K, dim)
        instance = self.instance_embedding.weight.unsqueeze(0).expand([self.num_queries, -1, -1])
        tokens = paddle.concat([instance, queries], axis=1).unsqueeze(0)  # (1, Q, 1 + K, dim)
        return tokens + paddle.zeros_like(memory[:, :1, :1]).unsqueeze(1)

    def _build_noisy_tokens(self, labels: paddle.Tensor) -> paddle.Tensor:
        """Return the initial tokens (N, D, 1 + K, dim) of denoising queries with ``labels`` (N, D)."""
        instance = self.embed_labels(labels).unsqueeze(2)
        points = self.denoising_pose_embed.weight.unsqueeze([0, 1]).expand([*labels.shape, -1, -1])
        return paddle.concat([instance, points], axis=2)

    def label_initializer(self) -> Any:
        """Return the initializer of the embeddings of denoising queries' classes."""
        return nn.initializer.XavierUniform()

    def outputs_to_classes(self, outputs: int) -> int:
        """Return the number of classes of a classifier with these outputs; the authors' has two for one, the person."""
        return 1 if outputs == self.coco_outputs else outputs

    def resize_parameter(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """Select the person's outputs, and as many labels as there are classes, from the authors' weights."""
        if name.startswith("denoising_class_embed."):
            return key_names.select_labels(value, self.num_classes)
        if not name.startswith(("enc_score_head.", "decoder.class_embed.")):
            return None
        return key_names.select_person(value, self.num_classes)

    def list_resize_notices(self, names: Sequence[str]) -> list[str]:
        """Return a notice if the classifier's rows were selected."""
        return [key_names.PERSON_TAKEN] if any(name.startswith("enc_score_head.") for name in names) else []


def _embedding(rows: int, dim: int, trainable: bool = True) -> nn.Embedding:
    initial = nn.initializer.XavierUniform()
    return nn.Embedding(rows, dim, weight_attr=paddle.ParamAttr(initializer=initial, trainable=trainable))


def _anchors(grids: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the centers of the cells of all maps before the sigmoid, float64 (cells, 2), rounded as the authors'."""
    centers = cell_boxes(grids)[0][:, :2].astype(np.float32)
    return np.log((centers / (1 - centers)).astype(np.float64)).astype(np.float32).astype(np.float64)
