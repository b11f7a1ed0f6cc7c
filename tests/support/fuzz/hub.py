"""Readers of images in Parquet and Arrow files, and of what is next to them."""

import os
from pathlib import Path
from unittest import mock

from paddlevit_dist.images.data.hub.hub_images import HubImages
from paddlevit_dist.images.detection.data.hub_boxes import HubBoxes
from support.files.hub_files import IMAGE, classes, images, write_parquet, write_saved

_FEATURES = {"image": IMAGE, "label": classes()}
_BOX = {"_type": "List", "feature": {"_type": "Value", "dtype": "float64"}}


def _columns():
    return {"image": images([4, 1, 3, 2]), "label": [2, 0, 1, 1]}


def make_parquet(folder: Path) -> list[Path]:
    return [write_parquet(folder / "train.parquet", _columns(), _FEATURES, write_page_checksum=True)]


def make_objects(folder: Path) -> list[Path]:
    objects = [[{"bbox": [1.0, 1.0, 2.0, 3.0], "category": number % 3}] * number for number in range(4)]
    columns = {"image": images([4, 1, 3, 2]), "objects": objects}
    return [
        write_parquet(
            folder / "train.parquet", columns, {"image": IMAGE, "objects": [{"bbox": _BOX, "category": classes()}]}
        )
    ]


def make_arrow(folder: Path) -> list[Path]:
    write_saved(folder, {"train": _columns()}, _FEATURES)
    return sorted(folder.rglob("*.arrow"))


def make_lists(folder: Path) -> list[Path]:
    """What is next to the rows: JSON of ``save_to_disk``."""
    write_saved(folder, {"train": _columns()}, _FEATURES)
    return sorted(folder.rglob("*.json"))


def make_card(folder: Path) -> list[Path]:
    write_parquet(folder / "data" / "a.parquet", _columns())
    lines = ["---", "configs:", "- config_name: default", "  data_files:", "  - split: train", "    path: data/a*"]
    lines += ["dataset_info:", "  features:", "  - {name: image, dtype: image}"]
    lines += ["  - name: label", "    dtype: {class_label: {names: {'0': ant, '1': bee, '2': cow}}}", "---", "# Card"]
    (folder / "README.md").write_text("\n".join(lines))
    return [folder / "README.md"]


def _read(kind: type, folder: Path) -> None:
    cache = folder / "cache"
    cache.mkdir(exist_ok=True)
    with mock.patch.dict(os.environ, PADDLEVIT_DIST_CACHE=str(cache)):
        dataset = kind(str(folder), "train", cache)
        for index in range(len(dataset)):
            dataset.read(index)


def read_images(folder: Path) -> None:
    _read(HubImages, folder)


def read_boxes(folder: Path) -> None:
    _read(HubBoxes, folder)
