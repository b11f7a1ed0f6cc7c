"""Event logs, read back by the libraries' own readers."""

import json
import sys
import textwrap
from types import SimpleNamespace

import pytest
from support.trainings.runs import read_events
from support.trainings.small_runs import build

from paddlevit_dist.core import settings
from paddlevit_dist.core.logging import event_logs
from paddlevit_dist.core.tasks.callback import RunFacts

CONFIG = settings.load([]).values
RUN = ["-epochs=3", "-batch_size=8", "TRAIN.WARMUP_EPOCHS", "0"]  # 3 x 5 updates


def train(output, name, *arguments):
    build(str(output), *RUN, *arguments, f"-log_to={name}", train_size=40).train()


def recorded(output, kind, name):
    """(update, value) of what counts in ``metrics.jsonl``."""
    events = read_events(output)
    events = [event for event in events if event["kind"] == kind and not event.get("superseded")]
    return [(event.get("update", event["epoch"] * 5), event[name]) for event in events]


def read_tensorboard(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def scalars_of_tensorboard(folder):
    found = read_tensorboard(folder)
    scalars = {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    (text,) = found.Tensors("configuration")
    return scalars, text.tensor_proto.string_val[0].decode()


def scalars_of_visualdl(folder):
    pytest.importorskip("visualdl")
    from visualdl import LogReader

    (file,) = folder.iterdir()
    found = LogReader(file_path=str(file))
    tags = found.get_tags()
    scalars = {tag: [(e.id, e.value) for e in found.get_data("scalar", tag)] for tag in tags["scalar"]}
    (text,) = found.get_data("text", "configuration")
    return scalars, text.text.encoded_text_string


READERS = {"tensorboard": scalars_of_tensorboard, "visualdl": scalars_of_visualdl}


@pytest.mark.parametrize("name", READERS)
def test_every_report_and_evaluation_is_there_once_also_after_a_repetition(name, tmp_path):
    pytest.importorskip(name)
    folder = tmp_path / name
    train(tmp_path, name, "TRAIN.STOP_AFTER_EPOCH", "2", "SAVE_FREQ", "1")
    # Resumed from the first epoch: the second is made again.
    train(tmp_path, name, f"-resume={tmp_path / 'checkpoints' / 'epoch_0001'}")
    assert len(list(folder.iterdir())) == 1
    scalars, text = READERS[name](folder)
    for kind, value in (("training", "loss"), ("training", "gradient_norm"), ("evaluation", "top-1")):
        expected = recorded(tmp_path, kind, value)
        steps, values = zip(*scalars[f"{kind}/{value}"])
        assert list(steps) == [step for step, _ in expected] == sorted(set(steps))
        assert values == pytest.approx([value for _, value in expected], rel=1e-6)
    assert len(scalars["training/loss"]) == 15
    for (_, low), (_, score), (_, high) in zip(
        *(scalars[f"evaluation/{name}"] for name in ("top-1 low", "top-1", "top-1 high")), strict=True
    ):
        assert low < score < high
    assert "BASE_LR" in text and "EMBED_DIM: 32" in text


def log_some(log, folder, simulated_time) -> None:
    """Log a history of two events and two values more, at 12.5 seconds."""
    (folder / log.folder_name).mkdir()
    for number in range(3):
        (folder / log.folder_name / log.pattern.replace("*", str(number))).touch()
    history = [{"kind": "training", "time": 5.5, "epoch": 1, "update": 4, "loss": 2.0}]
    history += [{"kind": "evaluation", "time": 6.25, "epoch": 1, "update": 7, "loss": 1.5}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in history))
    run = RunFacts(folder, CONFIG, True, 1, 7, update=7)
    simulated_time.now = 12.5
    type(log)().start(run._replace(trains=False))
    assert len(list((folder / log.folder_name).iterdir())) == 3
    log.start(run)
    log.report(8, {"loss": 0.5, "rows %": 3, "text": "none", "flag": True})
    log.evaluated(9, 2, {"loss": 0.25})
    log.end("finished")
    log.report(10, {"loss": 9.0})
    assert len(list((folder / log.folder_name).iterdir())) == 1


def test_a_new_file_has_the_history_with_its_times_and_replaces_earlier_ones(tmp_path, simulated_time):
    pytest.importorskip("tensorboard")
    log_some(event_logs.TensorBoardLog(), tmp_path, simulated_time)
    found = read_tensorboard(tmp_path / "tensorboard")
    assert {tag: [(e.step, e.value, e.wall_time) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]} == {
        "training/loss": [(4, 2.0, 5.5), (8, 0.5, 12.5)],
        "evaluation/loss": [(7, 1.5, 6.25), (9, 0.25, 12.5)],
        "training/rows %": [(8, 3.0, 12.5)],
    }
    (text,) = found.Tensors("configuration")
    assert (text.step, text.wall_time) == (0, 12.5)
    assert text.tensor_proto.string_val[0].decode() == textwrap.indent(
        RunFacts(tmp_path, CONFIG, True).config_text.rstrip(), "    "
    )


def test_visualdl_has_milliseconds_and_no_percent_signs(tmp_path, monkeypatch, simulated_time):
    written = []

    def record(kind):
        return lambda **facts: SimpleNamespace(SerializeToString=lambda: (kind, facts))

    component = SimpleNamespace(**{kind: record(kind) for kind in ("meta_data", "scalar", "text")})
    modules = {"visualdl": None, "visualdl.component": SimpleNamespace(base_component=component)}
    modules |= {"visualdl.writer": None}
    modules["visualdl.writer.record_writer"] = SimpleNamespace(
        RecordWriter=lambda file: SimpleNamespace(write=written.append)
    )
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module or SimpleNamespace())
    log_some(event_logs.VisualDlLog(), tmp_path, simulated_time)

    def scalar(tag, step, value, milliseconds):
        return "scalar", {"tag": tag, "value": value, "step": step, "walltime": milliseconds}

    config = RunFacts(tmp_path, CONFIG, True).config_text
    text = {"tag": "configuration", "text_string": config, "step": 0, "walltime": 12500}
    assert written == [
        ("meta_data", {"walltime": 12500}),
        ("text", text),
        scalar("training/loss", 4, 2.0, 5500),
        scalar("evaluation/loss", 7, 1.5, 6250),
        scalar("training/loss", 8, 0.5, 12500),
        scalar("training/rows percent", 8, 3.0, 12500),
        scalar("evaluation/loss", 9, 0.25, 12500),
    ]
