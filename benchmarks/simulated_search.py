"""How often ``search`` stops the trial that is truly the best of ten, and how many trials it stops.

``interval_coverage.py --plans`` runs it. A trial's probability of a right answer rises to its own final value, and
varies between epochs. A trial writes what a training run leaves behind, and ``explain_stop`` decides on it, as in a
search. Its kind of scores is top-1 only, which takes a tenth of the time of classes.
"""

import functools
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from cell_rows import print_header, print_row, run_cells, seeded, show_share
from smallest import sized

from paddlevit_dist import register_score_kind
from paddlevit_dist.core.tasks.score_kind import Arrays, ScoreKind
from paddlevit_dist.extensions.compare.search import SearchPlan, explain_stop, get_folder
from paddlevit_dist.extensions.compare.tables import write_table

_KIND, _SCORE = "drawn answers", "top-1"
_TRIALS, _EPOCHS = sized((10, 20), (3, 4))
_BEST, _SPREAD, _RISE = 0.85, 0.01, 0.1  # final accuracy, its deviation between trials, and how far it starts below
_LIKENESS = 0.8  # correlation of the answers of two epochs
_SHARE_OF_SETS = 5  # a search counts for so many data sets
HEADER = ("samples", "epochs vary by", "curves cross by", "searches", "best stopped, %", "trials stopped, %", "s")


class AnswerScores(ScoreKind):
    """The share of right answers; "hits" are bool (samples,)."""

    right_rate = _SCORE

    def compute(self, arrays: Arrays, weights: np.ndarray) -> dict[str, np.ndarray]:
        return {_SCORE: 100.0 * (weights @ arrays["hits"]) / weights.sum(axis=1)}

    def hits(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, np.ndarray]:
        return {_SCORE: arrays["hits"]}


class Search(NamedTuple):
    """Samples, the deviation of the probability between epochs, and how far curves lie apart that cross later."""

    samples: int
    noise: float
    crossing: float = 0.0

    @property
    def name(self) -> str:
        return f"search {self.samples} samples, epochs vary by {self.noise:g}, curves cross by {self.crossing:g}"


SEARCHES = (
    Search(1000, 0.0),
    Search(1000, 0.005, 0.02),
    Search(1000, 0.01),
    Search(4000, 0.005),
    Search(4000, 0.01),
)


class Trial:
    """The folder of a training run: settings, record and tables of its evaluations."""

    def __init__(self, folder: str) -> None:
        self.folder, self.best = Path(folder), -1.0
        (self.folder / "tables").mkdir(parents=True)
        (self.folder / "config.yaml").write_text(f"TRAIN:\n  NUM_EPOCHS: {_EPOCHS}\n")

    def add(self, epoch: int, is_right: np.ndarray) -> None:
        """Record an evaluation."""
        score = 100.0 * float(is_right.mean())
        event = {"kind": "evaluation", "epoch": epoch, _SCORE: score}
        if score > self.best:
            self.best, event["best"] = score, _SCORE
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")
        about = {
            **{"task": "drawn", "kind": _KIND, "score": _SCORE, "more_is_better": True, "classes": []},
            **{"split": "val", "dataset": "drawn", "of": f"epoch {epoch}", "protocol": {}, "input": {}},
        }
        names, arrays = list(map(str, range(len(is_right)))), {"hits": is_right}
        arrays["indices"] = np.arange(len(is_right), dtype=np.int32)
        write_table(self.folder / "tables" / f"epoch_{epoch:04d}.npz", about, names, arrays, None)


def search_once(cell: Search, rng: np.random.Generator) -> tuple[bool, int]:
    """Return whether the truly best trial of a search was stopped, and how many trials were."""
    finals = _BEST + _SPREAD * rng.normal(size=_TRIALS)
    behind = cell.crossing * rng.normal(size=_TRIALS)  # at half of the epochs
    ease = rng.normal(size=cell.samples)
    finished: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        plan = SearchPlan(folder, [], [], 0, _SCORE, True)
        for number in range(_TRIALS):
            trial, ranked = Trial(get_folder(plan, number)), sorted(finished, key=lambda n: -finished[n])
            for epoch in range(1, _EPOCHS + 1):
                left = 1 - epoch / _EPOCHS
                share = finals[number] - _RISE * left**2 - 2 * behind[number] * left + cell.noise * rng.normal()
                answers = np.sqrt(_LIKENESS) * ease + np.sqrt(1 - _LIKENESS) * rng.normal(size=cell.samples)
                trial.add(epoch, answers < NormalDist().inv_cdf(min(max(share, 0.01), 0.99)))
                if explain_stop(plan, ranked, str(trial.folder), epoch):
                    break
            else:
                finished[number] = trial.best
    return int(np.argmax(finals)) not in finished, _TRIALS - len(finished)


def measure_search(number: int, sets: int, seed: int) -> tuple[Search, int, list[int], float]:
    register_score_kind(_KIND, AnswerScores, replace=True)
    began, cell, searches = time.process_time(), SEARCHES[number], max(sets // _SHARE_OF_SETS, 1)
    found = [search_once(cell, seeded(seed, cell.name, place)) for place in range(searches)]
    return cell, searches, [sum(column) for column in zip(*found)], time.process_time() - began


def measure_searches(numbers: Sequence[int], sets: int, seed: int, jobs: int) -> dict[str, float]:
    """Measure some of ``SEARCHES`` and print their rows in their order."""
    result = {}
    print_header(f"Searches of {_TRIALS} trials of {_EPOCHS} epochs", HEADER)
    task = functools.partial(measure_search, sets=sets, seed=seed)
    for cell, searches, (best, stopped), seconds in run_cells(task, numbers, jobs):
        shares = show_share(best, searches), f"{100 * stopped / (searches * _TRIALS):.1f}"
        varied = [f"{100 * value:g} points" for value in (cell.noise, cell.crossing)]
        print_row([f"{cell.samples:,}", *varied, f"{searches:,}", *shares, f"{seconds:.1f}"])
        result[f"{cell.name}: best stopped"] = 100 * best / searches
        result[f"{cell.name}: trials stopped"] = 100 * stopped / (searches * _TRIALS)
    return result
