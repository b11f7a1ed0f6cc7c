"""Services that watch trainings, each in its offline mode, read back from what it keeps on disk."""

import json
import re
import signal
import struct

import pytest
from support.small_runs import build

from paddlevit_dist.observe import services
from paddlevit_dist.observe.observer import FINISHED, Observers, RunFacts
from paddlevit_dist.observe.services import WandbLog

RUN = ["-epochs=3", "-batch_size=64", "TRAIN.WARMUP_EPOCHS", "0"]  # 3 x 5 updates
SECRET = "hf_abcdefghijkl"


def recorded(output, kind, name):
    """(update, value) of all that ``metrics.jsonl`` has, what was repeated included."""
    events = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    return [(event.get("update", event["epoch"] * 5), event[name]) for event in events if event["kind"] == kind]


def records_of_wandb(file):
    """Records of a .wandb file: LevelDB's log format after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", content, at)
        whole += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # the last part of a record
            yield Record.FromString(whole)
            whole = b""


def read_wandb(output, tmp_path):
    scalars, files = {}, sorted(output.glob("wandb/offline-run-*/*.wandb"))
    for file in files:
        for record in records_of_wandb(file):
            assert not record.run.host
            row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            for tag in row.keys() - {"update"}:
                scalars.setdefault(tag, []).append((row.get("update"), row[tag]))
    (run_id,) = {file.name for file in files}
    assert not [path for path in output.glob("wandb/offline-run-*/files/**/*") if path.is_file()]  # of machine or code
    return scalars, run_id[len("run-") : -len(".wandb")], b"".join(file.read_bytes() for file in files).decode("latin1")


def read_mlflow(output, tmp_path):
    from mlflow import MlflowClient

    client = MlflowClient(f"file://{tmp_path}/mlruns")
    experiment = client.get_experiment_by_name("paddlevit_dist")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED" and run.data.params["TRAIN.NUM_EPOCHS"] == "3"
    histories = {tag: client.get_metric_history(run.info.run_id, tag) for tag in run.data.metrics}
    scalars = {tag: [(one.step, one.value) for one in history] for tag, history in histories.items()}
    return scalars, run.info.run_id, str(run.data.params)


def read_clearml(output, tmp_path):
    scalars = {}
    (folder,) = [path for path in (tmp_path / ".clearml/cache/offline").iterdir() if path.is_dir()]
    assert set(re.findall(r'"worker": "([^"]*)"', (folder / "log.jsonl").read_text())) == {"paddlevit_dist"}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        for event in json.loads(line):
            scalars.setdefault(f"{event['variant']}/{event['metric']}", []).append((event["iter"], event["value"]))
    return scalars, folder.name, (folder / "task.json").read_text()


READERS = {"wandb": read_wandb, "mlflow": read_mlflow, "clearml": read_clearml}


@pytest.fixture
def offline(tmp_path, monkeypatch):
    # ClearML then reports in a thread instead of yet another process, which takes 11 s to end.
    (tmp_path / "clearml.conf").write_text("sdk { development { report_use_subprocess: false } }")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in {
        "WANDB_MODE": "offline",
        "MLFLOW_TRACKING_URI": f"file://{tmp_path}/mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "CLEARML_OFFLINE_MODE": "1",
        "CLEARML_CONFIG_FILE": str(tmp_path / "clearml.conf"),
    }.items():
        monkeypatch.setenv(name, value)


def test_every_service_has_all_reports_in_one_run_also_after_it_was_resumed(tmp_path, offline):
    output = tmp_path / "run"
    train = [*RUN, f"DATA.DATA_PATH=https://user:{SECRET}@example.org/d", f"-log_to={','.join(READERS)}"]
    build(str(output), *train, "TRAIN.STOP_AFTER_EPOCH", "2", "SAVE_FREQ", "1").train()
    ids = {name: (output / name / "run_id").read_text() for name in READERS}
    build(str(output), *train, f"-resume={output / 'checkpoints' / 'epoch_0001'}").train()  # epoch 2 once more
    assert "left out" not in (output / "log.txt").read_text()
    for name, read in READERS.items():
        scalars, run_id, settings = read(output, tmp_path)
        assert run_id == ids[name] == (output / name / "run_id").read_text()
        for kind, value in (("training", "loss"), ("evaluation", "top-1")):
            expected = sorted(recorded(output, kind, value))
            found = sorted(scalars[f"{kind}/{value}"])
            assert [step for step, _ in found] == [step for step, _ in expected], name
            assert [v for _, v in found] == pytest.approx([v for _, v in expected], rel=1e-6)
        assert SECRET not in settings and "example.org" in settings


def begun(tmp_path):
    """What a service is told, and the lines that the user sees."""
    lines = []
    observers = Observers([log := WandbLog()], lines.append)
    observers.start(RunFacts(tmp_path / "run", None, "SEED: 0\n", True, 1, 10**6))
    return observers, log._process, lines


def broken_library(tmp_path, monkeypatch, code):
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "__init__.py").write_text(code)
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_a_service_that_fails_is_told_in_one_line_and_asked_no_more(tmp_path, monkeypatch):
    broken_library(tmp_path, monkeypatch, f"raise ConnectionError('https://me:{SECRET}@api.example.org is away')")
    observers, process, lines = begun(tmp_path)
    observers.end(FINISHED)  # waits for it
    (line,) = lines
    assert "WandbLog is left out from here on, the run continues" in line
    assert "wandb: ConnectionError: https://***@api.example.org is away; see " in line
    assert process.returncode == 1


def test_a_service_that_hangs_never_holds_up_the_training(tmp_path, monkeypatch):
    broken_library(tmp_path, monkeypatch, "import signal; signal.pause()")
    observers, process, lines = begun(tmp_path)
    for update in range(10_000):  # more than any pipe holds
        observers.report(update, {"loss": 1.0})
    observers.end(FINISHED)
    (line,) = lines
    assert "it takes nothing any more" in line and process.returncode == -signal.SIGKILL


def test_the_watchdog_leaves_a_run_alone_that_waits_for_a_service(tmp_path, monkeypatch):
    broken_library(tmp_path, monkeypatch, "import signal; signal.pause()")
    noted = []
    monkeypatch.setattr(services, "_LAST_SECONDS", 2)
    monkeypatch.setattr(services.status, "note", noted.append)
    observers, _, lines = begun(tmp_path)
    observers.end(FINISHED)
    assert noted == ["sending the rest to wandb"] * 2 and "it was not done 2 s after the training" in lines[0]


def test_a_training_that_was_killed_counts_as_failed(tmp_path, offline):
    (tmp_path / "run").mkdir()
    observers, process, _ = begun(tmp_path)
    observers.report(5, {"loss": 1.0})
    process.stdin.close()
    assert process.wait(100) == 0
    (file,) = (tmp_path / "run").glob("wandb/offline-run-*/*.wandb")
    (code,) = [record.exit.exit_code for record in records_of_wandb(file) if record.HasField("exit")]
    assert code == 1
