"""A data set of predictions is read back by the readers of its layout with the same images, boxes and names."""

import json
import os
import unicodedata

import cv2
import numpy as np
import pytest
import yaml
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from support.files.odd_names import ODD_NAMES
from support.trainings import small_detections

from paddlevit_dist import UserError
from paddlevit_dist.core import settings as config
from paddlevit_dist.core.tasks.aspects import get_aspect, has_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta, PredictionRecord
from paddlevit_dist.core.tasks.protocols import AnnotationMatching, DatasetSaving, Predictable
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.detection import evaluate_command
from paddlevit_dist.images.detection.data.coco import Coco
from paddlevit_dist.images.detection.data.voc import Voc
from paddlevit_dist.images.detection.data.yolo import Yolo
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.run_lengths import decode, encode

READERS = {"coco": Coco, "yolo": Yolo, "voc": Voc}
NAMES = ("zebra & co", "dog", "owl")
FOUND = [
    DetectedObjects(
        np.array([[1.25, 2, 5, 9.5], [-3, 0, 13, 30], [4, 4, 6, 8], [2, 2, 2, 5]], np.float32),
        np.array([0.9, 0.6, 0.2, 0.9], np.float32),
        np.array([2, 0, 1, 1]),
    ),
    DetectedObjects(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64)),
    DetectedObjects(np.array([[0, 0, 4, 3]], np.float32), np.array([0.5], np.float32), np.array([1])),
]
EXPECTED = {  # input -> label and box x, y, width, height of scores of at least 0.5, inside the image
    0: [(2, [1.25, 2, 3.75, 7.5]), (0, [0, 0, 12, 10])],
    1: [],
    2: [(1, [0, 0, 4, 3])],
}


@pytest.fixture
def opened(tmp_path):
    """Three images: a plain one, one of the same name that the camera turned, and a gray PNG file."""
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (10, 12, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x" / "1.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "y" / "1.jpg", exif=exif)
    Image.fromarray(pixels[:, :, 0]).save(tmp_path / "y" / "2.png")
    task = make_task(config.load([*small_detections.SHAPES, "-eval", "-pretrained=x"]).values)
    task.load_meta(CheckpointMeta(3, NAMES, {}, {"classes": [*NAMES], "category ids": [3, 7, 8]}))
    return task, get_aspect(task, Predictable).open_inputs([str(tmp_path / "x"), str(tmp_path / "y")], tmp_path)


def _count_crossings(corners, points):
    """How often the ray to the right of points (..., 2) crosses an outline: odd inside."""
    numbers = np.zeros(points.shape[:-1], int)
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0)):
        is_between = (min(y0, y1) <= points[..., 1]) & (points[..., 1] < max(y0, y1))
        numbers += is_between & (x0 + (points[..., 1] - y0) / ((y1 - y0) or 1) * (x1 - x0) > points[..., 0])
    return numbers


def save(task, samples, folder, layout, found=FOUND):
    lines = save_all(task, samples, folder, layout, found)
    return [line for line in lines if "has the name of another" not in line]  # as 1.jpg and 1.jpg of two folders have


def save_all(task, samples, folder, layout, found=FOUND):
    get_aspect(task, DatasetSaving).save_predictions_as(layout)
    writer = get_aspect(task, Predictable).prediction_writer(folder, samples)
    entries = []
    for index, prediction in enumerate(found):
        writer.write(index, prediction)
        entries.append(PredictionRecord(index, [{"category": None}], summary=writer.summarize(index, prediction)))
    return get_aspect(task, Predictable).prediction_writer(folder, samples).finish(entries)  # of another process


@pytest.mark.parametrize("layout", READERS)
def test_the_reader_of_the_layout_reads_the_same_images_and_boxes(opened, tmp_path, layout):
    task, samples = opened
    out = tmp_path / "out"
    out.mkdir()
    lines = save(task, samples, out, layout)
    root = out / "dataset"
    assert lines[-1].startswith("3 images with 3 boxes of a score of at least 0.5 are in ")
    assert lines[-1].endswith(f": -dataset={layout} -data_path={root}")
    words = ["-dataset=" + layout, f"-data_path={root}"]
    read = READERS[layout].open(config.load([*small_detections.SHAPES, *words]).values, "train", tmp_path)
    assert list(read.class_names) == list(NAMES) and len(read) == 3
    by_stem = {read.describe(index).rpartition("/")[2].rpartition(".")[0]: index for index in range(3)}
    assert set(by_stem) == {"1", "1_2", "2"}
    for index, stem in enumerate(("1", "1_2", "2")):
        image, annotations = read.read(by_stem[stem])
        np.testing.assert_array_equal(np.asarray(image), np.asarray(samples.image(index)), strict=True)
        expected = EXPECTED[index]
        assert annotations.labels.tolist() == [label for label, _ in expected]
        np.testing.assert_allclose(annotations.boxes, np.reshape([box for _, box in expected], (-1, 4)), atol=2e-3)
        assert not annotations.is_crowd.any()
    if layout == "coco":
        content = json.loads((root / "annotations" / "instances_train.json").read_text())
        assert [one["category_id"] for one in content["annotations"]] == [8, 3, 7]
        assert [one["score"] for one in content["annotations"]] == [0.9, 0.6, 0.5]
        assert [one["area"] for one in content["annotations"]] == [28.125, 120, 12]
        assert [one["id"] for one in content["annotations"]] == [1, 2, 3]  # COCO's evaluation takes 0 for no match
    if layout == "yolo":  # a relative path would be taken from the folder in which a program runs
        described = yaml.safe_load((root / "data.yaml").read_text(encoding="utf-8"))
        assert described.pop("names") == dict(enumerate(NAMES))
        assert described == {"train": "images/train", "val": "images/train"}
    is_stored = [(root / folder / "1.jpg").is_file() for folder in ("train", "images/train", "JPEGImages")]
    assert sum(is_stored) == 1 and len(list(root.rglob("1_2.png"))) == 1  # a turned image is stored as it was seen


@pytest.mark.parametrize("layout", READERS)
def test_results_of_the_same_command_are_scored_against_it(opened, tmp_path, layout, capsys, monkeypatch):
    task, _ = opened
    photos = tmp_path / "photos"
    (photos / "s").mkdir(parents=True)
    turned = Image.Exif()
    turned[0x0112] = 3
    for name, options in (("3.jpeg", {}), ("s/1.bmp", {}), ("s/2.JPG", {"exif": turned})):
        Image.new("RGB", (12, 10)).save(photos / name, **options)
    samples = get_aspect(task, Predictable).open_inputs([str(photos)], tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    save(task, samples, out, layout, [FOUND[0].only(np.array([0])), *FOUND[1:]])
    monkeypatch.chdir(tmp_path)
    evaluate_command.run(["out/dataset", "out/results.json", "-split=train", "-interval=off", "-json"])
    shown = capsys.readouterr()
    assert json.loads(shown.out)["stats"][0] == pytest.approx(1.0) and "2 images of the results (of 3" in shown.out


def test_frames_of_a_video_are_stored_as_they_were_seen(opened, tmp_path):
    writer = cv2.VideoWriter(str(tmp_path / "walk.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (24, 16))
    for gray in (50, 230):
        writer.write(np.full((16, 24, 3), gray, np.uint8))
    writer.release()
    task, _ = opened
    samples = get_aspect(task, Predictable).open_inputs([str(tmp_path / "walk.avi")], tmp_path)
    save(task, samples, tmp_path, "yolo", FOUND[1:])
    stored = sorted((tmp_path / "dataset").rglob("*.png"))
    for index, file in enumerate(stored):
        np.testing.assert_array_equal(np.asarray(Image.open(file)), np.asarray(samples.image(index)), strict=True)
    assert [int(np.asarray(Image.open(file)).mean()) // 100 for file in stored] == [0, 2]


def test_the_first_frame_of_an_animated_file_is_stored_alone(opened, tmp_path):
    frames = [Image.new("RGB", (12, 10), color) for color in ("red", "blue")]
    frames[0].save(tmp_path / "x" / "2.png", save_all=True, append_images=frames[1:])
    task, _ = opened
    samples = get_aspect(task, Predictable).open_inputs([str(tmp_path / "x")], tmp_path)
    save(task, samples, tmp_path, "yolo", FOUND[::2])
    stored = {file.name: Image.open(file) for file in (tmp_path / "dataset").rglob("*.???") if file.suffix != ".txt"}
    assert stored["2.png"].n_frames == 1 and stored["2.png"].getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize("layout", READERS)
def test_ids_tell_images_of_one_name_apart_where_the_layout_has_ids(opened, tmp_path, layout, capsys):
    task, samples = opened
    save(task, samples, tmp_path, layout, [FOUND[0].only(np.array([0])), FOUND[1], FOUND[2]])
    words = [str(tmp_path / "dataset"), str(tmp_path / "results.json"), "-split=train", "-interval=off", "-json"]
    if layout == "coco":
        evaluate_command.run(words)
        assert json.loads(capsys.readouterr().out)["stats"][0] == pytest.approx(1.0)
        return
    with pytest.raises(UserError, match="x/1.jpg matches several .*, or names that differ without suffix$"):
        evaluate_command.run(words)  # the other image has no results


@pytest.mark.parametrize("has_annotations", [False, True])
def test_ids_are_those_of_the_results(opened, tmp_path, has_annotations):
    task, _ = opened
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in ("3.jpg", "9.png", "30.png"):
        Image.new("RGB", (12, 10)).save(photos / name)
    samples = get_aspect(task, Predictable).open_inputs([str(photos)], tmp_path)
    if has_annotations:
        images = [{"id": 40 - number, "file_name": name} for number, name in enumerate(("30.png", "9.png", "3.jpg"))]
        categories = [{"id": 1, "name": "owl"}, {"id": 3, "name": "zebra & co"}]  # dog is missing
        (tmp_path / "known.json").write_text(json.dumps({"images": images, "categories": categories}))
        get_aspect(task, AnnotationMatching).load_annotation_ids(str(tmp_path / "known.json"), samples)
    save(task, samples, tmp_path, "coco", [FOUND[0].only(np.array([0])), FOUND[1]])  # the last one is not readable
    theirs = COCO(str(tmp_path / "dataset/annotations/instances_train.json"))
    assert {one["id"]: one["file_name"] for one in theirs.imgs.values()} == (
        {38: "3.jpg", 39: "9.png"} if has_annotations else {3: "3.jpg", 9: "9.png"}
    )
    names = {one["id"]: one["name"] for one in theirs.cats.values()}
    assert names == dict(zip((3, 2, 1) if has_annotations else (3, 7, 8), NAMES))
    assert score_boxes(theirs, tmp_path / "results.json") == pytest.approx(1.0)


def test_other_ids_than_numbers_are_not_written(opened, tmp_path):
    task, samples = opened
    images = [{"id": name, "file_name": name} for name in ("x/1.jpg", "y/1.jpg", "y/2.png")]
    (tmp_path / "known.json").write_text(json.dumps({"images": images, "categories": [{"id": "o", "name": "owl"}]}))
    get_aspect(task, AnnotationMatching).load_annotation_ids(str(tmp_path / "known.json"), samples)
    lines = save(task, samples, tmp_path, "coco")
    assert "are 1, 2, 3, since the ids in -annotations are not all numbers" in lines[-2]
    data = config.load([*small_detections.SHAPES, "-dataset=coco", f"-data_path={tmp_path / 'dataset'}"]).values
    read = Coco.open(data, "train", tmp_path)
    assert read.image_ids.tolist() == [1, 2, 3] and [*read.category_ids] == [3, 7, 8]


@pytest.mark.parametrize("layout", READERS)
def test_names_with_any_sign_are_read_again(opened, tmp_path, layout):
    task, _ = opened
    photos = tmp_path / "photos"
    photos.mkdir()
    stems = [*ODD_NAMES, "end\nof line", os.fsdecode(b"latin\xe9"), "bell\x07"]
    for number, stem in enumerate(stems):
        Image.new("RGB", (12, 10), (number, 0, 0)).save(photos / f"{stem}.png")
    samples = get_aspect(task, Predictable).open_inputs([str(photos)], tmp_path)
    found = [
        FOUND[0].only(np.arange(4) == 0)._replace(boxes=np.array([[0, 0, 1 + k % 9, 9]])) for k in range(len(stems))
    ]
    save(task, samples, tmp_path, layout, found)
    words = [f"-dataset={layout}", f"-data_path={tmp_path / 'dataset'}"]
    read = READERS[layout].open(config.load([*small_detections.SHAPES, *words]).values, "train", tmp_path)
    assert len(read) == len(stems)
    of_color = {samples.image(index).getpixel((0, 0)): index for index in range(len(stems))}
    for index in range(len(stems)):
        image, annotations = read.read(index)
        given = of_color.pop(image.getpixel((0, 0)))
        np.testing.assert_allclose(annotations.boxes, [[0, 0, 1 + given % 9, 9]], atol=1e-3)


@pytest.mark.parametrize("layout", READERS)
def test_names_of_classes_are_read_again(opened, tmp_path, layout):
    task, samples = opened
    texts = ("\U0001f600 cat", "no", "1.50", "null", "a: b # c", "tree\\leaf", "bell\x07")
    names = list(dict.fromkeys(name.strip() for name in (*ODD_NAMES, *texts)))
    names = [name for name in names if layout != "voc" or not {"\x07", "\x0c"} & set(name)]  # XML has neither
    task.load_meta(CheckpointMeta(len(names), tuple(names), {}, {"classes": names}))
    boxes = [[0, 0, 5, 5]] * len(names)
    found = DetectedObjects(np.array(boxes, np.float32), np.ones(len(names), np.float32), np.arange(len(names)))
    save(task, samples, tmp_path, layout, [found])
    words = [f"-dataset={layout}", f"-data_path={tmp_path / 'dataset'}"]
    read = READERS[layout].open(config.load([*small_detections.SHAPES, *words]).values, "train", tmp_path)
    if layout == "yolo":
        described = (tmp_path / "dataset" / "data.yaml").read_text(encoding="utf-8")
        assert list(yaml.safe_load(described)["names"].values()) == names
    composed = [unicodedata.normalize("NFC", name) for name in names]
    assert [read.class_names[label] for label in read.annotations(0).labels] == composed


@pytest.mark.parametrize("name", ["two\nlines", " cat", "", " dog", "bell\x07"])
def test_names_of_classes_that_voc_cannot_hold_are_refused(opened, name):
    task, _ = opened
    task.load_meta(CheckpointMeta(2, ("dog", name), {}, {"classes": ["dog", name]}))
    with pytest.raises(UserError, match="^predict: -save_as=voc: .*: choose coco or yolo$"):
        get_aspect(task, DatasetSaving).save_predictions_as("voc")


def score_boxes(annotations, results):
    """Return the AP of boxes by COCO's own tools."""
    evaluation = COCOeval(annotations, annotations.loadRes(str(results)), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return evaluation.stats[0]


@pytest.mark.parametrize("layout", ["coco", "yolo"])
def test_outlines_of_masks_are_read_again(opened, tmp_path, layout):
    task, samples = opened
    mask = np.zeros((10, 12), np.uint8)
    mask[2:9, 1:5] = mask[1:3, 7:9] = 1
    mask[3:5, 2:4] = 0  # a hole
    boxes = np.array([[1, 1, 9, 9], [2, 3, 6, 7]], np.float32)
    masks = [encode(mask), encode(np.zeros_like(mask))]  # the second one has no pixel
    first = FOUND[0].only(np.array([True, True, False, False]))._replace(boxes=boxes, masks=masks)
    lines = save(
        task, samples, tmp_path, layout, [first, *(one.only(one.scores > 1)._replace(masks=[]) for one in FOUND[1:])]
    )
    root = tmp_path / "dataset"
    words = [f"-dataset={layout}", f"-data_path={root}"]
    read = READERS[layout].open(config.load([*small_detections.SHAPES, *words]).values, "train", tmp_path)
    annotations = next(read.read(index)[1] for index in range(3) if len(read.read(index)[1].labels))
    found = [decode(each, 10, 12) for each in annotations.masks]
    np.testing.assert_array_equal(found[0], mask)
    is_coco = layout == "coco"
    assert annotations.is_crowd.tolist() == [False, True][: 1 + is_coco]  # which is not learned
    np.testing.assert_allclose(annotations.boxes, [[1, 1, 8, 8], [2, 3, 4, 4]][: 1 + is_coco], atol=1e-5)
    outcome = "marked as crowds, which are not learned" if is_coco else "omitted"
    assert lines[-2] == f"1 box with a mask without a pixel, {outcome}"
    assert lines[-1].startswith(f"3 images with {1 + is_coco} box")
    if layout == "coco":  # by COCO's own tools
        theirs = COCO(str(root / "annotations/instances_train.json"))
        np.testing.assert_array_equal(theirs.annToMask(theirs.anns[1]), mask)
        assert theirs.annToMask(theirs.anns[2]).tolist() == np.zeros((10, 12)).tolist()
        assert score_boxes(theirs, tmp_path / "results.json") == pytest.approx(1.0)
        assert [theirs.anns[number]["area"] for number in (1, 2)] == [mask.sum(), 0]
    else:
        lines = [line.split() for line in (root / "labels/train/1.txt").read_text().splitlines()]
        assert [line[0] for line in lines] == ["2"]
        corners = np.array(lines[0][1:], float).reshape(-1, 2) * (12, 10)
        centers = np.stack(np.meshgrid(np.arange(12) + 0.5, np.arange(10) + 0.5), axis=-1)
        np.testing.assert_array_equal(_count_crossings(corners, centers) % 2, mask)


def test_only_tasks_with_boxes_save_data_sets():
    boxes, digits = (make_task(config.load(words).values) for words in (small_detections.SHAPES, ["-cfg=vit_digits"]))
    assert has_aspect(boxes, DatasetSaving) and not has_aspect(digits, DatasetSaving)


@pytest.mark.parametrize("stems, told", [(("a\x07b", "a_b", "c"), True), (("a_b", "c"), False)])
def test_names_that_are_equal_after_odd_characters_are_counted_with_a_note(opened, tmp_path, stems, told):
    task, photos = opened[0], tmp_path / "photos"
    photos.mkdir()
    for number, stem in enumerate(stems):
        Image.new("RGB", (12, 10), (number, 0, 0)).save(photos / f"{stem}.png")
    samples = get_aspect(task, Predictable).open_inputs([str(photos)], tmp_path)
    lines = save_all(task, samples, tmp_path, "coco", [FOUND[0]] * len(stems))
    note = "note: 1 image of 3 has the name of another; in the names of files these are counted, such as a_b_2"
    assert [line for line in lines if line.startswith("note: ")] == [note] * told
    files = {path.stem for path in (tmp_path / "dataset").rglob("*.png")}
    assert files == {stem.replace("\x07", "_") for stem in stems} | ({"a_b_2"} if told else set())
