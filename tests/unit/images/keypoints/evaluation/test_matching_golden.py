"""OKS, precision and recall against stored numbers of pycocotools."""

import numpy as np
import pytest
from support.networks import golden, keypoint_peer

from paddlevit_dist.images.detection.evaluation.curves import RECALLS
from paddlevit_dist.images.detection.evaluation.match_tables import IOU_THRESHOLDS
from paddlevit_dist.images.detection.evaluation.operating_points import split_by_class
from paddlevit_dist.images.keypoints.evaluation.score_kind import TEN

STORED = golden.description("coco_keypoint_ap")
ARRAYS = golden.arrays("coco_keypoint_ap")
AREAS = (0, 2, 3)  # of AREA_RANGES: all, medium and large, as pycocotools has them for keypoints
SHORT = {"AP_medium": "APM", "AP_large": "APL", "AR_medium": "ARM", "AR_large": "ARL"}


@pytest.fixture(scope="module", params=STORED["cases"])
def case(request):
    """The name of a case, its annotations and results, its facts and its matches."""
    facts, recipe = STORED["cases"][request.param], golden.program("recipe_keypoints.py")
    dataset, results = recipe.keypoint_case(STORED["seed"], facts["pictures"], facts["points"])
    assert [recipe.fingerprint(dataset), recipe.fingerprint(results)] == facts["fingerprints"]
    return request.param, dataset, results, facts, keypoint_peer.match(dataset, results, [facts["sigmas"]])


def test_golden_keypoint_ap_in_all_numbers(case):
    *_, facts, matches = case
    values = keypoint_peer.score(matches)
    stored = [facts["stats"][SHORT.get(name, name)] for name in TEN]
    assert len(facts["stats"]) == len(TEN)
    np.testing.assert_allclose([values[name] for name in TEN], stored, rtol=0, atol=1e-9)


def test_golden_keypoint_precision_recall_and_scores_of_every_threshold_and_area(case):
    name, *_, matches = case
    for column, area in enumerate(AREAS):
        for step in range(len(IOU_THRESHOLDS)):
            precision = ARRAYS[f"{name}/precision"][step, :, 0, column, 0]
            (own,) = split_by_class(matches.table, area, step)
            if not own.annotated.sum():
                assert (precision == -1).all()
                continue
            np.testing.assert_allclose(own.sample_precision(), precision, rtol=0, atol=1e-9)
            recall = own.is_right.sum() / own.annotated.sum()
            assert recall == pytest.approx(ARRAYS[f"{name}/recall"][step, 0, column, 0], rel=0, abs=1e-9)
            reached = np.searchsorted(np.cumsum(own.is_right) / own.annotated.sum(), RECALLS)
            scores = np.append(own.scores, 0.0)[reached]
            scores[0] = matches.table.scores.max()  # pycocotools takes the first result, counted or not
            np.testing.assert_allclose(scores, ARRAYS[f"{name}/scores"][step, :, 0, column, 0], rtol=0, atol=1e-9)


def test_golden_similarities_of_results_and_annotations(case):
    name, dataset, results, facts, _ = case
    for image in facts["oks_images"]:
        found = keypoint_peer.similarities(dataset, results, facts["sigmas"], image)
        np.testing.assert_allclose(found, ARRAYS[f"{name}/oks/{image}"], rtol=0, atol=1e-9)
