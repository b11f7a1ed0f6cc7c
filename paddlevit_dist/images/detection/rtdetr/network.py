"""RT-DETR, RT-DETRv2, D-FINE and DEIM: a backbone, an encoder that fuses its maps, and queries at the best cells.

Sources: Zhao et al., DETRs Beat YOLOs on Real-time Object Detection, CVPR 2024, arXiv 2304.08069; Lv et al., RT-DETRv2,
arXiv 2407.17140; Peng et al., D-FINE, ICLR 2025, arXiv 2410.13842; Huang et al., DEIM, CVPR 2025, arXiv 2412.04234.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....core.runtime.errors import UserError
from ....core.runtime.transfers import constant
from ...models.layers import LayerNorm
from ...models.resnet import RESNET_FACTS
from ..denoising import ContrastiveNoise
from ..detector import DetectionTargets, Outputs, single_or_double, without_gradient
from ..detr.transformer import xavier
from . import key_names
from .criterion import VarifocalCriterion
from .decoder import ACTIVATIONS, DecoderConfig, FineDecoder, RtDetrDecoder, SamplingPoints
from .distributions import DistanceBins
from .encoder import HybridEncoder
from .fine_criterion import FineCriterion
from .hybrid_network import (
    Grids,
    HybridNetwork,
    cell_boxes,
    count_sampled_points,
    flatten_maps,
    project_map,
)
from .variants import RTDETR

_EPSILON = 1e-5

# Fields of transformers' configurations that have one value here.
_USUAL_FACTS: dict[str, Any] = {
    "model_type": ("rt_detr", "rt_detr_v2", "d_fine"),
    "activation_function": "silu",
    "encoder_activation_function": "gelu",
    "batch_norm_eps": _EPSILON,
    "layer_norm_eps": _EPSILON,
    "decoder_offset_scale": 0.5,
    "positional_encoding_temperature": 10000.0,
    "pe_temperature": 10000.0,
    "normalize_before": False,
    "learn_initial_query": False,
    "learnt_init_query": False,
    "with_box_refine": True,
    "backbone_config": {**RESNET_FACTS, "stem_strides": (2, 1, 1, 2, 1), "stage_downsample_strides": (2, 2, 2, 2)},
}


class RtDetr(HybridNetwork):
    """Real-time detector for images of one size, whose sides are multiples of 32.

    Names of the backbone's parameters begin with ``backbone.``. Arguments that are not listed have the meaning of
    ``HybridEncoder`` ("encoder_"), ``DecoderConfig`` and ``DistanceBins``.

    Args:
        num_classes: number of outputs of the classifiers; 0: a network without a task yet.
        backbone: name of a model that has ``feature_maps``.
        frozen_batch_norm: freeze the backbone's batch norms, see ``ResNet``.
        frozen_stages: number of the backbone's frozen stages, see ``ResNet``.
        feature_levels: indices of the maps that are used, from fine to coarse; they may be negative.
        embed_dim: width of the decoder.
        num_queries: largest number of objects detected in an image.
        denoising: pairs of denoising queries of an image, see ``ContrastiveNoise``; 0: none.
        points: number of points that a query samples on each level, or one number for all levels.
        is_discrete: use RT-DETRv2's sampling of the nearest cell.
        is_fine: use D-FINE's encoder, decoder and losses.
        bins: number of D-FINE's steps of distances.
        matchability: exponent of DEIM's matchability-aware loss of classes; None: the varifocal loss.
    """

    variants = RTDETR
    coco_outputs = 80
    key_maps = key_names.RTDETR
    telling_name = "decoder.layers.#.mlp.fc#.weight"
    reference_normalizer = "as by RT-DETR's authors: by the mean of the devices' objects, at least 1"

    def __init__(
        self,
        num_classes: int = 80,
        backbone: str = "resnet18d",
        backbone_options: Mapping[str, Any] | None = None,
        frozen_batch_norm: bool = False,
        frozen_stages: int = 0,
        feature_levels: Sequence[int] = (-3, -2, -1),
        encoder_dim: int = 256,
        encoder_layers: int = 1,
        encoder_heads: int = 8,
        encoder_feedforward: int = 1024,
        blocks: int = 3,
        expansion: float = 1.0,
        embed_dim: int = 256,
        num_heads: int = 8,
        feedforward: int = 1024,
        decoder_layers: int = 6,
        num_queries: int = 300,
        denoising: int = 100,
        points: int | Sequence[int] = 4,
        is_discrete: bool = False,
        is_fine: bool = False,
        bins: int = 32,
        up: float = 0.5,
        reg_scale: float = 4.0,
        activation: str = "relu",
        deep_positions: bool = False,
        matchability: float | None = None,
    ):
        super().__init__()
        frozen = {"frozen_batch_norm": frozen_batch_norm, "frozen_stages": frozen_stages}
        self.build_maps(backbone, backbone_options, feature_levels, encoder_dim, **frozen)
        levels = len(feature_levels)
        attention = (encoder_layers, encoder_heads, encoder_feedforward)
        self.encoder = HybridEncoder(encoder_dim, levels, *attention, blocks, expansion, is_fine)
        is_wide = not (is_fine and encoder_dim == embed_dim)
        self.decoder_input_proj = nn.LayerList(
            [project_map(encoder_dim, embed_dim) if is_wide else nn.Identity() for _ in feature_levels]
        )
        self.enc_output = nn.Sequential(xavier(embed_dim, embed_dim), LayerNorm(embed_dim, epsilon=_EPSILON))
        numbers = count_sampled_points(points, levels)
        if activation not in ACTIVATIONS:
            raise UserError(f"option activation '{activation}' is not known: expected one of {list(ACTIVATIONS)}")
        sampling = SamplingPoints(numbers, is_discrete)
        config = DecoderConfig(embed_dim, num_heads, feedforward, decoder_layers, sampling, activation, deep_positions)
        self.enc_bbox_head = config.build_mlp(embed_dim, embed_dim, 4, 3, starts_at_zero=True)
        self.decoder = FineDecoder(config, DistanceBins(bins, up, reg_scale)) if is_fine else RtDetrDecoder(config)
        self.embed_dim, self.num_queries, self.denoising = embed_dim, num_queries, denoising
        self._facts = {
            "decoder_n_points": numbers,
            "decoder_method": "discrete" if is_discrete else "default",
            "decoder_activation_function": activation,
            "decoder_attention_heads": num_heads,
            "encoder_attention_heads": encoder_heads,
            "encode_proj_layers": [levels - 1],
            "eval_idx": frozenset({-1, decoder_layers - 1}),
            "feat_strides": self.strides,
            "num_queries": num_queries,
            **({"reg_scale": reg_scale, "up": up} if is_fine else {}),
        }
        self.reset_classifier(num_classes)

    def network_facts(self) -> Mapping[str, Any]:
        """Return what no shape tells, see ``Model.network_facts``."""
        return {**_USUAL_FACTS, **self._facts}

    @classmethod
    def criterion(
        cls, name: str, num_classes: int, losses: Mapping[str, Any] | None = None, **options: Any
    ) -> VarifocalCriterion:
        """Build the losses of a model without building the model."""
        arguments, bins = cls.read_loss_options(name, options)
        mirrors = arguments["is_fine"] or arguments["matchability"] is not None
        noise = ContrastiveNoise(num_classes, arguments["denoising"], mirrors=mirrors)
        sizes = num_classes, arguments["num_queries"], arguments["decoder_layers"]
        own = {"noise": noise if arguments["denoising"] else None, "matchability": arguments["matchability"]}
        if arguments["is_fine"]:
            return FineCriterion.build(name, losses, *sizes, bins=bins, **own)
        return VarifocalCriterion.build(name, losses, *sizes, **own)

    def forward(
        self, images: paddle.Tensor, sizes: paddle.Tensor | None = None, targets: DetectionTargets | None = None
    ) -> Outputs:
        """Return class logits and boxes of all queries.

        Returns:
            ``logits`` (N, queries, classes) and ``boxes`` (N, queries, 4), center, width and height as fractions; and
            the outputs of all layers (``layer_``), of the encoder and of denoising for the criterion.
        """
        memory, grids = self.encode(images)
        starts, scores, chosen, content = self.select_queries(memory, grids)
        denoising = targets.denoising if targets is not None else None
        blocked, extra, start, content = None, 0, without_gradient(starts), without_gradient(content)
        if denoising is not None:
            extra, blocked = denoising.labels.shape[1], denoising.blocked(self.num_queries).astype(starts.dtype)
            content = paddle.concat([self.embed_labels(denoising.labels).astype(content.dtype), content], axis=1)
            start = paddle.concat([denoising.places.astype(starts.dtype), start], axis=1)
        decoded = self.decoder(content, start, memory, grids, blocked)
        outputs = self.split_outputs(decoded, extra, {"encoder_logits": scores, "encoder_boxes": chosen})
        return {"logits": outputs["layer_logits"][-1], "boxes": outputs["layer_boxes"][-1], **outputs}

    def encode(self, images: paddle.Tensor) -> tuple[paddle.Tensor, Grids]:
        """Return the decoder's memory, (N, cells of all maps, dim), and height and width of the maps."""
        maps = self.encode_maps(images)
        return flatten_maps([project(x) for x, project in zip(maps, self.decoder_input_proj)])

    def select_queries(self, memory: paddle.Tensor, grids: Grids):
        """Select the best cells as queries.

        Returns:
            Boxes before the sigmoid (N, Q, 4), logits (N, Q, classes), boxes as fractions and contents (N, Q, dim).
        """
        best, content, logits = self.choose_queries(memory, grids)
        deltas = single_or_double(self.enc_bbox_head(content))
        anchors = paddle.gather(constant(_anchors, tuple(grids)).astype(deltas.dtype), best.numbers.flatten())
        starts = deltas + anchors.reshape([*best.numbers.shape, 4])
        return starts, logits, F.sigmoid(starts), content

    def resize_parameter(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """Select the rows of COCO's 80 categories from classifiers of Objects365."""
        is_embedding = name.startswith("denoising_class_embed.")
        if not is_embedding and not name.startswith(("enc_score_head.", "decoder.class_embed.")):
            return None
        return key_names.select_objects365_rows(value, self.num_classes, is_embedding)

    def published_classes(self, classes: int) -> list[str] | None:
        """Return the class names of the authors' classifiers for Objects365."""
        return key_names.objects365_class_names(classes)

    def list_resize_notices(self, names: Sequence[str]) -> list[str]:
        """Return a notice if the classifier's rows were selected."""
        return [key_names.OBJECTS365_TAKEN] if any(name.startswith("enc_score_head.") for name in names) else []


def _anchors(grids: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return anchors before the sigmoid; at the border they are so large that the sigmoid is 1."""
    boxes, is_inside = cell_boxes(grids)
    return np.where(is_inside, np.log(boxes / (1 - boxes)), np.finfo(np.float32).max)
