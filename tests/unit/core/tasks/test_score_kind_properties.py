"""What holds for the scores of each registered kind, whatever the samples are."""

import numpy as np
import pytest
from support.own_scores import SIX, check_own_scores
from support.refusals import refusal_of
from support.samples.counted_samples import KINDS, SAMPLES

from paddlevit_dist.core.metrics.confidence import compute_intervals
from paddlevit_dist.core.registry.lookup import list_names
from paddlevit_dist.core.tasks.metrics import SampleTable
from paddlevit_dist.core.tasks.score_kind import require_score_kind

pytestmark = pytest.mark.parametrize("samples", KINDS)
SEEDS = range(3)


def evaluate(samples: str, indices: list) -> tuple[dict, SampleTable]:
    """The values of the line of an evaluation of these samples, and the table of a file."""
    make, add = KINDS[samples]
    metrics, tables = make(), []
    if samples == "boxes":
        metrics.images = None
    add(metrics, indices)
    metrics.indices = range(len(indices))
    values = metrics.compute(metrics.state)
    compute_intervals(metrics, range(len(indices)), None, tables.append)
    return values, tables[0].to_sample_table()


def compute(tables: list[SampleTable], weights: np.ndarray) -> dict[str, np.ndarray]:
    kind = require_score_kind(tables[0].kind)
    return kind.recompute_scores([table.arrays for table in tables], tables[0].classes)(weights)


def draw(seed: int) -> tuple[list, np.ndarray]:
    """Some of the samples in any order, and how often each counts."""
    generator = np.random.default_rng(seed)
    indices = generator.permutation(SAMPLES)[: 5 + 2 * seed]
    counts = generator.integers(0, 4, len(indices))
    counts[:2] = 1, 2
    return indices.tolist(), counts


def require_equal(found: dict, expected: dict) -> None:
    assert list(found) == list(expected) and len(found) > 1
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_whole_weight_is_a_sample_that_often(samples, seed):
    indices, counts = draw(seed)
    alone = [evaluate(samples, [index])[1] for index in indices]
    repeated = [table for table, count in zip(alone, counts) for _ in range(count)]
    require_equal(compute(alone, counts[None].astype(float)), compute(repeated, np.ones((1, len(repeated)))))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_the_samples_changes_nothing(samples, seed):
    indices, counts = draw(seed)
    alone = [evaluate(samples, [index])[1] for index in indices]
    order = np.random.default_rng(seed).permutation(len(indices))
    weights = np.stack([np.ones(len(indices)), counts])
    expected = compute(alone, weights)
    require_equal(compute([alone[place] for place in order], weights[:, order]), expected)
    require_equal(compute([evaluate(samples, indices)[1]], weights), expected)  # one table, and one for each sample


@pytest.mark.parametrize("seed", SEEDS)
def test_the_line_of_an_evaluation_has_the_scores_of_its_table(samples, seed):
    indices, _ = draw(seed)
    values, table = evaluate(samples, indices)
    scores = require_score_kind(table.kind, table.classes)
    computed = scores.compute_scores(table.arrays, np.ones((1, len(indices))))
    defined = {name: float(value[0]) for name, value in computed.items() if np.isfinite(value[0])}
    shown = {name: value for name, value in values.items() if isinstance(value, float)}
    assert shown.keys() <= defined.keys() and len(shown) > 2
    for name in shown:
        assert shown[name] == pytest.approx(defined[name], rel=1e-12, abs=1e-12), name
    hidden = {scores.class_score.format(name) for name in table.classes}
    assert defined.keys() - shown.keys() <= hidden


def test_scores_that_a_subclass_adds_have_no_bounds_and_all_others_have(samples):
    _, table = evaluate(samples, list(range(SIX)))
    check_own_scores(require_score_kind(table.kind, table.classes), table)


def test_a_subclass_that_has_compute_alone_is_asked_and_its_parent_still_joins_tables(samples):
    indices, counts = draw(1)
    tables, weights = [evaluate(samples, [index])[1] for index in indices], np.stack([np.ones(len(counts)), counts])

    class OwnScores(type(require_score_kind(tables[0].kind))):  # type: ignore[misc]
        def compute(self, arrays, weights):
            return {**super().compute(arrays, weights), "samples": weights.sum(axis=1)}

    found = OwnScores().recompute_scores([table.arrays for table in tables], tables[0].classes)(weights)
    assert found.pop("samples").tolist() == [len(counts), counts.sum()]
    require_equal(found, compute(tables, weights))


CONFUSING = [["stuff", "things", "dagger"], ["a", "a true", "50"], ["all", "mean", "macro"]]  # also names of ours


def test_no_name_of_a_class_gives_two_scores_one_name(samples):
    make, add = KINDS[samples]
    metrics = make()
    add(metrics, range(SIX))
    arrays = metrics.to_arrays(metrics.per_sample())

    def name_values(names):
        names = [*names, *(f"class {place}" for place in range(len(names), len(metrics.class_names)))]
        kind = require_score_kind(metrics.kind, names[: len(metrics.class_names)])
        scores = kind.compute_scores(arrays, np.ones((1, SIX)))
        return [scores, kind.columns(arrays), kind.hits(arrays, kind.classes), kind.counts(arrays)]

    plain = name_values([])
    for names in CONFUSING:
        for expected, found in zip(plain, name_values(names), strict=True):
            assert len(found) == len(expected)
        np.testing.assert_array_equal([*name_values(names)[0].values()], [*plain[0].values()])


def test_two_classes_of_one_name_are_refused(samples):
    kind = evaluate(samples, [0, 1])[1].kind
    message = refusal_of(require_score_kind, kind, ["cat", "dog", "cat"])
    assert message == f"scores of {kind}: classes 0 and 2 are both 'cat'; each needs its own name"


def test_each_registered_kind_is_drawn(samples):
    registered = {"boxes", "classes", "confusions", "instances", "labels", "landmarks", "volume classes"}
    assert evaluate(samples, [0, 1])[1].kind in registered <= set(list_names("score_kind"))
