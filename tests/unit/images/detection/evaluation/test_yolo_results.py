"""``evaluate detections`` of YOLO's text files: as the same boxes in COCO's files score by pycocotools."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.networks import coco_peer

from paddlevit_dist import UserError
from paddlevit_dist.extensions.compare.pairs import compare_tables
from paddlevit_dist.extensions.compare.tables import read_table
from paddlevit_dist.images.detection import evaluate_command as evaluate_detections
from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.detection.evaluation.scored_files import MASKS
from paddlevit_dist.images.detection.evaluation.yolo_results import load_annotations, read_yolo
from paddlevit_dist.images.run_lengths import compress_runs

CATEGORIES = [{"id": 3, "name": "cup"}, {"id": 8, "name": "hat"}]  # 0 and 1 in YOLO's files


def written(folder, number=25, seed=0):
    """The same truth and results as files of YOLO, in ``yolo`` and ``found``, and as what COCO's tools read."""
    rng = np.random.default_rng(seed)
    coco, results = {"images": [], "annotations": [], "categories": CATEGORIES}, []
    for place in ("yolo/images/val", "yolo/images/train", "yolo/labels/val", "found"):
        (folder / place).mkdir(parents=True)
    (folder / "yolo" / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [cup, hat]\n")
    for image in range(1, number + 1):
        width, height = (int(side) for side in rng.integers(50, 220, 2))
        Image.new("L", (width, height)).save(folder / f"yolo/images/val/a{image:02d}.png")
        about = {"id": 70 + image, "file_name": f"val/a{image:02d}.png", "width": width, "height": height}
        coco["images"].append(about)
        lines, found = [], []
        for _ in range(int(rng.integers(0, 4))):
            label, middle, size = int(rng.integers(2)), rng.uniform(0.3, 0.7, 2), rng.uniform(0.2, 0.5, 2)
            line = f"{label} {middle[0]:.6f} {middle[1]:.6f} {size[0]:.6f} {size[1]:.6f}"
            lines.append(line)
            box = in_pixels(line, width, height)
            annotation = {"id": len(coco["annotations"]) + 1, "image_id": 70 + image, "bbox": box, "iscrowd": 0}
            area = float(line.split()[3]) * float(line.split()[4]) * width * height
            coco["annotations"].append({**annotation, "category_id": CATEGORIES[label]["id"], "area": area})
            if rng.random() < 0.85:
                middle = middle + rng.normal(0, 0.03, 2)
                label = label if rng.random() < 0.9 else 1 - label
                line = f"{label} {middle[0]:.6f} {middle[1]:.6f} {size[0]:.6f} {size[1]:.6f}"
                score = round(float(rng.random()), 1)  # equal ones occur
                found.append(f"{line} {score}")
                result = {"image_id": 70 + image, "category_id": CATEGORIES[label]["id"], "score": score}
                results.append({**result, "bbox": in_pixels(line, width, height)})
        (folder / f"yolo/labels/val/a{image:02d}.txt").write_text("\n".join(lines))
        if found:
            (folder / f"found/a{image:02d}.txt").write_text("\r\n".join(found) + "\r\n")
    (folder / "truth.json").write_text(json.dumps(coco))
    return coco, results


def in_pixels(line, width, height):
    x, y, across, down = map(float, line.split()[1:])
    return [(x - across / 2) * width, (y - down / 2) * height, across * width, down * height]


@pytest.mark.parametrize("truth", ["yolo", "truth.json"])
def test_text_files_score_as_pycocotools_says_of_the_same_boxes(tmp_path, capsys, truth):
    coco, results = written(tmp_path)
    evaluate_detections.run([str(tmp_path / truth), str(tmp_path / "found"), "-json"])
    said = capsys.readouterr()
    assert json.loads(said.out)["stats"] == pytest.approx(coco_peer.evaluated(coco, results).stats.tolist(), abs=1e-12)
    assert "images without a file, taken as without detections" in said.err and "far outside" not in said.err
    for file in list((tmp_path / "found").iterdir())[:2]:
        file.rename(file.with_suffix(".TXT"))
    evaluate_detections.run([str(tmp_path / truth), str(tmp_path / "found"), "-json"])
    assert json.loads(capsys.readouterr().out)["stats"] == json.loads(said.out)["stats"]
    for file in (tmp_path / "found").iterdir():
        rows = [line.split() for line in file.read_text().splitlines()]
        file.write_text("\n".join(" ".join([row[0], row[5], *row[1:5]]) for row in rows))
    evaluate_detections.run([str(tmp_path / truth), str(tmp_path / "found"), "-json"])
    assert "are far outside their images: is the column order different" in capsys.readouterr().err


def test_outlines_are_masks_and_boxes(tmp_path, capsys):
    coco, results = written(tmp_path, 6)
    for annotation in coco["annotations"]:
        annotation["segmentation"] = [corners(annotation["bbox"])]
    for file in (tmp_path / "found").iterdir():
        lines = [line.split() for line in file.read_text().split("\n") if line.strip()]
        file.write_text("\n".join(" ".join([own[0], *map(repr, make_shares(own)), own[5]]) for own in lines))
    for result in results:
        result["segmentation"] = [corners(result["bbox"])]
    (tmp_path / "truth.json").write_text(json.dumps(coco))
    for kind in ("bbox", "segm"):
        words = [str(tmp_path / "truth.json"), str(tmp_path / "found"), f"-iou_type={kind}"]
        evaluate_detections.run([*words, "-json", f"-output={tmp_path / kind}"])
        theirs = coco_peer.evaluated(coco, results, kind)
        assert json.loads(capsys.readouterr().out)["stats"] == pytest.approx(theirs.stats.tolist(), abs=1e-9)
    with pytest.raises(UserError, match="task detection by masks instead of detection"):
        compare_tables(read_table(str(tmp_path / "bbox")), read_table(str(tmp_path / "segm")))


def corners(box):
    x, y, across, down = box
    return [x, y, x + across, y, x + across, y + down, x, y + down]


def make_shares(words):
    return corners(in_pixels(" ".join(words[:5]), 1, 1))


def test_results_of_two_origins_are_compared_by_the_names_of_images(tmp_path, capsys):
    _, results = written(tmp_path)
    (tmp_path / "results.json").write_text(json.dumps(results[::2]))
    for name, words in (("a", ("yolo", "found")), ("b", ("truth.json", "results.json"))):
        evaluate_detections.run([*(str(tmp_path / word) for word in words), f"-output={tmp_path / name}", "-json"])
    stats = [json.loads(line)["stats"] for line in capsys.readouterr().out.splitlines()]
    found = compare_tables(read_table(str(tmp_path / "a")), read_table(str(tmp_path / "b")))
    assert found["of_first"]["value"] == pytest.approx(stats[0][0], abs=1e-5)
    assert found["difference"]["value"] == pytest.approx(stats[1][0] - stats[0][0], abs=1e-5)
    assert found["worse"][0]["sample"].startswith("images/val/a")


@pytest.mark.parametrize(
    ("name", "line", "complaint"),
    [
        ("a01", "0 0.5 0.5 0.2 0.2", "line 1: .*5 numbers: no confidence: save_conf=True writes it"),
        ("a01", "\n0 50 50 20 20 0.9", "line 2: .*expected fractions of the image from 0 to 1, not pixels"),
        ("a01", "0 -2 0.5 0.2 0.2 0.9", "expected fractions of the image from 0 to 1"),
        ("a01", "0 0.5 2 0.2 0.2 0.9", "expected fractions of the image from 0 to 1"),
        ("a01", "0 0.5 0.5 -0.2 0.2 0.9", "expected fractions of the image from 0 to 1"),
        ("a01", "0 0.5 0.5 0.2 -0.2 0.9", "expected fractions of the image from 0 to 1"),
        ("a01", "0 0.9 0.5 0.5 0.2 20", "the confidence is 20"),
        ("a01", "0 0.5 0.5 0.2 0.2 nan", "the confidence is nan"),
        ("a01", "2 0.5 0.5 0.2 0.2 0.9", "there is no class 2: 2 are known, from 0 to 1"),
        ("a01", "cup 0.5 0.5 0.2 0.2 0.9", "expected class x y width height confidence"),
        ("a01", "0 0.5 0.5 0.2 0.2 0.9 17", "7 numbers"),
        (
            "b1",
            "0 0.5 0.5 0.2 0.2 0.9",
            r"1 file without an image in .*, such as b1\.txt; an image there is called a01",
        ),
    ],
)
@pytest.mark.parametrize("truth", ["yolo", "truth.json"])
def test_lines_that_are_no_results_are_refused(tmp_path, truth, name, line, complaint):
    written(tmp_path, 3)
    (tmp_path / f"found/{name}.txt").write_text(line)
    with pytest.raises(UserError, match=complaint):
        evaluate_detections.run([str(tmp_path / truth), str(tmp_path / "found")])


def test_folders_that_hold_no_results(tmp_path):
    written(tmp_path, 3)
    with pytest.raises(UserError, match=r"has no \.txt files, and those in its folders are not read; "):
        evaluate_detections.run([str(tmp_path / "truth.json"), str(tmp_path / "yolo" / "images")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"has no \.txt files; "):
        evaluate_detections.run([str(tmp_path / "truth.json"), str(tmp_path / "empty")])


def test_the_folder_of_a_detectors_run_and_its_list_of_classes(tmp_path, capsys):
    written(tmp_path, 5)
    (tmp_path / "run").mkdir()
    (tmp_path / "found").rename(tmp_path / "run" / "labels")
    (tmp_path / "run" / "labels" / "classes.txt").write_text("cup\nhat\n")
    evaluate_detections.run([str(tmp_path / "yolo"), str(tmp_path / "run")])
    assert capsys.readouterr().out.startswith("5 images, ")


def make_dataset(**changes):
    """Images 9 and 4 of 6 x 10 and 5 x 7 pixels, with two objects and one."""

    def annotate(boxes, labels, masks):
        boxes, number = np.array(boxes, float), len(labels)
        return ImageAnnotations(
            boxes, np.array(labels), boxes[:, 2] * 2, np.zeros(number, bool), np.arange(number), masks
        )

    annotations = [
        annotate([[0, 0, 2, 2], [1, 1, 3, 2]], [1, 0], [[[0, 0, 2, 0, 2, 2, 0, 2]], [[1, 1, 4, 1, 4, 3, 1, 3]]]),
        annotate([[3, 2, 4, 2]], [1], [[[3, 2, 7, 2, 7, 4, 3, 4]]]),
    ]
    facts = {
        "labeled": True, "has_masks": True, "image_ids": np.array([9, 4]), "sizes": np.array([[6, 10], [5, 7]]),
        "annotations": annotations.__getitem__, "category_ids": [3, 8], "class_names": ["cup", "hat"],
        "declares_ids": True, "notices": [], "describe": "{}.png".format, "root": "/data", "identity": "{}.png".format,
    }  # fmt: skip
    return SimpleNamespace(**{**facts, **changes})


def test_annotations_of_a_dataset_are_ordered_by_image_with_their_masks():
    found = load_annotations(make_dataset(), "yolo", MASKS)
    assert found.image_ids == [4, 9] and found.sizes.tolist() == [[5, 7], [6, 10]]
    assert found.truth.boxes[:, 0].tolist() == [3, 0, 1] and found.truth.labels.tolist() == [1, 1, 0]
    expected = [([[3, 2, 7, 2, 7, 4, 3, 4]], 5, 7), ([[0, 0, 2, 0, 2, 2, 0, 2]], 6, 10)]
    assert found.masks[:2] == [compress_runs(*mask) for mask in expected] and len(found.masks) == 3
    assert (found.path, found.category_ids, found.notices) == ("yolo", [3, 8], [])
    assert found.names == found.original_names == ["cup", "hat"] and found.file_names == ["1.png", "0.png"]
    assert found.first.tolist() == [0, 1, 3] and found.truth.areas.tolist() == [8, 4, 6]
    alike = load_annotations(make_dataset(has_masks=False, class_names=["cup", "cup"], notices=["a note"]), "yolo")
    assert alike.masks is None and alike.notices == ["a note"]
    assert (alike.names, alike.original_names) == (["cup (id 3)", "cup (id 8)"], ["cup", "cup"])


def test_a_mask_that_cannot_be_read_is_named():
    dataset = make_dataset()
    annotations = dataset.annotations(1)
    annotations.masks[0] = [3, 2, 7, 2]  # not a list of polygons
    with pytest.raises(UserError, match=r"yolo: annotation \d+ of .*: its segmentation has a polygon that is not"):
        load_annotations(dataset, "yolo", MASKS)
    assert load_annotations(dataset, "yolo").masks is None


@pytest.mark.parametrize("far", [1, 2])
def test_boxes_are_in_pixels_of_their_images_and_many_far_outside_are_told(tmp_path, far):
    lines = ["1 0.5 0.5 0.2 0.4 0.9", "0 0.05 0.5 0.2 0.5 0.25", "0 0.4 0.25 0.2 0.7 0.5", "0 0.5 0.75 0.5 0.6 1"]
    lines[1] = "0 0.05 0.5 0.22 0.5 0.25" if far == 2 else lines[1]  # 0.06 instead of 0.05 of the image
    (tmp_path / "0.txt").write_text("\n".join(lines))  # of 6 x 10 pixels, the second in the order of ids
    found = read_yolo(str(tmp_path), load_annotations(make_dataset(), "yolo"), {0: 0, 1: 1})
    left, width = (-0.6, 2.2) if far == 2 else (-0.5, 2)
    expected = [[4, 1.8, 2, 2.4], [left, 1.5, width, 3], [3, -0.6, 2, 4.2], [2.5, 2.7, 5, 3.6]]
    np.testing.assert_allclose(found.boxes, expected, atol=1e-12)
    np.testing.assert_allclose(found.areas, np.prod(np.array(expected)[:, 2:], axis=1), atol=1e-12)
    assert found.scores.tolist() == [0.9, 0.25, 0.5, 1] and found.labels.tolist() == [1, 0, 0, 0]
    assert (found.first.tolist(), found.masks, found.path) == ([0, 0, 4], None, str(tmp_path))
    told = "2 of 4 boxes are far outside their images: is the column order different, or are corners given? expected "
    told += "class x y width height confidence, as fractions of the image from 0 to 1 (save_txt and save_conf)"
    lines = ["1 image without a file, taken as without detections", *[told] * (far == 2)]
    assert found.notices == [f"{tmp_path}: {line}" for line in lines]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labeled": False}, "yolo has no annotations to compare"),
        ({"has_masks": False}, "yolo has no masks to compare"),
    ],
)
def test_a_dataset_without_what_is_compared_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        load_annotations(make_dataset(**changes), "yolo", MASKS)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["val/a01.png", "", "val/a03.png"], r"truth\.json has images without a file_name"),
        (["val/a01.png", "x/a03.png", "y/a03.jpg"], r"truth\.json: several images are called a03, so .* ambiguous"),
    ],
)
def test_images_whose_results_cannot_be_told_are_refused(tmp_path, names, message):
    coco, _ = written(tmp_path, 3)
    for image, name in zip(coco["images"], names):
        image["file_name"] = name
        if not name:
            del image["file_name"]
    (tmp_path / "truth.json").write_text(json.dumps(coco))
    with pytest.raises(UserError, match=message):
        evaluate_detections.run([str(tmp_path / "truth.json"), str(tmp_path / "found")])
