"""Whole reports on label maps: which files are compared, and what is counted, told and refused."""

import numpy as np
import pytest
from PIL import Image
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.data.class_lists import read_class_list
from paddlevit_dist.images.label_maps import LabelMapRules, require_same_numbers, score

SHOWN = {"mIoU": 4, "accuracy": 4, "mean class accuracy": 4, "mean Dice": 4, "boundary IoU": 4}


def write(folder, maps):
    for name, values in maps.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values.astype(np.uint8)).save(folder / name)


def draw(seed, values):
    sizes = {"a/y": (5, 8), "b/x": (7, 4), "z": (6, 9)}
    generator = np.random.default_rng(seed)
    return {name: generator.choice(values, size) for name, size in sizes.items()}


def count(true, found, classes, ignored):
    """Right, true and found pixels of each class."""
    is_known = ~np.isin(true, ignored)
    right, given, taken = true[is_known & (true == found)], true[is_known], found[is_known]
    return [[(labels == number).sum() for number in range(classes)] for labels in (right, given, taken)]


def test_a_report_says_what_was_compared_left_over_and_ignored(tmp_path):
    true, found = draw(0, [0, 1, 2, 3, 7]), draw(1, [0, 1, 2, 3, 7, 255])
    ends = {"true": "_t.png", "found": "_r.png"}
    for folder, maps in (("true", true), ("found", {**found, "a/w": found["z"]})):
        write(tmp_path / folder, {f"{name}{ends[folder]}": values for name, values in maps.items()})
        write(tmp_path / folder, {f"{name}{ends[folder]}": found["z"] for name in ("a/.y", ".hidden/x")})
        write(tmp_path / folder, {"a/y_color.png": found["z"]})
    truth, results = str(tmp_path / "true"), str(tmp_path / "found")
    report = score(truth, results, LabelMapRules(["a", "b", "c", "d"], 7, False, "_t.png", "_r.png"))
    assert report.names == ["z.png", "a/y.png", "b/x.png"] and report.classes == ["a", "b", "c", "d"]
    assert report.counted == f"3 images of 4 classes: {results}, ground truth: {truth}"
    assert (report.sample, report.task, report.kind, report.shown) == ("image", "masks", "confusions", SHOWN)
    assert list(report.shown) == list(SHOWN) and report.more_is_better
    ignored = sum((values == 7).sum() for values in true.values())
    outside = sum(((true[name] != 7) & np.isin(found[name], [7, 255])).sum() for name in true)
    assert report.notices == [
        f"{results}: 1 map without an image in {truth}: skipped",
        f"{results}: {outside} pixels without a class where the ground truth has one: counted as wrong",
    ]
    assert report.protocol == [
        f"IoU: over the pixels of all images together; {ignored} are ignored, where the ground truth is 7",
        "mIoU: mean over the classes in ground truth or results, 4 of 4",
        "boundary IoU: over the pixels of each class within 2 % of the image's diagonal of its boundary",
    ]
    expected = [count(true[name], found[name], 4, [7]) for name in ("z", "a/y", "b/x")]
    np.testing.assert_array_equal(report.arrays["statistics"], expected)
    assert report.arrays["boundaries"].shape == (3, 3, 4) and np.isnan(report.arrays["losses"]).sum() == 3


def test_classes_without_names_are_those_that_occur(tmp_path):
    numbers = [*range(3), *range(100, 130)]
    true, found = draw(2, [0, 2, 255]), draw(3, numbers)
    found["z"].flat[: len(numbers)] = numbers
    for folder, maps in (("true", true), ("found", found)):
        write(tmp_path / folder, {f"{name}.png": values for name, values in maps.items()})
    truth, results = str(tmp_path / "true"), str(tmp_path / "found")
    report = score(truth, results, LabelMapRules())
    known = np.concatenate([found[name][true[name] != 255] for name in found])
    occurring = sorted({0, 2} | set(known.tolist()))
    assert report.classes == list(map(str, occurring))
    (notice,) = report.notices
    assert notice.startswith(f"{results}: pixels of class 1, 100, ") and len(notice) < 200 + len(results + truth)
    assert notice.endswith(f", which {truth} never has: counted as wrong, each as one more class of the mean")
    expected = np.array([count(true[name], found[name], 256, [255]) for name in ("z", "a/y", "b/x")])
    np.testing.assert_array_equal(report.arrays["statistics"], expected[:, :, occurring])
    assert report.protocol[1].endswith(f"results, {len(occurring)} of {len(occurring)}")


@pytest.mark.parametrize("is_reduced, ignored, told", [(True, 255, 5), (False, None, 255), (True, None, 255)])
def test_a_number_without_a_class_is_told_as_in_the_file(tmp_path, is_reduced, ignored, told):
    true = np.array([[0, 1, 4, told], [2, 3, 255, 255]])
    write(tmp_path / "true", {"a.png": true})
    write(tmp_path / "found", {"a.png": true * 0})
    rules = LabelMapRules(["a", "b", "c", "d", "e"][: 4 if is_reduced else 5], ignored, is_reduced)
    highest = len(rules.classes) - 1
    with pytest.raises(UserError, match=rf"a.png has pixels of class {told}, but classes are 0 to {highest}; list"):
        score(str(tmp_path / "true"), str(tmp_path / "found"), rules)


def test_a_background_of_0_is_ignored_beside_another_number(tmp_path):
    true, found = draw(4, [0, 1, 2, 3, 9]), draw(5, [0, 1, 2])
    for folder, maps in (("true", true), ("found", found)):
        write(tmp_path / folder, {f"{name}.png": values for name, values in maps.items()})
    rules = LabelMapRules(["a", "b", "c"], 9, reduce_zero_label=True)
    report = score(str(tmp_path / "true"), str(tmp_path / "found"), rules)
    expected = [count(true[name].astype(int) - 1, found[name], 3, [-1, 8]) for name in ("z", "a/y", "b/x")]
    np.testing.assert_array_equal(report.arrays["statistics"], expected)
    ignored = sum(np.isin(values, [0, 9]).sum() for values in true.values())
    shift = "; 0 in the ground truth is ignored as well, and k is class k - 1"
    assert report.protocol[0].endswith(f"{ignored} are ignored, where the ground truth is 9{shift}")


def test_negative_numbers_of_signed_files_are_no_classes(tmp_path):
    true, found = np.array([[0, 1, 2], [2, 0, -1]], np.int32), np.array([[0, 1, -3], [2, -2, 1]], np.int32)
    for folder, values in (("true", true), ("found", found)):
        (tmp_path / folder).mkdir()
        Image.fromarray(values).save(tmp_path / folder / "a.tif")
    truth, results = str(tmp_path / "true"), str(tmp_path / "found")
    report = score(truth, results, LabelMapRules(["a", "b", "c"], -1, False, ".tif", ".tif"))
    assert report.notices == [f"{results}: 2 pixels without a class where the ground truth has one: counted as wrong"]
    np.testing.assert_array_equal(report.arrays["statistics"], [count(true, found, 3, [-1])])
    with pytest.raises(UserError, match="a.tif has pixels of class -1, but classes are 0 to 2"):
        score(truth, results, LabelMapRules(["a", "b", "c"], None, False, ".tif", ".tif"))


@pytest.mark.parametrize(
    ("pixels", "classes", "told"),
    [
        (
            [[3, 5], [5, 3]],
            None,
            "pixels have 3, 5, but the classes of {} are 0, 1: list the classes with",
        ),
        ([[7, 9], [255, 9]], ["sky", "road", "car"], "no pixel has a class, but the classes of {} are 0, 1"),
    ],
)
def test_results_without_any_class_of_the_truth_have_no_score(tmp_path, pixels, classes, told):
    for name, values in (("truth", [[0, 1], [1, 1]]), ("found", pixels)):
        (tmp_path / name).mkdir()
        Image.fromarray(np.array(values, np.uint8)).save(tmp_path / name / "a.png")
    rules = LabelMapRules(classes)
    said = refusal_of(score, str(tmp_path / "truth"), str(tmp_path / "found"), rules)
    assert said.startswith(f"{tmp_path / 'found'}: {told.format(tmp_path / 'truth')}")
    Image.fromarray(np.array([[2, 1], [1, 2]] if classes is None else [[2, 2], [2, 2]], np.uint8)).save(
        tmp_path / "found" / "a.png"
    )
    assert score(str(tmp_path / "truth"), str(tmp_path / "found"), rules).names == ["a.png"]  # wrong, but some class


@pytest.mark.parametrize("place", ["data/labels/val", "data/labels", "data"])
def test_two_folders_of_label_maps_number_their_common_classes_alike(tmp_path, place):
    truth, results = (tmp_path / name / "labels" / "val" for name in ("data", "found"))
    for folder in (truth, results):
        folder.mkdir(parents=True)
    own = tmp_path / place / "classes.txt"
    own.write_text("sky\nroad\ntree\n")
    require_same_numbers(str(truth), str(results), None)
    other = results / "classes.txt"
    other.write_text("sky\nroad\nsea\ncow\n")
    require_same_numbers(str(truth), str(results), None)
    other.write_text("sky\ntree\nroad\n")
    assert refusal_of(require_same_numbers, str(truth), str(results), None).startswith(
        f"road is number 1 in {own} and 2 in {other}: label maps are compared by number"
    )
    require_same_numbers(str(truth), str(results), read_class_list(str(other)))  # which replaces the one of the truth
    own.unlink()
    require_same_numbers(str(truth), str(results), None)
    (tmp_path / "classes.txt").write_text("tree\nroad\n")  # too far above
    require_same_numbers(str(truth), str(results), None)


def test_maps_that_number_the_classes_in_another_way_are_refused(tmp_path):
    true = np.array([[0, 1, 2], [2, 0, 255]])
    write(tmp_path / "true", {"a.png": true})
    for found, classes, told in (
        (true + 1, ["a", "b", "c"], "the classes 1 to 3, but {} 0 to 2: subtract 1"),
        (true + 1, None, "the classes 1 to 3, but {} 0 to 2, and 5 are right with each number one lower"),
        (np.where(true == 2, 2, true + 1), ["a", "b", "c"], "and 3 are right with each number one lower, 2 unchanged"),
        (true + 4, ["a", "b", "c"], "the classes 0 to 6"),
    ):
        found = found.copy()
        found[0, 0] = 0 if found[0, 0] == 4 else found[0, 0]
        write(tmp_path / "found", {"a.png": found})
        said = refusal_of(score, str(tmp_path / "true"), str(tmp_path / "found"), LabelMapRules(classes))
        assert told.format(tmp_path / "true") in said
