"""The figures of a report are those of the best weights, and an error in them costs the run nothing."""

import contextlib
from pathlib import Path

import numpy as np
import paddle
import pytest
from support.trainings import small_runs
from support.trainings.runs import read_events

from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.figures import FigureTable
from paddlevit_dist.core.tasks.protocols import Reportable
from paddlevit_dist.extensions.report import store
from paddlevit_dist.extensions.report.hook import ReportWriter, apply_weights

WORDS = ["-batch_size=16", "-epochs=2", "TRAIN.WARMUP_STEPS", "0", "REPORT", "True", "MODEL.DEPTH", "1"]


def train(folder: Path, *words: str, is_older: bool = False, error: BaseException | None = None):
    """Train two epochs; return the trainer, what was seen when figures were made, and the log."""
    seen = []

    class Watched(resolve("task", "classification"), Reportable):
        best_metric = ("cross_entropy", not is_older)  # which rises in the second epoch

        def train_step(self, model, batch, step):
            terms = super().train_step(model, batch, step)
            if step.epoch == 2:
                terms = {name: term._replace(sum=-9 * term.sum) for name, term in terms.items()}
            return terms

        def figures(self, dataset, records, model):
            weights = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
            seen.append((weights, [index for index, _ in records], model.training, paddle.is_grad_enabled()))
            if error is not None:
                raise error
            return [FigureTable("Seen", ("samples",), [(len(dataset),)]), "no figure"]

    trainer = small_runs.build(str(folder), *WORDS, *words, train_size=64, val_size=24, task_class=Watched)
    trainer.train()
    return trainer, seen, (folder / "log.txt").read_text()


@pytest.mark.parametrize("average, is_older", [(False, True), (True, False)])
def test_the_best_weights_have_the_figures(tmp_path, average, is_older):
    words = ["TRAIN.MODEL_EMA", str(average), "TRAIN.MODEL_EMA_DECAY", "0.5", "TRAIN.BASE_LR", "0.01"]
    trainer, ((weights, indices, training, with_gradients),), log = train(tmp_path, *words, is_older=is_older)
    best = trainer.checkpointer.best
    assert (best["epoch"] == 1) == is_older == ("evaluating the best weights (epoch 1) again for the report" in log)
    saved = paddle.load(str(tmp_path / "checkpoints" / "best" / f"model{'_ema' * average}.pdparams"))
    assert weights.keys() == saved.keys() and indices == list(range(24)) and not training and not with_gradients
    for name, value in saved.items():
        np.testing.assert_array_equal(weights[name], np.asarray(value), err_msg=name)
    state = trainer.model.state_dict()
    assert any((state[name].numpy() != value).any() for name, value in weights.items()) == (average or is_older)
    figures = store.load(tmp_path / store.TRAINING)
    assert figures.about["of"] == f"the best weights, of epoch {best['epoch']}"
    facts = {"task": "classification", "data": "digits", "samples": 24, best["name"]: best["value"]}
    assert {name: figures.about[name] for name in facts} == facts
    assert [figure["rows"] for figure in figures.figures] == [[[24]]]
    assert "note: figure 'str' was skipped" in log and f"report: {tmp_path}/report.html (" in log
    assert (tmp_path / "report.html").exists() and not (tmp_path / store.EVALUATION).exists()


def test_an_error_in_figures_is_a_line_and_its_trace_is_logged(tmp_path):
    _, seen, log = train(tmp_path, error=ValueError("odd records"))
    reason = "its figures could not be built (ValueError: odd records); the run is not affected"
    assert len(seen) == 1 and reason in log and "in figures" in log and (tmp_path / "report.html").exists()
    assert not (tmp_path / store.TRAINING).exists()
    events = [event["kind"] for event in read_events(tmp_path)]
    assert events.count("evaluation") == 2


def test_weights_are_put_back_after_the_best_were_applied_or_could_not_be_read(tmp_path, monkeypatch):
    trainer, _, _ = train(tmp_path, is_older=True)
    model, best = trainer.model, tmp_path / "checkpoints" / "best"
    last = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    with contextlib.suppress(KeyError), apply_weights(model, best) as is_loaded:
        applied = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
        raise KeyError("an error inside")
    assert is_loaded and any((applied[name] != value).any() for name, value in last.items())
    with apply_weights(model, tmp_path / "nothing") as is_loaded:
        assert not is_loaded
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), last[name], err_msg=name)
    lines = []
    monkeypatch.setattr(trainer.run_log, "log_and_print", lines.append)
    monkeypatch.setattr("paddlevit_dist.extensions.report.hook.write_page", lambda *_: 1 / 0)
    ReportWriter(trainer).write_page()
    assert lines == [
        "note: the report: it could not be written (ZeroDivisionError: division by zero); the run is not affected, "
        "the traceback is in log.txt"
    ]
