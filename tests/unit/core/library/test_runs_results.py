"""What calls of a program hand to a run, and what they return of its events."""

import json
import multiprocessing
import os
import signal
import threading
from types import SimpleNamespace

import paddle
import pytest
from support.samples.numbers import Numbers, make_loader

import paddlevit_dist as pv
from paddlevit_dist import Stopped, UserError
from paddlevit_dist.core.library import runs
from paddlevit_dist.core.runtime import signals

EVENTS = [
    {"kind": "evaluation", "time": 0.5, "epoch": 0, "update": 1, "top-1": 10.0, "loss": 3.5},
    {"kind": "evaluation", "time": 1.0, "epoch": 1, "update": 5, "top-1": 30.0, "loss": 2.5},
    {
        "kind": "evaluation",
        "time": 2.0,
        "epoch": 2,
        "update": 10,
        "top-1": 41.5,
        "images": 200,
        "split": "val",
        "interval": {"top-1": [35.0, 48.0], "confidence": 95},
        "weights": "runs/a/best",
    },
    {"kind": "evaluation", "time": 3.0, "epoch": 3, "update": 15, "top-1": 77.0, "superseded": True},
    {"kind": "epoch", "time": 4.0, "epoch": 3, "loss": 0.5},
]


@pytest.fixture
def carried(tmp_path, monkeypatch):
    """The configurations of runs, whose folder has the events above; ``meanwhile`` is all that they do."""
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    asked = SimpleNamespace(configurations=[], meanwhile=lambda notices: None)

    def carry_out(run, notices):
        asked.configurations.append(run.values)
        asked.meanwhile(notices)
        return tmp_path

    monkeypatch.setattr(runs, "carry_out", carry_out)
    return asked


def test_a_run_returns_the_last_evaluation_that_counts(carried, tmp_path):
    run = pv.train("vit_digits", epochs=7, output="there", batch_size=24, **{"TRAIN.BASE_LR": 5e-4})
    (config,) = carried.configurations
    assert (config.TRAIN.NUM_EPOCHS, config.SAVE, config.DATA.BATCH_SIZE, config.NGPUS) == (7, "there", 24, 1)
    assert config.TRAIN.BASE_LR == 5e-4 and not config.EVAL
    assert dict(run.values) == {"top-1": 41.5, "images": 200}
    assert dict(run.intervals) == {"top-1": (35.0, 48.0)}
    assert run.folder == tmp_path and os.fspath(run) == run.weights == str(tmp_path / "checkpoints" / "last")


def test_an_evaluation_returns_the_weights_that_it_evaluated(carried, tmp_path):
    (tmp_path / "run" / "checkpoints" / "best").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text("DATA: {DATASET: digits}\nTRAIN: {NUM_EPOCHS: 9}\n")
    checkpoint = tmp_path / "run" / "checkpoints" / "best"
    data = str(tmp_path)
    run = pv.evaluate(checkpoint, data_path=data, dataset="folder", batch_size=6)
    assert run.weights == "runs/a/best" and run.values["top-1"] == 41.5
    config = carried.configurations[0]
    assert (config.EVAL, config.MODEL.PRETRAINED, config.SAVE) == (True, str(checkpoint), str(tmp_path / "run"))
    assert (config.DATA.DATA_PATH, config.DATA.BATCH_SIZE, config.TRAIN.NUM_EPOCHS) == (data, 6, 9)
    pv.evaluate(checkpoint, "vit_digits", output="there", data_path=data, dataset="folder")
    assert (
        carried.configurations[1].EVAL,
        carried.configurations[1].SAVE,
        carried.configurations[1].DATA.DATA_PATH,
    ) == (True, "there", data)
    pv.evaluate(checkpoint / "averaged.pdparams")  # as the result of an evaluation names them
    assert (carried.configurations[2].SAVE, carried.configurations[2].TRAIN.NUM_EPOCHS) == (str(tmp_path / "run"), 9)
    with pytest.raises(UserError, match="b.pdparams does not exist; expected a run's folder"):
        pv.evaluate(checkpoint / "a" / "b.pdparams")


def test_a_folder_without_an_evaluation_has_no_values(carried, tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps(EVENTS[-1]) + "\n")
    run = pv.train("vit_digits")
    assert (run.values, run.intervals) == ({}, {}) and run.weights.endswith("last")


@pytest.mark.parametrize("is_evaluation", [False, True])
def test_a_call_restores_names_handlers_environment_and_loaders(carried, monkeypatch, is_evaluation):
    monkeypatch.setenv("PADDLE_NNODES", "2")
    monkeypatch.delenv("PADDLE_TRAINER_ID", raising=False)
    handler, environment, threads = signal.getsignal(signal.SIGTERM), dict(os.environ), set(threading.enumerate())
    paddle.nn.Linear(1, 1)
    names, left = [], []

    def meanwhile(notices):
        assert "PADDLE_NNODES=2" in notices[0] and "PADDLE_NNODES" not in os.environ
        names.append(paddle.nn.Linear(1, 1).weight.name)
        assert signal.getsignal(signal.SIGTERM) is not handler and signals.is_training() is not is_evaluation
        left.append(iter(make_loader(Numbers(40))))
        next(left[0])
        raise Stopped("SIGTERM", "update 3 is saved")

    carried.meanwhile = meanwhile
    call = (lambda: pv.evaluate("a.pdparams", "vit_digits")) if is_evaluation else (lambda: pv.train("vit_digits"))
    with pytest.raises(Stopped, match="update 3"):
        call()
    assert names == ["linear_0.w_0"]
    assert {thread.name for thread in set(threading.enumerate()) - threads} <= {"loader watchdog"}
    assert signal.getsignal(signal.SIGTERM) is handler and dict(os.environ) == environment


def test_ctrl_c_is_the_interrupt_of_python(carried):
    def stop(notices):
        raise Stopped("SIGINT", "update 3 is saved")

    carried.meanwhile = stop
    with pytest.raises(KeyboardInterrupt, match="update 3"):
        pv.train("vit_digits")


def test_an_input_that_cannot_be_read_ends_a_prediction(monkeypatch):
    from paddlevit_dist.core.inference import predictor

    made = []

    class Predictor:
        unreadable = [("b.jpg", "is empty"), ("c.jpg", "is a folder")]

        def __init__(self, *arguments, **options):
            made.append((arguments, options))

        def __call__(self, inputs):
            rows = predictor.PredictedRows()
            rows += [{"file": name} for name in inputs]
            rows.unreadable = self.unreadable
            return rows

    monkeypatch.setattr(predictor, "Predictor", Predictor)
    with pytest.raises(UserError, match="^predict: b.jpg: is empty; use Predictor to skip unreadable inputs$"):
        pv.predict("run", ["a.jpg", "b.jpg"])
    Predictor.unreadable = []
    assert pv.predict("run", ["a.jpg"], batch_size=3) == [{"file": "a.jpg"}]
    assert made[1] == (("run",), {"batch_size": 3})


@pytest.mark.parametrize("devices, is_restored", [(1, True), (2, False)])
@pytest.mark.parametrize("is_evaluation", [False, True])
def test_only_a_process_that_computes_restores_its_device(carried, other_paddle, devices, is_restored, is_evaluation):
    """Another would occupy one."""
    restored = []
    carried.meanwhile = lambda notices: other_paddle({"get_device": "gpu:1"})
    other_paddle({"get_device": "gpu:0", "set_device": restored.append})
    if is_evaluation:
        pv.evaluate("a.pdparams", "vit_digits", devices=devices)
    else:
        pv.train("vit_digits", devices=devices)
    assert restored == ["gpu:0"] * is_restored


def test_a_call_in_a_worker_or_in_a_launch_that_is_over_is_refused(carried, monkeypatch):
    with monkeypatch.context() as launched, pytest.raises(UserError, match="PADDLE_TRAINERS_NUM is not"):
        launched.setenv("PADDLE_TRAINER_ID", "0")
        pv.train("vit_digits")
    monkeypatch.setitem(vars(multiprocessing.current_process()), "_inheriting", True)
    with pytest.raises(SystemExit, match="starts a run outside"):
        pv.train("vit_digits")
    assert carried.configurations == []
