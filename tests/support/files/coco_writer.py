"""Small data sets in COCO's layout, written for a test."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from support.refusals import refusal_of

BOX = [2.0, 3.0, 10.0, 8.0]
CATEGORIES = [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}, {"id": 5, "name": "ant"}]


def write_image(path: Path, height: int, width: int, seed: int = 0, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)


def refused_by(kind: Any, root: Any, cache: Path, split: str = "train", **options: Any) -> str:
    """What a kind of dataset says where it does not open."""
    return refusal_of(kind, str(root), split, cache, **options)


def annotation(number: int, image_id: Any, box: Any, category: Any = 7, **more: Any) -> dict[str, Any]:
    area = box[2] * box[3] if isinstance(box, list) and len(box) == 4 else 0
    return {
        "id": number,
        "image_id": image_id,
        "category_id": category,
        "bbox": box,
        "area": area,
        "iscrowd": 0,
        **more,
    }


def write_coco(
    root: Path,
    annotations: list[dict[str, Any]],
    split: str = "train2017",
    images: list[dict[str, Any]] | None = None,
    file: str = "",
    categories: Any = CATEGORIES,
    **more: Any,
) -> Path:
    """Three images of 20 x 30 pixels (height x width) numbered 11, 12 and 13, unless ``images`` says others."""
    if images is None:
        images = [{"id": 10 + n, "file_name": f"{n}.png", "height": 20, "width": 30} for n in (1, 2, 3)]
        for n in (1, 2, 3):
            write_image(root / split / f"{n}.png", 20, 30, n)
    path = root / (file or f"annotations/instances_{split}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"images": images, "annotations": annotations, "categories": categories, **more}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
    return path
