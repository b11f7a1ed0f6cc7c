"""A run whose score its first evaluations do not define: resumed, ended early, and on two processes."""

import json

import numpy as np
import pytest
from support.trainings import small_runs
from support.trainings.runs import read_events

from paddlevit_dist.core.metrics import ClassificationMetrics, ClassificationScores
from paddlevit_dist.core.registry.register import register_score_kind
from paddlevit_dist.images import Classification

RUN = ["VALIDATE_FREQ", "1", "TRAIN.WARMUP_EPOCHS", "0", "-batch_size=16", "TRAIN.PATIENCE", "2"]


class Sureness(ClassificationScores):
    """Has a score that the n-th evaluation defines as the n-th of these numbers."""

    numbers: tuple = ()
    computed = 0

    def compute(self, arrays, weights):
        value = self.numbers[min(Sureness.computed, len(self.numbers) - 1)]
        return {**super().compute(arrays, weights), "sureness": np.full(len(weights), value)}


class Sure(Classification):
    best_metric = ("sureness", False)

    def build_metrics(self):
        return SureMetrics(self.num_classes, kind="sureness")


class SureMetrics(ClassificationMetrics):
    def summary(self, values):
        Sureness.computed += 1
        return f"sureness {values['sureness']:.2f}"


def train(folder, *words: str):
    register_score_kind("sureness", Sureness, replace=True)
    run = small_runs.build(str(folder), *RUN, *words, task_class=Sure, train_size=32, val_size=16)
    run.train()
    return run


@pytest.mark.parametrize(
    ("numbers", "stop", "best", "value", "last"),
    [
        ((np.nan, np.nan, np.nan, np.nan), 2, 4, None, 4),
        ((np.nan, np.nan, 3.0, 5.0), 1, 3, 3.0, 4),
        ((np.nan, np.nan, 3.0, 5.0), 3, 3, 3.0, 4),
        ((2.0, np.nan, np.nan, 1.0), 2, 1, 2.0, 3),  # ended early
    ],
)
def test_a_resumed_run_has_the_best_of_one_without_a_break(tmp_path, monkeypatch, numbers, stop, best, value, last):
    results = []
    for name, breaks in (("whole", [[]]), ("resumed", [[f"-stop_after_epoch={stop}"], ["-resume=auto"]])):
        epoch = 0
        for words in breaks:
            # the check before the first update is counted, too
            monkeypatch.setattr(Sureness, "computed", epoch - 1)
            monkeypatch.setattr(Sureness, "numbers", (*numbers, *numbers[-1:]))
            run = train(tmp_path / name, "-epochs=4", *words)
            epoch = stop
        folder = tmp_path / name
        events = [event for event in read_events(folder) if event["kind"] == "evaluation"]
        assert [event.get("sureness") for event in events] == [None if np.isnan(x) else x for x in numbers[:last]]
        assert (folder / "checkpoints" / "best").resolve().name == f"epoch_000{best}"
        record = json.loads((folder / "checkpoints" / f"epoch_000{last}" / "evaluation.json").read_text())
        results.append((record["best"], record["evaluations"]))
        assert run.checkpointer.best["value"] == value and run.checkpointer.best["epoch"] == best
    assert results[0] == results[1]
