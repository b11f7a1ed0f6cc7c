"""``evaluate masks``: label maps of other programs, against loops over pixels."""

import json

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.extensions.compare.pairs import compare_tables
from paddlevit_dist.extensions.compare.tables import read_table
from paddlevit_dist.images.segmentation import evaluate_command as evaluate_masks
from paddlevit_dist.images.segmentation.metrics import SegmentationMetrics


def drawn(seed=0, images=5, classes=4):
    """True and found numbers of the pixels of images of several sizes."""
    rng = np.random.default_rng(seed)
    sizes = [tuple(rng.integers(8, 14, 2)) for _ in range(images)]
    true = [rng.integers(0, classes, size) for size in sizes]
    found = [np.where(rng.random(one.shape) < 0.7, one, rng.integers(0, classes, one.shape)) for one in true]
    for one in true:
        one[0] = 255
    return true, found


def write(folder, maps, dtype=np.uint8, ends=".png", palette=False):
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(maps):
        image = Image.fromarray(np.asarray(one, dtype))
        if palette:
            image = Image.fromarray(np.asarray(one, np.uint8), "P")
            image.putpalette([7 * k % 256 for k in range(768)])
        image.save(folder / f"p{number}{ends}")


def slow(true, found, classes, ignored=255):
    """IoU of each class, accuracy, and mean class accuracy, pixel by pixel."""
    pairs = [
        (t, f) for a, b in zip(true, found) for t, f in zip(a.ravel().tolist(), b.ravel().tolist()) if t != ignored
    ]
    ious, recalls = [], []
    for k in range(classes):
        both, either = sum(t == f == k for t, f in pairs), sum(k in (t, f) for t, f in pairs)
        ious.append(both / either)
        recalls.append(both / sum(t == k for t, _ in pairs))
    return ious, sum(t == f for t, f in pairs) / len(pairs), sum(recalls) / classes


@pytest.fixture
def evaluate(tmp_path, capsys):
    def run(*options):
        evaluate_masks.run([str(tmp_path / "true"), str(tmp_path / "found"), "-json", *options])
        captured = capsys.readouterr()
        return json.loads(captured.out), captured.err

    return run


@pytest.mark.parametrize("form", [{}, {"dtype": np.uint16}, {"palette": True}])
def test_scores_are_those_of_all_pixels(tmp_path, evaluate, form):
    true, found = drawn()
    write(tmp_path / "true", true, **form)
    write(tmp_path / "found", found)
    said, told = evaluate()
    ious, accuracy, mean_accuracy = slow(true, found, 4)
    assert [said["scores"][f"IoU {k}"] for k in range(4)] == pytest.approx(ious)
    assert said["scores"]["mIoU"] == pytest.approx(np.mean(ious))
    assert said["scores"]["accuracy"] == pytest.approx(accuracy)
    assert said["scores"]["mean class accuracy"] == pytest.approx(mean_accuracy)
    assert told.startswith("note: the interval is rough: 5 images") and told.count("\n") == 1
    assert said["samples"] == 5 and said["intervals"]["mIoU"]["low"] < said["scores"]["mIoU"]


def test_files_in_folders_with_other_ends_and_names_of_classes(tmp_path, evaluate):
    true, found = drawn()
    write(tmp_path / "true" / "town", true, ends="_gt.png")
    write(tmp_path / "true" / "town", true, ends="_colors.png")
    write(tmp_path / "found", found, ends="_leftImg8bit.png")
    (tmp_path / "names.txt").write_text("road,0,0,0\ncar,9,9,9\nsky,9,0,0\nman,0,9,0\ndog,0,0,9\n")
    said, _ = evaluate("-truth_suffix=_gt.png", "-result_suffix=_leftImg8bit.png", f"-classes={tmp_path / 'names.txt'}")
    ious, *_ = slow(true, found, 4)
    assert said["scores"]["IoU man"] == pytest.approx(ious[3]) and "IoU dog" not in said["scores"]
    assert said["scores"]["mIoU"] == pytest.approx(np.mean(ious))
    assert said["protocol"][1].endswith("4 of 5")


@pytest.mark.parametrize("place", ["true", "."])
def test_label_maps_with_other_numbers_of_the_classes_are_refused(tmp_path, evaluate, place):
    true, found = drawn()
    write(tmp_path / "true", true)
    write(tmp_path / "found", found)
    (tmp_path / "found" / "classes.txt").write_text("road\nsky\ncar\nman\n")  # as predict writes it
    (tmp_path / place / "classes.txt").write_text("road\ncar\nsky\nMensch\n")
    with pytest.raises(UserError, match=r"car is number 1 in .*classes.txt and 2 in .*found/classes.txt: label maps"):
        evaluate()
    (tmp_path / place / "classes.txt").write_text("road\nsky\ncar\nMensch\n")
    assert evaluate()[0]["samples"] == 5
    (tmp_path / "names.txt").write_text("sky\nroad\ncar\nman\n")
    with pytest.raises(UserError, match=r"sky is number 0 in .*names.txt and 1 in .*found/classes.txt"):
        evaluate(f"-classes={tmp_path / 'names.txt'}")


def test_a_truth_that_begins_with_0_for_nothing(tmp_path, evaluate):
    true, found = drawn()
    write(tmp_path / "true", [np.where(one == 255, 0, one + 1) for one in true])
    write(tmp_path / "found", found)
    said, _ = evaluate("-reduce_zero_label")
    assert said["scores"]["mIoU"] == pytest.approx(np.mean(slow(true, found, 4)[0]))
    assert "k is class k - 1" in said["protocol"][0]


def test_no_class_in_the_results_is_wrong_and_told(tmp_path, evaluate):
    true, found = drawn()
    found[2][3:5] = 255
    write(tmp_path / "true", true)
    write(tmp_path / "found", found)
    said, told = evaluate()
    ious, accuracy, _ = slow(true, found, 4)
    assert said["scores"]["mIoU"] == pytest.approx(np.mean(ious)) and said["scores"]["accuracy"] == pytest.approx(
        accuracy
    )
    assert f"{2 * true[2].shape[1]} pixels without a class where " in told


def test_one_result_is_not_of_two_images(tmp_path, evaluate):
    true, found = drawn()
    write(tmp_path / "true" / "a", true)
    write(tmp_path / "true" / "b", true)
    write(tmp_path / "found", found)
    with pytest.raises(UserError, match=r"p0.png matches a/p0.png and b/p0.png of .*true: give the results the"):
        evaluate()
    write(tmp_path / "found" / "a", found)
    write(tmp_path / "found" / "b", found)
    for number in range(5):
        (tmp_path / "found" / f"p{number}.png").unlink()
    assert evaluate()[0]["scores"]["mIoU"] == pytest.approx(np.mean(slow(true, found, 4)[0]))


def test_dice_and_boundaries_are_scored_as_in_an_evaluation(tmp_path, evaluate):
    true, found = drawn(images=4)
    write(tmp_path / "true", true)
    write(tmp_path / "found", found)
    metrics = SegmentationMetrics([*"0123"])
    for one, other in zip(true, found):
        metrics.update(other.astype(np.uint8), one.astype(np.uint8))
    said, told = evaluate(f"-output={tmp_path / 'scored'}")
    values = metrics.compute(metrics.state)
    assert values.pop("pixels") == sum((one != 255).sum() for one in true)
    assert said["scores"] == pytest.approx(values, rel=1e-12)
    table = read_table(str(tmp_path / "scored"))
    kept = metrics.to_sample_table(metrics.per_sample())
    assert sorted(table.arrays) == sorted(kept.arrays)
    for name, array in kept.arrays.items():
        np.testing.assert_array_equal(table.arrays[name], array, strict=True)


def test_a_class_that_the_truth_never_has_is_told_and_a_format_that_changes_numbers_refused(tmp_path, evaluate):
    true, found = drawn()
    write(tmp_path / "true", true)
    write(tmp_path / "found", [np.where(one == 3, 77, one) for one in found])
    said, told = evaluate()
    assert "pixels of class 77, which" in told and said["scores"]["IoU 77"] == 0
    write(tmp_path / "found", found, ends=".jpg")
    with pytest.raises(UserError, match=r"p0.jpg is a JPEG file, which changes class numbers"):
        evaluate("-result_suffix=.jpg")


def test_masks_of_0_and_255(tmp_path, evaluate):
    rng = np.random.default_rng(0)
    true, found = (255 * rng.integers(0, 2, (3, 9, 9)) for _ in range(2))
    write(tmp_path / "true", true)
    write(tmp_path / "found", found)
    _, told = evaluate()
    assert "only one class in addition to 255, which is ignored; add -ignore=none" in told
    said, _ = evaluate("-ignore=none")
    ious = [((true == k) & (found == k)).sum() / ((true == k) | (found == k)).sum() for k in (0, 255)]
    assert said["scores"]["mIoU"] == pytest.approx(np.mean(ious))


def test_any_number_can_be_ignored(tmp_path, evaluate):
    true, found = (np.random.default_rng(seed).integers(0, 3, (5, 7, 9)).astype(np.uint8) for seed in (1, 2))
    true[:, 2:4] = 9
    write(tmp_path / "true", true)
    write(tmp_path / "found", found)
    ious, accuracy, _ = slow(true, found, 3, ignored=9)
    scores = evaluate("-ignore=9")[0]["scores"]
    assert scores["mIoU"] == pytest.approx(np.mean(ious)) and scores["accuracy"] == pytest.approx(accuracy)
    for wrong in ("-1", "65536", "all"):
        with pytest.raises(UserError, match=f"-ignore: '{wrong}' is not a number from 0 to 65535 or none"):
            evaluate(f"-ignore={wrong}")
    write(tmp_path / "true", np.where(true == 9, 65535, true.astype(int)), np.uint16)
    assert evaluate("-ignore=65535")[0]["scores"] == scores


def test_two_folders_are_compared(tmp_path, evaluate):
    true, found = drawn()
    write(tmp_path / "true", true)
    scores = []
    for name, maps in (("a", found), ("b", true)):
        write(tmp_path / "found", [np.where(one == 255, 0, one) for one in maps])
        scores.append(evaluate(f"-output={tmp_path / name}")[0]["scores"]["mIoU"])
    row = compare_tables(read_table(str(tmp_path / "a")), read_table(str(tmp_path / "b")))
    assert scores[1] == 1 and row["difference"]["value"] == pytest.approx(1 - scores[0], abs=1e-5)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda f: (f / "found/p3.png").unlink(), "1 of 5 label maps of .*true have no counterpart, such as p3"),
        (lambda f: Image.new("L", (3, 4)).save(f / "found/p1.png"), "found/p1.png has 3 x 4 pixels .*true/p1.png"),
        (lambda f: Image.new("RGB", drawn()[0][1].shape[::-1]).save(f / "found/p1.png"), r"p1.png has colors \(RGB\)"),
        (lambda f: (f / "found/p1.png").write_bytes(b"\x89PNG"), "found/p1.png cannot be read"),
        (lambda f: write(f / "true", [np.full((9, 9), 300)] * 5, np.uint16), "class 300, but classes are 0 to 255"),
        (lambda f: write(f / "true", [np.full(o.shape, 255) for o in drawn()[0]]), "all pixels are 255"),
        (lambda f: [one.unlink() for one in (f / "true").iterdir()], r"true has no file that ends with \.png"),
        (lambda f: (f / "found").rename(f / "other"), "found is not a folder"),
    ],
)  # fmt: skip
def test_what_is_no_pair_of_label_maps_is_refused(tmp_path, evaluate, spoil, complaint):
    true, found = drawn()
    write(tmp_path / "true", true)
    write(tmp_path / "found", found)
    spoil(tmp_path)
    if "300" in complaint:
        write(tmp_path / "found", [np.zeros((9, 9))] * 5)
    with pytest.raises(UserError, match=complaint):
        evaluate()


def test_a_map_of_another_size_is_refused_before_it_is_decoded(tmp_path, evaluate):
    true, found = drawn()
    write(tmp_path / "true", true)
    write(tmp_path / "found", found)
    file = tmp_path / "found" / "p0.png"
    Image.new("L", (9000, 8000)).save(file)
    file.write_bytes(file.read_bytes()[:20_000])  # what is cut off cannot be decoded
    with pytest.raises(UserError, match=r"p0.png has 9000 x 8000 pixels \(width x height\), but "):
        evaluate()


def test_images_of_a_folder_are_drawn_together(tmp_path, evaluate):
    true, found = drawn(images=40)
    for number in range(4):  # of each video ten
        chosen = slice(10 * number, 10 * number + 10)
        write(tmp_path / "true" / f"video{number}", true[chosen])
        write(tmp_path / "found" / f"video{number}", found[chosen])
    listed = tmp_path / "videos.csv"
    listed.write_text("map,video\n" + "".join(f"video{n // 10}/p{n % 10},{n // 10}\n" for n in range(40)))
    by_word, told = evaluate("-group=folder")
    assert by_word["groups"] == {"by": "folder", "number": 4, "source": "the truth"} and "4 groups (below 50)" in told
    with_suffix = listed.read_text().replace(",", ".png,").replace("map.png", "map")
    listed.write_text(with_suffix)
    assert evaluate(f"-group={listed}")[0]["intervals"] == by_word["intervals"] != evaluate()[0]["intervals"]
    evaluate_masks.run([str(tmp_path / "true"), str(tmp_path / "found"), "-group=folder"])
