"""Segmentation by convolutions on a backbone's last map alone: FCN's two on a dilated ResNet, and one on a transformer.

Source: Long et al., Fully Convolutional Networks for Semantic Segmentation, 2015 (arXiv 1411.4038), as torchvision has
it, whose parameter names these are: the last two stages are dilated and keep an eighth of the resolution (Yu and
Koltun, 2016), and a second head on the third stage has half the weight. The linear layer with which DINOv2 and DINOv3
are evaluated: Oquab et al., arXiv 2304.07193, section 7.4; Siméoni et al., arXiv 2508.10104, section 6.1.2.
"""

from collections.abc import Mapping
from typing import Any

import paddle
from paddle import nn

from ...core.checkpoint.foreign_names import from_torch_names
from ...core.tasks.model import Variants
from . import foundation_variants as foundation
from .layers import ChannelDropout, Conv2D
from .segmenter import Segmenter, batch_norm, drop_layers, fan_out, pixel_classifier, resize_maps
from .vit import VisionTransformer

_DILATED_STAGES = 2


# Long et al., Fully Convolutional Networks, 2015, on dilated networks: torchvision's, at an eighth of the resolution.
VARIANTS: Variants = {f"fcn_resnet{depth}": {"backbone": f"resnet{depth}"} for depth in (50, 101)}


class FCN(Segmenter):
    """FCN on a ResNet; its logits have an eighth of the image's sides, and dropout is of single values."""

    variants = VARIANTS
    key_maps = {"torchvision": from_torch_names}
    telling_name = "classifier.#.weight"
    classifier_layers = ("classifier.4", "aux_classifier.4")
    auxiliary_weight = 0.5

    def __init__(
        self,
        num_classes: int = 21,
        image_size: int | tuple[int, int] = 520,
        backbone: str = "resnet50",
        backbone_options: Mapping[str, Any] | None = None,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        options = {"dilation": _DILATED_STAGES, **(backbone_options or {})}
        super().__init__(num_classes, image_size, backbone, options, drop_path)
        *_, third, last = self.backbone.feature_channels
        self.classifier = _head(last, num_classes, dropout)
        self.aux_classifier = _head(third, num_classes, dropout)

    def forward(self, images: paddle.Tensor) -> paddle.Tensor | tuple[paddle.Tensor, paddle.Tensor]:
        """Compute logits (batch, classes, rows, columns), in training also the auxiliary head's."""
        *_, third, last = self.backbone.feature_maps(images)
        logits = self.classifier(last)
        return (logits, self.aux_classifier(third)) if self.training else logits


# Oquab et al., DINOv2, 2023, section 7.4; Siméoni et al., DINOv3, 2025, section 6.1.2.
LINEAR_VARIANTS: Variants = {f"linear_{name}": {"backbone": backbone} for name, backbone in foundation.ON_MAPS.items()}


class LinearSegmenter(Segmenter):
    """A batch norm and a convolution of 1 x 1 on the last, normalized map of a Vision Transformer, ``backbone``.

    TRAIN.FREEZE (``backbone.*``) freezes the backbone. Logits have the resolution of the patches; of images that are no
    whole number of patches, that of the pixels. DINOv2's authors pad such images on all sides and stretch the logits.
    """

    variants = LINEAR_VARIANTS
    telling_name = "norm._mean"
    classifier_layers = ("head",)

    def __init__(
        self,
        num_classes: int = 150,
        image_size: int | tuple[int, int] = 512,
        backbone: str = "vit_small_patch16_dinov3",
        backbone_options: Mapping[str, Any] | None = None,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        options = {"any_size": True, "norm_features": True, **(backbone_options or {})}
        super().__init__(num_classes, image_size, backbone, options, drop_path)
        drop_layers(self.backbone, ("head", "fc_norm", "attn_pool"))
        channels = self.backbone.feature_channels[-1]
        self.norm, self.dropout = batch_norm(channels), ChannelDropout(dropout)
        self.head = pixel_classifier(channels, num_classes)

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        """Compute logits (batch, classes, rows, columns), one position for each patch or each pixel."""
        logits = self.head(self.dropout(self.norm(self.backbone.feature_maps(images)[-1])))
        height, width = images.shape[2:]
        is_ours = isinstance(self.backbone, VisionTransformer)  # others, such as timm's, refuse or do not tell it
        padded = self.backbone.padded_size(images) if is_ours else (height, width)
        return logits if padded == (height, width) else resize_maps(logits, padded)[:, :, :height, :width]


def _head(inputs: int, num_classes: int, dropout: float) -> nn.Sequential:
    channels = inputs // 4
    start = paddle.ParamAttr(initializer=fan_out(9 * channels))
    return nn.Sequential(
        Conv2D(inputs, channels, 3, padding=1, weight_attr=start, bias_attr=False),
        batch_norm(channels),
        nn.ReLU(),
        nn.Dropout(dropout),
        pixel_classifier(channels, num_classes),
    )
