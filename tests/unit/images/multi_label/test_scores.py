"""Scores of several labels against scikit-learn's, brute force and other ways of counting."""

import numpy as np
import pytest
from sklearn import metrics as peer

from paddlevit_dist.core.tasks.score_kind import require_score_kind
from paddlevit_dist.images.multi_label.curves import GOALS, sigmoid, sort_labels, transpose_weights
from paddlevit_dist.images.multi_label.scores import LabelScores, join_names, sum_losses


def draw(seed):
    """A table of labels with ties, unknown labels, and often a class without a positive or a negative."""
    random = np.random.default_rng(seed)
    images, classes = int(random.integers(4, 40)), int(random.integers(1, 6))
    labels = (random.random((images, classes)) < random.uniform(0, 1, classes)).astype(np.int8)
    labels[random.random((images, classes)) < random.choice([0.0, 0.3])] = -1
    logits = random.normal(0, 2, (images, classes)).round(int(random.integers(0, 3))).astype(np.float32)
    return labels, logits, sigmoid(logits) > random.uniform(0.2, 0.8, classes)


def compute(labels, logits, chosen, weights=None, **settings):
    names = [f"label {number}" for number in range(labels.shape[1])]
    arrays = {"labels": labels, "logits": logits, "chosen": chosen, **settings}
    weights = np.ones((1, len(labels))) if weights is None else weights
    return LabelScores(names).recompute([arrays], names)(weights)


def expect(labels, logits, chosen):
    known, true = labels >= 0, labels == 1
    columns = range(labels.shape[1])
    of_classes = [(true[known[:, k], k], logits[known[:, k], k], chosen[known[:, k], k]) for k in columns]
    ap = [peer.average_precision_score(truth, scores) if truth.any() else np.nan for truth, scores, _ in of_classes]
    f1 = [peer.f1_score(truth, found, zero_division=np.nan) if len(truth) else np.nan for truth, _, found in of_classes]
    auc = [
        peer.roc_auc_score(truth, scores) if 0 < truth.sum() < len(truth) else np.nan for truth, scores, _ in of_classes
    ]
    pairs = true[known], logits[known], chosen[known]
    some = known.any(axis=1)
    exact = [np.array_equal(true[i, known[i]], chosen[i, known[i]]) for i in np.flatnonzero(some)]
    return {
        **{f"AP label {k}": ap[k] for k in columns},
        "mAP": mean(ap),
        "AUC": mean(auc),
        "micro AP": peer.average_precision_score(pairs[0], pairs[1]) if pairs[0].any() else np.nan,
        "micro F1": peer.f1_score(pairs[0], pairs[2], zero_division=np.nan) if known.any() else np.nan,
        "macro F1": mean(f1),
        "exact match": 100 * peer.accuracy_score(np.ones(len(exact)), exact) if exact else np.nan,
        "Hamming loss": peer.zero_one_loss(pairs[0], pairs[2]) if known.any() else np.nan,
        "loss": peer.log_loss(pairs[0], sigmoid(pairs[1]), labels=[False, True]) if known.any() else np.nan,
    }


def mean(values):
    defined = [value for value in values if not np.isnan(value)]
    return np.mean(defined) if defined else np.nan


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("tens", range(10))
def test_scores_of_tables_are_scikit_learns(tens):
    for seed in range(10 * tens, 10 * tens + 3):
        table = draw(seed)
        found, expected = compute(*table), expect(*table)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            limit = 1e-12 if name != "loss" else 1e-9  # scikit-learn's loss limits probabilities
            np.testing.assert_allclose(found[name][0], value, rtol=0, atol=limit, err_msg=f"{name} of {seed}")


@pytest.mark.parametrize("seed", range(20))
def test_a_drawn_image_counts_as_often_as_it_is_drawn(seed):
    labels, logits, chosen = draw(seed)
    random = np.random.default_rng(seed)
    weights = random.integers(0, 4, (3, len(labels))).astype(np.float64)
    weights[2] *= 100  # more than a byte holds
    found = compute(labels, logits, chosen, weights)
    for number, row in enumerate(weights):
        repeated = np.repeat(np.arange(len(labels)), row.astype(int))
        alone = compute(labels[repeated], logits[repeated], chosen[repeated])
        for name, column in found.items():
            np.testing.assert_allclose(column[number], alone[name][0], rtol=1e-12, atol=1e-12, err_msg=name)


def brute_threshold(labels, probabilities, goal, wished):
    """The threshold by trying all of them, from the highest down."""
    levels = np.unique(probabilities)[::-1]
    best, found = 0.0, np.nan
    for level, below in zip(levels, [*levels[1:], 0.0]):
        chosen = probabilities >= level
        right = (labels & chosen).sum()
        if not (labels & (probabilities == level)).any():
            continue
        cut = (level + below) / 2 if (level + below) / 2 < level else below
        precision, recall = right / chosen.sum(), right / labels.sum()
        f1 = 2 * right / (chosen.sum() + labels.sum())
        if goal == "precision" and precision >= wished:
            found = cut
        if goal == "recall" and recall >= wished and np.isnan(found):
            found = cut
        if goal == "f1" and f1 > best + 1e-12:
            best, found = f1, cut
    return found


@pytest.mark.parametrize("goal", GOALS[1:])
def test_thresholds_reach_the_goal_as_trying_all_does(goal):
    for seed in range(40):
        labels, logits, _ = draw(seed)
        wished = float(np.random.default_rng(seed).choice([0.3, 0.5, 0.8, 1.0]))
        setting = np.array([GOALS.index(goal), wished])
        found = compute(labels, logits, np.zeros(labels.shape, bool), goal=setting)
        for column in range(labels.shape[1]):
            known = labels[:, column] >= 0
            expected = brute_threshold(labels[known, column] == 1, sigmoid(logits[known, column]), goal, wished)
            assert found[f"threshold label {column}"][0] == pytest.approx(expected, abs=1e-12, nan_ok=True), seed


def test_a_threshold_separates_probabilities_that_are_neighbors_or_saturate():
    logits = np.array([[80.0], [60.0], [1.0], [np.nextafter(np.float32(1), np.float32(0))], [-90.0]], np.float32)
    labels = np.array([[1], [0], [1], [0], [1]], np.int8)
    (curve,) = sort_labels(labels, logits, labels == 1, has_cuts=True)[1]
    assert len(curve.cuts) == 3  # the first two have one probability
    for cut, number in zip(curve.cuts, (2, 3, 5)):
        assert (sigmoid(logits) > cut).sum() == number


def test_logits_that_are_not_finite_are_found_last_and_have_an_infinite_loss():
    labels, logits, chosen = (
        np.array([[1], [0], [1]], np.int8),
        np.array([[np.nan], [-3.0], [2.0]]),
        np.zeros((3, 1), bool),
    )
    found = compute(labels, logits, chosen)
    assert found["AP label 0"][0] == pytest.approx((1 + 2 / 3) / 2) and np.isinf(found["loss"][0])


def test_losses_of_images_are_computed_in_double_precision():
    labels, logits, _ = draw(5)
    shares = 1 / (1 + np.exp(-logits.astype(np.float64)))
    expected = -np.log(np.where(labels == 1, shares, 1 - shares)) * (labels >= 0)
    np.testing.assert_allclose(sum_losses(labels, logits), expected.sum(axis=1), rtol=1e-12)
    logits[1, 0], logits[3, -1] = np.inf, np.nan
    with np.errstate(all="raise"):
        found = sum_losses(labels, logits)
    assert np.flatnonzero(np.isinf(found)).tolist() == [1, 3] and not np.isnan(found).any()


def test_weights_of_draws_are_bytes_if_they_are_small_whole_numbers():
    assert transpose_weights(np.array([[0.0, 3.0, 255.0]])).dtype == np.uint8
    for weights in ([[0.0, 256.0]], [[0.5, 1.0]]):
        found = transpose_weights(np.array(weights))
        assert found.dtype == np.float64 and found.T.tolist() == weights


def test_the_line_names_classes_without_a_positive_and_counts_exact_matches_in_percent():
    labels = np.array([[1, 0, -1], [0, 0, 1], [1, 0, 1]], np.int8)
    kind = require_score_kind("labels", ["wing", "hull", "antenna"])
    arrays = {"labels": labels, "logits": labels + 0.25, "chosen": labels == 1}
    values = {name: float(column[0]) for name, column in kind.compute(arrays, np.ones((1, 3))).items()}
    values = {name: value for name, value in values.items() if np.isfinite(value)}
    line = kind.summary({**values, **kind.counts(arrays)}, lambda name, decimals: f" [{name} {decimals}]")
    assert line.startswith("mAP 1.0000 [mAP 3] micro AP 1.0000 micro F1 1.0000 macro F1 1.0000 exact match 100.00%")
    assert line.endswith("(mAP of 2 of 3 classes: no image has hull)")
    for classes, named in (("abcd", "b, c, d"), ("abcde", "b, c, d, …")):
        many = require_score_kind("labels", list(classes)).summary({"AP a": 0.5, "AUC": 0.5}, lambda *_: "")
        assert many == f"(mAP of 1 of {len(classes)} classes: no image has {named})"
    assert kind.counts(arrays) == {"images": 3, "known labels": 8}
    always = {name: value for name, value in values.items() if name != "AUC"}  # as where -1 is meant as absent
    assert kind.summary(always, lambda name, decimals: "").endswith(
        "(mAP says nothing: no class has both images with it and images without it)"
    )
    none = require_score_kind("labels", ["a", "b"]).summary({"loss": 0.5}, lambda *_: "")
    assert none == "loss 0.5000 (mAP of 0 of 2 classes: no image has a, b)"
    rows = kind.columns(arrays)
    assert rows["truth"] == ["wing", "antenna", "wing;antenna"] and rows["unknown"] == ["antenna", "", ""]
    assert rows["wrong labels"] == [0, 0, 0] and rows["correct"] == [True] * 3 and len(rows["probability hull"]) == 3
    unknown = kind.columns({**arrays, "labels": np.array([[-1, -1, -1], [1, 0, 1], [-1, 0, -1]], np.int8)})
    assert unknown["correct"] == [None, False, True] and np.isnan(unknown["loss"][0])
    assert kind.is_valid(arrays, 3, 3) and not kind.is_valid(arrays, 3, 2)
    assert not kind.is_valid({**arrays, "labels": labels.astype(int)}, 3, 3)


def test_an_image_is_right_if_all_known_labels_are_chosen_and_no_others():
    kind = LabelScores(("a", "b", "c"))
    labels = np.array([[1, 0, -1], [1, 0, -1], [1, 1, 0], [-1, -1, -1]], np.int8)
    chosen = np.array([[1, 0, 1], [1, 1, 0], [1, 0, 0], [1, 0, 1]], bool)
    arrays = {"labels": labels, "logits": np.zeros((4, 3)), "chosen": chosen}
    assert kind.hits(arrays, ())[kind.right_rate].tolist() == [True, False, False]  # of images with a known label
    assert kind.find_correct(arrays, ()).tolist() == [True, False, False, True]
    assert kind.count_decisions(arrays) == {"exact match": 3} and kind.count_decisions({"labels": labels[3:]}) == {}
    assert kind.truth(arrays) is labels and kind.is_valid(arrays, 4, 3)
    for wrong in ({"labels": labels + 1}, {"labels": labels.astype(int)}, {"chosen": labels}, {"logits": labels}):
        assert not kind.is_valid({**arrays, **wrong}, 4, 3)
    assert not kind.is_valid(arrays, 3, 3) and not kind.is_valid(arrays, 4, 2)


@pytest.mark.parametrize(
    ("name", "joined"),
    [
        ("a;b", '["a;b", "\u00e4"]'),
        ("a|b", '["a|b", "\u00e4"]'),
        ("[a", '["[a", "\u00e4"]'),
        ("a[, b", "a[, b;\u00e4"),
    ],
)
def test_names_that_a_table_would_divide_are_a_list_of_json(name, joined):
    assert join_names([name, "c;d", "\u00e4"], np.array([True, False, True])) == joined
