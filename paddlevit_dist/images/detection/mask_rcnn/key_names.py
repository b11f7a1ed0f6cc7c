"""Other owners' names of Mask R-CNN's parameters."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

import numpy as np

from ....checkpoint.torch_names import from_torch_names
from ....contracts.model import KeyMap
from ...models.key_names import RESNET, SWIN, renamed
from ..detector import COCO_CATEGORIES

_BODY = "backbone.body."
COCO_OUTPUTS = 91  # of torchvision's heads: the background, and a class for each number up to COCO's largest id
_CLASSIFIERS = ("fc.", "head.")  # of the classifiers that a backbone is taken from

# torchvision's published files have the names of its version 1, its layers have others since.
_TORCHVISION = (
    (r"^(rpn\.head\.conv)\.(weight|bias)$", r"\1.0.0.\2"),
    (r"^(backbone\.fpn\.(?:inner|layer)_blocks\.\d+)\.(weight|bias)$", r"\1.0.\2"),
    (r"^roi_heads\.mask_head\.mask_fcn(\d+)\.", lambda match: f"roi_heads.mask_head.{int(match[1]) - 1}.0."),
)

_EPSILON = 1e-5  # that our fixed batch norms add to the variance
_OUTPUTS = "roi_heads.box_predictor.cls_score.bias"


def _from_torchvision(state: Mapping[str, Any]) -> Dict[str, Any]:
    ours = renamed(from_torch_names(state), _TORCHVISION)
    if _seems_published(ours):
        # torchvision gives the fixed batch norms of its published detectors (COCO_V1) an epsilon of 0 when it loads
        # them; a variance that is smaller by ours means the same, wherever these weights go from here.
        ours.update({name: ours[name] - _EPSILON for name in ours if name.endswith("._variance")})
    return ours


def _seems_published(ours: Mapping[str, Any]) -> bool:
    """A guess by the number of outputs: files do not say with which epsilon they were trained."""
    return _OUTPUTS in ours and len(ours[_OUTPUTS]) == COCO_OUTPUTS


def notices_of_torchvision(ours: Mapping[str, Any]) -> List[str]:
    """What the names ``_from_torchvision`` has made do not say: which epsilon was taken for their batch norms."""
    if not _seems_published(ours) or not any(name.endswith("._variance") for name in ours):
        return []
    return [
        f"{COCO_OUTPUTS} outputs, taken for weights that torchvision published for COCO: fixed batch norms compute "
        f"without an epsilon; where they were trained with {_EPSILON:g}, add that to each running_var before"
    ]


def _of_the_backbone(owner: KeyMap) -> KeyMap:
    """From a classifier's state, of which the backbone is used."""

    def to_our_names(state: Mapping[str, Any]) -> Dict[str, Any]:
        own = owner(state).items()
        return {_BODY + name: value for name, value in own if not name.startswith(_CLASSIFIERS)}

    return to_our_names


MASK_RCNN: Dict[str, KeyMap] = {
    "torchvision": _from_torchvision,
    **{f"{owner} (backbone)": _of_the_backbone(to_ours) for owner, to_ours in {**RESNET, **SWIN}.items()},
}


def rows_of_categories(name: str, value: np.ndarray, num_classes: int) -> Optional[np.ndarray]:
    """A parameter of torchvision's heads with the outputs of the background and of COCO's 80 categories, whose ids are
    their numbers in it; None for any other.

    Args:
        value: (in, 91), (in, 91 x 4), (91,) or (91 x 4,) of dense layers, (91, in, 1, 1) of a convolution.
    """
    axis = 0 if value.ndim == 4 else -1
    for_each = 4 if ".bbox_pred." in name else 1
    if num_classes != len(COCO_CATEGORIES) or value.shape[axis] != for_each * COCO_OUTPUTS:
        return None
    rows = np.array([0, *COCO_CATEGORIES])
    return value.take((for_each * rows[:, None] + np.arange(for_each)).reshape(-1), axis=axis)
