"""Data sets of images with classes or tags: folders, lists, tables, tars and the hub's files."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from support.files.hub_files import IMAGE, classes, write_parquet, write_saved

from .commands import succeed
from .drawn_images import Maker, save, write_lines

if TYPE_CHECKING:
    from .materials import Materials

CLASS_NAMES = ("walrus", "ant", "moth", "bee")
_COLORS = ((250, 80, 60), (60, 240, 90), (90, 70, 250), (240, 230, 80))


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


def _write_class_folders(folder: Path, materials: "Materials") -> None:
    for split, label, name, image in _draw_class_images():
        save(image, folder / split / f"k{label}" / name)
    write_lines(folder / "classes.txt", [f"k{label} {CLASS_NAMES[label]}" for label in (2, 0, 3, 1)])


def _write_class_lists(folder: Path, materials: "Materials") -> None:
    lines: dict[str, list[str]] = {"train": [], "val": []}
    for split, label, name, image in _draw_class_images():
        save(image, folder / "images" / split / name)
        lines[split].append(f"images/{split}/{name} {label}")
    for split, rows in lines.items():
        write_lines(folder / f"{split}_list.txt", rows[::-1])
    write_lines(folder / "classes.txt", list(CLASS_NAMES))


def _write_unsplit_folders(folder: Path, materials: "Materials") -> None:
    for _, label, name, image in _draw_class_images():
        save(image, folder / f"{CLASS_NAMES[label]}" / name)


def _write_table(folder: Path, materials: "Materials") -> None:
    """A table with columns that are not used, numbers of folds, and names of labels in another file."""
    lines = []
    for split, label, name, image in _draw_class_images():
        save(image, folder / "pictures" / split / name)
        fold = 2 if split == "val" else len(lines) % 2
        lines.append(f"{len(lines)};{split}/{name};k{label};{fold}")
    write_lines(folder / "labels.csv", ["number;photo;kind;fold", *lines[::-1]])
    write_lines(folder / "classes.txt", [f"k{label} {CLASS_NAMES[label]}" for label in (2, 0, 3, 1)])


def _write_tags(folder: Path, materials: "Materials") -> None:
    """Tables of the class images: a column for each label, some cells not known; and lists of labels."""
    columns, lists = ["image,split,walrus,moth,wings"], ["image,split,labels"]
    for number, (split, label, name, image) in enumerate(_draw_class_images()):
        save(image, folder / "images" / name)
        labels = [int(label in (0, 1)), int(label in (2, 1)), int(np.asarray(image).mean() > 74)]
        known = ["" if (number + place) % 7 == 0 else str(value) for place, value in enumerate(labels)]
        known[2] = "-1" if number % 5 == 0 else known[2]
        columns.append(",".join([f"images/{name}", split, *known]))
        names = ";".join(itertools.compress(("walrus", "moth", "wings"), labels))
        lists.append(f"images/{name},{split},{names}")
    write_lines(folder / "columns.csv", columns)
    write_lines(folder / "lists.csv", lists)


def _write_tars(store: str) -> Maker:
    def write(folder: Path, materials: "Materials") -> None:
        succeed("prepare", "images", materials.get("folder"), folder, f"-store={store}", "-shard_size=17", "-workers=1")
        succeed("prepare", "index", folder)

    return write


def _write_hub(folder: Path, materials: "Materials") -> None:
    """The images of the class folders in their order, in Parquet files of 50 images with names of classes."""
    for split in ("train", "val"):
        files = sorted((materials.get("folder") / split).rglob("*.png"))
        rows = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
        labels = [int(file.parent.name[1:]) for file in files]
        starts = range(0, len(rows), 50)
        for number, first in enumerate(starts):
            columns = {"picture": rows[first : first + 50], "kind": labels[first : first + 50]}
            features = {"picture": IMAGE, "kind": classes(*CLASS_NAMES)}
            name = f"{split}-{number:05d}-of-{len(starts):05d}.parquet"
            write_parquet(folder / "data" / name, columns, features, row_group_size=17)


def _write_hub_tags(folder: Path, materials: "Materials") -> None:
    """The images and labels of the table of lists in their order, as ``save_to_disk`` writes them."""
    splits: dict[str, dict[str, list]] = {}
    for line in (materials.get("tags") / "lists.csv").read_text().splitlines()[1:]:
        image, split, labels = line.split(",")
        columns = splits.setdefault(split, {"image": [], "tags": []})
        columns["image"].append({"bytes": (materials.get("tags") / image).read_bytes(), "path": image})
        columns["tags"].append(labels.split(";") if labels else [])
    value = {"_type": "Value", "dtype": "string"}
    write_saved(folder, splits, {"image": IMAGE, "tags": {"_type": "List", "feature": value}})


MAKERS: dict[str, Maker] = {
    "folder": _write_class_folders,
    "lists": _write_class_lists,
    "table": _write_table,
    "unsplit": _write_unsplit_folders,
    "tags": _write_tags,
    "pages": _write_tars("pages"),
    "jpeg": _write_tars("jpeg"),
    "hub": _write_hub,
    "hub_tags": _write_hub_tags,
}
