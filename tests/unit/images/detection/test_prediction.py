"""Files of results that ``predict`` writes: the names in them, and ids of a file of annotations."""

import json

import numpy as np
import pytest
from PIL import Image
from support.trainings import small_detections

from paddlevit_dist import UserError
from paddlevit_dist.core import settings as config
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta, PredictionRecord
from paddlevit_dist.core.tasks.protocols import AnnotationMatching, Predictable
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.detector import COCO_CATEGORIES

NAMES = ("cat", "dog", "owl")
FOUND = DetectedObjects(
    np.array([[1, 2, 5, 9], [0, 0, 3, 3], [4, 4, 6, 8]], np.float32),
    np.array([0.9, 0.6, 0.2], np.float32),
    np.array([2, 0, 1]),
)


@pytest.fixture(scope="module")
def settings():
    return config.load([*small_detections.SHAPES, "-eval", "-pretrained=x"]).values


@pytest.fixture
def opened(settings, tmp_path):
    """A task that knows its classes, and images of one name in two folders."""
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (12, 10)).save(tmp_path / folder / "1.png")
    task = make_task(settings)
    task.load_meta(CheckpointMeta(3, NAMES, {}, {"classes": [*NAMES], "category ids": [3, 7, 8]}))
    return task, get_aspect(task, Predictable).open_inputs([str(tmp_path / "x"), str(tmp_path / "y")], tmp_path)


def annotations_in(folder, images=("y/1.png", "x/1.png", "x/2.png"), categories=("owl", "bird", "Cat", "dog")):
    """A file without annotations: ids of images are texts, of categories tens."""
    content = {
        "images": [{"id": f"i{number}", "file_name": name} for number, name in enumerate(images)],
        "categories": [{"id": 10 * number, "name": name} for number, name in enumerate(categories, 1)],
    }
    (folder / "a.json").write_text(json.dumps(content))
    return str(folder / "a.json")


def written(task, samples, folder):
    writer = get_aspect(task, Predictable).prediction_writer(folder, samples)
    entries = [
        PredictionRecord(index, [{"category": None}], summary=writer.summarize(index, FOUND))
        for index in range(len(samples))
    ]
    lines = writer.finish(entries)
    return json.loads((folder / "results.json").read_text()), lines


def test_results_name_image_and_category(opened, tmp_path):
    results, _ = written(*opened, tmp_path)
    assert [one["image_id"] for one in results] == [1, 1, 1, 2, 2, 2]  # both files are called 1
    assert [one["file_name"] for one in results] == 3 * [str(tmp_path / "x/1.png")] + 3 * [str(tmp_path / "y/1.png")]
    assert [(one["category_id"], one["category_name"]) for one in results[:3]] == [(8, "owl"), (3, "cat"), (7, "dog")]


def test_numbers_in_place_of_names_are_no_names(opened, tmp_path):
    task, samples = opened
    task.load_meta(CheckpointMeta(3))
    results, _ = written(task, samples, tmp_path)
    assert all("file_name" in one and "category_name" not in one for one in results)
    with pytest.raises(UserError, match="have no class names: add -class_names"):
        get_aspect(task, AnnotationMatching).load_annotation_ids(annotations_in(tmp_path), samples)


def test_eighty_classes_without_names_are_cocos(settings, opened):
    task = make_task(settings)
    task.load_meta(CheckpointMeta(80))
    assert dict(zip(task.category_ids, task.class_names)) == COCO_CATEGORIES and task.num_named == 80
    task.load_meta(CheckpointMeta(79))
    assert task.category_ids == list(range(1, 80)) and task.num_named == 0


def test_nothing_predicted_writes_no_file(opened, tmp_path):
    writer = get_aspect(opened[0], Predictable).prediction_writer(tmp_path, opened[1])
    assert writer.finish([]) == [] and not (tmp_path / "results.json").exists()


def test_what_was_written_is_told_in_whole_lines(opened, tmp_path):
    task, samples = opened
    masks = [{"size": [10, 12], "counts": [step, 120 - step]} for step in (1, 2, 3)]
    found = {0: FOUND._replace(masks=masks), 1: FOUND.only(np.zeros(3, bool))._replace(masks=[])}
    writer = get_aspect(task, Predictable).prediction_writer(tmp_path, samples)
    folder = f"the images in {tmp_path}/pictures"
    for shown, first in (
        ("owl", f"boxes with a score of at least 0.5 (-least_score) are in the tables and drawn on {folder}"),
        (None, f"there are no boxes with a score of at least 0.5 (-least_score), so the tables and {folder} have none"),
    ):
        rows = {0: [{"category": None}], 1: [{"category": None}, {"category": shown}, {"category": None}]}
        for order in ((0, 1), (1, 0)):
            entries = [PredictionRecord(at, rows[at], summary=writer.summarize(at, found[at])) for at in order]
            files = f"{tmp_path / 'results.json'} and {tmp_path / 'results_masks.json'}"
            assert writer.finish([*entries, PredictionRecord(0, None, summary=None)]) == [
                first,
                f"3 detections are in {files}, in COCO's format; the images' ids are 1, 2 in the order of the inputs",
                "note: 1 image of 2 has the name of another; in the names of files these are counted, such as 1_2",
            ]
            names = ("results", "results_masks")
            boxes, shapes = (json.loads((tmp_path / f"{name}.json").read_text()) for name in names)
            assert [one.pop("segmentation") for one in shapes] == masks
            assert [one.pop("bbox") for one in boxes] == [[1, 2, 4, 7], [0, 0, 3, 3], [4, 4, 2, 4]]
            assert shapes == boxes and [one["category_id"] for one in boxes] == [8, 3, 7]


def test_results_of_an_evaluation_have_the_ids_of_its_images_and_one_line(settings, tmp_path):
    task = make_task(settings)
    samples = task.build_dataset("val", tmp_path)
    writer = get_aspect(task, Predictable).prediction_writer(tmp_path, samples)
    assert writer.write(4, FOUND) == {}
    lines = writer.finish([PredictionRecord(4, None, summary=writer.summarize(4, FOUND))])
    assert lines == [f"3 detections are in {tmp_path / 'results.json'}, in COCO's format"]
    results = json.loads((tmp_path / "results.json").read_text())
    assert [one["image_id"] for one in results] == [samples.dataset.image_id(4)] * 3
    assert [one["category_id"] for one in results] == [3, 1, 2] and results[0]["file_name"] == samples.name(4)
    assert [one["category_name"] for one in results] == [task.class_names[label] for label in (2, 0, 1)]


def test_names_stay_where_the_model_has_more_classes(opened, tmp_path):
    task, samples = opened
    task.load_meta(CheckpointMeta(5, ("cat", "dog"), {}, {"classes": ["cat", "dog"], "category ids": [3, 7, 8]}))
    results, _ = written(task, samples, tmp_path)
    named = [(one["category_id"], one.get("category_name")) for one in results[:3]]
    assert named == [(8, None), (3, "cat"), (7, "dog")]
    lines = get_aspect(task, AnnotationMatching).load_annotation_ids(annotations_in(tmp_path), samples)
    assert lines[0].endswith("2 of 2 categories matched by name")
    assert [one["category_id"] for one in written(task, samples, tmp_path)[0]] == 2 * [30, 40]


def test_ids_are_taken_from_annotations_by_names(opened, tmp_path):
    task, samples = opened
    lines = get_aspect(task, AnnotationMatching).load_annotation_ids(annotations_in(tmp_path), samples)
    assert len(lines) == 1 and lines[0].endswith("2 images and 3 of 3 categories matched by name")
    results, said = written(task, samples, tmp_path)
    assert [one["image_id"] for one in results] == 3 * ["i1"] + 3 * ["i0"]
    assert [one["category_id"] for one in results[:3]] == [10, 30, 40]
    assert said[-2].endswith("the images' ids are taken from -annotations")


def test_boxes_of_categories_that_annotations_do_not_have_are_in_no_file_of_results(opened, tmp_path):
    task, samples = opened
    _, note = get_aspect(task, AnnotationMatching).load_annotation_ids(
        annotations_in(tmp_path, categories=("dog", "owl")), samples
    )
    assert "lacks cat" in note
    results, _ = written(task, samples, tmp_path)
    assert [one["category_id"] for one in results] == 2 * [20, 10]


def test_of_two_categories_of_one_name_the_learned_id_decides(settings, opened, tmp_path):
    task, samples = make_task(settings), opened[1]
    task.load_meta(CheckpointMeta(2, ("cat", "dog"), {}, {"classes": ["cat", "dog"], "category ids": [2, 30]}))
    file = annotations_in(tmp_path, categories=("cat", "dog", "dog"))
    get_aspect(task, AnnotationMatching).load_annotation_ids(file, samples)
    results, _ = written(task, samples, tmp_path)
    assert [one["category_id"] for one in results[:2]] == [10, 30]
    task.load_meta(CheckpointMeta(2, ("cat", "dog"), {}, {"classes": ["cat", "dog"], "category ids": [2, 5]}))
    with pytest.raises(UserError, match="dog matches several categories"):
        get_aspect(task, AnnotationMatching).load_annotation_ids(file, samples)


@pytest.mark.parametrize(
    "images, categories, part",
    [
        (["x/1.png"], NAMES, "1 of 2 images are not listed in"),
        (["1.png"], NAMES, "both match the image with id 'i0'"),
        (["y/1.png", "x/1.png"], ["bird"], "no category name is in"),
        (["y/1.png", "x/1.png"], ["Cat", "CAT"], "cat matches several categories"),
    ],
)
def test_annotations_of_something_else_are_refused(opened, tmp_path, images, categories, part):
    with pytest.raises(UserError, match=part) as error:
        get_aspect(opened[0], AnnotationMatching).load_annotation_ids(
            annotations_in(tmp_path, images, categories), opened[1]
        )
    assert "\n" not in str(error.value) and str(error.value).startswith("predict -annotations: ")
