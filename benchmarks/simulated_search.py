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
_DROP = 0.04  # how far trials score below their final accuracy until the learning rate drops
_LIKENESS = 0.8  # correlation of the answers of two epochs
_SHARE_OF_SETS = 5  # a search counts for so many data sets
HEADER = (
    "samples",
    "epochs vary by",
    "curves cross by",
    "rate drops after",
    "searches",
    "best stopped, %",
    "trials stopped, %",
    "s",
)


class AnswerScores(ScoreKind):
    """The share of right answers; "hits" are bool (samples,)."""

    right_rate = _SCORE

    def compute(self, arrays: Arrays, weights: np.ndarray) -> dict[str, np.ndarray]:
        return {_SCORE: 100.0 * (weights @ arrays["hits"]) / weights.sum(axis=1)}

    def hits(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, np.ndarray]:
        return {_SCORE: arrays["hits"]}


class Search(NamedTuple):
    """Samples, the deviation of the probability between epochs, and how far curves lie apart that cross later.

    ``drop`` is the share of the epochs after which the learning rate falls, if it falls once: until then a trial scores
    ``_DROP`` below its final value on average, and by how much varies between trials as ``crossing`` says.
    """

    samples: int
    noise: float
    crossing: float = 0.0
    drop: float | None = None

    @property
    def name(self) -> str:
        late = "" if self.drop is None else f", the rate drops after {100 * self.drop:g} %"
        return f"search {self.samples} samples, epochs vary by {self.noise:g}, curves cross by {self.crossing:g}{late}"

    def find_gap(self, behind: float, epoch: int) -> float:
        """How far a trial is below its final value that is ``behind`` the others."""
        left = 1 - epoch / _EPOCHS
        if self.drop is None:
            return _RISE * left**2 + 2 * behind * left
        return _RISE * 0.5**epoch + (_DROP + behind) * 0.3 ** max(epoch - round(self.drop * _EPOCHS), 0)


SEARCHES = (
    Search(1000, 0.0),
    Search(1000, 0.005, 0.02),
    Search(1000, 0.01),
    Search(4000, 0.005),
    Search(4000, 0.01),
    Search(4000, 0.003, 0.02, 0.7),
    Search(4000, 0.003, 0.02, 0.8),
)


class Trial:
    """The folder of a training run: settings, record and tables of its evaluations."""

    def __init__(self, folder: str, drop: float | None) -> None:
        self.folder, self.best = Path(folder), -1.0
        (self.folder / "tables").mkdir(parents=True)
        decay = "NAME: cosine" if drop is None else f"NAME: step, MILESTONES: [{round(drop * _EPOCHS)}]"
        config = f"TRAIN:\n  NUM_EPOCHS: {_EPOCHS}\n  LR_SCHEDULER: {{{decay}}}\n"
        (self.folder / "config.yaml").write_text(config)

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
    behind = cell.crossing * rng.normal(size=_TRIALS)  # at half of the epochs, or before the drop
    ease = rng.normal(size=cell.samples)
    finished: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        plan = SearchPlan(folder, [], [], 0, _SCORE, True)
        for number in range(_TRIALS):
            trial, ranked = Trial(get_folder(plan, number), cell.drop), sorted(finished, key=lambda n: -finished[n])
            for epoch in range(1, _EPOCHS + 1):
                share = finals[number] - cell.find_gap(behind[number], epoch) + cell.noise * rng.normal()
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
        varied.append("" if cell.drop is None else f"{100 * cell.drop:g} %")
        print_row([f"{cell.samples:,}", *varied, f"{searches:,}", *shares, f"{seconds:.1f}"])
        result[f"{cell.name}: best stopped"] = 100 * best / searches
        result[f"{cell.name}: trials stopped"] = 100 * stopped / (searches * _TRIALS)
    return result
