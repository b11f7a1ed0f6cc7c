"""CocoAP: crowds, areas and masks as pycocotools counts them, and what it does not read."""

import contextlib
import io

import numpy as np
import paddle
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from support.refusals import refusal_of
from support.samples.drawn_detections import NAMES, drawn

import paddlevit_dist as pv
from paddlevit_dist.images.detection.detections import boxes_to_corners, corners_to_boxes
from paddlevit_dist.images.run_lengths import encode

NAN = float("nan")
IMAGES = 14
CUP = {"boxes": [[10, 10, 60, 50]], "labels": [0]}
FOUND = {**CUP, "scores": [0.5]}
WHOLE_CROWD = {"boxes": [[10, 10, 60, 50], [0, 60, 100, 100]], "labels": [0, 0]}


def samples(scale=1.0):
    """Outputs and targets with torchvision's keys; areas are not those of the boxes."""
    for number in range(IMAGES):
        truth, found = drawn(number)
        output = {"boxes": found.boxes, "scores": found.scores, "labels": found.labels}
        target = {"boxes": boxes_to_corners(truth.boxes), "labels": truth.labels}
        yield output, {**target, "iscrowd": truth.is_crowd.astype(np.uint8), "area": scale * truth.areas}


def score_with_pycocotools(pairs, kind="bbox"):
    annotations, results = [], []
    for image, (output, target) in enumerate(pairs, 1):
        boxes = corners_to_boxes(np.asarray(target["boxes"], float)).tolist()
        for place, (box, label) in enumerate(zip(boxes, np.asarray(target["labels"]).tolist())):
            row = {"id": len(annotations) + 1, "image_id": image, "category_id": label, "bbox": box}
            row |= {"iscrowd": int(target["iscrowd"][place]), "area": float(target["area"][place])}
            annotations.append({**row, **({"segmentation": target["masks"][place]} if kind == "segm" else {})})
        found = corners_to_boxes(np.asarray(output["boxes"], float)).tolist()
        for place, (box, label) in enumerate(zip(found, np.asarray(output["labels"]).tolist())):
            row = {"image_id": image, "category_id": label, "score": float(output["scores"][place])}
            results.append({**row, **({"segmentation": output["masks"][place]} if kind == "segm" else {"bbox": box})})
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "images": [{"id": image, "height": 180, "width": 200} for image in range(1, len(pairs) + 1)],
            "categories": [{"id": number} for number in range(len(NAMES))],
            "annotations": annotations,
        }
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results), kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return dict(zip(("AP", "AP50", "AP75", "AP_small", "AP_medium"), evaluation.stats.tolist()))


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_crowds_and_areas_count_as_in_pycocotools_by_either_name(scale):
    expected = score_with_pycocotools(list(samples(scale)))
    assert 0.1 < expected["AP"] < 0.9 and expected["AP_small"] != expected["AP_medium"]
    for rename in ({}, {"iscrowd": "is_crowd", "area": "areas"}):
        meter = pv.CocoAP(NAMES, percent=None)
        for output, target in samples(scale):
            meter.update([output], [{rename.get(name, name): value for name, value in target.items()}])
        values = meter.compute().values
        for name in set(values) & set(expected):
            assert values[name] == pytest.approx(expected[name], abs=1e-9), name
        assert {"AP", "AP50", "AP75"} <= set(values)


def test_masks_may_be_pixels_and_their_areas_are_pixels():
    """A crowd's mask is the lower half; the object's mask has 2000 pixels, but its box 3500."""
    ours = np.zeros((180, 200), bool)
    ours[10:50, 10:60] = True
    crowd, part = np.zeros_like(ours), np.zeros_like(ours)
    crowd[90:], part[100:120, 100:150] = True, True
    true = {"boxes": [[10, 10, 80, 60], [0, 90, 200, 180]], "labels": [0, 0], "iscrowd": [0, 1]}
    found = {"boxes": [[10, 10, 80, 60], [100, 100, 150, 120]], "labels": [0, 0], "scores": [0.5, 0.9]}
    runs = {"masks": [encode(ours), encode(crowd)], "area": [ours.sum(), crowd.sum()]}
    expected = score_with_pycocotools([({**found, "masks": [encode(ours), encode(part)]}, {**true, **runs})], "segm")
    meter = pv.CocoAP(["cup"], masks=True)
    pixels = {"masks": np.stack([ours, crowd]), "size": [180, 200]}
    meter.update([{**found, "masks": np.stack([ours, part])}], [{**true, **pixels}])
    values = meter.compute().values
    assert values["mask AP"] == pytest.approx(expected["AP"]) == pytest.approx(1.0)
    assert values["mask AP_medium"] == pytest.approx(expected["AP_medium"]) == pytest.approx(1.0)  # 2000, not 3500
    assert refusal_of(meter.update, [{**found, "masks": [ours]}], [{**true, **pixels}]).endswith(
        "the output: 1 masks of 2 boxes: expected one for each"
    )
    small = {**pixels, "masks": np.zeros((2, 9, 9))}
    assert "(9, 9): expected (180, 200), the image's" in refusal_of(
        meter.update, [{**found, "masks": np.stack([ours, part])}], [{**true, **small}]
    )


def test_names_and_tensors_are_read_and_no_objects_are_nothing():
    meter = pv.CocoAP(["cup", "hat"], percent=None)
    tensors = {name: paddle.to_tensor(value) for name, value in FOUND.items()}
    meter.update([tensors, {**FOUND, "labels": ["hat"]}], [{**CUP, "labels": ["cup"]}, {**CUP, "labels": ("hat",)}])
    meter.update([{"boxes": [], "scores": [], "labels": []}], [{"boxes": np.array([]), "labels": []}])
    assert meter.compute().values["AP"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("boxes", [[10, NAN, 60, 50]], "boxes[0, 1] is nan"),
        ("boxes", [[NAN] * 4], "boxes[0, 0] is nan"),
        ("boxes", [[10, 10, np.inf, 50]], "boxes[0, 2] is inf"),
        ("areas", [NAN], "areas[0] is nan"),
        ("area", [NAN], "areas[0] is nan"),
        ("iscrowd", [NAN], "is_crowd[0] is nan"),
        ("iscrowd", [2], "is_crowd[0] is 2: expected true or false"),
        ("labels", [NAN], "labels[0]: label is nan"),
        ("labels", [1], "labels[0]: label 1 is out of range"),
        ("iscrowd", [0, 0], "is_crowd of shape (2,) for 1 boxes"),
    ],
)
def test_truth_that_is_not_finite_or_out_of_range_is_refused_and_adds_nothing(field, value, said):
    meter = pv.CocoAP(["cup"])
    message = refusal_of(meter.update, [FOUND], [{**CUP, field: value}])
    assert message.startswith(f"CocoAP: sample 0: the target: {said}")
    assert "no samples were added" in refusal_of(meter.compute)


@pytest.mark.parametrize("spoiled", [{"boxes": [[NAN] * 4]}, {"boxes": [[10, 10, NAN, 50]]}, {"scores": [NAN]}])
def test_a_prediction_that_is_not_finite_is_never_found(spoiled):
    meter = pv.CocoAP(["cup"], percent=None)
    meter.update([{**FOUND, **spoiled}], [CUP])
    values = meter.compute().values
    assert values["AP"] == 0.0 and values["AR_100"] == 0.0 and values["not finite"] == 1


def test_a_line_tells_once_of_keys_that_are_not_read(capsys):
    meter = pv.CocoAP(["cup"])
    for _ in range(2):
        meter.update([{**FOUND, "embedding": [1]}], [{**CUP, "image_id": 7, "orig_size": (1, 2)}])
    assert capsys.readouterr().err.splitlines() == [
        "note: CocoAP does not read 'embedding' of outputs",
        "note: CocoAP does not read 'image_id', 'orig_size' of targets",
    ]
    both = {**CUP, "iscrowd": [0], "is_crowd": [0]}
    assert "'iscrowd' and 'is_crowd' are the same field: give one of them" in refusal_of(meter.update, [FOUND], [both])
