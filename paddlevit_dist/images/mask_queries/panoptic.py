"""EoMT for panoptic segmentation: the classes and masks of all queries."""

from collections.abc import Mapping
from typing import Any

import paddle

from ..models.layers import single_or_double
from .criterion import MaskQueryCriterion
from .matching import load_solver
from .network import Eomt
from .variants import list_variants


class PanopticEomt(Eomt):
    """EoMT whose masks are of things and of stuff."""

    variants = list_variants("panoptic")

    @classmethod
    def criterion(
        cls, name: str, num_classes: int, losses: Mapping[str, Any] | None = None, **options: Any
    ) -> MaskQueryCriterion:
        """Build the losses of ``build(name, num_classes, **options)`` without the model."""
        load_solver()  # so that its error is raised before training starts
        return MaskQueryCriterion(num_classes, **cls.criterion_options(name, **options), **(losses or {}))

    def forward(self, images: paddle.Tensor, update: int = 0, total_updates: int = 1) -> dict[str, paddle.Tensor]:
        """Compute the logits of normalized images (N, 3, H, W) as the functions of ``segments`` take them.

        Returns:
            In an evaluation, ``classes`` (N, Q, classes + 1), no object last, and ``masks`` (N, Q, height, width) of
            the whole images. In training, what the criterion reads, in the update after ``update`` ones.
        """
        if self.training:
            return self.training_outputs(images, update, total_updates)
        prediction = self.predict(images)
        masks = self.crop_masks(prediction.masks, images)
        return {"classes": single_or_double(prediction.classes), "masks": masks}
