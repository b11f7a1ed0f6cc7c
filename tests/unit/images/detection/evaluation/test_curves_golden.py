"""COCO's scores against stored ones of pycocotools."""

import numpy as np
import pytest
from support.networks import coco_peer, golden

from paddlevit_dist.images.detection.evaluation.operating_points import split_by_class
from paddlevit_dist.images.run_lengths import parse_segmentation

BOX = golden.description("coco_box_ap")


def recipe():
    return golden.program("recipe_coco.py")


def make_options(params):
    """The golden file's parameters of pycocotools as ours."""
    assert set(params) <= {"imgIds", "maxDets", "useCats"}
    names = {"imgIds": "image_ids", "maxDets": "max_detections"}  # pycocotools sorts both
    options = {names[name]: sorted(set(value)) for name, value in params.items() if name in names}
    return {**options, "use_classes": bool(params.get("useCats", 1))}


@pytest.fixture(scope="module")
def boxes():
    dataset, results = recipe().coco_case(BOX["seed"], BOX["kind"], BOX["pictures"], BOX["categories"])
    assert recipe().fingerprint(dataset) == BOX["fingerprints"]["dataset"]
    assert recipe().fingerprint(results) == BOX["fingerprints"]["results"]
    return dataset, results


@pytest.fixture(scope="module")
def box_arrays():
    return golden.arrays("coco_box_ap")


def assert_as_stored(dataset, results, stored, case, facts, **options):
    stats, class_ap = coco_peer.scored(dataset, results, **options, **make_options(facts["params"]))
    np.testing.assert_allclose(stats, stored[f"{case}/stats"], atol=1e-12, rtol=0)
    np.testing.assert_allclose(class_ap, stored[f"{case}/category_ap"], atol=1e-12, rtol=0)


def assert_curves_as_stored(dataset, results, stored, **options):
    table, _ = coco_peer.make_table(dataset, results, **options)
    for detections, precision in zip(split_by_class(table), np.moveaxis(stored["default/precision_all_areas"], 2, 0)):
        if detections.annotated.any():
            np.testing.assert_allclose(detections.sample_precision(), precision[0], atol=1e-12, rtol=0)
        else:
            assert (precision == -1).all()


@pytest.mark.parametrize("case", BOX["cases"])
def test_golden_box_ap_in_all_numbers(case, boxes, box_arrays):
    assert_as_stored(*boxes, box_arrays, case, BOX["cases"][case])


def test_golden_box_precision_of_every_recall(boxes, box_arrays):
    assert_curves_as_stored(*boxes, box_arrays)


def test_golden_box_matches_of_every_result(boxes, box_arrays):
    assert_matches_as_stored(*boxes, box_arrays, "bbox")


def assert_matches_as_stored(dataset, results, stored, kind):
    rows = coco_peer.rows_of_results(dataset, results, kind)  # result -> its row, -1 if it was not looked at
    table, _ = coco_peer.make_table(dataset, results, kind=kind)
    for which, bit in enumerate((0, 5)):  # IoU 0.5 and 0.75 in all areas
        matched, ignored = stored["default/result_match"][which], stored["default/result_ignored"][which] == 1
        np.testing.assert_array_equal(rows >= 0, matched >= 0, strict=True)
        seen = rows >= 0
        found = (table.true_positives[rows[seen]] >> np.uint64(bit)) & np.uint64(1)
        left_out = (table.ignored[rows[seen]] >> np.uint64(bit)) & np.uint64(1)
        np.testing.assert_array_equal(found == 1, (matched[seen] > 0) & ~ignored[seen], strict=True)
        np.testing.assert_array_equal(
            left_out == 1, ignored[seen], strict=True
        )  # no result is larger than the range of all areas


MASK = golden.description("coco_mask_ap")


@pytest.fixture(scope="module")
def masks():
    dataset, results = recipe().coco_case(MASK["seed"], MASK["kind"], MASK["pictures"], MASK["categories"])
    assert recipe().fingerprint(dataset) == MASK["fingerprints"]["dataset"]
    assert recipe().fingerprint(results) == MASK["fingerprints"]["results"]
    return dataset, results


@pytest.fixture(scope="module")
def mask_arrays():
    return golden.arrays("coco_mask_ap")


def test_golden_pixels_and_run_lengths_of_every_annotation(masks, mask_arrays):
    sizes = {image["id"]: (image["height"], image["width"]) for image in masks[0]["images"]}
    for annotation, pixels in zip(masks[0]["annotations"], mask_arrays["annotation_pixels"]):
        runs = parse_segmentation(annotation["segmentation"], *sizes[annotation["image_id"]])
        assert runs.area == pixels
        assert runs.compress()["counts"] == MASK["annotation_rles"][str(annotation["id"])]


def test_golden_pixels_and_boxes_of_every_result(masks, mask_arrays):
    runs = [parse_segmentation(result["segmentation"]) for result in masks[1]]
    assert [one.area for one in runs] == mask_arrays["result_pixels"].tolist()
    assert [list(one.box()) for one in runs] == mask_arrays["result_boxes"].tolist()


@pytest.mark.parametrize("case", MASK["cases"])
def test_golden_mask_ap_in_all_numbers(case, masks, mask_arrays):
    assert_as_stored(*masks, mask_arrays, case, MASK["cases"][case], kind="segm")


def test_golden_mask_precision_of_every_recall(masks, mask_arrays):
    assert_curves_as_stored(*masks, mask_arrays, kind="segm")


def test_golden_mask_matches_of_every_result(masks, mask_arrays):
    assert_matches_as_stored(*masks, mask_arrays, "segm")
