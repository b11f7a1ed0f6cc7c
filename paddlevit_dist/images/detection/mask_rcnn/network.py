"""Mask R-CNN on a feature pyramid.

Source: He et al., Mask R-CNN, ICCV 2017 (arXiv 1703.06870). Parameter names are torchvision's; Linear weights are (in,
out) as Paddle stores them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....core.runtime.autocast import as_dtype
from ....core.runtime.errors import UserError
from ....core.runtime.transfers import constant, read, to_device
from ....core.tasks.model import ClassLayout, Model, Variants
from ....core.tasks.model_factory import create_model, fit_backbone_options
from ...models.layers import Conv2D, LayerNorm
from ...run_lengths import encode
from .. import key_names
from ..boxes import clip_boxes, decode_boxes
from ..detections import DetectedObjects
from ..detector import DetectionCriterion, DetectionTargets, Detector, Outputs, drop_layers, uniform, zeros
from .criterion import MaskRcnnCriterion, crop_mask_targets, sample_region_targets
from .region_heads import RegionHeads, build_placeholder_region, paste
from .region_proposals import ProposalNetwork, suppress
from .rules import MaskRcnnRules

_AFTER_MAPS = ("norm.", "head.")  # a backbone's layers that no map depends on, so they get no gradients


class FeaturePyramid(nn.Layer):
    """Feature pyramid with one map for each input, from fine to coarse, and one of half the last map's resolution."""

    def __init__(self, inputs: Sequence[int], channels: int):
        super().__init__()
        self.inner_blocks = nn.LayerList([nn.Sequential(_convolution(width, channels, 1)) for width in inputs])
        self.layer_blocks = nn.LayerList([nn.Sequential(_convolution(channels, channels, 3)) for _ in inputs])

    def forward(self, maps: Sequence[paddle.Tensor]) -> list[paddle.Tensor]:
        """Return maps (N, channels, height, width) of each level of ``maps``, and of the additional one."""
        above, results = None, list[paddle.Tensor]()
        for number in reversed(range(len(maps))):
            x = self.inner_blocks[number](maps[number])
            if above is not None:
                # Under mixed precision Paddle interpolates in float32.
                x = x + as_dtype(F.interpolate(above, size=x.shape[2:], mode="nearest"), x.dtype)
            above = x
            results.insert(0, self.layer_blocks[number](x))
        return [*results, F.max_pool2d(results[-1], kernel_size=1, stride=2)]


def _convolution(inputs: int, outputs: int, kernel_size: int) -> Conv2D:
    """Build a convolution with torchvision's initialization (He et al., 2015, uniform, with gain 1)."""
    bound = math.sqrt(3.0 / (inputs * kernel_size**2))
    return Conv2D(inputs, outputs, kernel_size, padding=kernel_size // 2, weight_attr=uniform(bound), bias_attr=zeros())


class PyramidBackbone(nn.Layer):
    """A classifier's body, which has ``feature_maps``, with a pyramid on its last four maps.

    ``has_norm``: each of the body's maps is normalized over its channels first. ``strides`` are in pixels, one for each
    of the pyramid's maps.
    """

    def __init__(self, body: Model, channels: int, has_norm: bool):
        super().__init__()
        self.body = body
        widths = body.feature_channels[-4:]
        self.norms = nn.LayerList([LayerNorm(width, epsilon=1e-5) for width in widths] if has_norm else [])
        self.fpn = FeaturePyramid(widths, channels)
        for name, parameter in body.named_parameters():
            if name.startswith(_AFTER_MAPS) and not getattr(body, "norm_features", False):
                parameter.stop_gradient = True
        strides = body.feature_strides[-4:]
        self.strides = (*strides, 2 * strides[-1])

    def forward(self, images: paddle.Tensor) -> list[paddle.Tensor]:
        """Return maps of images (N, 3, H, W), from fine to coarse."""
        maps = self.body.feature_maps(images)[-4:]
        if len(self.norms):
            maps = [norm(x.transpose([0, 2, 3, 1])).transpose([0, 3, 1, 2]) for norm, x in zip(self.norms, maps)]
        return self.fpn(maps)


_MULTIPLE_PX = 32  # sides are padded to multiples, so that each map is half as large as the one before
_BODY = "backbone.body."
_SHORTEST_SIDE_PX = 1e-2  # of a detection


class ImageDetections(NamedTuple):
    """Detections of one image, n of them, best first."""

    boxes: paddle.Tensor  # (n, 4) in pixels of the network's input
    scores: paddle.Tensor  # (n,)
    labels: paddle.Tensor  # int64 (n,), from 0


VARIANTS: Variants = {
    # torchvision's maskrcnn_resnet50_fpn, version 1: stem, layer1 and batch norms are frozen
    "mask_rcnn_resnet50_fpn": {
        "backbone": "resnet50",
        "backbone_options": {"frozen_batch_norm": True, "frozen_stages": 2},
    },
    # Liu et al., Swin Transformer, 2021, section 4.2, with the authors' code, which is MMDetection's: each map is
    # normalized, the number of samples of a region depends on its size, boxes learn by L1
    "mask_rcnn_swin_tiny_fpn": {
        "backbone": "swin_tiny_patch4_window7_224",
        "backbone_options": {"any_size": True},
        "feature_norm": True,
        "rules": {
            "rounds_anchors": False,
            "proposals_before": 2000,
            "proposals_after": 1000,
            "lowest_overlap": 0.3,
            "samples_per_bin": -1,
            "aligned": True,
            "anchor_beta": 0.0,
            "box_beta": 0.0,
        },
    },
    # for images of 64 to 128 pixels, such as synthetic_shapes, with objects a tenth of the size of COCO's
    "mask_rcnn_small": {
        "backbone": "resnet18",
        "backbone_options": {"dims": (16, 32, 64, 64), "depths": (1, 1, 1, 1)},
        "pyramid_channels": 48,
        "region_channels": 128,
        "mask_channels": (48, 48),
        "rules": {
            "anchor_sizes": (8, 16, 32, 64, 96),
            "reference_size": 56,
            "proposals_before": 200,
            "proposals_after": 100,
            "evaluated_before": 100,
            "evaluated_after": 50,
            "anchor_samples": 64,
            "region_samples": 32,
            "detections": 30,
        },
    },
}


class MaskRCNN(Detector):
    """Detects boxes, classes and masks of objects.

    In training the host waits for the device once per image, to suppress proposals, and twice per batch: for the number
    of proposals and for the sampled regions. Samples are drawn from Paddle's generator.

    Args:
        num_classes: number of classes without the background.
        backbone: name of a model with ``feature_maps`` of strides 4, 8, 16 and 32.
        feature_norm: whether the backbone's maps are normalized over their channels.
        region_channels: width of the dense layers on a region.
        mask_channels: channels of the convolutions before the mask predictor.
        rules: values of ``MaskRcnnRules`` that differ from its defaults, by name.
        random_samples: value of ``MaskRcnnRules``, which a configuration can set.
        drop_path: rate of stochastic depth in the backbone's last block.
    """

    learns_masks = True
    reference_normalizer = "as by torchvision: each term by the samples of each device"
    variants = VARIANTS
    coco_outputs = key_names.TORCHVISION_OUTPUTS
    key_maps = key_names.MASK_RCNN
    telling_name = "roi_heads.mask_predictor.conv#_mask.weight"
    classifier_layers = (
        "roi_heads.box_predictor.cls_score",
        "roi_heads.box_predictor.bbox_pred",
        "roi_heads.mask_predictor.mask_fcn_logits",
    )

    @classmethod
    def build(cls, name: str, num_classes: int, image_size: Any | None = None, **options: Any) -> Model:
        """Build a variant; another backbone than the variant's takes only the options that it has."""
        return super().build(name, num_classes, image_size, **fit_backbone_options(cls.variants.get(name, {}), options))

    def __init__(
        self,
        num_classes: int = 80,
        backbone: str = "resnet50",
        backbone_options: Mapping[str, Any] | None = None,
        feature_norm: bool = False,
        pyramid_channels: int = 256,
        region_channels: int = 1024,
        mask_channels: Sequence[int] = (256, 256, 256, 256),
        rules: Mapping[str, Any] | None = None,
        random_samples: bool = True,
        drop_path: float = 0.0,
    ):
        super().__init__()
        options = {**(backbone_options or {}), **({"drop_path": drop_path} if drop_path else {})}
        body = create_model(backbone, num_classes=0, **options)
        drop_layers(body, ("head.last_conv",))
        if tuple(body.feature_strides[-4:]) != (4, 8, 16, 32):
            raise UserError(
                f"Mask R-CNN needs maps of strides 4, 8, 16 and 32, but {backbone} has {tuple(body.feature_strides)}: "
                "use another backbone, such as resnet50"
            )
        self.rules, self.in_channels = (
            MaskRcnnRules.read(rules, random_samples=random_samples),
            body.in_channels,
        )
        self.num_classes = num_classes
        self.backbone = PyramidBackbone(body, pyramid_channels, feature_norm)
        strides = self.backbone.strides
        self.rpn = ProposalNetwork(pyramid_channels, strides, self.rules)
        mask_channels = tuple(mask_channels) if self.learns_masks else ()
        self.roi_heads = RegionHeads(
            num_classes + 1, pyramid_channels, strides[:-1], region_channels, mask_channels, self.rules
        )

    @property
    def pretrained_part(self) -> Model:
        """The model that is initialized with a classifier's weights."""
        return self.backbone.body

    @classmethod
    def most_objects(cls, **options: Any) -> tuple[str, int] | None:
        """Return the limit of detections in an image, and the flag that sets it."""
        return "-max_detections", MaskRcnnRules.read(options["rules"]).detections

    @classmethod
    def criterion(
        cls, name: str, num_classes: int, losses: Mapping[str, Any] | None = None, **options: Any
    ) -> DetectionCriterion:
        """Build the losses of a model; ``losses`` may have ``normalizer`` and ``class_weight``."""
        arguments = {**cls.options(), **cls.variants.get(name, {}), **options}
        rules = MaskRcnnRules.read(arguments["rules"])
        own = {"anchor_beta": rules.anchor_beta, "box_beta": rules.box_beta, "has_masks": cls.learns_masks}
        return MaskRcnnCriterion.build(name, losses, **own)

    def forward(
        self, images: paddle.Tensor, sizes: paddle.Tensor | None = None, targets: DetectionTargets | None = None
    ) -> Outputs:
        """Return samples for the criterion with ``targets``, else detections; see ``Detector.forward`` for arguments.

        Returns:
            With targets, the outputs of ``ProposalNetwork.forward`` for anchors; for n regions ``region_logits`` (n,
            classes + 1), ``region_labels`` (n,), ``region_changes``, ``region_offsets`` (n, 4) and ``region_shares``
            (n,), see ``RegionTargets``; for p regions on objects ``mask_logits``, ``mask_targets`` (p, side, side) and
            ``mask_shares`` (p,).

            Without targets, the n detections of all images, ordered by image, best first: ``boxes`` (n, 4) in pixels of
            ``images``, ``scores`` (n,), ``labels`` int64 (n,), ``masks`` (n, side, side), probabilities inside each
            box; and ``numbers`` int64 (N,), detections of each image. Without any detection there is one row of zeros.
        """
        number, _, height, width = images.shape
        if sizes is None:
            sizes = constant(np.full, (number, 2), (height, width), "int64")
        if height % _MULTIPLE_PX or width % _MULTIPLE_PX:
            images = F.pad(images, [0, -width % _MULTIPLE_PX, 0, -height % _MULTIPLE_PX])
        if targets is not None and targets.box_counts is None:
            targets = targets._replace(box_counts=(targets.labels >= 0).sum(axis=1).numpy())
        maps = self.backbone(images)
        proposals, sampled = self.rpn(maps, sizes, targets)
        if targets is None:
            return self._detect(maps, proposals, sizes)
        return {**sampled, **self._learn(maps, proposals, targets)}

    def _learn(
        self, maps: Sequence[paddle.Tensor], proposals: list[paddle.Tensor], targets: DetectionTargets
    ) -> Outputs:
        """Return the outputs of sampled regions with their targets."""
        heads = self.roi_heads
        samples = sample_region_targets(proposals, targets, len(heads.strides), self.rules)
        logits, changes = heads.classify(maps, samples.regions)
        number, classes = logits.shape
        label_rows = paddle.arange(number, dtype="int64") * classes + samples.labels
        outputs = {
            "region_logits": logits,
            "region_labels": samples.labels,
            "region_changes": paddle.gather(changes.reshape([-1, 4]), label_rows),
            "region_offsets": samples.offsets,
            "region_shares": samples.shares,
        }
        if not self.learns_masks:
            return outputs
        if targets.masks is None:
            raise UserError(
                "Mask R-CNN learns masks, but these data have only boxes: use a model without masks, such as "
                "faster_rcnn_resnet50_fpn"
            )
        mask_samples = crop_mask_targets(samples, targets, 2 * self.rules.mask_size)
        outputs["mask_logits"] = heads.masks(maps, mask_samples.regions, mask_samples.labels)
        return {**outputs, "mask_targets": mask_samples.masks, "mask_shares": mask_samples.shares}

    def _detect(self, maps: Sequence[paddle.Tensor], proposals: list[paddle.Tensor], sizes: paddle.Tensor) -> Outputs:
        heads, numbers = self.roi_heads, [len(boxes) for boxes in proposals]
        detections: list[ImageDetections | None] = [None] * len(proposals)
        if sum(numbers):
            images = np.repeat(np.arange(len(numbers)), numbers)
            regions = heads.regions(paddle.concat([boxes for boxes in proposals if len(boxes)]), images)
            logits, changes = heads.classify(maps, regions)
            start = 0
            for image, number in enumerate(numbers):
                part = slice(start, start + number)
                start += number
                if number:
                    decoded = decode_boxes(changes[part], regions.boxes[part].unsqueeze(1), self.rules.box_weights)
                    decoded = clip_boxes(decoded.unsqueeze(0), sizes[image : image + 1])[0]  # (number, classes + 1, 4)
                    detections[image] = _choose(F.softmax(logits[part], axis=1), decoded, self.rules)
        return self._join(maps, detections, proposals[0])

    def _join(
        self, maps: Sequence[paddle.Tensor], detections: list[ImageDetections | None], like: paddle.Tensor
    ) -> Outputs:
        """Concatenate the detections of all images, and predict their masks."""
        numbers = [0 if image_detections is None else len(image_detections.boxes) for image_detections in detections]
        non_empty, images = (
            [image_detections for image_detections in detections if image_detections is not None],
            np.repeat(np.arange(len(numbers)), numbers),
        )
        if not non_empty:
            placeholder = build_placeholder_region(like)
            images = placeholder.images
            zero = paddle.zeros([1], dtype="int64")
            non_empty = [ImageDetections(placeholder.boxes, zero.astype(like.dtype), zero)]
        outputs = {name: paddle.concat(list(values)) for name, values in zip(ImageDetections._fields, zip(*non_empty))}
        if self.learns_masks:
            regions = self.roi_heads.regions(outputs["boxes"], images)
            outputs["masks"] = F.sigmoid(self.roi_heads.masks(maps, regions, outputs["labels"] + 1))
        return {**outputs, "numbers": to_device(np.array(numbers, np.int64))}

    def decode(self, outputs: Outputs, sizes: np.ndarray, original_sizes: np.ndarray) -> list[DetectedObjects]:
        """Return the detections in each image in host memory, see ``Detector.decode``."""
        arrays = dict(zip(outputs, read(*outputs.values())))
        results, start = [], 0
        for image, number in enumerate(arrays["numbers"].tolist()):
            rows = slice(start, start + number)
            start += number
            height, width = (int(side) for side in original_sizes[image])
            scale = (original_sizes[image] / sizes[image])[[1, 0, 1, 0]]
            boxes = (arrays["boxes"][rows] * scale).astype(np.float32)
            masks = None
            if self.learns_masks:
                masks = [encode(paste(mask, box, (height, width))) for mask, box in zip(arrays["masks"][rows], boxes)]
            scores, labels = arrays["scores"][rows].astype(np.float32), arrays["labels"][rows]
            results.append(DetectedObjects(boxes, scores, labels, masks))
        return results

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layers of the heads, and all layers of the mask predictor."""
        self.num_classes = num_classes
        self.roi_heads.reset(num_classes + 1)

    def resize_parameter(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """Select COCO's 80 categories from torchvision's heads; resize other parameters by the backbone."""
        if name.startswith(self.classifier_layers):
            published = key_names.TORCHVISION_OUTPUTS, key_names.TORCHVISION_ROWS
            values_per_class = self.class_layout(name).each
            axis = 0 if value.ndim == 4 else -1  # convolution, dense layer
            return key_names.select_category_rows(value, self.num_classes, *published, axis, values_per_class)
        if name.startswith(_BODY):
            return self.backbone.body.resize_parameter(name[len(_BODY) :], value)
        return None

    def class_layout(self, name: str) -> ClassLayout:
        """Return how a classifier's outputs are ordered."""
        return ClassLayout(each=4 if ".bbox_pred." in name else 1, before=1)

    def published_classes(self, classes: int) -> list[str] | None:
        """Return the class names of torchvision's classifiers."""
        return key_names.published_names(1, classes) if classes == key_names.TORCHVISION_OUTPUTS - 1 else None

    def list_source_notices(self, naming: str, state: Mapping[str, Any]) -> list[str]:
        """Return notices on the weights of another project."""
        return key_names.torchvision_notices(state) if naming == "torchvision" else []

    def no_weight_decay(self) -> tuple[str, ...]:
        """Return the names of parameters without weight decay."""
        return tuple(_BODY + name for name in self.backbone.body.no_weight_decay())

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return the layers that can be recomputed."""
        return self.backbone.body.recomputed_layers()


class FasterRCNN(MaskRCNN):
    """Mask R-CNN without masks. Source: Ren et al., Faster R-CNN, NeurIPS 2015 (arXiv 1506.01497)."""

    learns_masks = False
    # torchvision's fasterrcnn_resnet50_fpn, version 1
    variants = {"faster_rcnn_resnet50_fpn": VARIANTS["mask_rcnn_resnet50_fpn"]}
    telling_name = "rpn.head.bbox_pred.weight"


def _choose(scores: paddle.Tensor, boxes: paddle.Tensor, rules: MaskRcnnRules) -> ImageDetections | None:
    """Select an image's detections from its regions' scores (n, classes + 1) and boxes (n, classes + 1, 4), or None."""
    scores, boxes = scores[:, 1:], boxes[:, 1:]  # without the background
    sides = boxes[:, :, 2:] - boxes[:, :, :2]
    is_valid = paddle.logical_and(scores > rules.least_score, (sides >= _SHORTEST_SIDE_PX).all(axis=2))
    places = paddle.nonzero(is_valid.reshape([-1])).reshape([-1])  # Paddle 2.6 cannot flatten bools without views
    if places.shape[0] == 0:
        return None
    classes = scores.shape[1]
    scores, order = paddle.topk(paddle.gather(scores.flatten(), places), places.shape[0])  # best first
    places = paddle.gather(places, order)
    boxes, labels = paddle.gather(boxes.reshape([-1, 4]), places), places % classes
    selected = suppress(boxes, labels, rules.detection_overlap, rules.detections)
    return ImageDetections(*(paddle.gather(values, selected) for values in (boxes, scores, labels)))
