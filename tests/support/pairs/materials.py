"""Writes the data of a campaign's runs, each set when a run first names it.

Heights, widths and depths differ, splits and classes have unequal sizes, and no names are in alphabetical order.
"""

import itertools
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from paddlevit_dist.images.detection.data.coco import Coco
from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.detection.data.synthetic_shapes import SyntheticShapes
from paddlevit_dist.images.keypoints.data.drawn_figures import DrawnFigures
from paddlevit_dist.images.keypoints.data.figures import FIGURE_SETS
from paddlevit_dist.images.panoptic.data.panoptic_dataset import PanopticShapes
from paddlevit_dist.images.panoptic.data.segments import Segments
from paddlevit_dist.images.segmentation.data.segmentation_dataset import SegmentationShapes
from paddlevit_dist.points.data.rooms import SyntheticRooms
from paddlevit_dist.points.shapes.solids import SyntheticSolids
from support.files import nnunet_folders
from support.files.hub_files import IMAGE, classes, write_parquet, write_saved
from support.files.voc_writer import an_object, write_xml
from support.files.volume_files import write_landmarks, write_volume
from support.hosts.range_server import RangeServer
from support.processes import ROOT

from .commands import succeed

CLASS_NAMES = ("walrus", "ant", "moth", "bee")
_COLORS = ((250, 80, 60), (60, 240, 90), (90, 70, 250), (240, 230, 80))
_SHAPES = ("circle", "square", "triangle")
_CATEGORIES = [{"id": 9, "name": "square"}, {"id": 2, "name": "triangle"}, {"id": 5, "name": "circle"}]
_SIDES = (44, 72)  # of drawn images, px
_COUNTS = {"train": 24, "val": 7}
_SPACINGS_MM = ((3.0, 2.0, 2.5), (2.0, 2.5, 3.0))  # depth, height, width


class Materials:
    """The data sets in a folder, and a server of that folder; a context that ends the server."""

    def __init__(self, work: Path) -> None:
        self.folder = work / "data"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.server = RangeServer(self.folder)
        self._lock = threading.RLock()

    def get(self, name: str) -> Path:
        """Return the folder of a data set; write it if it is not there."""
        folder, mark = self.folder / name, self.folder / f"{name}.complete"
        with self._lock:
            if not mark.exists():
                shutil.rmtree(folder, ignore_errors=True)
                MAKERS[name](folder, self)
                mark.touch()
        return folder

    def address(self, name: str) -> str:
        """Return the address of a data set on the server."""
        self.get(name)
        return f"{self.server.address()}{name}"

    def __enter__(self) -> "Materials":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()


def _draw_class_images() -> Iterator[tuple[str, int, str, Image.Image]]:
    """Yield split, class, name and image of 96 training and 30 validation images of four unequal classes."""
    for split, label in itertools.product(("train", "val"), range(4)):
        count = (33 - 6 * label) // (3 if split == "val" else 1)
        for number in range(count):
            generator = np.random.default_rng([label, number, split == "val"])
            pixels = generator.integers(0, 120, (40 + number % 9, 44, 3), np.uint8)
            color = generator.integers(60, 255, 3) if number % 5 == 4 else _COLORS[label]  # a fifth is hard to tell
            pixels[6 + label : 20 + 5 * label, 5 : 38 - 4 * label] = color
            yield split, label, f"{split}_{label}_{number}.png", Image.fromarray(pixels)


def _save(image: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def _write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _write_class_folders(folder: Path, materials: Materials) -> None:
    for split, label, name, image in _draw_class_images():
        _save(image, folder / split / f"k{label}" / name)
    _write_lines(folder / "classes.txt", [f"k{label} {CLASS_NAMES[label]}" for label in (2, 0, 3, 1)])


def _write_class_lists(folder: Path, materials: Materials) -> None:
    lines: dict[str, list[str]] = {"train": [], "val": []}
    for split, label, name, image in _draw_class_images():
        _save(image, folder / "images" / split / name)
        lines[split].append(f"images/{split}/{name} {label}")
    for split, rows in lines.items():
        _write_lines(folder / f"{split}_list.txt", rows[::-1])
    _write_lines(folder / "classes.txt", list(CLASS_NAMES))


def _write_unsplit_folders(folder: Path, materials: Materials) -> None:
    for _, label, name, image in _draw_class_images():
        _save(image, folder / f"{CLASS_NAMES[label]}" / name)


def _write_table(folder: Path, materials: Materials) -> None:
    """A table with columns that are not used, numbers of folds, and names of labels in another file."""
    lines = []
    for split, label, name, image in _draw_class_images():
        _save(image, folder / "pictures" / split / name)
        fold = 2 if split == "val" else len(lines) % 2
        lines.append(f"{len(lines)};{split}/{name};k{label};{fold}")
    _write_lines(folder / "labels.csv", ["number;photo;kind;fold", *lines[::-1]])
    _write_lines(folder / "classes.txt", [f"k{label} {CLASS_NAMES[label]}" for label in (2, 0, 3, 1)])


def _write_tags(folder: Path, materials: Materials) -> None:
    """Tables of the class images: a column for each label, some cells not known; and lists of labels."""
    columns, lists = ["image,split,walrus,moth,wings"], ["image,split,labels"]
    for number, (split, label, name, image) in enumerate(_draw_class_images()):
        _save(image, folder / "images" / name)
        labels = [int(label in (0, 1)), int(label in (2, 1)), int(np.asarray(image).mean() > 74)]
        known = ["" if (number + place) % 7 == 0 else str(value) for place, value in enumerate(labels)]
        known[2] = "-1" if number % 5 == 0 else known[2]
        columns.append(",".join([f"images/{name}", split, *known]))
        names = ";".join(itertools.compress(("walrus", "moth", "wings"), labels))
        lists.append(f"images/{name},{split},{names}")
    _write_lines(folder / "columns.csv", columns)
    _write_lines(folder / "lists.csv", lists)


def _write_tars(store: str) -> Callable[[Path, Materials], None]:
    def write(folder: Path, materials: Materials) -> None:
        succeed("prepare", "images", materials.get("folder"), folder, f"-store={store}", "-shard_size=17", "-workers=1")
        succeed("prepare", "index", folder)

    return write


def _write_hub(folder: Path, materials: Materials) -> None:
    """The images of the class folders in their order, in Parquet files of 50 images with names of classes."""
    for split in ("train", "val"):
        files = sorted((materials.get("folder") / split).rglob("*.png"))
        rows = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
        labels = [int(file.parent.name[1:]) for file in files]
        for number, first in enumerate(range(0, len(rows), 50)):
            columns = {"picture": rows[first : first + 50], "kind": labels[first : first + 50]}
            features = {"picture": IMAGE, "kind": classes(*CLASS_NAMES)}
            write_parquet(
                folder / "data" / f"{split}-{number:05d}-of-00002.parquet", columns, features, row_group_size=17
            )


def _write_hub_tags(folder: Path, materials: Materials) -> None:
    """The images and labels of the table of lists in their order, as ``save_to_disk`` writes them."""
    splits: dict[str, dict[str, list]] = {}
    for line in (materials.get("tags") / "lists.csv").read_text().splitlines()[1:]:
        image, split, labels = line.split(",")
        columns = splits.setdefault(split, {"image": [], "tags": []})
        columns["image"].append({"bytes": (materials.get("tags") / image).read_bytes(), "path": image})
        columns["tags"].append(labels.split(";") if labels else [])
    value = {"_type": "Value", "dtype": "string"}
    write_saved(folder, splits, {"image": IMAGE, "tags": {"_type": "List", "feature": value}})


def _write_hub_boxes(folder: Path, materials: Materials) -> None:
    """The images and boxes of COCO's files in the order in which they are read, with ids, areas and crowds."""
    cache = folder / "cache"
    cache.mkdir(parents=True)
    for split in _COUNTS:
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


def _write_hub_label_maps(folder: Path, materials: Materials) -> None:
    """The images and label maps of the folders in their order, as ``save_to_disk`` writes them."""
    splits: dict[str, dict[str, list]] = {}
    for split in _COUNTS:
        for name, column in (("images", "image"), ("labels", "annotation")):
            files = sorted((materials.get("label_maps") / name / split).iterdir())
            rows = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
            splits.setdefault(split, {})[column] = rows
    write_saved(folder, splits, {"image": IMAGE, "annotation": IMAGE})
    shutil.copy(materials.get("label_maps") / "classes.txt", folder)


def _list_images(split: str) -> Iterator[tuple[int, Image.Image, ImageAnnotations]]:
    drawn = SyntheticShapes(None, split, None, _COUNTS["train"], _COUNTS["val"], _SIDES)
    for index in range(len(drawn)):
        yield index, *drawn.read(index)


def _write_coco(folder: Path, materials: Materials) -> None:
    ids = {category["name"]: category["id"] for category in _CATEGORIES}
    for split in _COUNTS:
        images, annotations = [], []
        for index, image, truth in _list_images(split):
            number = 1000 - 3 * index
            _save(image, folder / split / f"{number}.png")
            images.append({"id": number, "file_name": f"{number}.png", "width": image.width, "height": image.height})
            for place, label in enumerate(truth.labels if index != 2 else []):  # one image has no objects
                assert truth.masks is not None
                annotations.append(
                    {
                        "id": int(truth.ids[place]),
                        "image_id": number,
                        "category_id": ids[_SHAPES[label]],
                        "bbox": truth.boxes[place].tolist(),
                        "area": float(truth.areas[place]),
                        "segmentation": truth.masks[place],
                        "iscrowd": int(index == 1 and place == 0),
                    }
                )
        content = {"images": images, "annotations": annotations[::-1], "categories": _CATEGORIES}
        _write_lines(folder / "annotations" / f"{split}.json", [json.dumps(content)])


def _list_figures(split: str, *kinds: str, least: int = 0) -> Iterator[tuple[int, Image.Image, ImageAnnotations]]:
    drawn = DrawnFigures(None, split, None, _COUNTS["train"], _COUNTS["val"], _SIDES, (least, 2), kinds)
    for index in range(len(drawn)):
        yield index, *drawn.read(index)


def _write_coco_figures(*kinds: str) -> Callable[[Path, Materials], None]:
    def write(folder: Path, materials: Materials) -> None:
        """COCO's files of figures, whose ids are not in order; the second image has a crowd."""
        categories = [
            {"id": 9 - 2 * place, "name": kind, "keypoints": FIGURE_SETS[kind].names}
            for place, kind in enumerate(kinds)
        ]
        for split in _COUNTS:
            images, annotations = [], []
            for index, image, truth in _list_figures(split, *kinds):
                number = 1000 - 3 * index
                _save(image, folder / split / f"{number}.png")
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
            _write_lines(folder / "annotations" / f"person_keypoints_{split}.json", [json.dumps(content)])

    return write


def _write_yolo_pose(folder: Path, materials: Materials) -> None:
    for split in _COUNTS:
        for index, image, truth in _list_figures(split, "person"):
            _save(image, folder / "images" / split / f"{index:03d}.png")
            assert truth.points is not None
            points = truth.points / (*image.size, 1)
            shares = truth.boxes / (*image.size, *image.size)
            lines = [
                " ".join(map(str, [0, x + w / 2, y + h / 2, w, h, *each.ravel().tolist()]))
                for (x, y, w, h), each in zip(shares, points)
            ]
            _write_lines(folder / "labels" / split / f"{index:03d}.txt", lines)
    lines = ["train: images/train", "val: images/val", "names: [person]", "kpt_shape: [7, 3]"]
    mirror = FIGURE_SETS["person"].mirror.tolist()
    _write_lines(folder / "data.yaml", [*lines, f"flip_idx: {mirror}"])


def _write_keypoint_table(folder: Path, materials: Materials) -> None:
    """The first person of each image; every sixth image is of validation."""
    names = FIGURE_SETS["person"].names
    lines = [f"image,split,{','.join(f'{name}_x,{name}_y' for name in names)}"]
    for index, image, truth in _list_figures("train", "person", least=1):
        assert truth.points is not None
        _save(image, folder / "images" / f"{99 - index}.png")
        cells = [f"{x},{y}" if visibility else "," for x, y, visibility in truth.points[0].tolist()]
        lines.append(f"images/{99 - index}.png,{'val' if index % 6 == 1 else 'train'},{','.join(cells)}")
    _write_lines(folder / "points.csv", lines)


def _write_voc(folder: Path, materials: Materials) -> None:
    for split in _COUNTS:
        names = []
        for index, image, truth in _list_images(split):
            name = f"{split}_{index:03d}"
            _save(image, folder / "JPEGImages" / f"{name}.png")
            objects = [
                an_object(_SHAPES[label], (x + 1, y + 1, x + w, y + h))
                for label, (x, y, w, h) in zip(truth.labels, truth.boxes.astype(int))
            ]
            write_xml(folder / "Annotations" / f"{name}.xml", *objects, size=(image.height, image.width))
            names.append(name)
        _write_lines(folder / "ImageSets" / "Main" / f"{split}.txt", names[::-1])


def _write_yolo(folder: Path, materials: Materials) -> None:
    order = ("triangle", "circle", "square")
    for split in _COUNTS:
        for index, image, truth in _list_images(split):
            _save(image, folder / "images" / split / f"{index:03d}.png")
            shares = truth.boxes / (*image.size, *image.size)
            lines = [
                f"{order.index(_SHAPES[label])} {x + w / 2} {y + h / 2} {w} {h}"
                for label, (x, y, w, h) in zip(truth.labels, shares)
            ]
            _write_lines(folder / "labels" / split / f"{index:03d}.txt", lines)
    _write_lines(folder / "data.yaml", ["train: images/train", "val: images/val", f"names: [{', '.join(order)}]"])


def _write_label_maps(folder: Path, materials: Materials) -> None:
    for split in _COUNTS:
        drawn = SegmentationShapes(None, split, None, _COUNTS["train"], _COUNTS["val"], _SIDES)
        for index in range(len(drawn)):
            image, labels = drawn.read(index)
            labels[:2] = 255  # unlabeled
            _save(image, folder / "images" / split / f"{index:03d}.png")
            _save(Image.fromarray(labels), folder / "labels" / split / f"{index:03d}.png")
    _write_lines(folder / "classes.txt", ["nothing", "round", "edgy", "pointed"])


def _list_segments(split: str) -> Iterator[tuple[int, Image.Image, Segments]]:
    drawn = PanopticShapes(None, split, None, _COUNTS["train"], _COUNTS["val"], _SIDES)
    for index in range(len(drawn)):
        yield index, *drawn.read(index)


def _write_segments(folder: Path, materials: Materials) -> None:
    """COCO's panoptic format; the second image has a crowd, and the upper rows are void."""
    ids, names = (9, 2, 5, 7), (*_SHAPES, "ground")
    for split in _COUNTS:
        images, annotations = [], []
        for index, image, truth in _list_segments(split):
            number, places = 1000 - 3 * index, np.where(np.arange(image.height)[:, None] < 2, -1, truth.places)
            numbers = np.append(300 * truth.ids, 0)[places]
            _save(image, folder / "images" / split / f"{number}.png")
            channels = np.stack([numbers & 255, numbers >> 8 & 255, numbers >> 16], axis=2).astype(np.uint8)
            _save(Image.fromarray(channels), folder / "panoptic" / split / f"{number}.png")
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
        _write_lines(folder / "panoptic" / f"{split}.json", [json.dumps(content)])


def _write_segment_numbers(folder: Path, materials: Materials) -> None:
    """Numbers of 16 bits that contain the class."""
    categories = [
        {"id": label + 1, "name": name, "isthing": int(name != "ground")}
        for label, name in enumerate((*_SHAPES, "ground"))
    ]
    _write_lines(folder / "categories.json", [json.dumps(categories)])
    for split in _COUNTS:
        for index, image, truth in _list_segments(split):
            numbers = np.where(truth.labels == 3, 4, 1000 * (truth.labels + 1) + truth.ids)[truth.places]
            _save(image, folder / "images" / split / f"{index:03d}.png")
            _save(Image.fromarray(numbers.astype(np.uint16)), folder / "segments" / split / f"{index:03d}.png")


def _write_outlines(folder: Path, materials: Materials) -> None:
    """YOLO's outlines, four corners each; images that Pillow turns."""
    order = ("triangle", "circle", "square")
    for split in _COUNTS:
        for index, image, truth in _list_images(split):
            path = folder / "images" / split / f"{index:03d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            exif = Image.Exif()
            exif[0x0112] = 6 if index % 2 else 1  # stored as if turned by a quarter
            (image.rotate(90, expand=True) if index % 2 else image).save(path, exif=exif)
            shares = truth.boxes / (*image.size, *image.size)
            lines = [
                f"{order.index(_SHAPES[label])} {x} {y} {x + w} {y} {x + w} {y + h} {x} {y + h}"
                for label, (x, y, w, h) in zip(truth.labels, shares)
            ]
            _write_lines(folder / "labels" / split / f"{index:03d}.txt", lines)
    _write_lines(folder / "data.yaml", ["train: images/train", "val: images/val", f"names: [{', '.join(order)}]"])


def _write_ade20k(folder: Path, materials: Materials) -> None:
    """The layout of ADE20K, whose 0 is unlabeled, with the first four of its 150 classes."""
    for split, part in (("train", "training"), ("val", "validation")):
        drawn = SegmentationShapes(None, split, None, _COUNTS["train"], _COUNTS["val"], _SIDES)
        for index in range(len(drawn)):
            image, labels = drawn.read(index)
            _save(image, folder / "images" / part / f"ADE_{split}_{index:08d}.jpg")
            _save(Image.fromarray(labels + 1), folder / "annotations" / part / f"ADE_{split}_{index:08d}.png")
    _write_lines(folder / "objectInfo150.txt", ["Idx\tRatio"])


def _write_scenes(folder: Path, materials: Materials) -> None:
    """Rooms as files with an intensity and normals, one far from its origin, prepared as a store."""
    raw = folder.with_name(f"{folder.name}_raw")
    for split, count in (("train", 9), ("val", 3)):
        rooms = SyntheticRooms(None, split, None, count, count, 0.1)
        for index in range(count):
            room, generator = rooms.read(index), np.random.default_rng(index)
            normals = generator.normal(size=room.xyz.shape)
            place = raw / split / f"{split}_room{9 - index}.npz"
            place.parent.mkdir(parents=True, exist_ok=True)
            np.savez(
                place,
                points=room.xyz + np.array([500_000.0, 0.0, -3.0]) * (index % 2),
                colors=room.rgb,
                normals=normals / np.linalg.norm(normals, axis=1, keepdims=True),
                intensity=generator.integers(0, 256, len(room.xyz)).astype(np.float32),
                label=room.semantic,
                instance=room.instance,
            )
    _write_lines(raw / "names.txt", SyntheticRooms.class_names)
    succeed("prepare", "scenes", raw, folder, f"-classes={raw / 'names.txt'}", "-workers=1")


def _write_shapes(folder: Path, materials: Materials) -> None:
    """ModelNet's resampled layout: points with normals, names in a list that is not sorted."""
    names = SyntheticSolids.class_names
    for split, count in (("train", 33), ("test", 10)):
        solids, rows = SyntheticSolids(count, "train" if split == "train" else "val"), []
        for index in range(count):
            shape = solids.read(index)
            name = f"{names[shape.label]}_{index:04d}"
            rows.append(name)
            lines = [",".join(f"{value:.6f}" for value in row) for row in np.c_[shape.xyz, shape.normals]]
            _write_lines(folder / names[shape.label] / f"{name}.txt", lines[:600])
        _write_lines(folder / f"modelnet40_{split}.txt", rows[::-1])
    _write_lines(folder / "modelnet40_shape_names.txt", names[::-1])


def _make_affine(number: int) -> np.ndarray:
    """An affine in RAS, x, y, z, with another spacing for every other volume."""
    affine = np.diag([*_SPACINGS_MM[number % 2][::-1], 1.0])
    affine[:3, 3] = -20.0 - number, 5.0, 11.0
    return affine


def _write_description(folder: Path, labels: dict) -> None:
    description = {**labels, "file_ending": ".nii.gz", "numTraining": 11}
    _write_lines(folder / "dataset.json", [json.dumps(description)])


def _write_volumes(folder: Path, materials: Materials) -> None:
    """nnU-Net's layout with two channels, uneven spacing, an ignored label and numbers that are not in order."""
    for number in range(11):
        generator = np.random.default_rng(number)
        shape = (20 + number % 3, 26 - number % 2, 24)
        labels = np.zeros(shape, np.uint8)
        labels[4:14, 6:18, 5 + number % 4 : 17] = 5
        labels[9:16, 2:9, 3:11] = 2
        labels[0, 0, :] = 9
        for channel, scale in enumerate((200.0, 3.0)):
            voxels = generator.normal(scale * labels, scale / 3, shape).astype(np.float32)
            write_volume(folder / "imagesTr" / f"v{9 - number}_{channel:04d}.nii.gz", voxels, _make_affine(number))
        write_volume(folder / "labelsTr" / f"v{9 - number}.nii.gz", labels, _make_affine(number))
    _write_description(folder, nnunet_folders.SECOND)


def _write_regions(folder: Path, materials: Materials) -> None:
    shutil.copytree(materials.get("volumes"), folder)
    _write_description(folder, nnunet_folders.REGIONS)


def _write_landmark_folders(folder: Path, materials: Materials) -> None:
    for split, count in (("train", 9), ("val", 4)):
        for number in range(count):
            generator = np.random.default_rng([number, split == "val"])
            shape, affine = (20 + number % 3, 26 - number % 2, 24), _make_affine(number)
            voxels = generator.normal(0, 40, shape)
            positions: dict[str, list[float] | None] = {}
            for name, base in {"nose": (6, 9, 12), "ear_right": (13, 17, 6), "ear_left": (13, 17, 18)}.items():
                z, y, x = np.array(base) + generator.integers(-2, 3, 3)
                voxels[z - 1 : z + 2, y - 1 : y + 2, x - 1 : x + 2] += 500 + 200 * len(positions)
                positions[name] = (affine @ [x, y, z, 1.0])[:3].tolist()
            if number == 2:
                positions["nose"] = None
            write_volume(folder / split / f"h{9 - number}.nii.gz", voxels.astype(np.int16), affine)
            write_landmarks(folder / split / f"h{9 - number}.csv", positions)


def _write_transforms(folder: Path, materials: Materials) -> None:
    transforms = "{__class_fullname__: Rotate, limit: [-10, 10], fill_mask: 255, p: 0.5}"
    lines = ["transform:", "  __class_fullname__: Compose", "  transforms:", f"    - {transforms}"]
    _write_lines(folder / "transforms.yaml", lines)


def _write_programs(folder: Path, materials: Materials) -> None:
    """The programs and files of the guide to extensions, and tasks of them on fewer images."""
    page = (ROOT / "docs/guides/extending.md").read_text(encoding="utf-8")
    for name, content in re.findall(r"`(\w+\.(?:py|yaml))`:\n\n```\w+\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        _write_lines(folder / name, [content])
    shutil.copy(Path(__file__).with_name("few_dots.py"), folder)
    _write_lines(folder / "few_dots.yaml", ["BASE: counting.yaml", "DATA:", "  DATASET: few_dots"])


MAKERS: dict[str, Callable[[Path, Materials], None]] = {
    "folder": _write_class_folders,
    "lists": _write_class_lists,
    "table": _write_table,
    "unsplit": _write_unsplit_folders,
    "tags": _write_tags,
    "pages": _write_tars("pages"),
    "jpeg": _write_tars("jpeg"),
    "hub": _write_hub,
    "hub_tags": _write_hub_tags,
    "hub_boxes": _write_hub_boxes,
    "hub_label_maps": _write_hub_label_maps,
    "coco": _write_coco,
    "coco_keypoints": _write_coco_figures("person", "hand"),
    "coco_people": _write_coco_figures("person"),
    "yolo_pose": _write_yolo_pose,
    "keypoint_table": _write_keypoint_table,
    "voc": _write_voc,
    "yolo": _write_yolo,
    "segments": _write_segments,
    "segment_numbers": _write_segment_numbers,
    "label_maps": _write_label_maps,
    "outlines": _write_outlines,
    "ade20k": _write_ade20k,
    "scenes": _write_scenes,
    "shapes": _write_shapes,
    "volumes": _write_volumes,
    "regions": _write_regions,
    "heads": _write_landmark_folders,
    "transforms": _write_transforms,
    "programs": _write_programs,
}
