"""Data sets of images with a class, or a segment, for each pixel: label maps, outlines, panoptic files."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from paddlevit_dist.images.panoptic.data.panoptic_dataset import PanopticShapes
from paddlevit_dist.images.panoptic.data.segments import Segments
from paddlevit_dist.images.segmentation.data.segmentation_dataset import SegmentationShapes
from support.files.hub_files import IMAGE, write_saved

from .drawn_images import COUNTS, SHAPES, SIDES, Maker, list_images, save, write_lines

if TYPE_CHECKING:
    from .materials import Materials


def _write_hub_label_maps(folder: Path, materials: "Materials") -> None:
    """The images and label maps of the folders in their order, as ``save_to_disk`` writes them."""
    splits: dict[str, dict[str, list]] = {}
    for split in COUNTS:
        for name, column in (("images", "image"), ("labels", "annotation")):
            files = sorted((materials.get("label_maps") / name / split).iterdir())
            rows = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
            splits.setdefault(split, {})[column] = rows
    write_saved(folder, splits, {"image": IMAGE, "annotation": IMAGE})
    shutil.copy(materials.get("label_maps") / "classes.txt", folder)


def _write_label_maps(folder: Path, materials: "Materials") -> None:
    for split in COUNTS:
        drawn = SegmentationShapes(None, split, None, COUNTS["train"], COUNTS["val"], SIDES)
        for index in range(len(drawn)):
            image, labels = drawn.read(index)
            labels[:2] = 255  # unlabeled
            save(image, folder / "images" / split / f"{index:03d}.png")
            save(Image.fromarray(labels), folder / "labels" / split / f"{index:03d}.png")
    write_lines(folder / "classes.txt", ["nothing", "round", "edgy", "pointed"])


def _list_segments(split: str) -> Iterator[tuple[int, Image.Image, Segments]]:
    drawn = PanopticShapes(None, split, None, COUNTS["train"], COUNTS["val"], SIDES)
    for index in range(len(drawn)):
        yield index, *drawn.read(index)


def _write_segments(folder: Path, materials: "Materials") -> None:
    """COCO's panoptic format; the second image has a crowd, and the upper rows are void."""
    ids, names = (9, 2, 5, 7), (*SHAPES, "ground")
    for split in COUNTS:
        images, annotations = [], []
        for index, image, truth in _list_segments(split):
            number, places = 1000 - 3 * index, np.where(np.arange(image.height)[:, None] < 2, -1, truth.places)
            numbers = np.append(300 * truth.ids, 0)[places]
            save(image, folder / "images" / split / f"{number}.png")
            channels = np.stack([numbers & 255, numbers >> 8 & 255, numbers >> 16], axis=2).astype(np.uint8)
            save(Image.fromarray(channels), folder / "panoptic" / split / f"{number}.png")
            images.append({"id": number, "file_name": f"{number}.png"})
            rows = [
                {
                    "id": int(300 * truth.ids[row]),
                    "category_id": ids[label],
                    "iscrowd": int(index == 1 and row == 0),
                    "area": int((places == row).sum()),
                }
                for row, label in enumerate(truth.labels.tolist())
            ]
            annotations.append({"image_id": number, "file_name": f"{number}.png", "segments_info": rows})
        categories = [
            {"id": ids[label], "name": name, "isthing": int(name != "ground")} for label, name in enumerate(names)
        ]
        content = {"images": images, "annotations": annotations[::-1], "categories": categories}
        write_lines(folder / "panoptic" / f"{split}.json", [json.dumps(content)])


def _write_segment_numbers(folder: Path, materials: "Materials") -> None:
    """Numbers of 16 bits that contain the class."""
    categories = [
        {"id": label + 1, "name": name, "isthing": int(name != "ground")}
        for label, name in enumerate((*SHAPES, "ground"))
    ]
    write_lines(folder / "categories.json", [json.dumps(categories)])
    for split in COUNTS:
        for index, image, truth in _list_segments(split):
            numbers = np.where(truth.labels == 3, 4, 1000 * (truth.labels + 1) + truth.ids)[truth.places]
            save(image, folder / "images" / split / f"{index:03d}.png")
            save(Image.fromarray(numbers.astype(np.uint16)), folder / "segments" / split / f"{index:03d}.png")


def _write_outlines(folder: Path, materials: "Materials") -> None:
    """YOLO's outlines, four corners each; images that Pillow turns."""
    order = ("triangle", "circle", "square")
    for split in COUNTS:
        for index, image, truth in list_images(split):
            path = folder / "images" / split / f"{index:03d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            exif = Image.Exif()
            exif[0x0112] = 6 if index % 2 else 1  # stored as if turned by a quarter
            (image.rotate(90, expand=True) if index % 2 else image).save(path, exif=exif)
            shares = truth.boxes / (*image.size, *image.size)
            lines = [
                f"{order.index(SHAPES[label])} {x} {y} {x + w} {y} {x + w} {y + h} {x} {y + h}"
                for label, (x, y, w, h) in zip(truth.labels, shares)
            ]
            write_lines(folder / "labels" / split / f"{index:03d}.txt", lines)
    write_lines(folder / "data.yaml", ["train: images/train", "val: images/val", f"names: [{', '.join(order)}]"])


def _write_ade20k(folder: Path, materials: "Materials") -> None:
    """The layout of ADE20K, whose 0 is unlabeled, with the first four of its 150 classes."""
    for split, part in (("train", "training"), ("val", "validation")):
        drawn = SegmentationShapes(None, split, None, COUNTS["train"], COUNTS["val"], SIDES)
        for index in range(len(drawn)):
            image, labels = drawn.read(index)
            save(image, folder / "images" / part / f"ADE_{split}_{index:08d}.jpg")
            save(Image.fromarray(labels + 1), folder / "annotations" / part / f"ADE_{split}_{index:08d}.png")
    write_lines(folder / "objectInfo150.txt", ["Idx\tRatio"])
    write_lines(folder / "numbers.txt", [f"class {number}" for number in range(150)])  # for scores of files


MAKERS: dict[str, Maker] = {
    "hub_label_maps": _write_hub_label_maps,
    "segments": _write_segments,
    "segment_numbers": _write_segment_numbers,
    "label_maps": _write_label_maps,
    "outlines": _write_outlines,
    "ade20k": _write_ade20k,
}
