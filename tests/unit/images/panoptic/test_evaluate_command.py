"""``evaluate panoptic``: files of other programs, against panopticapi's numbers and sets of pixels."""

import json

import numpy as np
import pytest
from PIL import Image
from support.files import segment_layouts as layouts
from support.networks.golden import arrays, description
from support.refusals import refusal_of
from support.samples.panoptic_pictures import CLASSES, IS_THING, brute_force, draw_prediction, draw_truth

from paddlevit_dist.images.panoptic import evaluate_command

STORED = description("eomt")["panoptic"]


def write(folder, name, content, maps):
    """A file in COCO's panoptic format, and its maps."""
    (folder / name).mkdir(parents=True)
    (folder / f"{name}.json").write_text(json.dumps(content))
    for entry, numbers in zip(content["annotations"], maps):
        layouts.save(folder / name / entry["file_name"], numbers.astype(np.int64))


@pytest.fixture
def evaluate(tmp_path, capsys):
    def run(*options, truth="truth.json"):
        evaluate_command.run([str(tmp_path / truth), str(tmp_path / "found.json"), *options])
        return capsys.readouterr().out

    return run


@pytest.fixture
def golden(tmp_path):
    """The golden images and results as files; returns the contents, which ``found`` writes changed."""
    maps = arrays("eomt")
    numbers = range(len(STORED["annotations"]))
    facts = {name: STORED[name] for name in ("images", "categories")}
    write(
        tmp_path,
        "truth",
        {**facts, "annotations": STORED["annotations"]},
        [maps[f"panoptic/truth{k}"] for k in numbers],
    )
    content = {"annotations": json.loads(json.dumps(STORED["predictions"]))}
    write(tmp_path, "found", content, [maps[f"panoptic/prediction{k}"] for k in numbers])
    return content


def test_golden_eomt_files(golden, evaluate):
    scores = json.loads(evaluate("-json", "-interval=off"))["scores"]
    for part, suffix in (("All", ""), ("Things", "_things"), ("Stuff", "_stuff")):
        for name in ("pq", "sq", "rq"):
            assert scores[f"{name.upper()}{suffix}"] == pytest.approx(STORED["results"][part][name], abs=1e-12)
    for category in STORED["categories"]:
        of, expected = category["name"], STORED["per_class"][str(category["id"])]
        known = any(STORED["counts"][str(category["id"])])
        assert scores.get(f"PQ {of}") == (pytest.approx(expected["pq"], abs=1e-12) if known else None)


def test_text_has_intervals_rules_and_each_class(golden, evaluate):
    text = evaluate()
    assert f"PQ {STORED['results']['All']['pq']:.4f} [" in text and "95 % intervals: half samples of images" in text
    assert "thing 90" in text and "PQ of each:" in text and "ground truth: " in text
    matched = sum(counts[1] for counts in STORED["counts"].values())
    missed = sum(counts[3] for counts in STORED["counts"].values())
    assert text.startswith(f"{matched + missed} segments in 9 images, ")


def test_results_in_another_order_with_other_ids_are_matched_by_name(golden, evaluate, tmp_path):
    expected = json.loads(evaluate("-json"))["scores"]
    for number, entry in enumerate(golden["annotations"]):
        entry["image_id"] = 900 - number
    golden["annotations"].reverse()
    (tmp_path / "found.json").write_text(json.dumps(golden))
    assert json.loads(evaluate("-json"))["scores"] == expected


def test_drawn_images_against_sets_of_pixels(evaluate, tmp_path):
    pictures = [(truth := draw_truth(number, 24, 30), draw_prediction(number, truth)) for number in range(3)]
    categories = [{"id": 7 * k, "name": name, "isthing": int(IS_THING[k])} for k, name in enumerate(CLASSES)]
    for side, name in enumerate(("truth", "found")):
        entries, maps = [], []
        for number, picture in enumerate(pictures):
            own = picture[side]
            rows = zip(own.ids.tolist(), (7 * own.labels).tolist(), own.is_crowd.tolist())
            rows = [{"id": of, "category_id": category, "iscrowd": int(crowd)} for of, category, crowd in rows]
            entries.append({"image_id": f"p{number}", "file_name": f"{number}.png", "segments_info": rows})
            maps.append(np.append(own.ids, 0)[own.places])
        write(tmp_path, name, {"annotations": entries, "categories": categories}, maps)
    scores = json.loads(evaluate("-json", "-interval=off"))["scores"]
    for label, (iou, matched, false, missed) in brute_force(pictures).items():
        total = matched + (false + missed) / 2
        assert scores.get(f"PQ {CLASSES[label]}") == (pytest.approx(iou / total, abs=1e-12) if total else None)


def test_a_data_set_is_the_truth(evaluate, tmp_path, capsys):
    layouts.own_coco(tmp_path / "data")
    found = json.loads((tmp_path / "data" / "panoptic" / "val.json").read_text())
    source = tmp_path / "data" / "panoptic" / "val"
    (tmp_path / "found").mkdir()
    for file in source.iterdir():
        (tmp_path / "found" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "found.json").write_text(json.dumps(found))
    scores = json.loads(evaluate("-json", truth="data"))
    assert scores["scores"]["PQ"] == 1.0 and scores["samples"] == 1


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda content: content["annotations"].pop(), "1 of 9 images of"),
        (lambda content: content["annotations"][0].pop("image_id"), "has no image_id"),
        (lambda content: content["annotations"][1].update(image_id=0), "two entries of image 0"),
        (lambda content: content["annotations"][0]["segments_info"].pop(), "which no segment has"),
        (lambda content: content["annotations"][0]["segments_info"][0].update(category_id=4), "has classes 4, but"),
        (
            lambda content: content["annotations"][0]["segments_info"].append({"id": 1, "category_id": 1}),
            "segment 1 has no pixel in",
        ),
        (lambda content: content.update(categories=[{"id": 3, "name": "cat"}]), "category 3 is cat, but thing 3 in"),
        (lambda content: content["annotations"][0].update(file_name="../x.png"), "outside of the folder of its maps"),
        (lambda content: content["annotations"][0].update(file_name="y.png"), "y.png"),
        (lambda content: content["annotations"][0]["segments_info"][0].update(id=1 << 70), "not a COCO panoptic file"),
        (lambda content: content["annotations"][0]["segments_info"][0].update(area=1e300), "not a COCO panoptic file"),
        (lambda content: content["annotations"][0].update(file_name="000000000001.png"), "pixels (width x height)"),
    ],
)
def test_results_that_do_not_fit_are_refused(golden, evaluate, tmp_path, change, words):
    change(golden)
    (tmp_path / "found.json").write_text(json.dumps(golden))
    if "000000000001" in words or words.startswith("pixels"):
        golden["annotations"][0]["segments_info"] = golden["annotations"][1]["segments_info"]
        (tmp_path / "found.json").write_text(json.dumps(golden))
    assert words in refusal_of(evaluate)


def test_results_without_ground_truth_are_told(golden, evaluate, tmp_path, capsys):
    golden["annotations"].append({"image_id": 77, "file_name": "x.png", "segments_info": []})
    (tmp_path / "found.json").write_text(json.dumps(golden))
    assert json.loads(evaluate("-json"))["notes"][0].endswith("found.json: 1 image without ground truth: skipped")


def rewrite(file, change):
    """Change the segments in a file."""
    content = json.loads(file.read_text())
    for entry in content["annotations"]:
        for segment in entry["segments_info"]:
            change(segment)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize("factor", [0, 0.25, 4])
def test_areas_of_the_file_do_not_count(golden, evaluate, tmp_path, factor):
    expected = json.loads(evaluate("-json"))["scores"]
    rewrite(tmp_path / "truth.json", lambda segment: segment.update(area=segment["area"] * factor))
    found = json.loads(evaluate("-json"))
    assert found["scores"] == expected
    assert any("with an area in the file that is not the number of pixels" in note for note in found["notes"])


def test_whole_numbers_of_other_programs_and_crowds_of_none_are_read(golden, evaluate, tmp_path):
    expected = json.loads(evaluate("-json"))["scores"]
    rewrite(tmp_path / "found.json", lambda segment: segment.update(id=float(segment["id"]), iscrowd=None))
    rewrite(tmp_path / "truth.json", lambda segment: segment.update(category_id=str(segment["category_id"])))
    assert json.loads(evaluate("-json"))["scores"] == expected


def test_a_crowd_is_one_or_zero_in_the_truth(golden, evaluate, tmp_path):
    rewrite(tmp_path / "truth.json", lambda segment: segment.update(iscrowd=2))
    assert "iscrowd 2" in refusal_of(evaluate)


def number_images(tmp_path, golden, is_listed):
    """Number the results' images from the last to the first, as a program that does not know the true ids."""
    truth = json.loads((tmp_path / "truth.json").read_text())
    listed = []
    ids = [entry["image_id"] for entry in truth["annotations"]]
    name_of = {image["id"]: image["file_name"] for image in truth["images"]}
    own_id = dict(zip(ids, reversed(ids)))
    for entry in golden["annotations"]:
        listed.append({"id": own_id[entry["image_id"]], "file_name": f"/photos/{name_of[entry['image_id']]}"})
        entry["image_id"] = own_id[entry["image_id"]]
    content = {**golden, "images": listed} if is_listed else golden
    (tmp_path / "found.json").write_text(json.dumps(content))


def test_a_list_of_images_counts_more_than_their_numbers(golden, evaluate, tmp_path):
    expected = json.loads(evaluate("-json"))["scores"]
    number_images(tmp_path, golden, is_listed=True)
    assert json.loads(evaluate("-json"))["scores"] == expected


def test_numbers_that_contradict_the_names_of_the_maps_are_refused(golden, evaluate, tmp_path):
    number_images(tmp_path, golden, is_listed=False)
    message = refusal_of(evaluate)
    assert "has image_id 8, but" in message and "correct one of them" in message


def write_pair(tmp_path, names):
    """Two images of one name in two folders, one of them all road; results under ``names`` and other ids."""
    categories = [{"id": 3, "name": "car", "isthing": 1}, {"id": 7, "name": "road", "isthing": 0}]
    maps = [np.full((4, 5), 1), np.full((4, 5), 2)]
    for side, files in (("truth", ("a/0.png", "b/0.png")), ("found", names)):
        entries = [
            {"image_id": f"{side}{k}", "file_name": file, "segments_info": [{"id": k + 1, "category_id": (3, 7)[k]}]}
            for k, file in enumerate(files)
        ]
        write(tmp_path, side, {"annotations": entries, "categories": categories}, maps)


@pytest.mark.parametrize("names", [("a/0.png", "b/0.png"), ("x/a/0.png", "x/b/0.png"), ("a/0.tif", "b/0.tif")])
def test_equal_names_in_two_folders_are_two_images(evaluate, tmp_path, names):
    write_pair(tmp_path, names)
    assert json.loads(evaluate("-json", "-interval=off"))["scores"]["PQ"] == 1.0


def test_listed_names_with_folders_count_more_than_numbers_of_another_order(evaluate, tmp_path):
    write_pair(tmp_path, ("0.png", "1.png"))
    listed = {"truth": ["a/0.png", "b/0.png"], "found": ["b/0.png", "a/0.png"]}  # the found maps are the others' way
    for side, names in listed.items():
        content = json.loads((tmp_path / f"{side}.json").read_text())
        content["images"] = [{"id": k, "file_name": name, "width": 5, "height": 4} for k, name in enumerate(names)]
        for number, entry in enumerate(content["annotations"]):
            entry["image_id"] = names.index(listed["truth"][number])
        (tmp_path / f"{side}.json").write_text(json.dumps(content))
    assert json.loads(evaluate("-json", "-interval=off"))["scores"]["PQ"] == 1.0


def test_an_image_without_a_result_is_named_where_the_others_are_found_by_name(golden, evaluate, tmp_path):
    for number, entry in enumerate(golden["annotations"]):
        entry["image_id"] = f"own {number}"
    missing = golden["annotations"].pop(3)
    (tmp_path / "found.json").write_text(json.dumps(golden))
    name = missing["file_name"].removesuffix(".png")
    assert f"1 of 9 images of {tmp_path / 'truth.json'} have no result, such as {name}" in refusal_of(evaluate)


def test_numbers_that_contradict_maps_in_folders_are_refused_and_flat_names_that_repeat_say_nothing(evaluate, tmp_path):
    write_pair(tmp_path, ("a/0.png", "b/0.png"))
    content = json.loads((tmp_path / "found.json").read_text())
    for number, entry in enumerate(content["annotations"]):
        entry["image_id"] = f"truth{1 - number}"
    (tmp_path / "found.json").write_text(json.dumps(content))
    assert "a/0.png has image_id truth1, but" in refusal_of(evaluate)
    for number, entry in enumerate(content["annotations"]):
        (tmp_path / "found" / entry["file_name"]).rename(tmp_path / "found" / f"{number}.png")
        entry |= {"image_id": f"truth{number}", "file_name": f"{number}.png"}
    (tmp_path / "found.json").write_text(json.dumps(content))
    assert json.loads(evaluate("-json", "-interval=off"))["scores"]["PQ"] == 1.0


def test_one_result_does_not_count_for_two_images(evaluate, tmp_path):
    write_pair(tmp_path, ("0.png", "1.png"))
    assert "0.png matches a/0.png and b/0.png" in refusal_of(evaluate)


def test_a_map_of_another_size_is_refused_before_it_is_decoded(golden, evaluate, tmp_path):
    file = tmp_path / "found" / golden["annotations"][0]["file_name"]
    Image.new("L", (9000, 8000)).save(file)
    file.write_bytes(file.read_bytes()[:20_000])  # what is cut off cannot be decoded
    assert "has 9000 x 8000 pixels (width x height), but" in refusal_of(evaluate)


def test_a_name_may_begin_with_two_dots(golden, evaluate, tmp_path):
    entry = golden["annotations"][0]
    (tmp_path / "found" / entry["file_name"]).rename(tmp_path / "found" / "..0.png")
    entry["file_name"] = "..0.png"
    (tmp_path / "found.json").write_text(json.dumps(golden))
    assert json.loads(evaluate("-json"))["samples"] == 9


def test_results_that_count_from_another_number_are_refused(evaluate, tmp_path):
    labels = np.array([[0, 0, 1], [0, 2, 1]])
    for name, off in (("truth", 0), ("found", 1)):
        own = np.where(labels == 2, 0, labels) if off else labels  # class 2 is never found
        rows = [{"id": k + 1, "category_id": k + off, "iscrowd": 0} for k in np.unique(own).tolist()]
        content = {"annotations": [{"image_id": 1, "file_name": "a.png", "segments_info": rows}]}
        if name == "truth":
            content["categories"] = [{"id": k, "name": f"class {k}", "isthing": 1} for k in range(3)]
        write(tmp_path, name, content, [own + 1])
    assert (
        "the classes 1 to 2, but" in (told := refusal_of(evaluate)) and "2 are right with each number one low" in told
    )
    content = json.loads((tmp_path / "found.json").read_text())
    content["categories"] = [{"id": k, "name": f"class {k}", "isthing": 1} for k in range(3)]
    (tmp_path / "found.json").write_text(json.dumps(content))  # which says what its ids mean
    assert json.loads(evaluate("-json", "-interval=off"))["scores"]["PQ"] == 0
