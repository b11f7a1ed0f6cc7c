"""Small data sets with keypoints in COCO's layout, written for a test."""

from pathlib import Path
from typing import Any

from support.files.coco_writer import BOX, annotation, write_coco

BUG = {"id": 7, "name": "bug", "keypoints": ["head", "left_wing", "right_wing"], "skeleton": [[1, 2], [1, 3]]}
POINTS = [4.0, 5.0, 2, 8.5, 6.0, 1, 0.0, 0.0, 0]


def posed(number: int, image_id: Any, points: Any = POINTS, box: Any = BOX, **more: Any) -> dict[str, Any]:
    """An object with points: two of three are labeled."""
    return {**annotation(number, image_id, box, **more), "keypoints": points}


def write_keypoints(root: Path, annotations: list[dict[str, Any]], split: str = "train2017", **more: Any) -> Path:
    """Three images of 20 x 30 pixels numbered 11, 12 and 13, with points as COCO names their file."""
    options = {"file": f"annotations/person_keypoints_{split}.json", "categories": [BUG], **more}
    return write_coco(root, annotations, split, **options)
