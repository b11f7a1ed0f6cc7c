"""Detection gives the same weights and the same scores for any number of processes and any batches."""

import json

import numpy as np
import pytest
from PIL import Image
from support.processes import run_together
from support.trainings import small_detections

from paddlevit_dist import Predictor, UserError
from paddlevit_dist.core.checkpoint.weight_files import evaluated_weights
from paddlevit_dist.core.checkpoint.weights import read_weights

TRAIN, EVALUATE = "support.trainings.small_detections:train", "support.trainings.small_detections:evaluate"
FEW = ["DATA.SHAPES.OBJECTS_PER_IMAGE", "[0, 1]"]  # many images, and some ranks' batches, have no boxes
WINDOWS = ["DETECTION.WINDOW", "[16, 20]", "DETECTION.FLIP", "True"]
NONE = ["DATA.SHAPES.OBJECTS_PER_IMAGE", "[0, 0]"]
RESUMED = ["DATA.SHAPES.TRAIN", "21", "SAVE_EVERY_UPDATES", "1", "SAVE_IN_BACKGROUND", "False"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Trainings by one process, then the same and evaluations by two."""
    folder = tmp_path_factory.mktemp("detection")
    one = {
        "whole": small_detections.train(str(folder / "one"), ["-batch_size=4", *FEW]),
        "accumulated": small_detections.train(str(folder / "parts"), ["-batch_size=2", "-accum_iter=2", *FEW]),
    }
    weights = str(folder / "one")
    one["evaluation"] = small_detections.evaluate(str(folder / "by_1"), weights, [])
    one["windows"] = small_detections.evaluate(str(folder / "windows_by_1"), weights, WINDOWS)
    calls = {
        "whole": (TRAIN, (str(folder / "two"), ["-batch_size=2", *FEW])),
        "evaluation": (EVALUATE, (str(folder / "by_2"), weights, [f"-per_sample={folder / 'by_2.csv'}"])),
        "windows": (EVALUATE, (str(folder / "windows_by_2"), weights, [*WINDOWS, "-batch_size_eval=3"])),
        "nothing": (TRAIN, (str(folder / "nothing"), ["-batch_size=2", *NONE])),
        "stopped": (TRAIN, (str(folder / "stopped"), ["-batch_size=2", *RESUMED], 3)),
    }
    return folder, one, run_together(calls, timeout=600)


def largest_difference(left: dict, right: dict) -> float:
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


def test_processes_and_accumulated_batches_give_the_weights_of_one_whole_batch(runs):
    _, one, two = runs
    ranks = two["whole"]
    assert any(0 in rank["box counts"] for rank in ranks) and any(map(sum, (rank["box counts"] for rank in ranks)))
    assert largest_difference(ranks[0]["weights"], ranks[1]["weights"]) == 0.0
    start = small_detections.make_weights(small_detections.build(str(runs[0] / "start"), *FEW))
    moved = largest_difference(start, one["whole"]["weights"])
    assert moved > 1e-2
    assert largest_difference(one["whole"]["weights"], ranks[0]["weights"]) < 1e-4 * moved
    assert largest_difference(one["whole"]["weights"], one["accumulated"]["weights"]) < 1e-4 * moved


def test_images_without_any_box_train_and_end(runs):
    _, _, two = runs
    for rank in two["nothing"]:
        assert sum(rank["box counts"]) == 0 and len(rank["losses"]) == 6
        assert np.isfinite([value for terms in rank["losses"] for value in terms.values()]).all()
        assert "AP" not in rank["evaluation"]  # it is not defined


def test_two_processes_give_the_scores_and_the_file_of_one(runs):
    folder, one, two = runs
    assert two["evaluation"] == [one["evaluation"]] * 2
    assert (folder / "by_2.csv").read_bytes().count(b"\r\n") == 10
    files = (folder / f"by_{number}" / "predictions" / "results.json" for number in (1, 2))
    results = [json.loads(file.read_text()) for file in files]
    assert len({entry["image_id"] for entry in results[0]}) == 9
    # The test's own process computes with other settings.
    np.testing.assert_allclose(_sorted(results[1]), _sorted(results[0]), rtol=1e-4, atol=1e-3)


def test_windows_have_the_scores_of_one_process_and_others_than_whole_images(runs):
    folder, one, two = runs
    assert two["windows"] == [one["windows"]] * 2 and one["windows"] != one["evaluation"]
    results = json.loads((folder / "windows_by_2" / "predictions" / "results.json").read_text())
    assert len({entry["image_id"] for entry in results}) == 9
    assert len(results) > 9 * 10  # ten queries see an image, and each of its windows


def test_a_split_without_annotations_gets_predictions_with_its_own_ids_and_no_score(runs, tmp_path, capfd):
    data, names = tmp_path / "data", ("circle", "square", "triangle")
    (data / "annotations").mkdir(parents=True)
    (data / "test").mkdir()
    images = [{"id": 40 - index, "file_name": f"{index}.png", "height": 30, "width": 20} for index in range(3)]
    for image in images:
        Image.new("RGB", (20, 30)).save(data / "test" / image["file_name"])
    categories = [{"id": 10 * number, "name": name} for number, name in enumerate(names, start=1)]
    content = json.dumps({"images": images, "categories": categories})
    (data / "annotations" / "test.json").write_text(content)
    words = ["-dataset=coco", f"-data_path={data}", "-split=test"]
    assert small_detections.evaluate(str(tmp_path / "out"), str(runs[0] / "one"), words) == {}
    assert "no score: the 3 images of test have no labels" in capfd.readouterr().out
    results = json.loads((tmp_path / "out" / "predictions" / "results.json").read_text())
    assert {entry["image_id"] for entry in results} == {38, 39, 40}
    assert {entry["category_id"] for entry in results} <= {10, 20, 30}


def test_a_training_begins_with_the_rows_of_the_classes_that_the_weights_name(runs, tmp_path):
    data, names = tmp_path / "data", ("Triangle", "star", "circle")
    for split, number in (("train", 4), ("val", 2)):
        (data / split).mkdir(parents=True)
        (data / "annotations").mkdir(exist_ok=True)
        images = [{"id": own, "file_name": f"{own}.png", "height": 30, "width": 20} for own in range(1, number + 1)]
        for image in images:
            Image.new("RGB", (20, 30)).save(data / split / image["file_name"])
        objects = [
            {"id": image["id"], "image_id": image["id"], "category_id": 1 + image["id"] % 3, "bbox": [2, 2, 9, 9]}
            for image in images
        ]
        content = {
            "images": images,
            "annotations": objects,
            "categories": [{"id": own, "name": name} for own, name in enumerate(names, 1)],
        }
        (data / "annotations" / f"{split}.json").write_text(json.dumps(content))
    words = ["-dataset=coco", f"-data_path={data}", f"-pretrained={runs[0] / 'one'}", "-batch_size=4"]
    trainer = small_detections.build(str(tmp_path / "new"), *words)
    trainer.prepare_training()
    source = read_weights(evaluated_weights(str(runs[0] / "one"))).state
    found = small_detections.make_weights(trainer)
    there = {"circle": 0, "square": 1, "triangle": 2}
    for here, name in ((0, "triangle"), (2, "circle"), (3, None)):  # None: no object
        row = there.get(name, 3)
        np.testing.assert_array_equal(found["class_embed.weight"][:, here], source["class_embed.weight"][:, row])
    assert not (found["class_embed.weight"][:, 1, None] == source["class_embed.weight"]).any()
    told = (tmp_path / "new" / "log.txt").read_text()
    assert "2 of 3 classes by name, the rest new" in told and "other classes" not in told


def test_the_least_score_decides_which_boxes_are_told(runs):
    weights, image = str(runs[0] / "one"), np.zeros((20, 30, 3), np.uint8)
    rows = Predictor(weights, least_score=0.0)([image])
    assert len(rows) == 10 and all(row["category"] in ("circle", "square", "triangle") for row in rows)
    middle = sorted(row["score"] for row in rows)[5]
    assert 1 <= len(Predictor(weights, least_score=middle - 1e-4)([image])) <= 9
    (none,) = Predictor(weights, least_score=1.0)([image])
    assert none["category"] is None
    with pytest.raises(UserError, match="from 0 to 1|expected"):
        Predictor(weights, least_score=7.0)
    assert len(Predictor(weights, least_score=0.0, max_detections=10)([image])) == len(rows)
    with pytest.raises(UserError, match="DETECTION.MAX_DETECTIONS is '5': expected a whole number >= 10"):
        Predictor(weights, max_detections=5)


@pytest.mark.parametrize("way, batch", [("single", 1), ("equal_shapes", 9), ("padded", 1), ("padded", 9)])
def test_no_way_of_evaluating_depends_on_the_batches(runs, tmp_path, way, batch):
    folder, one, _ = runs
    words = [f"-batch_size_eval={batch}", "DETECTION.EVAL_BATCHING", way]
    values = small_detections.evaluate(str(tmp_path), str(folder / "one"), words)
    results = [json.loads((of / "predictions" / "results.json").read_text()) for of in (folder / "by_1", tmp_path)]
    assert values["detections"] == one["evaluation"]["detections"] == len(results[0])
    boxes = [_sorted(result) for result in results]
    np.testing.assert_allclose(boxes[1], boxes[0], rtol=1e-4, atol=2e-3)
    if way == "single":
        assert values == one["evaluation"]


def _sorted(results: list) -> np.ndarray:
    """Image and box of each result, in an order that nearly equal scores do not change."""
    rows = np.array([[entry["image_id"], *entry["bbox"]] for entry in results])
    return rows[np.lexsort(rows[:, :3].round(1).T[::-1])]


def test_resumed_in_mid_epoch_with_another_number_of_processes_each_image_is_seen_once(runs):
    folder, _, two = runs
    before = [one for rank in two["stopped"] for one in rank["seen"]]
    assert len(before) == 12 and two["stopped"][0]["evaluation"] is None
    words = ["-batch_size=4", "-resume=auto", *RESUMED, "SAVE_EVERY_UPDATES", "0"]
    rest = small_detections.train(str(folder / "stopped"), words)["seen"]
    assert len(rest) == 8  # of 21 images, one is left over
    assert len(set(before + rest)) == 20
