"""Data sets of images with boxes, masks or keypoints: COCO, Pascal VOC, YOLO, tables and the hub's files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from paddlevit_dist.images.detection.data.coco import Coco
from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.keypoints.data.drawn_figures import DrawnFigures
from paddlevit_dist.images.keypoints.data.figures import FIGURE_SETS
from support.files.hub_files import IMAGE, classes, write_parquet
from support.files.voc_writer import an_object, write_xml

from .drawn_images import COUNTS, SHAPES, SIDES, Maker, list_images, save, write_lines

if TYPE_CHECKING:
    from .materials import Materials

_CATEGORIES = [{"id": 9, "name": "square"}, {"id": 2, "name": "triangle"}, {"id": 5, "name": "circle"}]


def _write_hub_boxes(folder: Path, materials: "Materials") -> None:
    """The images and boxes of COCO's files in the order in which they are read, with ids, areas and crowds."""
    cache = folder / "cache"
    cache.mkdir(parents=True)
    for split in COUNTS:
        coco = Coco(str(materials.get("coco")), split, cache)
        columns: dict[str, list] = {name: [] for name in ("image_id", "image", "width", "height", "objects")}
        for index in range(len(coco)):
            height, width = coco.size(index)
            truth = coco.annotations(index)
            parts = (truth.boxes, truth.labels, truth.areas, truth.is_crowd, truth.ids)
            names = ("bbox", "category", "area", "iscrowd", "id")
            objects = {name: part.tolist() for name, part in zip(names, parts)}
            picture = {"bytes": coco.encoded(index), "path": Path(coco.describe(index)).name}
            row = (coco.image_id(index), picture, width, height, objects)
            for column, value in zip(columns.values(), row):
                column.append(value)
        category = {"_type": "List", "feature": classes(*coco.class_names)}
        types = dict.fromkeys(("width", "height", "image_id"), {"_type": "Value", "dtype": "int64"})
        numbers = {"_type": "List", "feature": {"_type": "Value", "dtype": "float64"}}
        fields = {**dict.fromkeys(("area", "iscrowd", "id"), numbers), "category": category}
        features = {"image": IMAGE, **types, "objects": {**fields, "bbox": {"_type": "List", "feature": numbers}}}
        write_parquet(folder / f"{split}.parquet", columns, features, row_group_size=5)


def _write_coco(folder: Path, materials: "Materials") -> None:
    ids = {category["name"]: category["id"] for category in _CATEGORIES}
    for split in COUNTS:
        images, annotations = [], []
        for index, image, truth in list_images(split):
            number = 1000 - 3 * index
            save(image, folder / split / f"{number}.png")
            images.append({"id": number, "file_name": f"{number}.png", "width": image.width, "height": image.height})
            for place, label in enumerate(truth.labels if index != 2 else []):  # one image has no objects
                assert truth.masks is not None
                annotations.append(
                    {
                        "id": int(truth.ids[place]),
                        "image_id": number,
                        "category_id": ids[SHAPES[label]],
                        "bbox": truth.boxes[place].tolist(),
                        "area": float(truth.areas[place]),
                        "segmentation": truth.masks[place],
                        "iscrowd": int(index == 1 and place == 0),
                    }
                )
        content = {"images": images, "annotations": annotations[::-1], "categories": _CATEGORIES}
        write_lines(folder / "annotations" / f"{split}.json", [json.dumps(content)])


def _list_figures(split: str, *kinds: str, least: int = 0) -> Iterator[tuple[int, Image.Image, ImageAnnotations]]:
    drawn = DrawnFigures(None, split, None, COUNTS["train"], COUNTS["val"], SIDES, (least, 2), kinds)
    for index in range(len(drawn)):
        yield index, *drawn.read(index)


def _write_coco_figures(*kinds: str) -> Maker:
    def write(folder: Path, materials: "Materials") -> None:
        """COCO's files of figures, whose ids are not in order; the second image has a crowd."""
        categories = [
            {"id": 9 - 2 * place, "name": kind, "keypoints": FIGURE_SETS[kind].names}
            for place, kind in enumerate(kinds)
        ]
        for split in COUNTS:
            images, annotations = [], []
            for index, image, truth in _list_figures(split, *kinds):
                number = 1000 - 3 * index
                save(image, folder / split / f"{number}.png")
                size = {"width": image.width, "height": image.height}
                images.append({"id": number, "file_name": f"{number}.png", **size})
                assert truth.points is not None
                for place, label in enumerate(truth.labels.tolist()):
                    points = truth.points[place, : len(FIGURE_SETS[kinds[label]].names)]
                    annotations.append(
                        {
                            "id": int(truth.ids[place]),
                            "image_id": number,
                            "category_id": categories[label]["id"],
                            "bbox": truth.boxes[place].tolist(),
                            "area": float(truth.areas[place]),
                            "iscrowd": int(index == 1 and place == 0),
                            "keypoints": points.ravel().tolist(),
                            "num_keypoints": int((points[:, 2] > 0).sum()),
                        }
                    )
            content = {"images": images, "annotations": annotations[::-1], "categories": categories}
            write_lines(folder / "annotations" / f"person_keypoints_{split}.json", [json.dumps(content)])

    return write


def _write_yolo_pose(folder: Path, materials: "Materials") -> None:
    for split in COUNTS:
        for index, image, truth in _list_figures(split, "person"):
            save(image, folder / "images" / split / f"{index:03d}.png")
            assert truth.points is not None
            points = truth.points / (*image.size, 1)
            shares = truth.boxes / (*image.size, *image.size)
            lines = [
                " ".join(map(str, [0, x + w / 2, y + h / 2, w, h, *each.ravel().tolist()]))
                for (x, y, w, h), each in zip(shares, points)
            ]
            write_lines(folder / "labels" / split / f"{index:03d}.txt", lines)
    lines = ["train: images/train", "val: images/val", "names: [person]", "kpt_shape: [7, 3]"]
    mirror = FIGURE_SETS["person"].mirror.tolist()
    write_lines(folder / "data.yaml", [*lines, f"flip_idx: {mirror}"])


def _write_keypoint_table(folder: Path, materials: "Materials") -> None:
    """The first person of each image; every sixth image is of validation."""
    names = FIGURE_SETS["person"].names
    lines = [f"image,split,{','.join(f'{name}_x,{name}_y' for name in names)}"]
    for index, image, truth in _list_figures("train", "person", least=1):
        assert truth.points is not None
        save(image, folder / "images" / f"{99 - index}.png")
        cells = [f"{x},{y}" if visibility else "," for x, y, visibility in truth.points[0].tolist()]
        lines.append(f"images/{99 - index}.png,{'val' if index % 6 == 1 else 'train'},{','.join(cells)}")
    write_lines(folder / "points.csv", lines)


def _write_voc(folder: Path, materials: "Materials") -> None:
    for split in COUNTS:
        names = []
        for index, image, truth in list_images(split):
            name = f"{split}_{index:03d}"
            save(image, folder / "JPEGImages" / f"{name}.png")
            objects = [
                an_object(SHAPES[label], (x + 1, y + 1, x + w, y + h))
                for label, (x, y, w, h) in zip(truth.labels, truth.boxes.astype(int))
            ]
            write_xml(folder / "Annotations" / f"{name}.xml", *objects, size=(image.height, image.width))
            names.append(name)
        write_lines(folder / "ImageSets" / "Main" / f"{split}.txt", names[::-1])


def _write_box_table(folder: Path, materials: "Materials") -> None:
    rows = ["image,split,label,boxes"]
    for split in COUNTS:
        for index, image, truth in list_images(split):
            save(image, folder / split / f"{index:03d}.png")
            named = zip(truth.labels, truth.boxes.tolist())
            rows += [f'{split}/{index:03d}.png,{split},{SHAPES[label]},"{box}"' for label, box in named]
    write_lines(folder / "boxes.csv", rows)


def _write_yolo(folder: Path, materials: "Materials") -> None:
    order = ("triangle", "circle", "square")
    for split in COUNTS:
        for index, image, truth in list_images(split):
            save(image, folder / "images" / split / f"{index:03d}.png")
            shares = truth.boxes / (*image.size, *image.size)
            lines = [
                f"{order.index(SHAPES[label])} {x + w / 2} {y + h / 2} {w} {h}"
                for label, (x, y, w, h) in zip(truth.labels, shares)
            ]
            write_lines(folder / "labels" / split / f"{index:03d}.txt", lines)
    write_lines(folder / "data.yaml", ["train: images/train", "val: images/val", f"names: [{', '.join(order)}]"])


MAKERS: dict[str, Maker] = {
    "hub_boxes": _write_hub_boxes,
    "coco": _write_coco,
    "coco_keypoints": _write_coco_figures("person", "hand"),
    "coco_people": _write_coco_figures("person"),
    "yolo_pose": _write_yolo_pose,
    "keypoint_table": _write_keypoint_table,
    "voc": _write_voc,
    "yolo": _write_yolo,
    "box_table": _write_box_table,
}
