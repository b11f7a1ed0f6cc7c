"""Data sets that the library ``datasets`` wrote are read as it reads them."""

import hashlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps
from support.networks.golden import FOLDER

from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.images.data.formats import split_in_name
from paddlevit_dist.images.data.guessing import guess
from paddlevit_dist.images.data.hub.hub_images import HubLabelSets
from paddlevit_dist.images.segmentation.data.label_maps import LabelChoices

pytest.importorskip("pyarrow")
ROOT = FOLDER / "huggingface_datasets"
SETS = json.loads((ROOT / "expected.json").read_text(encoding="utf-8"))["sets"] if ROOT.is_dir() else {}
SPLITS = [(n, s) for n, c in SETS.items() for s in c["splits"]]


def digest(encoded: bytes) -> dict:
    """What the file of expected values says of a picture."""
    with Image.open(io.BytesIO(encoded)) as stored:
        stored.load()
        image = ImageOps.exif_transpose(stored) if stored.getexif().get(0x0112) else stored
        pixels = f"{image.mode} {image.size} ".encode() + image.tobytes()
    return {"pixels": hashlib.sha256(pixels).hexdigest()[:16], "mode": image.mode, "size": list(image.size)}


def list_images(row: dict) -> list[str]:
    return [column for column, value in row.items() if isinstance(value, dict) and "pixels" in value]


def list_labels(rows: list[dict], names: dict) -> str:
    """The column of classes: the one with names, or else with texts called label."""
    named = [column for column in names if column in rows[0]]
    return named[0] if len(named) == 1 else next(column for column in ("label", "labels") if column in rows[0])


def name(value: object, names: list | None) -> object:
    return names[value] if names is not None and isinstance(value, int) else str(value)


def open_split(path: Path, split: str, cache: Path, rows: list[dict]):
    """The data set at a path as a task would open it, in another process."""
    found = guess(str(path))
    assert found is not None, path
    kind = resolve("dataset", found.dataset)
    if found.dataset == "hub" and any(isinstance(value, list) for value in rows[0].values()):
        kind = HubLabelSets
    if found.dataset == "hub_label_maps":  # pixels of any number
        (cache / "classes.txt").write_text("".join(f"{number}\n" for number in range(255)))
        choices = LabelChoices(str(cache / "classes.txt"))
        return found.dataset, pickle.loads(pickle.dumps(kind(str(path), split, cache, choices=choices)))
    if found.dataset == "table":
        split = split_in_name(split) or split
    return found.dataset, pickle.loads(pickle.dumps(kind(str(path), split, cache)))


@pytest.mark.parametrize(("entry", "split"), SPLITS)
def test_rows_are_those_of_the_library(entry, split, tmp_path, monkeypatch):
    monkeypatch.setenv("PADDLEVIT_DIST_CACHE", str(tmp_path / "unpacked"))
    expected = SETS[entry]["splits"][split]
    rows, names = expected["rows"], expected.get("names") or {}
    kind, dataset = open_split(ROOT / entry, split, tmp_path, rows)
    check = {"hub_boxes": check_boxes, "hub_label_maps": check_maps}.get(kind, check_classes)
    check(dataset, rows, names)


def check_classes(dataset, rows, names):
    column = list_labels(rows, names)
    known = [row for row in rows if row[column] is not None and row[column] != -1]
    images = [digest(dataset.encoded(index)) for index in range(len(dataset))]
    assert images == [row[list_images(row)[0]] for row in known]
    if dataset.label_matrix is None:
        wanted = [name(row[column], names.get(column)) for row in known]
        assert [dataset.class_names[label] for label in dataset.labels.tolist()] == wanted
    else:
        found = [[dataset.class_names[label] for label in np.flatnonzero(row > 0)] for row in dataset.label_matrix]
        assert found == [
            sorted((name(v, names.get(column)) for v in row[column]), key=dataset.class_names.index) for row in known
        ]
    if column in names:
        assert dataset.class_names == names[column]


def find_objects(row: dict, columns: tuple[str, ...] = ("objects", "annotations")) -> dict:
    """The objects of a row as lists by field, in whichever form they are stored."""
    stored = next((row[column] for column in columns if column in row), row)
    if isinstance(stored, dict):
        return stored
    return {field: [each[field] for each in stored] for field in stored[0]} if stored else {}


def find_field(objects: dict, *words: str) -> list:
    return next((objects[word] for word in words if word in objects), [])


def check_boxes(dataset, rows, names):
    classes = next(iter(names.values()), None)
    assert len(dataset) == len(rows)
    for index, row in enumerate(rows):
        found, objects = dataset.annotations(index), find_objects(row)
        assert digest(dataset.encoded(index)) == row[list_images(row)[0]]
        boxes = find_field(objects, "bbox", "bboxes", "box", "boxes")
        assert found.boxes.tolist() == boxes
        labels = find_field(objects, "category", "categories", "label", "labels", "category_id", "class")
        assert [dataset.class_names[label] for label in found.labels] == [name(label, classes) for label in labels]
        areas = find_field(objects, "area") or [width * height for _, _, width, height in boxes]
        assert found.areas.tolist() == areas
        crowds = find_field(objects, "iscrowd", "is_crowd") or [False] * len(boxes)
        assert found.is_crowd.tolist() == list(map(bool, crowds))
        if "image_id" in row and len({other["image_id"] for other in rows}) == len(rows):
            assert dataset.image_id(index) == row["image_id"]
        dataset.read(index)


def check_maps(dataset, rows, names):
    assert len(dataset) == len(rows)
    for index, row in enumerate(rows):
        columns = {dataset._store.encoded(index, column): column for column in (0, 1)}
        found = {column: digest(encoded) for encoded, column in columns.items()}
        label_map = next(name for name in list_images(row) if row[name] == found[1])
        assert [row[name] for name in list_images(row) if name != label_map] == [found[0]]
        with Image.open(io.BytesIO(dataset._store.encoded(index, 1))) as stored:
            pixels = np.asarray(stored)
        if pixels.max() <= 255 and pixels.ndim == 2:
            np.testing.assert_array_equal(dataset.read(index)[1], pixels)


def test_a_repository_in_the_cache_is_opened_without_a_network(tmp_path):
    """As Hugging Face's library stores it; the revision of the branch is a folder of snapshots."""
    entry = next(name for name in SETS if "/" in name)
    folder, configuration = entry.split("/")
    split, content = next(iter(SETS[entry]["splits"].items()))
    cache = tmp_path / "hub" / "datasets--owner--drawn"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("c0ffee")
    shutil.copytree(ROOT / folder, cache / "snapshots" / "c0ffee")
    program = (
        "import sys; from pathlib import Path; from paddlevit_dist.images.data.guessing import guess;"
        "from paddlevit_dist.images.data.hub.hub_images import HubImages, HubOptions, HubChoices;"
        f"options = HubOptions(HubChoices(configuration={configuration!r}), HubImages.contents, Path(sys.argv[1]));"
        f"data = HubImages('hf:owner/drawn', {split!r}, Path(sys.argv[1]), options);"
        "print(guess('hf:owner/drawn').dataset, len(data), data.encoded(0).hex());"
        "guess('hf:owner/absent')"
    )
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, env=environment, timeout=120
    )
    kind, number, encoded = ended.stdout.split("\n")[0].split()
    first = content["rows"][0]
    assert (kind, int(number)) == ("hub", len(content["rows"])), ended.stderr
    assert digest(bytes.fromhex(encoded)) == first[list_images(first)[0]]
    last = ended.stderr.strip().splitlines()[-1]
    assert "data path hf:owner/absent cannot be fetched: " in last and "--repo-type dataset --local-dir FOLDER" in last
