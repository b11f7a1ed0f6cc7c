"""RF-DETR Seg: RF-DETR with a mask for each query.

Source: Robinson et al., RF-DETR, arXiv 2511.09554, with the code of roboflow/rf-detr.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import paddle

from ..detector import Outputs
from .criterion import GroupCriterion
from .mask_criterion import MaskGroupCriterion
from .masks import MaskHead
from .network import SMALL, RfDetr, size_options

_DEPTHS = (3, 6, 9, 12)


def _variant(side: int, windows: int, layers: int, queries: int) -> dict[str, Any]:
    """Return the arguments of a published size."""
    return {**size_options(side, 12, windows, _DEPTHS, layers), "num_queries": queries}


class RfDetrSeg(RfDetr):
    """RF-DETR with masks.

    Args:
        num_classes: see ``RfDetr``, also for ``options``.
        mask_ratio: factor of the sides of images and of masks before these are resized.
        random_samples: whether points of masks are drawn for the losses, see ``MaskGroupCriterion``.
    """

    learns_masks = True
    masks_are_fractions = True
    variants = {
        "rfdetr_seg": {},  # a start for configurations that give their own dimensions
        "rfdetr_seg_shapes": {**SMALL, "mask_ratio": 2},
        "rfdetr_seg_nano": _variant(312, 1, 4, 100),
        "rfdetr_seg_small": _variant(384, 2, 4, 100),
        "rfdetr_seg_medium": _variant(432, 2, 5, 200),
        "rfdetr_seg_large": _variant(504, 2, 5, 200),
        "rfdetr_seg_xlarge": _variant(624, 2, 6, 300),
        "rfdetr_seg_xxlarge": _variant(768, 2, 6, 300),
    }
    telling_name = "mask_head.query_features_proj.weight"
    criterion_kind = MaskGroupCriterion

    def __init__(self, num_classes: int = 80, mask_ratio: int = 4, random_samples: bool = True, **options: Any):
        super().__init__(num_classes, **options)
        self.mask_ratio = mask_ratio
        self.mask_head = MaskHead(self.embed_dim, len(self.layers))

    @classmethod
    def criterion(
        cls, name: str, num_classes: int, losses: Mapping[str, Any] | None = None, **options: Any
    ) -> GroupCriterion:
        """Build the losses of a model without building the model."""
        random_samples = {**cls.options(), **options}["random_samples"]
        return super().criterion(name, num_classes, {"random_samples": random_samples, **(losses or {})}, **options)

    def build_masks(
        self, x: paddle.Tensor, image_size: Sequence[int], hidden: list[paddle.Tensor], selected: paddle.Tensor | None
    ) -> Outputs:
        """Return ``masks`` in an evaluation, the logits (N, queries, height, width) of the last layer.

        In training, ``mask_queries_`` (N, queries, dim), ``mask_cells_`` (N, height, width, dim) and ``mask_bias_``
        (N, queries, 1) with the number of each layer, and then the encoder's selection, see ``MaskVectors``.
        """
        size = (image_size[0] // self.mask_ratio, image_size[1] // self.mask_ratio)
        if selected is None:
            return {"masks": self.mask_head.last(x, size, hidden[-1]).logits()}
        heads = enumerate(self.mask_head(x, size, hidden, selected))
        return {f"mask_{name}_{i}": part for i, head in heads for name, part in head._asdict().items()}
