"""The simulated data of benchmarks/interval_coverage.py are what they say, and its night form agrees with the page."""

import json
import math
import re
import sys

import numpy as np
import pytest
from support.processes import ROOT, run_command

from paddlevit_dist.core.intervals import ConfidenceInterval

BENCHMARKS = ROOT / "benchmarks"
PAGE = BENCHMARKS / "results" / "coverage.md"
SETS = 200


@pytest.fixture(autouse=True)
def of_benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_data_of_each_cell_are_a_table_of_its_kind_and_have_its_scores():
    from interval_cells import CELLS, MODELS

    assert len(CELLS) == len({cell.name for cell in CELLS}) <= 60
    assert sum(MODELS[cell.model].is_slow for cell in CELLS) <= 9
    for cell in CELLS:
        arrays, kind = cell.draw(np.random.default_rng(0)), cell.kind
        assert kind.is_valid(arrays, cell.samples, cell.classes), cell.name
        values = kind.recompute([arrays], kind.classes)(np.ones((1, cell.samples)))
        assert all(np.isfinite(values[score][0]) for score in MODELS[cell.model].scores), cell.name


@pytest.mark.parametrize("groups", [0, 6])
def test_drawn_accuracy_is_the_declared_one_alone_and_in_groups(groups):
    from drawn_tables import assign_groups, draw_classes

    rng, recall, prior = np.random.default_rng(1), (0.9, 0.6, 0.8), (0.5, 0.2, 0.3)
    found = []
    for _ in range(2000):
        arrays = draw_classes(rng, 60, 3, assign_groups(60, groups), recall=recall, prior=prior)
        found.append((arrays["places"] == 0).mean())
    error = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found) - (0.45 + 0.12 + 0.24)) < 4 * error
    alone = math.sqrt(0.81 * 0.19 / 60)
    assert (np.std(found) > 1.5 * alone) if groups else (0.9 * alone < np.std(found) < 1.1 * alone)


def test_misses_are_counted_on_their_side_and_absent_intervals_apart(monkeypatch):
    import interval_coverage as program
    from interval_cells import Cell

    ends = iter([(0.0, 1.0), (0.6, 1.0), (0.0, 0.4), (0.1, 0.4), None])
    monkeypatch.setattr(program, "EXPECTED_OF", (2, 2))
    monkeypatch.setattr(program, "compute_scores", lambda cell, arrays: [0.5, np.nan])

    def find(cell, arrays, resamples):
        low_high = next(ends)
        return {"PCK": ConfidenceInterval(0.5, *low_high)} if low_high else {}

    monkeypatch.setattr(program, "find_intervals", find)
    with pytest.warns(RuntimeWarning, match="empty slice"):
        [pck, mre], _ = program.measure(Cell("points", 5, 2, options={"deviation": 0.4}), 5, 1, 0)
    assert (pck.expected, pck.none, pck.below, pck.above, pck.held) == (0.5, 1, 1, 2, 1)
    assert pck.width == pytest.approx((1.0 + 0.4 + 0.4 + 0.3) / 4)
    assert pck.texts("a cell")[:4] == ["a cell", "PCK", "0.5", "25.0 [4.6, 69.9]"]
    assert mre.none == 5 and mre.texts("a cell")[3:] == ["", "", "", "", "", "100.0"]


def test_both_models_of_a_pair_are_equally_good():
    from interval_comparisons import COMPARISONS

    from paddlevit_dist.core.tasks.score_kind import require_score_kind

    for cell in COMPARISONS:
        if cell.is_slow or cell.samples > 300:
            continue
        rng, kind = np.random.default_rng(2), require_score_kind(cell.kind, list(map(str, range(cell.classes))))
        gains = []
        for _ in range(200):
            pair = cell.draw(rng, cell.samples, cell.classes, None, **cell.options)
            scores = [kind.recompute([one], kind.classes)(np.ones((1, cell.samples)))[cell.score][0] for one in pair]
            gains.append(scores[1] - scores[0])
        assert abs(np.mean(gains)) < 3.5 * np.std(gains) / math.sqrt(len(gains)), cell.name


def read_table(text: str) -> dict[str, tuple[float, int]]:
    """Coverage in percent and number of intervals by cell and score, from Markdown tables; the last one of a cell."""
    before, *tables = text.split("| cell | score | expected |")
    found = {}
    for table in tables:
        sets = int(re.findall(r"([\d,]+) data sets", before)[-1].replace(",", ""))
        rows, _, before = table.partition("\n\n")
        for line in rows.splitlines()[2:]:
            cell, score, _, coverage, *_, none = (part.strip() for part in line.strip("|").split("|"))
            number = round(sets * (1 - float(none) / 100))
            number //= 2 if cell.startswith(("boxes", "masks", "keypoints")) else 1
            found[f"{cell}: {score}"] = float(coverage.split()[0]) if number else math.nan, number
    return found


def test_coverage_by_night_is_that_of_the_page():
    program = BENCHMARKS / "interval_coverage.py"
    ended = run_command([sys.executable, str(program), "--sets", str(SETS), "--jobs", "2"], timeout=1800)
    assert ended.code == 0, ended.err[-3000:]
    result = json.loads(ended.out.splitlines()[-1].removeprefix("RESULT "))
    published, measured = read_table(PAGE.read_text(encoding="utf-8")), read_table(ended.out)
    assert published.keys() <= measured.keys()
    fallen = []
    for name, (before, of) in published.items():
        share, number = measured[name]
        if math.isnan(share):  # this kind of score has no interval
            assert math.isnan(before), name
            continue
        assert result[name] == pytest.approx(share, abs=0.06)
        middle = min((share * number + before * of) / (number + of), 99.0) / 100
        if share < before - 400 * math.sqrt(middle * (1 - middle) * (1 / number + 1 / of)):
            fallen.append((name, before, share))
    assert not fallen, fallen
