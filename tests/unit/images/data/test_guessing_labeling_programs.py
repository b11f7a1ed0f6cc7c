"""Exports of labeling programs open from their folder alone, with the same boxes; their own formats are refused."""

import json

import numpy as np
import pytest
from support.files.labeling_programs import (
    BOXES,
    CLASSES,
    EXPORTS,
    OWN_FORMATS,
    SIZE,
    cvat_voc,
    write_images,
    write_xml,
)
from support.refusals import refusal_of

from paddlevit_dist.core.registry.manifest import BOX_LABELS
from paddlevit_dist.images.data.guessing import guess
from paddlevit_dist.images.detection.data.coco import Coco
from paddlevit_dist.images.detection.data.voc import Voc
from paddlevit_dist.images.detection.data.yolo import Yolo


def open_folder(root, cache, split="train"):
    """Return the name of the data set that a path is, and its split."""
    name = guess(str(root), BOX_LABELS).dataset
    return name, {"coco": Coco, "voc": Voc, "yolo": Yolo}[name](str(root), split, cache)


@pytest.mark.parametrize("export", EXPORTS)
def test_the_export_of_a_program_opens_without_a_key(tmp_path, cache, export):
    write, name = EXPORTS[export]
    write(tmp_path / "data")
    found, dataset = open_folder(tmp_path / "data", cache)
    assert found == name and len(dataset) == len(BOXES)
    for index, objects in enumerate(BOXES.values()):
        image, annotations = dataset.read(index)
        kept = annotations.has_area & ~annotations.is_crowd
        names = [dataset.class_names[label] for label in annotations.labels[kept]]
        assert image.size == SIZE[::-1] and names == [CLASSES[label] for label, _ in objects]
        np.testing.assert_allclose(annotations.boxes[kept], [box for _, box in objects], atol=1e-9)
    if (tmp_path / "data" / "valid").exists() or (tmp_path / "data" / "val").exists():
        assert len(open_folder(tmp_path / "data", cache, "val")[1]) == len(BOXES)


@pytest.mark.parametrize("program", OWN_FORMATS)
def test_the_own_format_of_a_program_is_named_with_what_to_export(tmp_path, program):
    name, content = OWN_FORMATS[program]
    write_images(tmp_path / "images")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    for path in (tmp_path, tmp_path / name):
        message = refusal_of(guess, str(path), BOX_LABELS)
        assert f"{name.rpartition('/')[2]} is in {program}'s own format, which is not read: export " in message


@pytest.mark.parametrize(("word", "is_difficult"), [("True", True), ("1", True), ("False", False), ("0", False)])
def test_difficult_objects_may_be_marked_by_words(tmp_path, cache, word, is_difficult):
    cvat_voc(tmp_path / "data")
    write_xml(tmp_path / "data" / "Annotations", more=f"<difficult> {word}</difficult>")
    assert open_folder(tmp_path / "data", cache)[1].count_crowds() == (3 if is_difficult else 0)
