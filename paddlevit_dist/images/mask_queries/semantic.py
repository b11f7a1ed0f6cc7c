"""EoMT for semantic segmentation: each pixel gets the sum of its queries' classes."""

from collections.abc import Mapping
from typing import Any

import paddle
from paddle.nn import functional as F

from ...core.runtime import autocast
from ..models.layers import single_or_double
from ..models.segmenter import Segmenter, resize_maps
from .criterion import MaskQueryCriterion
from .matching import load_solver
from .network import Eomt, Prediction
from .variants import list_variants


class SemanticEomt(Eomt, Segmenter):
    """EoMT whose masks are of classes."""

    variants = list_variants("semantic")
    gives_probabilities = True

    @classmethod
    def criterion(
        cls, name: str, num_classes: int, losses: Mapping[str, Any] | None = None, **options: Any
    ) -> MaskQueryCriterion:
        """Build the losses of ``build(name, num_classes, **options)`` without the model."""
        load_solver()  # so that its error is raised before training starts
        return MaskQueryCriterion(num_classes, **cls.criterion_options(name, **options), **(losses or {}))

    def forward(self, images: paddle.Tensor, update: int = 0, total_updates: int = 1) -> Any:
        """Compute probabilities (N, classes, H, W) of each pixel of normalized images (N, 3, H, W).

        In training, compute what the criterion reads, in the update after ``update`` ones.
        """
        if self.training:
            return self.training_outputs(images, update, total_updates)
        height, width = images.shape[2:]
        return share_pixels(self.predict(images), self.backbone.padded_size(images))[:, :, :height, :width]


def share_pixels(prediction: Prediction, size: tuple[int, int]) -> paddle.Tensor:
    """Return the sum over the queries of class and mask probabilities, (N, classes, *size); without no object."""
    with autocast.off():
        classes = F.softmax(single_or_double(prediction.classes), axis=-1)[..., :-1]
        masks = F.sigmoid(resize_maps(prediction.masks, size)).flatten(2)  # (N, Q, pixels)
        return paddle.matmul(classes, masks, transpose_x=True).reshape([0, -1, *size])
