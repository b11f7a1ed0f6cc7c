"""Sets of other samples, folds whose samples are put together, and margins, against closed forms."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.sample_groups import SampleGroups
from paddlevit_dist.extensions.compare.formatting import format_lines
from paddlevit_dist.extensions.compare.pairs import compare_sets, compare_tables
from paddlevit_dist.extensions.compare.tables import FILES, EvaluationTable, read_table, write_table
from paddlevit_dist.volumes.landmarks.metrics import sum_errors

ABOUT = {"task": "landmarks", "kind": "landmarks", "score": "mre_mm", "more_is_better": False, "classes": ["tip"]}
ABOUT |= {"split": "val", "dataset": "d", "of": "epoch 3", "protocol": {}, "input": {}}


def make_table(run: str, errors: np.ndarray, first: int = 0, groups: np.ndarray | None = None) -> EvaluationTable:
    names = [f"case {first + number}" for number in range(len(errors))]
    arrays = {"indices": np.arange(len(errors)), "sums": sum_errors(errors[:, None])}
    of_groups = None if groups is None else SampleGroups("patient", groups.astype(str), "x")
    return EvaluationTable(run, {**ABOUT, "digest": run}, names, arrays, Path(run), of_groups)


def test_two_sets_have_welch_s_interval_and_p():
    generator = np.random.default_rng(0)
    errors = generator.normal(10.0, 1.0, 60), generator.normal(10.6, 2.0, 40)
    found = compare_sets(make_table("a", errors[0]), make_table("b", errors[1], 100))
    expected = stats.ttest_ind(errors[1], errors[0], equal_var=False)
    ends, difference = expected.confidence_interval(0.95), found["difference"]
    reach = (ends.high - ends.low) / 2
    assert difference["value"] == pytest.approx(errors[1].mean() - errors[0].mean(), rel=1e-4)
    assert [difference["low"], difference["high"]] == pytest.approx([*ends], abs=0.1 * reach)  # 1,000 halves
    assert found["p"] == pytest.approx(expected.pvalue, abs=0.02) and found["test"] == "Welch's t"
    assert (found["samples"], found["other_samples"]) == (60, 40) and "better" not in found
    lines = "\n".join(format_lines([make_table("a", errors[0])], [found], 2))
    assert "95 % intervals and p (Welch's t) of 60 and 40 other samples" in lines


def test_patients_of_two_sets_count_as_one_and_shared_samples_are_refused():
    generator, groups = np.random.default_rng(1), np.repeat(np.arange(12), 5)
    first, second = (np.repeat(generator.normal(10.0, 1.0, 12), 5) + 0.1 * generator.normal(size=60) for _ in "ab")
    tables = [make_table(run, errors, at) for run, errors, at in (("a", first, 0), ("b", second, 100))]
    grouped = [table._replace(groups=SampleGroups("patient", groups.astype(str), "x")) for table in tables]
    widths = [row["high"] - row["low"] for row in (compare_sets(*each)["difference"] for each in (tables, grouped))]
    assert widths[1] > 1.8 * widths[0]
    with pytest.raises(UserError, match=r"1 samples are in both, such as case 59: drop -unpaired"):
        compare_sets(tables[0], make_table("b", second, 59))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_margin_is_judged_by_the_interval_and_by_two_one_sided_tests(sign):
    generator = np.random.default_rng(2)
    first = generator.normal(10.0, 1.0, 50)
    changes = sign * generator.normal(0.2, 0.5, 50)
    tables = make_table("a", first), make_table("b", first + changes)
    tables = [table._replace(about={**table.about, "more_is_better": sign < 0}) for table in tables]
    error = changes.std(ddof=1) / 50**0.5  # the second is worse, by 0.2
    for margin in (0.01, 0.1, 0.25, 0.3, 0.5):
        found = compare_tables(*tables, margin=margin)["margin"]
        sides = [stats.t.sf((margin - side * changes.mean()) / error, 49) for side in (1, -1)]
        assert found["equivalent"] == (max(sides) < 0.05)
        assert found["not_worse"] == (abs(changes.mean()) + stats.t.ppf(0.975, 49) * error < margin)
        assert found["worse"] == (abs(changes.mean()) - stats.t.ppf(0.975, 49) * error > margin)
        assert found["different"] == (abs(changes.mean()) - stats.t.ppf(0.95, 49) * error > margin)
    (line,) = [line for line in format_lines(tables, [compare_tables(*tables, margin=0.5)], 2) if "margin" in line]
    assert line.startswith("margin 0.5: not worse by 0.5 or more; equivalent (90 % interval [")
    (line,) = [line for line in format_lines(tables, [compare_tables(*tables, margin=0.01)], 2) if "margin" in line]
    assert line.startswith("margin 0.01: is worse by 0.01 or more; not equivalent (90 % interval [")


def write_folds(folder: Path, errors: np.ndarray, starts=(0, 20, 40), **changes) -> str:
    for fold, first in enumerate(starts):
        table = make_table("", errors[20 * fold : 20 * fold + 20], first)
        (folder / f"fold_{fold}").mkdir(parents=True)
        about = {**ABOUT, **(changes if fold else {})}
        write_table(folder / f"fold_{fold}" / FILES[1], about, table.names, table.arrays, None)
    return str(folder)


def test_folds_together_are_compared_as_one_table_of_their_samples(tmp_path):
    errors = np.random.default_rng(3).gamma(4.0, 1.0, (2, 60))
    folds = [read_table(write_folds(tmp_path / name, own)) for name, own in zip("ab", errors)]
    whole = [make_table(name, own) for name, own in zip("ab", errors)]
    found, expected = (compare_tables(*each) for each in (folds, whole))
    for what in ("difference", "of_first", "of_second", "p", "samples"):
        assert found[what] == expected[what], what
    assert folds[0].about["of"] == "epoch 3 of 3 folders" and len(folds[0].names) == 60


def test_folders_that_are_no_folds_are_refused(tmp_path):
    errors = np.ones(60)
    with pytest.raises(UserError, match="its folders share samples, such as case 0: name one of them, such as"):
        read_table(write_folds(tmp_path / "seeds", errors, (0, 0, 0)))
    with pytest.raises(UserError, match="fold_1 has other score than"):
        read_table(write_folds(tmp_path / "mixed", errors, score="sdr_2mm"))
