"""Segments and instances of queries, against transformers' and the authors' of tests/golden/eomt.json."""

import numpy as np
import pytest
from support.networks.golden_eomt import GOLDEN, stored

from paddlevit_dist.images.mask_queries.segments import (
    MaskView,
    SegmentRules,
    class_probabilities,
    find_segments,
    rank_instances,
    score_masks,
)

POST = GOLDEN["post"]
IMAGES = range(len(POST["target_sizes"]))
CLASSES = POST["class_shape"][2] - 1


def _outputs(image):
    return stored()["post/class_logits"][image], stored()["post/mask_logits"][image]


def _view(image):
    return MaskView((POST["size"],) * 2, tuple(POST["authors_crops"][image]), tuple(POST["target_sizes"][image]))


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("setting", POST["panoptic"])
def test_golden_eomt_segments(setting, image):
    about = POST["panoptic"][setting]
    is_thing = ~np.isin(np.arange(CLASSES), about["stuff_classes"])
    limits = (about[name] for name in ("threshold", "mask_threshold", "overlap_mask_area_threshold"))
    found = find_segments(*_outputs(image), _view(image), is_thing, SegmentRules(*limits))
    assert [[number, label] for number, label in enumerate(found.labels)] == about["authors_segments"][image]
    np.testing.assert_array_equal(found.places, stored()[f"post/panoptic/{setting}/authors{image}"])
    assert [each["label_id"] for each in about["segments"][image]] == found.labels.tolist()
    np.testing.assert_allclose(found.scores, [each["score"] for each in about["segments"][image]], rtol=0, atol=1e-6)


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("threshold", POST["instance"])
def test_golden_eomt_scores_of_masks_paint_instances(threshold, image):
    """transformers': the best class of each query, later ones over earlier ones."""
    class_logits, mask_logits = _outputs(image)
    probabilities = class_probabilities(class_logits)[:, :-1]
    painted, found = np.full(POST["target_sizes"][image], -1), []
    for row, mask in zip(probabilities, score_masks(mask_logits, _view(image))):
        score = row.max() * mask.mean
        if mask.runs.area and score > float(threshold):
            painted[mask.runs.mask() > 0] = len(found)
            found.append((int(row.argmax()), score))
    expected = POST["instance"][threshold][image]
    assert [label for label, _ in found] == [each["label_id"] for each in expected]
    np.testing.assert_allclose([score for _, score in found], [each["score"] for each in expected], rtol=0, atol=2e-6)
    np.testing.assert_array_equal(painted, stored()[f"post/instance/{threshold}/{image}"])


@pytest.mark.parametrize("image", IMAGES)
def test_golden_eomt_top_pairs(image):
    found = rank_instances(*_outputs(image), _view(image), POST["top_k"])
    expected = {name: stored()[f"post/top/{name}{image}"] for name in ("scores", "labels", "queries", "areas")}
    np.testing.assert_allclose(found.scores, expected["scores"], rtol=0, atol=1e-6)
    assert [mask.area for mask in found.masks] == expected["areas"].tolist()
    number = int((expected["areas"] > 0).sum())  # among empty masks, which are all equal, any order is right
    for name in ("labels", "queries"):
        ours, theirs = getattr(found, name), expected[name]
        np.testing.assert_array_equal(ours[:number], theirs[:number])
        np.testing.assert_array_equal(np.sort(ours), np.sort(theirs))


@pytest.mark.parametrize("tie", POST["ties"], ids=str)
def test_golden_eomt_mask_is_kept_at_the_least_share_exactly(tie):
    """One mask of 50 pixels, of which a surer one takes some."""
    masks = np.full((2, 10, 10), -20, np.float32)
    masks[0, :5], masks[1].ravel()[: tie["taken"]] = 20, 20
    masks[1, 9] = 20
    classes = np.array([[9, 0, -9], [0, 12, -9]], np.float32)
    found = find_segments(
        classes,
        masks,
        MaskView((10, 10), (10, 10), (10, 10)),
        np.array([True, True]),
        SegmentRules(0.8, 0.5, tie["overlap"]),
    )
    assert (0 in found.labels) == tie["authors_first_kept"]


def test_queries_that_are_not_finite_become_nothing():
    classes, masks = (np.full(shape, np.nan, np.float32) for shape in ((3, 4), (3, 2, 2)))
    view = MaskView((4, 4), (4, 3), (8, 6))
    found = find_segments(classes, masks, view, np.ones(3, bool), SegmentRules())
    assert (found.places == -1).all() and not len(found.labels)
    assert not len(rank_instances(classes, masks, view).scores)
