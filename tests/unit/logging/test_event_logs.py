"""Event logs, read back by the libraries' own readers."""

import json

import pytest
from support.trainings.small_runs import build

RUN = ["-epochs=3", "-batch_size=64", "TRAIN.WARMUP_EPOCHS", "0"]  # 3 x 5 updates


def train(output, name, *arguments):
    build(str(output), *RUN, *arguments, f"-log_to={name}").train()


def recorded(output, kind, name):
    """(update, value) of what counts in ``metrics.jsonl``."""
    events = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    events = [event for event in events if event["kind"] == kind and not event.get("superseded")]
    return [(event.get("update", event["epoch"] * 5), event[name]) for event in events]


def scalars_of_tensorboard(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
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
