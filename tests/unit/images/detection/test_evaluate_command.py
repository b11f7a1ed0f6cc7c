"""``evaluate detections``: files of annotations and results against pycocotools, and files that are none."""

import copy
import json

import numpy as np
import pytest
from PIL import Image
from support.networks import coco_peer
from support.refusals import refusal_of
from support.samples.drawn_detections import NOTHING_FOUND

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.prediction import InputSamples, PredictionRecord
from paddlevit_dist.extensions.compare.tables import read_table
from paddlevit_dist.images.detection import evaluate_command as evaluate_detections
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.prediction import DetectionWriter
from paddlevit_dist.images.run_lengths import encode, outline, parse_segmentation
from paddlevit_dist.images.segmentation import evaluate_command as evaluate_masks

ANNOTATIONS = {
    "images": [{"id": 7, "width": 100, "height": 80}, {"id": 3, "width": 60, "height": 90}],
    "categories": [{"id": 5, "name": "cup"}, {"id": 2, "name": "hat"}],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 5, "bbox": [10, 10, 40, 40], "area": 1600, "iscrowd": 0},
        {"id": 2, "image_id": 7, "category_id": 2, "bbox": [50, 20, 20, 30], "area": 600, "iscrowd": 0},
        {"id": 3, "image_id": 3, "category_id": 5, "bbox": [5, 5, 50, 80], "area": 4000, "iscrowd": 1},
    ],
}
RESULTS = [
    {"image_id": 7, "category_id": 5, "bbox": [12, 11, 40, 41], "score": 0.9},
    {"image_id": 3, "category_id": 5, "bbox": [5, 5, 20, 20], "score": 0.8},
    {"image_id": 7, "category_id": 2, "bbox": [50, 25, 22, 30], "score": 0.3},
    {"image_id": 7, "category_id": 2, "bbox": [5, 25, 22, 30], "score": 0.7},
]


STATS = "AP AP50 AP75 AP_small AP_medium AP_large AR_1 AR_10 AR_100 AR_small AR_medium AR_large".split()


@pytest.fixture
def evaluate(tmp_path, capsys):
    """Evaluates files of these contents, or texts; what stands on stdout as JSON, and stderr."""

    def run(annotations, results, *options):
        for name, content in (("annotations.json", annotations), ("results.json", results)):
            text = content if isinstance(content, str) else json.dumps(content)
            (tmp_path / name).write_text(text, encoding="utf-8")
        words = [str(tmp_path / "annotations.json"), str(tmp_path / "results.json"), "-json", *options]
        evaluate_detections.run(words)
        captured = capsys.readouterr()
        assert captured.out.count("\n") == 1
        return json.loads(captured.out), captured.err

    return run


def numbers(said):
    """All but what was odd."""
    return {name: value for name, value in said.items() if name != "notes"}


def changed(content, path, value):
    """A copy in which one value is another, or gone (``del``)."""
    content = copy.deepcopy(content)
    inner = content
    for step in path[:-1]:
        inner = inner[step]
    if value is del_:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return content


del_ = object()


@pytest.mark.parametrize("seed", [1, 2])
def test_files_score_as_pycocotools_says(evaluate, seed):
    dataset, results = coco_peer.random_case(seed)
    said, _ = evaluate(dataset, results)
    theirs = coco_peer.evaluated(dataset, results)
    assert said["stats"] == pytest.approx(theirs.stats.tolist(), rel=0, abs=1e-12)
    by_id = {category["id"]: category["name"] for category in dataset["categories"]}
    for place, own in enumerate(theirs.params.catIds):
        precision = theirs.eval["precision"][:, :, place, 0, 2]
        expected = precision[precision > -1].mean() if (precision > -1).any() else -1
        assert np.isclose(said["per_category"][by_id[own]], expected, atol=1e-12)


@pytest.mark.parametrize("percent", ["95", "99", "off"])
def test_intervals_are_those_of_the_numbers(tmp_path, capsys, percent):
    dataset, results = coco_peer.random_case(1)
    files = [tmp_path / "annotations.json", tmp_path / "results.json"]
    for file, content in zip(files, (dataset, results)):
        file.write_text(json.dumps(content))
    command = [*map(str, files), f"-interval={percent}"]
    evaluate_detections.run([*command, "-json"])
    said = json.loads(capsys.readouterr().out)
    evaluate_detections.run(command)
    lines = capsys.readouterr().out.splitlines()
    shown = [line for line in lines if f"{percent} % intervals" in line]
    if percent == "off":
        assert not said["intervals"] and not any("interval" in line for line in lines)
        return
    assert {"AP", "AP75", "AR_100"} <= set(said["intervals"]) <= set(STATS)  # none of a category
    for name, stat in zip(("AP", "AP50", "AP75"), said["stats"]):
        ends = said["intervals"][name]
        assert ends["value"] == pytest.approx(stat, rel=1e-5) and ends["low"] < stat < ends["high"]
        assert f"{name} {stat:.4f} [{ends['low']:.3f}, {ends['high']:.3f}]" in shown[0]


def with_masks(boxes_too):
    rng = np.random.default_rng(0)
    dataset, results = copy.deepcopy(ANNOTATIONS), copy.deepcopy(RESULTS)
    sizes = {image["id"]: (image["height"], image["width"]) for image in dataset["images"]}
    for number, annotation in enumerate(dataset["annotations"]):
        x, y, width, height = annotation["bbox"]
        annotation["segmentation"] = [[x, y, x + width, y + 3, x + width / 2, y + height]]
        if number == 2:
            runs = parse_segmentation(outline(annotation["bbox"]), *sizes[annotation["image_id"]])
            annotation["segmentation"] = {"size": [runs.height, runs.width], "counts": runs.counts().tolist()}
    for result in results:
        mask = parse_segmentation(outline(result["bbox"]), *sizes[result["image_id"]]).mask()
        result["segmentation"] = encode(mask & (rng.random(mask.shape) < 0.9))
        if not boxes_too:
            del result["bbox"]
    return dataset, results


@pytest.mark.parametrize("kind, boxes_too", [("segm", False), ("segm", True), ("bbox", False), ("bbox", True)])
def test_masks_and_boxes_of_results_score_as_pycocotools_says(evaluate, kind, boxes_too):
    dataset, results = with_masks(boxes_too)
    said, told = evaluate(dataset, results, f"-iou_type={kind}")
    assert said["stats"] == pytest.approx(coco_peer.evaluated(dataset, results, kind).stats.tolist(), rel=0, abs=1e-12)
    assert ("areas are taken from boxes" in told) == (kind == "segm" and boxes_too)
    assert ("results have masks, but boxes are compared: add -iou_type=segm" in told) == (kind == "bbox")


@pytest.mark.parametrize("seed", range(3))
def test_random_masks_score_as_pycocotools_says(evaluate, seed):
    dataset, results = coco_peer.random_case(seed)
    rng = np.random.default_rng(seed)

    def mask(box, kind):
        x, y, width, height = box
        if kind == 0:
            return [[x, y, x + width, y + height / 3, x + width / 2, y + height]]
        if kind == 1:
            return [[x, y, x + width, y, x, y + height], [x + 2, y + 2, x + width, y + 9, x + width, y + height]]
        runs = parse_segmentation(outline(box), 320, 320)
        return runs.compress() if kind == 2 else {"size": [320, 320], "counts": runs.counts().tolist()}

    for annotation in dataset["annotations"]:
        annotation["segmentation"] = mask(annotation["bbox"], rng.integers(0, 4))
    for result in results:
        result["segmentation"] = mask(result.pop("bbox"), 2)
    said, _ = evaluate(dataset, results, "-iou_type=segm")
    assert said["stats"] == pytest.approx(
        coco_peer.evaluated(dataset, results, "segm").stats.tolist(), rel=0, abs=1e-12
    )
    assert max(said["stats"]) > 0


def test_boxes_are_compared_as_masks_where_results_have_no_others(evaluate):
    dataset, _ = with_masks(True)
    said, _ = evaluate(dataset, RESULTS, "-iou_type=segm")
    assert said["stats"] == pytest.approx(
        coco_peer.evaluated(dataset, RESULTS, "segm").stats.tolist(), rel=0, abs=1e-12
    )


def test_lists_in_any_order_of_the_file(evaluate):
    dataset, results = with_masks(False)
    said, _ = evaluate(dataset, results, "-iou_type=segm")
    turned = {name: dataset[name] for name in ("annotations", "categories", "images")}
    assert evaluate({"info": {"year": 2020}, **turned, "licenses": []}, results, "-iou_type=segm")[0] == said


def test_what_is_left_out_is_counted(evaluate):
    expected, told = evaluate(ANNOTATIONS, RESULTS)
    (note,) = expected["notes"]
    assert note.startswith("the interval is rough: 2 images (below 50): ")
    assert told == f"note: {expected['notes'][0]}\n"
    annotations, results = copy.deepcopy(ANNOTATIONS), copy.deepcopy(RESULTS)
    first = annotations["annotations"][0]
    annotations["annotations"] += [dict(first, id=8, image_id=99), dict(first, id=9, category_id=99)]
    results.append(dict(results[0], category_id=4))
    said, told = evaluate(annotations, results)
    assert numbers(said) == numbers(expected)
    for part in ("1 object of an image that", "1 object of a category that", "1 result of unlisted categories"):
        assert part in told


def test_results_of_other_categories_alone_have_no_score(evaluate, tmp_path):
    results = [dict(result, category_id=200 - result["category_id"]) for result in RESULTS]
    ids = sorted({entry["id"] for entry in ANNOTATIONS["categories"]})
    theirs = ", ".join(map(str, dict.fromkeys(result["category_id"] for result in results)))
    said = refusal_of(evaluate, ANNOTATIONS, results)
    assert "results.json: no result is of a category of " in said
    expected = f"category_id {theirs}, but it has {', '.join(map(str, ids))}: use its ids, or give each result its"
    assert said.endswith(f": {expected} category_name")


def test_what_has_no_area_and_no_crowd_flag(evaluate):
    plain = {"image_id": 7, "category_id": 5}
    boxes = {1: [10, 10, 40, 40], 2: [60, 10, 20, 30]}
    whole = [{**plain, "id": id_, "bbox": box, "area": box[2] * box[3], "iscrowd": 0} for id_, box in boxes.items()]
    bare = [{**plain, "id": id_, "bbox": box} for id_, box in boxes.items()]
    said, told = evaluate(changed(ANNOTATIONS, ["annotations"], bare), RESULTS)
    expected, _ = evaluate(changed(ANNOTATIONS, ["annotations"], whole), RESULTS)
    assert numbers(said) == numbers(expected) and "2 objects without an area" in told


def test_an_annotation_of_id_0_counts_as_any_other(evaluate):
    annotations = changed(ANNOTATIONS, ["annotations", 0, "id"], 0)
    said, told = evaluate(annotations, RESULTS)
    assert said["stats"] == pytest.approx(coco_peer.evaluated(ANNOTATIONS, RESULTS).stats.tolist(), rel=0, abs=1e-12)
    assert "1 object with id 0" in told


def test_objects_without_a_mask_are_their_boxes_where_others_have_masks(evaluate):
    dataset, results = with_masks(False)
    without = changed(dataset, ["annotations", 1, "segmentation"], [])
    x, y, width, height = dataset["annotations"][1]["bbox"]
    outline = [[x, y, x + width, y, x + width, y + height, x, y + height]]
    drawn = changed(dataset, ["annotations", 1, "segmentation"], outline)
    said, told = evaluate(without, results, "-iou_type=segm")
    assert said["stats"] == pytest.approx(coco_peer.evaluated(drawn, results, "segm").stats.tolist(), rel=0, abs=1e-12)
    assert "1 object without a mask: its box is used" in told


def test_no_results_and_no_annotations(evaluate):
    said, told = evaluate(ANNOTATIONS, [])
    assert said["stats"][0] == 0 and said["per_category"] == {"hat": 0.0, "cup": 0.0} and "has no results" in told
    said, told = evaluate(changed(ANNOTATIONS, ["annotations"], []), RESULTS)
    assert said["stats"] == [-1] * 12 and "has no annotations" in told


def test_categories_of_one_name_are_told_apart(evaluate):
    annotations = changed(ANNOTATIONS, ["categories", 0, "name"], "hat")
    expected = evaluate(ANNOTATIONS, RESULTS)[0]["per_category"]
    said = evaluate(annotations, RESULTS)[0]["per_category"]
    assert said == {"hat (id 5)": expected["cup"], "hat (id 2)": expected["hat"]}
    annotations["categories"].append({"id": 9, "name": "hat (id 5)"})
    annotations["categories"].append({"id": 10})
    assert set(evaluate(annotations, RESULTS)[0]["per_category"]) == {
        "hat (id 5)'", "hat (id 2)", "hat (id 5)", "category 10",
    }  # fmt: skip


@pytest.mark.parametrize("first, second, in_results", [
    ("01", "1", None), ("a3", "12e4", None), ("120000", "12e4", None), ("x", "3", None), ("nan", "-0", None),
    ("7", 3, None), (7, 3, (7.0, 3.0)), (7, 3, ("7", "3")),
])  # fmt: skip
def test_texts_are_ids_and_numbers_are_however_they_are_written(evaluate, first, second, in_results):
    def named(entries, ids=(first, second)):
        return [dict(entry, image_id=dict(zip((7, 3), ids))[entry["image_id"]]) for entry in entries]

    texts = changed(ANNOTATIONS, ["annotations"], named(ANNOTATIONS["annotations"]))
    texts["images"] = [dict(image, id={7: first, 3: second}[image["id"]]) for image in texts["images"]]
    said, _ = evaluate(texts, named(RESULTS, in_results or (first, second)))
    assert numbers(said) == numbers(evaluate(ANNOTATIONS, RESULTS)[0])


@pytest.mark.parametrize("name, called", [("", "category 5"), (17, "17")])
def test_odd_names_are_taken(evaluate, name, called):
    per_category = evaluate(changed(ANNOTATIONS, ["categories", 0, "name"], name), RESULTS)[0]["per_category"]
    assert set(per_category) == {called, "hat"}


@pytest.mark.parametrize("nothing", ["", 0, {}])
def test_an_empty_segmentation_is_none(evaluate, nothing):
    annotations = changed(ANNOTATIONS, ["annotations", 0, "segmentation"], [[10, 10, 50, 10, 50, 50, 10, 50]])
    annotations = changed(annotations, ["annotations", 1, "segmentation"], nothing)
    told = evaluate(annotations, RESULTS, "-iou_type=segm")[1]
    assert "2 objects without a mask: its box is used, such as 3" in " ".join(told.split())


@pytest.mark.parametrize("path, value, message", [
    ([1, "segmentation"], del_, "result 1 has no segmentation, unlike the first result"),
    ([2, "segmentation"], {"size": [80, 100], "counts": [3, 4]}, "result 2 has a segmentation that "),
    ([0, "segmentation", "size"], [3, 4], "result 0 has a segmentation that "),
])  # fmt: skip
def test_results_whose_masks_cannot_be_used_are_refused(evaluate, path, value, message):
    annotations, results = with_masks(False)
    assert message in refusal_of(evaluate, annotations, changed(results, path, value), "-iou_type=segm")


def test_masks_need_annotations_with_masks_and_sizes_of_images(evaluate):
    annotations, results = with_masks(False)
    with pytest.raises(UserError, match="annotations.json: annotations need a 'segmentation' to compare masks"):
        evaluate(ANNOTATIONS, results, "-iou_type=segm")
    without = changed(changed(annotations, ["images", 0, "width"], del_), ["images", 0, "height"], del_)
    with pytest.raises(UserError, match="annotations.json.*7.*height"):
        evaluate(without, results, "-iou_type=segm")


@pytest.mark.parametrize("path, value, message", [
    ([0, "image_id"], 4, "results.json: 1 image of its results are missing from"),
    ([1, "image_id"], "x", "image_id 'x' of result 1; it is a string, but image ids are numbers there, such as 3"),
    ([1, "image_id"], 3.5, "results.json: result 1 has image_id 3.5: expected an integer or a string"),
    ([1, "category_id"], del_, "[1]: Object missing required field `category_id`"),
    ([1, "score"], 1e301, "results.json: result 1 has score 1e+301: expected a finite number"),
    ([1, "bbox"], del_, "results.json: result 1 has bbox null: expected four finite numbers"),
    ([0, "bbox"], del_, "results.json: result 0 has neither bbox nor segmentation"),
    ([1, "bbox", 0], -1e301, "results.json: result 1 has bbox [-1e+301, 5.0, 20.0, 20.0]: expected four finite"),
    ([1, "bbox", 0], None, "[1]: Expected `float`, got `null` - at `$.bbox[0]`"),
    ([1], [7, 5], "[1]: Expected `object`, got `array`"),
])  # fmt: skip
def test_results_that_cannot_be_used_are_refused(evaluate, path, value, message):
    line = refusal_of(evaluate, ANNOTATIONS, changed(RESULTS, path, value))
    assert "results.json" in line and message in line


@pytest.mark.parametrize("annotations, results, message", [
    (ANNOTATIONS, {"results": RESULTS}, "results.json: expected a list of results, found an object"),
    (RESULTS, ANNOTATIONS, "is a list, as in files of results"),
    ("", RESULTS, "annotations.json is not JSON"),
    (json.dumps(ANNOTATIONS)[:-20], RESULTS, "annotations.json is not JSON"),
    (ANNOTATIONS, json.dumps(RESULTS)[:-20], "results.json is not JSON"),
    (ANNOTATIONS, "[1, 2", "results.json is not JSON"),
    (ANNOTATIONS, '[{"score": NaN}]', "results.json is not JSON in COCO's results format: JSON is malformed: invalid"),
    (ANNOTATIONS, "[" + "9" * 5000 + "]", "results.json is not JSON"),
    (ANNOTATIONS, "12", "results.json is not JSON"),
    ("{}", RESULTS, "annotations.json has no categories"),
])  # fmt: skip
def test_files_of_something_else_are_refused(evaluate, annotations, results, message):
    assert message in refusal_of(evaluate, annotations, results)


@pytest.mark.parametrize("segmentation, message", [
    (["polygon"], "its segmentation has a polygon that is not a list of numbers"),
    ({"size": [5, 5], "counts": [25]}, "is of 5 x 5 pixels, the image of 80 x 100"),
])  # fmt: skip
def test_masks_that_cannot_be_used_are_refused(evaluate, segmentation, message):
    dataset, results = with_masks(False)
    line = refusal_of(
        evaluate, changed(dataset, ["annotations", 1, "segmentation"], segmentation), results, "-iou_type=segm"
    )
    assert message in line
    with pytest.raises(UserError, match="image 7 needs 'height' and 'width'"):
        evaluate(changed(dataset, ["images", 0, "height"], del_), results, "-iou_type=segm")


@pytest.mark.parametrize("name", ["neg_category_ids", "not_exhaustive_category_ids"])
def test_annotations_that_say_what_was_not_looked_for_are_refused(evaluate, name):
    evaluate(changed(ANNOTATIONS, ["images", 0, name], []), RESULTS)  # which says nothing
    with pytest.raises(UserError, match=r"image 7 was not checked for every category, as in LVIS.*lvis-api"):
        evaluate(changed(ANNOTATIONS, ["images", 0, name], [2]), RESULTS)


def as_corners(box):
    return [box[0], box[1], box[0] + box[2], box[1] + box[3]]


def test_corners_and_shares_are_not_taken_for_sides(evaluate):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        images = [{"id": number, "width": 480, "height": 480} for number in range(10)]
        boxes = np.concatenate([rng.uniform(0, 300, (10, 2)), rng.uniform(20, 170, (10, 2))], axis=1).tolist()
        found = [
            {"image_id": number, "category_id": 5, "bbox": box, "score": 0.5}
            for number, box in enumerate(boxes)
        ]  # fmt: skip
        truth = [{**one, "id": number + 1, "area": 1.0} for number, one in enumerate(found)]
        dataset = {**ANNOTATIONS, "images": images, "annotations": truth}
        assert evaluate(dataset, found)[0]["stats"][0] == pytest.approx(1.0)
        with pytest.raises(UserError, match=r"results.json: bbox is x, y, width, height .* look like corners"):
            evaluate(dataset, [{**one, "bbox": as_corners(one["bbox"])} for one in found])
        with pytest.raises(UserError, match="all of the 10 are fractions of the images"):
            shares = (np.array(boxes) / 480).tolist()
            evaluate(dataset, [{**one, "bbox": share} for one, share in zip(found, shares)])


def test_json_has_the_keys_of_the_other_scored_results(evaluate, tmp_path, capsys):
    for folder in ("true", "found"):
        (tmp_path / folder).mkdir()
        Image.fromarray(np.eye(4, dtype=np.uint8)).save(tmp_path / folder / "a.png")
    evaluate_masks.run([str(tmp_path / "true"), str(tmp_path / "found"), "-json"])
    masks = json.loads(capsys.readouterr().out)
    boxes, told = evaluate(ANNOTATIONS, RESULTS)
    assert set(boxes) == set(masks) | {"stats", "per_category"}
    assert {name: type(value) for name, value in masks.items()} == {name: type(boxes[name]) for name in masks}
    assert (
        boxes["scores"]["AP"] == boxes["stats"][0] and boxes["samples"] == 2 and "COCO's rules" in boxes["protocol"][0]
    )
    assert boxes["scores"]["AP hat"] == boxes["per_category"]["hat"]
    assert boxes["notes"] and all(f"note: {note}" in told for note in boxes["notes"])
    assert "percent" not in evaluate(ANNOTATIONS, RESULTS, "-interval=off")[0]


def test_detections_written_by_us_are_read_by_both(evaluate, tmp_path):
    rng = np.random.default_rng(3)
    found = {
        image_id: DetectedObjects(
            np.sort(rng.uniform(0, 80, (6, 2, 2)), axis=1).reshape(6, 4).astype(np.float32),
            rng.random(6).astype(np.float32),
            rng.integers(0, 2, 6),
            [encode(rng.random(size) < 0.5) for _ in range(6)],
        )
        for image_id, size in ((7, (80, 100)), (3, (90, 60)))
    }
    dataset, _ = with_masks(False)
    samples = InputSamples()
    samples.names = [f"{image_id}.png" for image_id in found]
    writer = DetectionWriter(tmp_path, samples, ["hat", "cup"], [2, 5], 0.5)

    def entry(index, one):
        return PredictionRecord(index, [], summary=writer.summarize(index, one))

    writer.finish([entry(index, one) for index, one in enumerate(found.values())])
    for kind, name in (("bbox", "results.json"), ("segm", "results_masks.json")):
        results = json.loads((tmp_path / name).read_text())
        assert len(results) == 12 and {result["category_id"] for result in results} == {2, 5}
        said, _ = evaluate(dataset, results, f"-iou_type={kind}")
        assert said["stats"] == pytest.approx(
            coco_peer.evaluated(dataset, results, kind).stats.tolist(), rel=0, abs=1e-12
        )
    writer.finish([entry(0, NOTHING_FOUND)])
    assert json.loads((tmp_path / "results.json").read_text()) == []


def test_files_that_are_not_there(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(ANNOTATIONS))
    for words in (("a.json", "missing.json"), ("missing.json", "a.json")):
        with pytest.raises(UserError, match="missing.json cannot be read: No such file"):
            evaluate_detections.run([str(tmp_path / word) for word in words])


def test_a_field_of_images_says_what_they_are(evaluate, tmp_path):
    images = [{"id": n, "width": 100, "height": 80, "video_id": n % 3, "file_name": f"{n}.jpg"} for n in range(12)]
    objects = [dict(ANNOTATIONS["annotations"][0], id=n + 1, image_id=n) for n in range(12)]
    annotations = {**ANNOTATIONS, "images": images, "annotations": objects}
    results = [
        dict(RESULTS[0], image_id=n, score=0.9 - n / 100, bbox=[10 + 3 * (n % 3), 11, 40, 41]) for n in range(12)
    ]
    plain, _ = evaluate(annotations, results)
    said, told = evaluate(annotations, results, "-group=video_id", f"-output={tmp_path / 'out'}")
    assert said["scores"] == plain["scores"] and said["intervals"]["AP"] != plain["intervals"]["AP"]
    assert said["groups"] == {"by": "video_id", "number": 3, "source": str(tmp_path / "annotations.json")}
    assert "3 groups (below 50): 95" in told
    assert read_table(str(tmp_path / "out")).groups.names.tolist() == ["0", "1", "2"] * 4
    evaluate_detections.run([str(tmp_path / "annotations.json"), str(tmp_path / "results.json"), "-group=video_id"])
