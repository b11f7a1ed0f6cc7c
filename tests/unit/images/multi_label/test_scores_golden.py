"""Scores of several labels against scikit-learn's."""

import numpy as np
import pytest
from support.networks import golden

from paddlevit_dist.images.multi_label.curves import sigmoid, sort_labels, transpose_weights
from paddlevit_dist.images.multi_label.scores import LabelScores

STORED = golden.description("multilabel")
ARRAYS = golden.arrays("multilabel")
CASES = [name for name, facts in STORED.items() if isinstance(facts, dict) and "mAP" in facts]
NAMES = [f"class {label}" for label in range(ARRAYS["truth"].shape[1])]


def labels_of(case):
    return np.where(ARRAYS["known"] | (case == "all"), ARRAYS["truth"], -1).astype(np.int8)


def compute(case, threshold=0.5):
    arrays = {"labels": labels_of(case), "logits": ARRAYS["logits"], "chosen": sigmoid(ARRAYS["logits"]) > threshold}
    values = LabelScores(NAMES).recompute([arrays], NAMES)(np.ones((1, len(arrays["labels"]))))
    return {name: column[0] for name, column in values.items()}


def as_array(listed):
    return np.array([np.nan if value is None else value for value in listed], np.float64)


@pytest.mark.parametrize("case", CASES)
def test_golden_average_precision_of_classes_and_of_all_pairs(case):
    values, stored = compute(case), STORED[case]
    found = [values[f"AP {name}"] for name in NAMES]
    np.testing.assert_allclose(found, as_array(stored["AP"]), rtol=0, atol=1e-12)
    assert values["mAP"] == pytest.approx(stored["mAP"], abs=1e-12, rel=0)
    assert values["micro AP"] == pytest.approx(stored["micro_AP"], abs=1e-12, rel=0)
    assert values["AUC"] == pytest.approx(np.nanmean(as_array(stored["AUC"])), abs=1e-12, rel=0)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("threshold", [name for name in STORED["all"] if name.startswith("at_")])
def test_golden_counts_and_f1_at_a_threshold(case, threshold):
    level, stored = float(threshold.removeprefix("at_")), STORED[case][threshold]
    labels, chosen = labels_of(case), sigmoid(ARRAYS["logits"]) > level
    for column, curve in enumerate(sort_labels(labels, ARRAYS["logits"], chosen)[1]):
        count = curve.count_draws(transpose_weights(np.ones((1, len(labels)))))
        hits, chosen_labels, positives = (int(part[0]) for part in (count.hits, count.chosen, count.positives))
        expected = [stored[name][column] for name in ("tp", "fp", "fn")]
        assert [hits, chosen_labels - hits, positives - hits] == expected
        assert count.auc[0] == pytest.approx(as_array(STORED[case]["AUC"])[column], abs=1e-12, nan_ok=True)
        if sum(expected):
            assert 2 * hits / (chosen_labels + positives) == pytest.approx(stored["F1"][column], abs=1e-12, rel=0)
    values = compute(case, level)
    assert values["micro F1"] == pytest.approx(stored["micro_F1"], abs=1e-12, rel=0)
    defined = [f1 for f1, *counts in zip(*(stored[name] for name in ("F1", "tp", "fp", "fn"))) if sum(counts)]
    assert values["macro F1"] == pytest.approx(np.mean(defined), abs=1e-12, rel=0)
    if "sklearn" in stored:
        others = stored["sklearn"]
        assert values["exact match"] / 100 == pytest.approx(others["exact"], abs=1e-12, rel=0)
        assert values["Hamming loss"] == pytest.approx(others["hamming_loss"], abs=1e-12, rel=0)
        assert values["micro F1"] == pytest.approx(others["micro_F1"], abs=1e-12, rel=0)


@pytest.mark.parametrize("case", CASES)
def test_golden_loss_is_torchs_binary_cross_entropy(case):
    stored = STORED["losses"]["bce_mean" if case == "all" else "bce_mean_known"]
    assert compute(case)["loss"] == pytest.approx(stored[0], rel=1e-12)
