"""Images that are stored lying, with a note on how to turn them: boxes lie where they were drawn."""

import json

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.core.engine import compatibility
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import Predictable
from paddlevit_dist.images.data.inspection import SplitInspection
from paddlevit_dist.images.detection.data.samples import open_samples
from paddlevit_dist.images.detection.task import Detection

ROTATE_90, ROTATE_270 = Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_270
STORED_BY = {2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 6: ROTATE_90, 8: ROTATE_270}
KINDS = ("yolo", "coco", "voc")


def write(root, kind, orientation, drawn_on_stored):
    """One white rectangle, whose box is annotated on the image as it is stored, or as it is to be seen."""
    pixels = np.zeros((60, 40), np.uint8)  # height, width
    pixels[10:20, 4:34] = 255
    seen = Image.fromarray(pixels).convert("RGB")
    stored = seen.transpose(STORED_BY[orientation])
    exif = Image.Exif()
    exif[0x0112] = orientation
    folder = {"yolo": "images/train", "coco": "train", "voc": "train"}[kind]
    (root / folder).mkdir(parents=True)
    stored.save(root / folder / "1.png", exif=exif)
    white = np.argwhere(np.asarray(stored if drawn_on_stored else seen)[:, :, 0])
    (top, left), (bottom, right) = white.min(axis=0).tolist(), (white.max(axis=0) + 1).tolist()
    width, height = (stored if drawn_on_stored else seen).size
    if kind == "yolo":
        shares = ((left + right) / 2 / width, (top + bottom) / 2 / height)
        line = f"0 {shares[0]} {shares[1]} {(right - left) / width} {(bottom - top) / height}"
        (root / "labels" / "train").mkdir(parents=True)
        (root / "labels" / "train" / "1.txt").write_text(line)
        (root / "classes.txt").write_text("thing\n")
    elif kind == "coco":
        box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [left, top, right - left, bottom - top]}
        content = {"images": [{"id": 1, "file_name": "1.png"}], "annotations": [box]}
        (root / "train.json").write_text(json.dumps({**content, "categories": [{"id": 1, "name": "thing"}]}))
    else:
        sides = {"xmin": left + 1, "ymin": top + 1, "xmax": right, "ymax": bottom}
        box = "".join(f"<{name}>{value}</{name}>" for name, value in sides.items())
        (root / "train" / "1.xml").write_text(
            f"<annotation><object><name>thing</name><bndbox>{box}</bndbox></object></annotation>"
        )


def configured(root, kind, output, *words):
    named = [f"-dataset={kind}", f"-data_path={root}", f"-output={output}"]
    return load(["TASK", "detection", "MODEL.NAME", "detr_resnet50", *named, *words]).values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("orientation", STORED_BY)
@pytest.mark.parametrize("drawn_on_stored", [False, True])
def test_boxes_lie_where_they_were_drawn(tmp_path, kind, orientation, drawn_on_stored):
    write(tmp_path / "data", kind, orientation, drawn_on_stored)
    words = ["DATA.EXIF_ROTATE", "false"] if drawn_on_stored else []
    config = configured(tmp_path / "data", kind, tmp_path, *words)
    samples = open_samples(config, "train", tmp_path, is_training=True, inspection=SplitInspection(False, False))
    image, found = samples.dataset.read(0)
    left, top, width, height = found.boxes[0].round().astype(int).tolist()
    white = np.zeros((image.size[1], image.size[0]), bool)
    white[top : top + height, left : left + width] = True
    np.testing.assert_array_equal(np.asarray(image)[:, :, 0] > 127, white, strict=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("word, size", [(None, (60, 40)), ("false", (40, 60)), ("true", (60, 40))])
def test_new_images_are_turned_as_those_of_the_training_were(tmp_path, kind, word, size):
    write(tmp_path / "data", kind, 6, drawn_on_stored=word == "false")
    config = configured(tmp_path / "data", kind, tmp_path, *(["DATA.EXIF_ROTATE", word] if word else []))
    trained, predicting = Detection(config), Detection(config)
    facts = trained.signature(trained.build_dataset("train", tmp_path))
    predicting.load_meta(CheckpointMeta(1, ("thing",), trained.signature(), facts))
    image = next((tmp_path / "data").rglob("1.png"))
    inputs = get_aspect(predicting, Predictable).open_inputs([str(image)], tmp_path)
    assert inputs.sample(0, np.random.default_rng(0)).original_size == size


@pytest.mark.parametrize("kind", ["coco", "voc"])
def test_sizes_that_some_images_have_decide_for_all(tmp_path, kind):
    write(tmp_path / "data", kind, 6, drawn_on_stored=True)
    folder = tmp_path / "data" / "train"
    (folder / "2.png").write_bytes((folder / "1.png").read_bytes())
    if kind == "coco":
        content = json.loads((tmp_path / "data" / "train.json").read_text())
        content["images"].append({"id": 2, "file_name": "2.png", "height": 40, "width": 60})
        (tmp_path / "data" / "train.json").write_text(json.dumps(content))
    else:
        box, size = (folder / "1.xml").read_text(), "<size><width>60</width><height>40</height></size>"
        (folder / "2.xml").write_text(box.replace("<annotation>", f"<annotation>{size}"))
    config = configured(tmp_path / "data", kind, tmp_path, "DATA.KEEP_EMPTY_IMAGES", "true")
    samples = open_samples(config, "train", tmp_path, is_training=True, inspection=SplitInspection(False, False))
    assert [samples.dataset.read(index)[0].size for index in range(2)] == [(60, 40)] * 2
    assert len([line for line in samples.notices if "measured as stored" in line]) == 1


@pytest.mark.parametrize("theirs", [False, True])
def test_checkpoints_are_compared_by_what_was_turned(tmp_path, monkeypatch, theirs):
    write(tmp_path / "data", "yolo", 6, drawn_on_stored=False)
    config = configured(tmp_path / "data", "yolo", tmp_path)
    task = Detection(config)
    task.build_dataset("train", tmp_path)
    monkeypatch.setattr(compatibility, "read_facts", lambda _: {"input": {"train turned by EXIF": theirs}})
    if theirs:
        assert compatibility.CheckpointDiff("evaluate", "old", config, task).input() == []
        return
    with pytest.raises(UserError, match="set DATA.EXIF_ROTATE false to read images as in training"):
        compatibility.CheckpointDiff("evaluate", "old", config, task).input()
