"""``evaluate keypoints``: files of annotations and results against pycocotools, and files that are none."""

import copy
import json

import numpy as np
import pytest
from PIL import Image
from support.networks import keypoint_peer

from paddlevit_dist import UserError
from paddlevit_dist.extensions.compare.pairs import TablePair
from paddlevit_dist.extensions.compare.tables import read_table
from paddlevit_dist.images.keypoints import evaluate_command
from paddlevit_dist.images.keypoints.evaluation.score_kind import TEN

ANNOTATIONS = {
    "images": [{"id": 7, "width": 100, "height": 80, "file_name": "a.png"}, {"id": 3, "width": 60, "height": 90}],
    "categories": [{"id": 5, "name": "hand", "keypoints": ["wrist", "thumb"], "sigmas": [0.1, 0.2]}],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 5, "bbox": [10, 10, 40, 40], "area": 1600, "iscrowd": 0,
         "num_keypoints": 2, "keypoints": [12, 12, 2, 40, 40, 1]},
        {"id": 2, "image_id": 3, "category_id": 5, "bbox": [5, 5, 50, 80], "area": 4000, "iscrowd": 0,
         "num_keypoints": 1, "keypoints": [20, 20, 2, 0, 0, 0]},
    ],
}  # fmt: skip
RESULTS = [
    {"image_id": 7, "category_id": 5, "keypoints": [12, 15, 0.9, 40, 44, 0.5], "score": 0.9},
    {"image_id": 3, "category_id": 5, "keypoints": [90, 90, 0.9, 40, 44, 0.5], "score": 0.8},
]


@pytest.fixture
def evaluate(tmp_path, capsys):
    """Evaluates files of these contents; what stands on stdout as JSON, and stderr."""

    def run(annotations, results, *options):
        for name, content in (("annotations.json", annotations), ("results.json", results)):
            (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
        evaluate_command.run([str(tmp_path / "annotations.json"), str(tmp_path / "results.json"), "-json", *options])
        captured = capsys.readouterr()
        return json.loads(captured.out), captured.err

    return run


def with_sigmas(dataset, sigmas):
    """A dataset of ``random_case`` whose file has names and sigmas, and counts labeled points as readers do."""
    categories = sorted(dataset["categories"], key=lambda entry: entry["id"])
    for entry, own in zip(categories, sigmas):
        entry.update(keypoints=[f"p{point}" for point in range(len(own))], sigmas=own)
    for entry in dataset["annotations"]:
        entry["num_keypoints"] = sum(seen > 0 for seen in entry["keypoints"][2::3])
    return dataset


@pytest.mark.parametrize("seed", [20, 21, 22])
def test_files_score_as_pycocotools_says_for_each_category(evaluate, seed):
    dataset, results, sigmas = keypoint_peer.random_case(seed)
    dataset = with_sigmas(dataset, sigmas)
    values, _ = evaluate(dataset, results, "-interval=off")
    expected = keypoint_peer.averaged(dataset, results, sigmas)
    np.testing.assert_allclose(values["stats"], [expected[name] for name in TEN], rtol=0, atol=1e-12)
    categories = sorted(dataset["categories"], key=lambda entry: entry["id"])
    for category, own in zip(categories, sigmas):
        if any(result["category_id"] == category["id"] for result in results):
            theirs = keypoint_peer.evaluated(dataset, results, own, category["id"]).stats[0]
            assert values["per_category"][category["name"]] == pytest.approx(theirs, abs=1e-12)


def test_sigmas_are_those_of_the_option_of_the_file_of_coco_or_one_for_all(evaluate):
    plain = copy.deepcopy(ANNOTATIONS)
    del plain["categories"][0]["sigmas"]
    for dataset, options, sigmas, source in (
        (ANNOTATIONS, (), [0.1, 0.2], "sigmas by the annotations"),
        (ANNOTATIONS, ("-sigmas=0.3",), [0.3, 0.3], "sigmas by -sigmas"),
        (ANNOTATIONS, ("-sigmas=0.3,0.01",), [0.3, 0.01], "sigmas by -sigmas"),
        (ANNOTATIONS, ("-sigmas=[0.3, 0.01]",), [0.3, 0.01], "sigmas by -sigmas"),
        (plain, (), [0.05, 0.05], "sigma 0.05 of all points, since nothing gives them (-sigmas)"),
    ):
        values, _ = evaluate(dataset, RESULTS, *options)
        np.testing.assert_allclose(values["stats"], keypoint_peer.evaluated(dataset, RESULTS, sigmas).stats, atol=1e-12)
        assert f"OKS of hand: {source}" in values["protocol"]


def test_a_folder_of_coco_scores_as_its_file_of_annotations(evaluate, tmp_path, capsys):
    dataset = copy.deepcopy(ANNOTATIONS)
    for number, entry in enumerate(dataset["images"]):
        entry["file_name"] = f"{number}.png"
    expected, _ = evaluate(dataset, RESULTS)
    root = tmp_path / "coco"
    for split in ("train2017", "val2017"):
        (root / split).mkdir(parents=True)
        (root / "annotations").mkdir(exist_ok=True)
        (root / "annotations" / f"person_keypoints_{split}.json").write_text(json.dumps(dataset))
        for entry in dataset["images"]:
            Image.new("RGB", (entry["width"], entry["height"])).save(root / split / entry["file_name"])
    evaluate_command.run([str(root), str(tmp_path / "results.json"), "-json"])
    found = json.loads(capsys.readouterr().out)
    assert found["stats"] == expected["stats"] and found["per_category"] == expected["per_category"]
    assert -1 < found["stats"][0] < 1


def test_points_and_the_table_for_compare(evaluate, tmp_path, capsys):
    values, _ = evaluate(ANNOTATIONS, RESULTS, f"-output={tmp_path / 'out'}")
    assert values["per_point"]["wrist"] == {
        "labeled": 2, "found": 1, "OKS": pytest.approx(np.exp(-9 / (2 * 1600 * 0.04))), "error_px": pytest.approx(3),
    }  # fmt: skip
    assert values["per_point"]["thumb"]["labeled"] == 1
    table = read_table(str(tmp_path / "out"))
    assert table.names == ["image 3", "a.png"] and table.about["classes"] == ["hand"]
    again = table.kind.recompute([table.arrays], ["hand"])(np.ones((1, 2)))
    assert [again[name][0] for name in ("AP", "OKS wrist")] == [values["stats"][0], values["per_point"]["wrist"]["OKS"]]
    evaluate_command.run([str(tmp_path / "annotations.json"), str(tmp_path / "results.json"), "-interval=off"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 images, 2 annotations of 1 categories, 2 results; OKS of keypoints"
    assert (
        lines[1]
        == f" Average Precision  (AP) @[ OKS=0.50:0.95 | area=   all | maxDets= 20 ] = {values['stats'][0]:.3f}"
    )
    assert [line.split("(")[1].split(" ]")[0] for line in lines[1:11]] == [
        f"{what}) @[ OKS={oks:<9} | area={area:>6} | maxDets= 20"
        for what in ("AP", "AR")
        for oks, area in (("0.50:0.95", "all"), ("0.50", "all"), ("0.75", "all"), ("0.50:0.95", "medium"),
                          ("0.50:0.95", "large"))
    ]  # fmt: skip
    thumb = np.exp(-16 / (2 * 1600 * 0.16))
    assert lines[-3:] == [
        "point of found objects  labeled   found    OKS  error px",
        f"wrist                         2       1  {values['per_point']['wrist']['OKS']:.3f}      3.00",
        f"thumb                         1       1  {thumb:.3f}      4.00",
    ]
    evaluate(ANNOTATIONS, RESULTS[1:])
    evaluate_command.run([str(tmp_path / "annotations.json"), str(tmp_path / "results.json"), "-interval=off"])
    assert capsys.readouterr().out.splitlines()[-1] == "thumb                         1       0      -         -"


@pytest.mark.parametrize("number", [100, 101])
def test_errors_of_many_points_are_in_the_json_alone(evaluate, tmp_path, capsys, number):
    hand = {"id": 5, "name": "hand", "keypoints": [f"point {place}" for place in range(number)]}
    places = [*ANNOTATIONS["annotations"][0]["keypoints"], *[0] * 3 * (number - 2)]
    entry = {**ANNOTATIONS["annotations"][0], "keypoints": places}
    evaluate({**ANNOTATIONS, "categories": [hand], "annotations": [entry]}, [{**RESULTS[0], "keypoints": places}])
    evaluate_command.run([str(tmp_path / "annotations.json"), str(tmp_path / "results.json"), "-interval=off"])
    lines = capsys.readouterr().out.splitlines()
    assert ("101 points: add -json to print the values of each" in lines) == (number == 101)
    assert any(line.startswith("point 99 ") for line in lines) == (number == 100)


def changed(content, entry, **fields):
    content = copy.deepcopy(content)
    content[entry].update(fields)
    return content


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        (changed(RESULTS, 1, keypoints=[1, 2, 3]), "result 1 has 3 numbers of keypoints: expected x, y and score of "),
        (
            changed(RESULTS, 0, keypoints=None),
            "result 0 has no keypoints: expected x, y and score of each of the 2 points",
        ),
        (
            changed(RESULTS, 0, bbox=[1, 2, 3, 4]),
            "result 1 has no bbox of x, y, width and height in pixels, unlike the",
        ),
        (
            [{**result, "bbox": [-1e300, 2, 3, 4]} for result in RESULTS],
            "result 0 has no bbox of x, y, width and height in pixels",
        ),
        (changed(RESULTS, 1, keypoints=[5, 5, 1, 5, -1e300, 1]), "image_id 3 has keypoints far from any image"),
        (changed(RESULTS, 0, keypoints=[1e300] * 6), "image_id 7 has keypoints far from any image: expected pixels"),
        (changed(RESULTS, 0, image_id=4), "1 image of its results are missing from"),
        (ANNOTATIONS, "expected a list of results, found an object.*keypoints.: .x, y, score, ...., .score"),
    ],
)
def test_results_that_cannot_be_scored_are_refused(evaluate, results, reason):
    with pytest.raises(UserError, match=reason):
        evaluate(ANNOTATIONS, results)


def test_annotations_without_objects_are_refused(evaluate):
    with pytest.raises(UserError, match="annotations.json has no labeled point"):
        evaluate({**ANNOTATIONS, "annotations": []}, RESULTS)


def test_sigmas_that_do_not_fit_are_refused(evaluate):
    with pytest.raises(UserError, match="-sigmas has 3 values, but hand has 2 points"):
        evaluate(ANNOTATIONS, RESULTS, "-sigmas=1,2,3")
    for text in ("0,1", "x", ""):
        with pytest.raises(UserError, match="expected numbers above 0 with commas"):
            evaluate(ANNOTATIONS, RESULTS, f"-sigmas={text}")


def test_categories_without_points_and_results_of_unknown_ones_do_not_count(evaluate):
    dataset = copy.deepcopy(ANNOTATIONS)
    dataset["categories"].append({"id": 2, "name": "ball"})
    ball = {"id": 3, "image_id": 7, "category_id": 2, "bbox": [0, 0, 9, 9], "area": 81, "iscrowd": 0}
    dataset["annotations"].append(ball)
    others = [{"image_id": 7, "category_id": id_, "keypoints": [], "score": 1.0} for id_ in (2, 999)]
    values, notes = evaluate(dataset, [*RESULTS, *others])
    assert values["stats"] == evaluate(ANNOTATIONS, RESULTS)[0]["stats"]
    assert values["per_category"]["ball"] == -1 and "1 result of unlisted categories" in notes
    assert "OKS of ball: no points" in values["protocol"]
    with pytest.raises(
        UserError, match="no result is of a category of .*: category_id 999, but it has 2, 5: use its ids"
    ):
        evaluate(dataset, others[1:])


def test_tables_of_both_tasks_can_be_compared_and_others_cannot(evaluate, tmp_path, monkeypatch):
    evaluate(ANNOTATIONS, RESULTS, f"-output={tmp_path / 'one'}")
    for task in ("keypoint_heatmaps", "detection"):
        monkeypatch.setattr(evaluate_command, "TASK", task)
        evaluate(ANNOTATIONS, RESULTS[1:], f"-output={tmp_path / task}")
    one, alike, other = (read_table(str(tmp_path / name)) for name in ("one", "keypoint_heatmaps", "detection"))
    intervals = TablePair.match(one, alike).compute_intervals()
    assert intervals.difference["AP"].value < 0  # without the right result
    with pytest.raises(UserError, match="task detection instead of keypoint_detection"):
        TablePair.match(one, other)


@pytest.mark.parametrize("spacing", ["", ",spacing_mm"])
def test_one_object_an_image_has_pck_and_radial_errors(tmp_path, capsys, spacing):
    value = ",0.5" if spacing else ""
    rows = [f"a,val{value},10,10,60,110", f"b,val{value},20,10,70,90", f"c,val{value},15,12,,"]
    (tmp_path / "points.csv").write_text(f"image,split{spacing},x1,y1,x2,y2\n" + "\n".join(rows) + "\n")
    for name in "abc":
        Image.new("RGB", (80, 120)).save(tmp_path / f"{name}.png")
    results = [
        {"image_id": 2, "category_id": 1, "keypoints": [20, 10, 1, 70, 90, 1], "score": 0.1},
        {"image_id": 3, "category_id": 5, "keypoints": [10, 10, 1, 60, 110, 1], "score": 1.0},
        {"image_id": 2, "category_id": 1, "keypoints": [23, 14, 1, 70, 90, 1], "score": 0.9},
        {"image_id": 1, "category_id": 1, "keypoints": [10, 10, 1, 60, 98, 1], "score": 0.5},
    ]
    for result in results:
        result["category_name"] = {1: "object", 5: "other"}[result["category_id"]]
    (tmp_path / "results.json").write_text(json.dumps(results))
    words = [str(tmp_path), str(tmp_path / "results.json"), "-json"]
    for folder in ("one", "two"):
        evaluate_command.run([*words, f"-output={tmp_path / folder}"])
    captured = capsys.readouterr()
    scores = json.loads(captured.out.splitlines()[0])["scores"]
    assert "note: 1 image without a result" in captured.err
    # 5 pixels of 80 and 12 of 100 are wrong, and the point of image 3 is not found
    assert [scores[name] for name in ("PCK", "PCK@0.1", "PCK@0.2")] == pytest.approx([40, 60, 80])
    assert [scores[f"{name}mre_px"] for name in ("", "point 1 ", "point 2 ")] == [4.25, 2.5, 6]
    assert scores["sd_px"] == pytest.approx(np.std([5, 0, 0, 12])) and scores["point 1 PCK"] == pytest.approx(100 / 3)
    assert scores.get("mre_mm") == (2.125 if spacing else None)
    evaluate_command.run([*words[:2], "-interval=off"])
    assert capsys.readouterr().out.splitlines() == [
        "3 images with one object each, 4 results",
        "PCK 40.00",
        "mre_px 4.2500",
        "sd_px 4.9181",
        *(["mre_mm 2.1250", "sd_mm 2.4590"] if spacing else []),
        "PCK: percent of points within 0.05 of the longer side of the extent of the labeled points; the result with "
        "the highest score of each image",
        "PCK of each:",
        "  point 1  33.33",
        "  point 2  50.00",
    ]
    intervals = TablePair.match(*(read_table(str(tmp_path / folder)) for folder in ("one", "two"))).compute_intervals()
    assert intervals.difference["PCK"].value == intervals.difference["mre_px"].value == 0


def test_a_position_that_the_data_do_not_have_is_refused(tmp_path):
    (tmp_path / "points.csv").write_text("image,split,x1,y1,x2,y2\na,val,10,10,60,110\n")
    Image.new("RGB", (80, 120)).save(tmp_path / "a.png")
    result = {"image_id": 1, "category_id": 0, "keypoints": [10, 10, 1, 60, 98, 1], "score": 0.5}
    (tmp_path / "results.json").write_text(json.dumps([result]))
    with pytest.raises(UserError, match="the classes 0, but keypoint_table .val. 1: add 1 to each number"):
        evaluate_command.run([str(tmp_path), str(tmp_path / "results.json"), "-json"])


def test_categories_counted_from_another_number_are_refused(evaluate):
    annotations = copy.deepcopy(ANNOTATIONS)
    annotations["categories"] = [dict(annotations["categories"][0], id=id_, name=f"hand {id_}") for id_ in (1, 2, 3)]
    for own in annotations["annotations"]:
        own["category_id"] = 1
    own = [{**result, "category_id": 2} for result in RESULTS]
    with pytest.raises(
        UserError, match="the classes 2, but .* 1 to 3, and 1 are right with each number one lower, 0 unchanged"
    ):
        evaluate(annotations, own)
    assert evaluate(annotations, [{**result, "category_name": "hand 2"} for result in own])[0]["scores"]["AP"] == 0
