"""Results that name images and categories, scored against annotations that number them otherwise."""

import copy
import json

import numpy as np
import pytest
from support.files.coco_writer import write_coco, write_image
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.detection import evaluate_command as evaluate_detections
from paddlevit_dist.images.run_lengths import outline, parse_segmentation

IMAGES = [
    {"id": 907, "file_name": "x/1.png", "width": 100, "height": 80},
    {"id": 903, "file_name": "y/1.png", "width": 60, "height": 90},
]
CATEGORIES = [{"id": 5, "name": "cup"}, {"id": 2, "name": "hat"}]
OBJECTS = [(907, 5, [10, 10, 40, 40]), (907, 2, [50, 20, 20, 30]), (903, 5, [5, 5, 50, 80]), (903, 2, [1, 1, 9, 9])]
ANNOTATIONS = {
    "images": IMAGES,
    "categories": CATEGORIES,
    "annotations": [
        {"id": number, "image_id": image, "category_id": own, "bbox": box, "area": box[2] * box[3], "iscrowd": 0}
        for number, (image, own, box) in enumerate(OBJECTS, 1)
    ],
}
RESULTS = [
    {"image_id": 907, "category_id": 5, "bbox": [12, 11, 40, 41], "score": 0.9},
    {"image_id": 903, "category_id": 5, "bbox": [5, 5, 48, 80], "score": 0.8},
    {"image_id": 907, "category_id": 2, "bbox": [50, 22, 20, 30], "score": 0.3},
    {"image_id": 903, "category_id": 2, "bbox": [30, 30, 9, 9], "score": 0.7},
]
PATHS, NAMES = {907: "photos/x/1.png", 903: "photos/y/1.png"}, {5: "cup", 2: "hat"}


def renumbered(paths=PATHS, names=NAMES, results=RESULTS):
    """The results with their names, and with ids that mean the other image and the other category."""
    images, categories = {907: 903, 903: 907}, {5: 2, 2: 5}
    return [
        {
            **result,
            "image_id": images[result["image_id"]],
            "category_id": categories[result["category_id"]],
            "file_name": paths[result["image_id"]],
            "category_name": names[result["category_id"]],
        }
        for result in results
    ]


@pytest.fixture
def evaluate(tmp_path, capsys):
    """Scores results: what stands on stdout as JSON, and stderr; without ``to_json`` what stands on stdout."""

    def run(annotations, results, *options, as_json=True):
        for name, content in (("a.json", annotations), ("r.json", results)):
            (tmp_path / name).write_text(json.dumps(content))
        words = [str(tmp_path / "a.json"), str(tmp_path / "r.json"), "-interval=off", *options]
        evaluate_detections.run([*words, *(["-json"] if as_json else [])])
        captured = capsys.readouterr()
        return (json.loads(captured.out), captured.err) if as_json else captured.out

    return run


def test_names_decide_where_ids_are_those_of_another_file(evaluate):
    expected, _ = evaluate(ANNOTATIONS, RESULTS)
    said, told = evaluate(ANNOTATIONS, renumbered())
    assert 0.2 < said["stats"][0] < 1 and said["stats"] == expected["stats"]
    assert said["per_category"] == expected["per_category"] and told == ""
    line = "matched by name: 2 images of the results (of 2 in the annotations), 2 of the 2 categories of the results"
    assert said["protocol"][-1] == line and expected["protocol"] == said["protocol"][:-1]
    assert f" {line}\n" in evaluate(ANNOTATIONS, renumbered(), as_json=False)
    unnamed = [{name: result[name] for name in RESULTS[0]} for result in renumbered()]
    assert evaluate(ANNOTATIONS, unnamed)[0]["stats"] != expected["stats"]


def test_masks_are_matched_by_names_too(evaluate):
    annotations, results = copy.deepcopy(ANNOTATIONS), copy.deepcopy(RESULTS)
    sizes = {image["id"]: (image["height"], image["width"]) for image in IMAGES}
    for one in annotations["annotations"]:
        one["segmentation"] = outline(one["bbox"])
    for one in results:
        one["segmentation"] = parse_segmentation(outline(one.pop("bbox")), *sizes[one["image_id"]]).compress()
    expected, _ = evaluate(annotations, results, "-iou_type=segm")
    said, _ = evaluate(annotations, renumbered(results=results), "-iou_type=segm")
    assert said["stats"] == expected["stats"] and said["stats"][0] > 0.2


def test_capitals_are_told(evaluate):
    expected, _ = evaluate(ANNOTATIONS, RESULTS)
    said, _ = evaluate(ANNOTATIONS, renumbered(names={5: "Cup", 2: "hat"}))
    assert said["stats"] == expected["stats"] and said["protocol"][-1].endswith("spelled differently: Cup for cup")


def test_one_kind_of_names_is_enough(evaluate):
    expected, _ = evaluate(ANNOTATIONS, RESULTS)
    named = [dict(result, file_name=PATHS[result["image_id"]], image_id=1) for result in RESULTS]
    assert evaluate(ANNOTATIONS, named)[0]["stats"] == expected["stats"]
    named = [dict(result, category_name=NAMES[result["category_id"]], category_id=1) for result in RESULTS]
    assert evaluate(ANNOTATIONS, named)[0]["stats"] == expected["stats"]


def test_what_annotations_do_not_name_goes_by_ids_and_is_told(evaluate):
    expected, _ = evaluate(ANNOTATIONS, RESULTS)
    without = copy.deepcopy(ANNOTATIONS)
    for image in without["images"]:
        del image["file_name"]
    named = [dict(result, file_name="z.png") for result in RESULTS]
    said, told = evaluate(without, named)
    assert said["stats"] == expected["stats"] and "images are matched by image_id, since" in told
    for category in without["categories"]:
        del category["name"]
    said, told = evaluate(without, [dict(result, category_name="mug") for result in named])
    assert said["stats"] == expected["stats"] and "categories are matched by category_id, since" in told


def test_categories_that_annotations_do_not_have_are_left_out_by_name(evaluate):
    results = [*renumbered(), dict(renumbered()[0], category_name="spoon")]
    said, told = evaluate(ANNOTATIONS, results)
    assert said["stats"] == evaluate(ANNOTATIONS, RESULTS)[0]["stats"]
    assert "1 result of unlisted categories, such as spoon, ignored" in told
    assert "2 of the 3 categories of the results" in said["protocol"][-1]


def test_of_two_entries_of_one_name_the_id_decides(evaluate):
    annotations = copy.deepcopy(ANNOTATIONS)
    annotations["images"][1]["file_name"] = "x/1.png"
    annotations["categories"][1]["name"] = "cup"
    expected, _ = evaluate(annotations, RESULTS)
    named = [dict(result, file_name="x/1.png", category_name="cup") for result in RESULTS]
    said, _ = evaluate(annotations, named)
    assert said["stats"] == expected["stats"] and "1 of the 1 category of the results" in said["protocol"][-1]
    message = refusal_of(evaluate, annotations, [dict(result, image_id=1) for result in named])
    assert "x/1.png matches several images" in message
    assert "cup matches several categories" in refusal_of(
        evaluate, annotations, [dict(result, category_id=1) for result in named]
    )


@pytest.mark.parametrize(
    "paths, names, part",
    [
        ({907: "x/1.png", 903: "z/1.png"}, NAMES, "1 of 2 images are not listed in"),
        ({907: "x/1.png", 903: "1.png"}, NAMES, "1.png matches several images"),
        ({907: "x/1.png", 903: "p/x/1.png"}, NAMES, "both match the image with id 907"),
        (PATHS, {5: "mug", 2: "cap"}, "no category name is in"),
        (PATHS, {5: "CUP", 2: "Cup"}, "CUP and Cup both match cup"),
    ],
)
def test_what_cannot_be_matched_is_refused(evaluate, paths, names, part):
    assert part in refusal_of(evaluate, ANNOTATIONS, renumbered(paths, names))


def test_all_results_or_none_have_names(evaluate):
    for name in ("file_name", "category_name"):
        results = renumbered()
        del results[2][name]
        assert f"result 2 has no {name}, unlike the first" in refusal_of(evaluate, ANNOTATIONS, results)
    results = [*RESULTS, dict(RESULTS[0], file_name="x/1.png")]
    assert "result 4 has a file_name, unlike the first" in refusal_of(evaluate, ANNOTATIONS, results)


def test_results_of_any_origin_are_scored_against_data_in_another_layout(tmp_path, capsys):
    """YOLO's files number neither images nor categories as the results do."""
    rng = np.random.default_rng(0)
    boxes = rng.uniform(2, 10, (3, 4)).round(2).tolist()
    (tmp_path / "yolo/labels/val").mkdir(parents=True)
    lines = {"b": [(1, boxes[0])], "a": [(0, boxes[1]), (1, boxes[2])]}
    for stem, own in lines.items():
        write_image(tmp_path / f"yolo/images/val/{stem}.png", 20, 30)
        rows = [f"{label} {(x + w / 2) / 30} {(y + h / 2) / 20} {w / 30} {h / 20}\n" for label, (x, y, w, h) in own]
        (tmp_path / f"yolo/labels/val/{stem}.txt").write_text("".join(rows))
    (tmp_path / "yolo/classes.txt").write_text("dog\ncat\n")
    results = [
        {"image_id": 50, "category_id": 9, "bbox": box, "score": 0.9, "file_name": f"new/{stem}.png"}
        | {"category_name": ("dog", "cat")[label]}
        for stem, own in lines.items()
        for label, box in own
    ]
    (tmp_path / "r.json").write_text(json.dumps(results))
    words = [str(tmp_path / "r.json"), f"-data_path={tmp_path / 'yolo'}", "-interval=off", "-json"]
    for folder in ("new/", "", "images/val/"):  # a folder, as a file, lists "a.png"
        named = [{**result, "file_name": result["file_name"].replace("new/", folder)} for result in results]
        (tmp_path / "r.json").write_text(json.dumps(named))
        evaluate_detections.run(words)
        assert json.loads(capsys.readouterr().out)["stats"][0] == pytest.approx(1.0)
    write_image(tmp_path / "yolo/images/train/a.png", 20, 30)  # another image, whose results are given
    for result in results:
        result["file_name"] = result["file_name"].replace("new/", "yolo/images/train/")
    (tmp_path / "r.json").write_text(json.dumps(results))
    with pytest.raises(UserError, match="1 of 2 images are not listed in .* such as yolo/images/train/a.png"):
        evaluate_detections.run(words)


@pytest.mark.parametrize(
    ("found", "off", "told"),
    [
        ((0, 1), 1, "numbers the classes 1 to 2, but yolo (val) 0 to 1: subtract 1"),
        ((0,), 1, "1, but yolo (val) 0 to 1, and 2 are right with each number one lower, 0 unchanged: subtract"),
        ((0, 1), 0, ""),
        ((1,), 0, ""),
    ],
)
def test_ids_that_are_positions_are_counted_as_the_data_do(tmp_path, capsys, found, off, told):
    """Ultralytics counts from 1 in its results, and from 0 in data.yaml."""
    boxes = {"5": [(0, (2, 3, 9, 8)), (1, (11, 3, 9, 8))], "6": [(0, (4, 5, 7, 9)), (1, (14, 2, 9, 9))]}
    results = []
    (tmp_path / "yolo/labels/val").mkdir(parents=True)
    for stem, own in boxes.items():
        write_image(tmp_path / f"yolo/images/val/{stem}.png", 20, 30)
        rows = [f"{label} {(x + w / 2) / 30} {(y + h / 2) / 20} {w / 30} {h / 20}\n" for label, (x, y, w, h) in own]
        (tmp_path / f"yolo/labels/val/{stem}.txt").write_text("".join(rows))
        results += [
            {"image_id": int(stem), "category_id": label + off, "bbox": box, "score": 0.9}
            for label, box in own
            if label in found
        ]
    (tmp_path / "yolo/classes.txt").write_text("dog\ncat\n")
    (tmp_path / "r.json").write_text(json.dumps(results))
    words = [str(tmp_path / "yolo"), str(tmp_path / "r.json"), "-interval=off", "-json"]
    if told:
        assert told in refusal_of(evaluate_detections.run, words)
        for result in results:
            result["category_name"] = ("dog", "cat")[result["category_id"] - off]
        (tmp_path / "r.json").write_text(json.dumps(results))
    evaluate_detections.run(words)
    scores = json.loads(capsys.readouterr().out)
    assert [scores["per_category"][name] for name in ("dog", "cat")] == pytest.approx(
        [float(label in found) for label in (0, 1)]
    )
    assert ("category_id 0 is dog, and so on by ascending number" in scores["protocol"]) == (not told)


def test_urls_of_images_are_names(tmp_path, capsys):
    image = {"id": 11, "coco_url": "http://images.example.org/val2017/1.png", "height": 20, "width": 30}
    one = {"id": 1, "image_id": 11, "category_id": 7, "bbox": [2, 3, 10, 8], "area": 80, "iscrowd": 0}
    file = write_coco(tmp_path, [one], images=[image])
    result = {"image_id": 1, "category_id": 7, "bbox": [2, 3, 10, 8], "score": 0.9}
    (tmp_path / "r.json").write_text(json.dumps([dict(result, file_name="coco/val2017/1.png")]))
    evaluate_detections.run([str(file), str(tmp_path / "r.json"), "-interval=off", "-json"])
    assert json.loads(capsys.readouterr().out)["stats"][0] == pytest.approx(1.0)


def test_image_ids_that_are_names_of_files_are_matched_as_ultralytics_wrote_them(evaluate):
    stems = {907: "shot 1", 903: 17}  # digits as a number
    images = [{**image, "file_name": f"val/{stem}.png"} for image, stem in zip(IMAGES, ("shot 1", "0017"))]
    annotations = {**ANNOTATIONS, "images": images}
    named = [{**result, "image_id": stems[result["image_id"]]} for result in RESULTS]
    expected = evaluate(ANNOTATIONS, RESULTS)[0]
    found = evaluate(annotations, named)[0]
    assert found["stats"] == expected["stats"]
    assert "image_id is the name of an image's file" in evaluate(annotations, named, as_json=False)
    assert evaluate(annotations, RESULTS)[0]["stats"] == expected["stats"]  # ids that exist decide
    both = {**annotations, "images": [{**image, "file_name": f"{image['id']}/shot 1.png"} for image in images]}
    assert "2 images of its results are missing from" in refusal_of(evaluate, both, named)
