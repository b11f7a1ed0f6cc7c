"""What a service is sent: watched where the service takes it."""

import json
import os
import sys
from types import SimpleNamespace

import pytest
from support.refusals import refusal_of

from paddlevit_dist.core.logging import services
from paddlevit_dist.core.settings import default_config
from paddlevit_dist.core.settings.table import leaves
from paddlevit_dist.core.tasks.callback import RunFacts


class WatchedLog(services.ServiceLog):
    """A service that notes what it is sent."""

    name = "watched"

    def __init__(self, sent) -> None:
        self.sent = sent

    def begin(self, run, run_id):
        self.sent.append(("begin", run_id))
        return run_id or "run 7"

    def scalars(self, values, step, seconds):
        self.sent.append((step, values))

    def finish(self, outcome):
        self.sent.append(("finish", outcome))


def write_history(folder):
    events = [
        {"kind": "training", "time": 5.0, "epoch": 1, "update": 4, "loss": 2.0, "note": "text", "is_good": True},
        {"kind": "evaluation", "time": 6.0, "epoch": 1, "loss": 1.5, "top-1": 40.0},
        {"kind": "training", "time": 7.0, "epoch": 2, "update": 14, "loss": 9.0, "superseded": True},
        {"kind": "epoch", "time": 7.5, "epoch": 1, "seconds": 3.0},
        {"kind": "training", "time": 8.0, "epoch": 2, "update": 13, "loss": 1.0},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


HISTORY = [
    (4, {"training/loss": 2.0}),
    (10, {"evaluation/loss": 1.5, "evaluation/top-1": 40.0}),
    (13, {"training/loss": 1.0}),
]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_resumed_run_goes_on_in_its_own_or_sends_all_reports_to_a_new_one(tmp_path, is_known):
    write_history(tmp_path)
    if is_known:
        (tmp_path / "watched").mkdir()
        (tmp_path / "watched" / "run_id").write_text("run 3")
    sent = []
    log = WatchedLog(sent)
    log.start(RunFacts(tmp_path, default_config("classification"), True, 3, 10, update=13))
    log.report(14, {"loss": 0.5, "update": 14, "name": "text"})
    log.evaluated(20, 2, {"top-1": 55.0, "epoch": 2})
    log.end("finished")
    assert sent == [
        ("begin", "run 3" if is_known else None),
        *([] if is_known else HISTORY),
        (14, {"training/loss": 0.5}),
        (20, {"evaluation/top-1": 55.0, "evaluation/epoch": 2.0}),  # a score of this name
        ("finish", "finished"),
    ]
    assert (tmp_path / "watched" / "run_id").read_text() == ("run 3" if is_known else "run 7")


def test_an_evaluation_sends_nothing(tmp_path):
    sent = []
    log = WatchedLog(sent)
    log.start(RunFacts(tmp_path, default_config("classification"), False))
    log.evaluated(0, 0, {"top-1": 55.0})
    log.end("finished")
    assert sent == [] and not (tmp_path / "watched").exists()


def test_errors_of_a_service_are_one_line_and_end_a_run_only_at_its_start(tmp_path):
    class Away(WatchedLog):
        def begin(self, run, run_id):
            raise RuntimeError("no server\nat port 80")

        def scalars(self, values, step, seconds):
            raise KeyError("epoch")

        finish = begin

    run = RunFacts(tmp_path, default_config("classification"), True)
    log = Away([])
    message = refusal_of(log.start, run)
    told = "LOG_TO watched: RuntimeError: no server\\nat port 80; fix this, or remove watched from LOG_TO"
    assert message == told
    with pytest.raises(OSError, match="^KeyError: 'epoch'$"):
        log.report(3, {"loss": 0.5})
    with pytest.raises(OSError, match="^TypeError: "):
        log.end("failed")


@pytest.mark.parametrize("is_named", [False, True])
def test_wandb_is_given_settings_and_numbers_but_nothing_of_the_machine(tmp_path, monkeypatch, is_named):
    told = []
    client = SimpleNamespace(
        id="run 5",
        define_metric=lambda *names, **more: told.append((*names, more)),
        log=lambda values: told.append(values),
        finish=lambda **how: told.append(how),
    )

    def init(**given):
        told.append(given)
        return client

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, Settings=lambda **given: given))
    for name in ("PROJECT", "NAME", "HOST"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
        if is_named:
            monkeypatch.setenv(f"WANDB_{name}", f"my {name}")
    folder = tmp_path / "a run"
    folder.mkdir()
    run, log = RunFacts(folder, default_config("classification"), True, 1, 10), services.WandbLog()
    log.start(run)
    silent = {"console": "off", "x_disable_meta": True, "x_disable_stats": True, "disable_git": True}
    expected = {
        "project": "my PROJECT" if is_named else "paddlevit_dist",
        "name": "my NAME" if is_named else "a run",
        "id": None,
        "resume": "allow",
        "dir": str(folder),
        "config": services.parse_yaml(run.config_text),
        "settings": {
            **silent,
            "host": "my HOST" if is_named else "",
            "x_save_requirements": False,
            "save_code": False,
        },
    }
    assert told == [expected, ("update", {}), ("*", {"step_metric": "update"})]
    assert (folder / "wandb" / "run_id").read_text() == "run 5"
    del told[:]
    log.report(3, {"loss": 0.5})
    log.end(services.FAILED)
    log.end(services.STOPPED)
    assert told == [{"update": 3, "training/loss": 0.5}, {"exit_code": 1}, {"exit_code": 0}]
    del told[:]
    log.start(run._replace(update=3))
    assert told[0]["id"] == "run 5"


def test_mlflow_has_every_setting_once_and_numbers_with_their_step_and_time(tmp_path, monkeypatch, simulated_time):
    batches, ended = [], []

    class NotingClient:
        def get_experiment_by_name(self, name):
            return SimpleNamespace(experiment_id=f"of {name}") if name == "mine" else None

        def create_experiment(self, name):
            return f"of a new {name}"

        def update_run(self, run_id, status):
            ended.append((run_id, status))

        def create_run(self, experiment, run_name):
            return SimpleNamespace(info=SimpleNamespace(run_id=f"{run_name} {experiment}"))

        def log_batch(self, run_id, params=(), metrics=()):
            batches.append((run_id, params, metrics))

        def set_terminated(self, run_id, status):
            ended.append((run_id, status))

    entities = SimpleNamespace(Param=lambda *of: of, Metric=lambda *of: of)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=NotingClient, entities=entities))
    for name in ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.setenv(name, "mine")
    folder = tmp_path / "a run"
    folder.mkdir()
    config = default_config("classification")
    config.defrost()
    config.DATA.DATA_PATH = "x" * 501
    run, log = RunFacts(folder, config, True, 1, 10), services.MlflowLog()
    log.start(run)
    assert {run_id for run_id, *_ in batches} == {"a run of mine"}
    assert len(batches[0][1]) == 100 == max(len(parameters) for _, parameters, _ in batches)
    parameters = [one for _, some, _ in batches for one in some]
    settings = leaves(services.parse_yaml(run.config_text))
    assert len(settings) > 100 and len(parameters) == len(settings)
    assert dict(parameters) == {key: str(value)[:500] for key, value in settings.items()}
    batches.clear()
    simulated_time.now = 12.5
    log.report(3, {"loss": 0.5, "top-1 (best)": 2.0})
    assert batches == [
        ("a run of mine", (), [("training/loss", 0.5, 12500, 3), ("training/top-1 _best_", 2.0, 12500, 3)])
    ]
    batches.clear()
    for tags in (["a (b)", "a [b]", "a _b_"], ["a _b_", "a [b]"]):  # the names that it allows are the same
        log.evaluated(3, 1, dict(zip(tags, (1.0, 2.0, 3.0))))
    sent = [[metric[:2] for metric in metrics] for _, _, metrics in batches]
    names = [f"evaluation/a _b_{more}" for more in ("", "_", "__")]
    assert sent == [[(names[0], 1.0), (names[1], 2.0), (names[2], 3.0)], [(names[2], 1.0), (names[1], 2.0)]]
    for outcome, status in ((services.FINISHED, "FINISHED"), (services.STOPPED, "KILLED"), (services.FAILED, "FAILED")):
        log.end(outcome)
        assert ended[-1] == ("a run of mine", status)
    batches.clear()
    services.MlflowLog().start(run._replace(update=3))
    assert ended[-1] == ("a run of mine", "RUNNING") and batches == []
    for name in ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_EXPERIMENT_NAME"):
        assert os.environ[name] == "mine"
        monkeypatch.delenv(name)
    services.MlflowLog().start(run)
    assert batches[0][0] == "a run of a new paddlevit_dist"
    assert (os.environ["MLFLOW_DISABLE_TELEMETRY"], os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"]) == ("true", "2")
