"""A linear head on the patches of a Vision Transformer, with which DINOv2 and DINOv3 are evaluated on segmentation.

Source: Oquab et al., DINOv2, arXiv 2304.07193, section 7.4, and Siméoni et al., DINOv3, arXiv 2508.10104, section 6.1.2: a
batch norm and a convolution of 1 x 1 on the last map, which has the backbone's last norm; the backbone is frozen.
"""

from collections.abc import Mapping
from typing import Any

import paddle
from paddle import nn

from .segmenter import Segmenter, batch_norm, drop_layers, pixel_classifier
from .variants import LINEAR


class LinearSegmenter(Segmenter):
    """Logits at the resolution of the patches. What is frozen says TRAIN.FREEZE (``backbone.*``).

    The arguments are those of ``Segmenter``; ``backbone`` is a Vision Transformer.
    """

    variants = LINEAR
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
        self.norm, self.dropout = batch_norm(channels), nn.Dropout2D(dropout)
        self.head = pixel_classifier(channels, num_classes)

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.dropout(self.norm(self.backbone.features(images)[-1])))
