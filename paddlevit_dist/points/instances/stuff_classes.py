"""Classes without instances, such as floors and roads, which panoptic segmentation calls stuff."""

from collections.abc import Sequence

from ...core.runtime.errors import UserError
from ...core.runtime.printing import shorten
from ..data.scannet_classes import STUFF_CLASSES
from ..prepare import nuscenes, semantic_kitti

_KEY = "POINTS.INSTANCES.STUFF_CLASSES"
_BY_CLASS_NAMES = {
    nuscenes.CLASS_NAMES: nuscenes.STUFF_CLASSES,
    semantic_kitti.CLASS_NAMES: semantic_kitti.STUFF_CLASSES,
}


def find_instance_classes(class_names: Sequence[str], stuff: Sequence[str] | None) -> list[int]:
    """Return the numbers of the classes that have instances, given POINTS.INSTANCES.STUFF_CLASSES.

    None means nuScenes's and SemanticKITTI's own for their classes, else walls and floors. UserError if a name is not a
    class, or there are no walls and floors.
    """
    chosen = _BY_CLASS_NAMES.get(tuple(class_names), STUFF_CLASSES) if stuff is None else stuff
    unknown = [name for name in chosen if name not in class_names]
    known = shorten(", ".join(class_names), 200)
    if unknown and stuff is None:
        raise UserError(
            f"{_KEY} is not set, and the classes ({known}) are not a known dataset's: name the classes without "
            "instances, or set it to [] if all have instances"
        )
    if unknown:
        raise UserError(
            f"{_KEY} names {shorten(', '.join(unknown), 200)}; expected some of the classes without instances among "
            f"{known}, or [] if all have instances"
        )
    return [number for number, name in enumerate(class_names) if name not in chosen]
