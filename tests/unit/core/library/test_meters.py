"""Meters: what the commands print for the same outputs, in one process and in two, at once and merged."""

import json

import numpy as np
import paddle
import pytest
from PIL import Image
from support.samples.metered_samples import (
    KINDS,
    NAMES,
    SAMPLES,
    boxes,
    close,
    images,
    label_maps,
    landmarks,
    make_meter,
    plain,
    scenes,
    volumes,
)
from support.thread_ranks import ThreadRanks

import paddlevit_dist as pv
from paddlevit_dist import UserError
from paddlevit_dist.images.classification import evaluate_command as evaluate_classes
from paddlevit_dist.images.classification import result_scores
from paddlevit_dist.images.detection import evaluate_command as evaluate_detections
from paddlevit_dist.images.segmentation import evaluate_command as evaluate_masks


@pytest.mark.parametrize("kind", KINDS)
def test_a_merged_meter_has_the_scores_of_one_and_goes_on(kind):
    number = {"number_them": kind == "boxes"}  # images of boxes are told apart by their numbers
    first, second = make_meter(kind, range(5), **number), make_meter(kind, range(5, 9), **number)
    first.compute()  # which changes nothing
    merged = make_meter(kind, range(9, SAMPLES), meter=first.merge(second), **number)
    close(plain(merged.compute()), plain(make_meter(kind, range(SAMPLES), **number).compute()))
    close(plain(second.compute()), plain(make_meter(kind, range(5, 9), **number).compute()))


def make_json(run, words, capsys) -> dict:
    capsys.readouterr()
    run([*map(str, words), "-json"])
    return json.loads(capsys.readouterr().out)


def agree(said: dict, scores) -> None:
    common = set(said["scores"]) & set(scores.values)
    assert {"mIoU", "AP", "top-1", "mre_mm"} & common, common
    for name in common:
        assert said["scores"][name] == pytest.approx(scores.values[name], rel=1e-12), name
    for name in set(said["intervals"]) & set(scores.intervals):
        assert said["intervals"][name] == pytest.approx(scores.intervals[name].plain(), rel=1e-5), name
    assert set(said["intervals"]) & set(scores.intervals)


def test_accuracy_is_that_of_evaluate_classes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(result_scores, "_MOST_NUMBERS", 3 * 7)  # three rows at a time
    for name in ("truth", "results"):
        rows = [["name", *(["label"] if name == "truth" else map(str, range(7)))]]
        for index in range(SAMPLES):
            logits, label = images(index)
            rows.append([f"{index:02}.png", *([label] if name == "truth" else map(repr, logits.tolist()))])
        (tmp_path / f"{name}.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    said = make_json(evaluate_classes.run, [tmp_path / "truth.csv", tmp_path / "results.csv"], capsys)
    agree(said, make_meter("images", range(SAMPLES)).compute())


def test_coco_ap_is_that_of_evaluate_detections(tmp_path, capsys):
    annotations, results = [], []
    for index in range(SAMPLES):
        found, true = boxes(index)
        for corners, label in zip(true["boxes"], true["labels"]):
            box = [*corners[:2].tolist(), *(corners[2:] - corners[:2]).tolist()]
            area = box[2] * box[3]
            one = {"image_id": index, "category_id": int(label), "bbox": box, "area": area, "iscrowd": 0}
            annotations.append({"id": len(annotations) + 1, **one})
        for corners, score, label in zip(*found.values()):
            box = [*corners[:2].tolist(), *(corners[2:] - corners[:2]).tolist()]
            results.append({"image_id": index, "category_id": int(label), "bbox": box, "score": float(score)})
    categories = [{"id": number, "name": name} for number, name in enumerate(("hat", "cup", "bat"))]
    of_images = [{"id": index, "width": 200, "height": 180} for index in range(SAMPLES)]
    truth = {"images": of_images, "categories": categories, "annotations": annotations}
    for name, content in (("truth", truth), ("results", results)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    said = make_json(evaluate_detections.run, [tmp_path / "truth.json", tmp_path / "results.json"], capsys)
    agree(said, make_meter("boxes", range(SAMPLES)).compute())


def test_mean_iou_is_that_of_evaluate_masks(tmp_path, capsys):
    for side, name in enumerate(("results", "truth")):
        (tmp_path / name).mkdir()
        for index in range(SAMPLES):
            Image.fromarray(label_maps(index)[side].astype(np.uint8)).save(tmp_path / name / f"{index:02}.png")
    said = make_json(evaluate_masks.run, [tmp_path / "truth", tmp_path / "results"], capsys)
    scores = make_meter("label maps", range(SAMPLES)).compute()
    agree(said, scores)


def test_dice_and_radial_errors_are_their_formulas():
    scores = make_meter("volumes", range(SAMPLES)).compute().values
    dice = np.full((SAMPLES, 2), np.nan)
    for index in range(SAMPLES):
        found, true = volumes(index)
        for place, label in enumerate((1, 2)):
            total = (found[true != 255] == label).sum() + (true == label).sum()
            dice[index, place] = 2 * ((found == label) & (true == label)).sum() / total if total else np.nan
    assert scores["Dice"] == pytest.approx(np.nanmean(np.nanmean(dice, axis=0)), rel=1e-12)
    errors = np.concatenate([np.linalg.norm(found - true, axis=1) for found, true in map(landmarks, range(SAMPLES))])
    errors = errors[~np.isnan(errors)]
    values = make_meter("landmarks", range(SAMPLES)).compute().values
    assert values["mre_mm"] == pytest.approx(errors.mean(), rel=1e-12)
    assert values["sdr_2mm"] == pytest.approx(100 * (errors <= 2).mean(), rel=1e-12)


def test_instances_of_points_are_those_of_the_truth_and_classes_are_counted_as_without_them():
    """Of instances that have 130 of 150 points: right up to the threshold 0.85, which is 8 of 9."""
    found, true = scenes(0)
    classes, whole = pv.MeanIoU(NAMES, of="points"), pv.ScanNetAP(NAMES)
    classes.update([found["classes"]], [true["classes"]])
    whole.update([found], [true])
    scores = whole.compute().values
    expected = classes.compute().values
    assert {name: scores[name] for name in expected} == expected
    assert scores["AP"] == pytest.approx(8 / 9) and scores["AP50"] == 1.0


@pytest.mark.parametrize("points, options, precision", [(100, {}, 1.0), (99, {}, None), (99, {"min_points": 99}, 1.0)])
def test_an_instance_of_a_whole_scene_counts_from_100_points_on(points, options, precision):
    meter, scene = pv.ScanNetAP(1, **options), {"classes": np.zeros(points, int), "instances": np.zeros(points, int)}
    found = [(0, 0.9, np.arange(points)), (0, 0.8, [])]
    meter.update([{**scene, "instances": found}], [scene])
    assert meter.compute().values.get("AP") == precision


def test_a_sample_counted_twice_and_nothing_at_all_are_refused():
    with pytest.raises(UserError, match="sample 3 was counted 2 times: Paddle's DistributedBatchSampler"):
        make_meter("images", [1, 3, 3, 5, 5, 5]).compute()
    with pytest.raises(UserError, match="MeanIoU: no samples were added"):
        pv.MeanIoU(3).compute()
    with pytest.raises(UserError, match="2 indices of 4 samples"):
        make_meter("images", [1, 2], False, make_meter("images", [1, 2])).compute()
    with pytest.raises(UserError, match="Accuracy: a MeanIoU cannot be merged with it"):
        pv.Accuracy(3).merge(pv.MeanIoU(3))


ROW, MAP, BOX = np.eye(3, dtype=np.float32), np.zeros((4, 4), int), np.array([[0.0, 0, 9, 9]])
FOUND, TRUE = {"boxes": BOX, "scores": [0.9], "labels": [0]}, {"boxes": BOX, "labels": [0]}
SCENE = {"classes": np.zeros(9, int), "instances": np.zeros(9, int)}
WRONG = [  # what would be an error of somebody else's, or a wrong number without a word
    (pv.Accuracy, "cat", None, "classes='cat': expected a number of at least 1, or unique names"),
    (pv.Accuracy, ["a", "a"], None, "or unique names"),
    (pv.Accuracy, 3, (ROW[:, :2], [0, 1, 1]), r"outputs of shape \(3, 2\): expected logits \(batch, 3\)"),
    (pv.Accuracy, 3, (ROW, [0, 1, 3]), "targets: class 3 of 3: expected 0 to 2"),
    (pv.Accuracy, 3, (ROW, [0, 1, 2.5]), "expected one whole number per sample"),
    (pv.Accuracy, 3, (ROW, [0, 1]), "3 outputs and 2 targets: expected equal numbers"),
    (
        pv.Accuracy,
        3,
        (ROW, [0, 1, 2], [0, 1]),
        r"indices of shape \(2,\), int64: expected a whole number for each of 3",
    ),
    (pv.MeanIoU, 256, None, "256 classes: expected at most 255"),
    (pv.MeanIoU, 3, (MAP, MAP), r"sample 0: outputs of shape \(4,\).*\(height, width\) for both"),
    (pv.MeanIoU, 3, ([MAP], [MAP + 256]), "sample 0: targets: class 256 of 3: expected 0 to 2, or 255 for no label"),
    (pv.MeanIoU, 3, ([MAP + 0.7], [MAP]), "outputs: float64: expected class numbers"),
    (pv.CocoAP, 2, (FOUND, TRUE), "a dict is not a batch"),
    (pv.CocoAP, 2, ([TRUE], [TRUE]), "the output has to be a dictionary with boxes, scores, labels: scores missing"),
    (pv.CocoAP, 2, ([{**FOUND, "scores": [1, 1]}], [TRUE]), r"the output: scores of shape \(2,\) for 1 boxes"),
    (pv.CocoAP, 2, ([{**FOUND, "scores": 0.9}], [TRUE]), r"the output: scores of shape \(\) for 1 boxes"),
    (
        pv.CocoAP,
        2,
        ([{**FOUND, "labels": [2]}], [TRUE]),
        r"the output: labels\[0\]: label 2 is out of range",
    ),
    (pv.CocoAP, 2, ([FOUND], [{**TRUE, "boxes": [[9, 9, 2, 2]]}]), "corners x0, y0, x1, y1, not x, y, width, height"),
    (pv.ScanNetAP, 2, ([{**SCENE, "instances": [(0, 0.5, [9])]}], [SCENE]), "have to be indices below 9"),
    (pv.ScanNetAP, 2, ([{**SCENE, "instances": [(0, 0.5, [3, -1])]}], [SCENE]), "have to be indices below 9"),
    (pv.ScanNetAP, 2, ([{**SCENE, "instances": [(0, 0.5, [3.0])]}], [SCENE]), "have to be indices below 9"),
    (pv.ScanNetAP, 2, ([{**SCENE, "instances": [(0, 0.5, np.ones(8, bool))]}], [SCENE]), "have to be indices below 9"),
    (pv.ScanNetAP, 2, ([{**SCENE, "instances": [(2, 0.5, [3])]}], [SCENE]), "an instance: class 2 of 2"),
    (
        pv.ScanNetAP,
        2,
        ([{**SCENE, "instances": []}], [{**SCENE, "instances": np.zeros(8, int)}]),
        r"int64 of shape \(8,\)",
    ),
    (
        pv.ScanNetAP,
        2,
        ([{**SCENE, "instances": []}], [{**SCENE, "instances": np.zeros(9)}]),
        "target: float64 of shape",
    ),
    (pv.ScanNetAP, 2, ([{**SCENE, "instances": [(0, [1])]}], [SCENE]), r"to be \(class, confidence, points\)"),
    (pv.ScanNetAP, 2, ([{**SCENE, "instances": [(0, np.nan, [1])]}], [SCENE]), "has the confidence nan: expected"),
    (pv.RadialError, 2, (np.zeros((1, 3, 3)), np.zeros((1, 3, 3))), r"sample 0: .*expected \(2, 3\) for both"),
    (pv.RadialError, 2, ([np.zeros((2, 3))], [np.zeros((2, 2))]), r"shape \(2, 3\) and targets of shape \(2, 2\): exp"),
    (
        pv.RadialError,
        2,
        ([np.full((2, 3), np.nan)], [np.zeros((2, 3))]),
        "landmark 0 has a true position, but its output is not finite",
    ),
    (pv.RadialError, 2, ([np.zeros((2, 3))], [np.full((2, 3), np.inf)]), "landmark 0 has an infinite coordinate"),
    (pv.RadialError, 2, ([np.zeros((2, 3))], [{"0": [1, 2, 3], "nose": None}]), "points has the landmark 'nose'"),
    (
        pv.ScanNetAP,
        2,
        ([{**SCENE, "instances": [("car", 0.5, [3])]}], [SCENE]),
        "an instance: .*expected class numbers",
    ),
    (pv.ScanNetAP, 2, ([{**SCENE, "instances": [(np.nan, 0.5, [3])]}], [SCENE]), "an instance: float64"),
    (pv.ScanNetAP, 2, ([{**SCENE, "instances": [(0, "much", [3])]}], [SCENE]), "an instance is tuple of 3"),
    (pv.ScanNetAP, 2, ([{**SCENE, "instances": [3]}], [SCENE]), r"to be \(class, confidence, points\)"),
    (pv.ScanNetAP, 2, ([{**SCENE, "instances": None}], [SCENE]), "instances of the output: None: expected a list"),
    (pv.RadialError, 2, ([[[1, 2, 3], [1, 2]]], [np.zeros((2, 3))]), "list of 2 .* cannot become an array"),
    (pv.VolumeDice, 1, None, "expected the background and at least one more"),
    (pv.VolumeDice, 2, ([np.full((2, 2, 2), 2)], [np.zeros((2, 2, 2), int)]), "outputs: class 2 of 2"),
]


@pytest.mark.parametrize("make, classes, batch, said", WRONG, ids=[f"{one[0].__name__} {one[3][:30]}" for one in WRONG])
def test_what_would_count_as_something_else_is_refused_and_adds_nothing(make, classes, batch, said):
    with pytest.raises(UserError, match=f"^{make.__name__}: .*{said}") as raised:
        meter = make(classes)
        good = {pv.CocoAP: ([FOUND], [TRUE])}.get(make)
        if good:
            batch = tuple([*one, *other] if isinstance(other, list) else other for one, other in zip(good, batch))
        meter.update(*batch)
    assert "\n" not in str(raised.value)
    if batch is not None:
        with pytest.raises(UserError, match="no samples were added"):
            meter.compute()


def test_true_landmarks_may_be_missing_in_any_form():
    found = np.random.default_rng(0).normal(0, 5, (2, 3))
    forms = [
        np.array([[1.0, 2, 3], [np.nan] * 3]),
        [[1, 2, 3], None],
        {"ear": [1, 2, 3]},
        {"ear": (1, 2, 3), "chin": None},
    ]
    for form in forms:
        meter = pv.RadialError(["ear", "chin"])
        meter.update([found], [form])
        expected = np.linalg.norm(found[0] - [1, 2, 3])
        assert meter.compute().values["mre_mm"] == pytest.approx(expected) and meter.compute().values["landmarks"] == 1


def test_percents_that_are_none_and_meters_of_other_settings_are_refused():
    for percent in (0, 100, 200, 0.95, "95"):
        with pytest.raises(UserError, match=f"percent={percent!r}: expected 1 to 99, such as 95, or None"):
            pv.Accuracy(3, percent=percent)
    meter = pv.MeanIoU(NAMES)
    for other in (pv.MeanIoU(2), pv.MeanIoU(NAMES[::-1]), pv.MeanIoU(NAMES, of="points")):
        with pytest.raises(UserError, match="^MeanIoU: meters with other classes or options cannot be merged"):
            meter.merge(other)
    with pytest.raises(UserError, match="cannot be merged with itself"):
        meter.merge(meter)


@pytest.mark.parametrize(
    "spacing", [(1.0, 0.0, 2.0), (1.0, 2.0, -0.5), (np.nan, 1.0, 1.0), (np.inf, 1.0, 1.0), (1.0, 2.0), 1.0]
)
def test_sizes_of_voxels_that_are_not_three_positive_numbers_are_refused(spacing):
    with pytest.raises(UserError, match=r"^VolumeDice: spacing_mm=.*expected three positive numbers"):
        pv.VolumeDice(3, spacing_mm=spacing)


def test_tensors_of_any_kind_are_counted_as_arrays_are():
    """A bfloat16 tensor's array would hold its bits; points of an instance are indices or a mask."""
    found, true = boxes(0)
    tensors = {name: paddle.to_tensor(value) for name, value in found.items()}
    tensors["scores"] = tensors["scores"].astype("bfloat16")
    plain_boxes, of_tensors = pv.CocoAP(3), pv.CocoAP(3)
    plain_boxes.update([{**found, "scores": tensors["scores"].astype("float32").numpy()}], [true])
    of_tensors.update([tensors], [true])
    close(plain(of_tensors.compute()), plain(plain_boxes.compute()))
    found, true = scenes(0)
    masks = [(of, score, np.isin(np.arange(900), points)) for of, score, points in found["instances"]]
    of_indices, of_masks = pv.ScanNetAP(NAMES), pv.ScanNetAP(NAMES)
    twice = [(of, score, np.append(points, points[::-1])) for of, score, points in found["instances"]]
    of_indices.update([{**found, "instances": twice}], [true])
    with pytest.raises(UserError, match=r"instance_classes=\[1, 3\]: expected class numbers below 3"):
        pv.ScanNetAP(NAMES, instance_classes=[1, 3])
    of_masks.update([{**found, "instances": masks}], [true])
    close(plain(of_masks.compute()), plain(of_indices.compute()))
    column, row = pv.Accuracy(3), pv.Accuracy(3)
    column.update(paddle.to_tensor(ROW), paddle.to_tensor([[0], [2], [2]]))
    row.update(ROW, [0, 2, 2])
    close(plain(column.compute()), plain(row.compute()))
    for kind in ("uint8", "int16", "int32"):
        stored = pv.Accuracy(3)
        stored.update(ROW, np.array([0, 2, 2], kind))
        close(plain(stored.compute()), plain(row.compute()))


@pytest.mark.parametrize("classes", [3, 101, 200])
def test_points_without_a_label_count_nowhere_for_any_number_of_classes(classes):
    meter = pv.MeanIoU(classes, of="points")
    true = np.arange(classes)
    predicted = np.where(true == 1, 0, true)
    meter.update([np.append(predicted, 0)], [np.append(true, 255)])
    scores, intervals = meter.compute()
    assert "loss" not in scores and "loss" not in intervals and "mIoU" in intervals
    assert scores["accuracy"] == pytest.approx(1 - 1 / classes)
    assert scores["mIoU"] == pytest.approx((classes - 2 + 1 / 2) / classes)


def test_scores_are_plain_numbers_and_intervals_are_left_out_if_unwanted():
    meter = pv.MeanIoU(NAMES, percent=None)
    meter.update([MAP], [MAP])
    scores = meter.compute()
    assert scores.intervals == {} and "loss" not in scores.values
    assert {type(value) for value in scores.values.values()} <= {int, float} and type(scores.values["mIoU"]) is float
    counted = make_meter("images", range(SAMPLES)).compute().values
    assert type(counted["samples"]) is int and counted["samples"] == SAMPLES
    percent = [pv.Accuracy(7, percent=level) for level in (1, 99, np.int64(50))]
    widths = []
    for each in percent:
        make_meter("images", range(SAMPLES), meter=each)
        ends = each.compute().intervals["loss"]
        widths.append(ends.high - ends.low)
    assert widths[0] < widths[2] < widths[1]


def test_a_sample_is_counted_once_over_all_processes():
    """Without indices, the samples of a rank come after those of the ranks before it."""

    def compute(*given, number_them=True):
        return ThreadRanks(len(given)).run(
            lambda rank: make_meter("images", given[rank], number_them=number_them and bool(given[rank])).compute()
        )

    whole = plain(make_meter("images", range(7)).compute())
    for ranks in (compute([0, 1, 2], [3, 4, 5, 6], number_them=False), compute([4, 0, 2, 6], [5, 1, 3], [])):
        for scores in ranks:
            close(plain(scores), whole)
    with pytest.raises(UserError, match=r"^Accuracy: sample 6 was counted 2 times"):
        compute([0, 2, 6], [1, 6])
    with pytest.raises(UserError, match=r"^Accuracy: 2 indices of 5 samples: give one for each, or none$"):
        ThreadRanks(2).run(lambda rank: make_meter("images", range(3 - rank), number_them=rank == 1).compute())


def test_a_batch_with_a_wrong_sample_adds_none_of_its_samples():
    meter = pv.MeanIoU(NAMES)
    meter.update([MAP], [MAP + 1])
    with pytest.raises(UserError, match="^MeanIoU: sample 2: targets: class 3 of 3"):
        meter.update([MAP, MAP], [MAP, MAP + 3])
    with pytest.raises(UserError, match="^MeanIoU: sample 7: targets: class 3 of 3"):
        meter.update([MAP, MAP], [MAP, MAP + 3], [4, 7])
    assert meter.compute().values["accuracy"] == 0


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("ab", "ab"), "a str is not a batch: update takes lists or arrays with one entry per sample"),
        (([MAP], 3), "a int is not a batch"),
        (([MAP], [MAP], [0.5]), r"indices of shape \(1,\), float64: expected a whole number for each of 1 samples"),
    ],
)
def test_what_is_no_batch_is_refused(arguments, said):
    with pytest.raises(UserError, match=f"^MeanIoU: {said}"):
        pv.MeanIoU(NAMES).update(*arguments)


def test_an_empty_batch_adds_nothing_with_or_without_indices():
    meter = pv.MeanIoU(NAMES)
    meter.update([], [])
    meter.update([], [], [])
    with pytest.raises(UserError, match="no samples were added"):
        meter.compute()


def test_points_without_a_label_are_those_of_the_option_and_minus_100():
    meter = pv.MeanIoU(NAMES, of="points", ignored=7)
    meter.update([np.array([0, 1, 1, 2])], [np.array([0, 7, -100, 1])])
    assert meter.compute().values["accuracy"] == pytest.approx(1 / 2)
    with pytest.raises(UserError, match="targets: class 255 of 3: expected 0 to 2, or 7 for no label"):
        meter.update([np.array([0])], [np.array([255])])
    pixels = pv.MeanIoU(NAMES, ignored=9)
    pixels.update([MAP], [np.where(np.arange(16).reshape(4, 4) < 12, 9, 1)])
    assert pixels.compute().values["accuracy"] == 0
    with pytest.raises(UserError, match="targets: class -100 of 3"):
        pixels.update([MAP], [MAP - 100])
    with pytest.raises(UserError, match="^MeanIoU: of='voxels': expected 'pixels' or 'points'$"):
        pv.MeanIoU(3, of="voxels")
    assert pv.MeanIoU(300, of="points").update([np.array([299])], [np.array([299])]) is None
