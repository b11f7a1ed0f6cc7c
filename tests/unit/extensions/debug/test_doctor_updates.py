"""Checks of a few updates: who makes them, how they are measured, and how their losses are judged."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import paddle
import pytest
from support.networks.plain_layers import plain_layers
from support.recorded_graph import recorded_graphs
from support.thread_ranks import ThreadRanks
from support.trainings.runs import DIGITS

from paddlevit_dist.core import distributed, settings
from paddlevit_dist.core.launch import devices
from paddlevit_dist.core.tasks.step_types import LossTerm, StepPosition
from paddlevit_dist.extensions.debug import doctor_updates
from paddlevit_dist.extensions.debug.doctor_checks import CheckContext
from paddlevit_dist.extensions.debug.doctor_updates import judge_steps, measure_steps

MACHINE = devices.ProcessPlan(1, "cpu", False, [])


FACTS = {"losses": [2.3, 2.2, 1.1], "first": {"loss": 2.3, "unknown": None}, "seconds": 0.125, "memory_mib": 3072.0}
FACTS |= {"trained": 1.0}


@pytest.mark.parametrize(
    "status, fix, changes",
    [
        ("ok", "", {}),
        ("failure", "huge values", {"losses": [math.nan, 2.0, 1.0]}),
        ("failure", "lower TRAIN.BASE_LR", {"losses": [2.3, 2.0, math.inf]}),
        ("failure", "does not learn", {"losses": [2.3, 2.25, 2.29]}),
        ("ok", "", {"losses": [2.3, 2.2, 2.4]}),  # has learned, if not in the end
        ("ok", "", {"losses": [2.3, 2.3, 2.3], "trained": 0.5}),  # is frozen
        ("ok", "", {"losses": [2.3, 2.0, 2.1]}),
        ("ok", "", {"losses": [-1.0, -1.0, -1.0]}),
        ("ok", "", {"losses": [-1.0, 0.5, 0.5]}),
        ("warning", "far from ln(classes)", {"first": {"loss": 1.55}}),
        ("warning", "far from ln(classes)", {"first": {"loss": 3.6}}),
        ("ok", "", {"first": {"loss": 1.7}}),
        ("ok", "", {"first": {"another": 99.0}}),
        ("warning", "gains nothing", {"captured": {"said": "passes are not captured"}}),
        ("warning", "gains nothing", {"captured": {"said": "a", "seconds": 0.2, "plain_seconds": 0.1}}),
        ("ok", "", {"captured": {"said": "a", "seconds": 0.1, "plain_seconds": 0.2}}),
    ],
)
def test_losses_of_some_updates_are_judged(status, fix, changes):
    facts = FACTS | changes
    found = judge_steps(facts, {"loss": math.log(10)})
    assert found.status == status and fix in found.fix and bool(fix) == bool(found.fix)
    assert ("ln(classes)" in found.text) == ("loss" in facts["first"])
    if "loss" in facts["first"]:
        assert f"{facts['first']['loss']:.4g} at start, ln(classes) is 2.303; after 2 updates with this" in found.text
    assert "unknown" not in found.text and "s an update, 3.0 GiB" in found.text
    if len(changes.get("captured", {})) > 1:
        seconds = "0.1 s an update, 0.2 s without" if status == "ok" else "0.2 s an update, 0.1 s without"
        assert found.text.endswith(f"GiB; a: {seconds}")
    else:
        assert found.text.endswith("GiB; passes are not captured" if "captured" in changes else "GiB")


def test_updates_are_made_by_processes_of_their_own_with_what_the_check_has_read(tmp_path, workers):
    workers.work = lambda started: Path(started.arguments[-1]).write_text(json.dumps(FACTS))
    words = [*DIGITS, "-accum_iter=3", f"-output={tmp_path}", "-epochs=5", "TRAIN.WARMUP_EPOCHS", "2", "-pretrained=x"]
    checkup = CheckContext(settings.load([*words, "WATCHDOG_SECONDS", "44"]).values, tmp_path, MACHINE)
    found = doctor_updates.check_step(checkup)
    ((function, (config, task, dataset, _), plan, seconds, in_child),) = workers.started
    assert function is doctor_updates.run_device_steps and (plan, seconds, in_child) == (MACHINE, 44, True)
    assert config.TRAIN.WARMUP_EPOCHS == 0 and config.MODEL.PRETRAINED is None and config.SAVE == str(tmp_path)
    assert task is checkup.task and dataset is checkup.samples["train"]
    judged = judge_steps(FACTS, {"loss": math.log(10)})
    assert found == judged._replace(text=f"1 x CPU process, batch 64 x 3: {judged.text}")


@pytest.mark.parametrize(
    "second, status", [(1.0, "ok"), (0.7, "ok"), (1.5, "ok"), (0.69, "warning"), (1.51, "warning")]
)
def test_each_term_of_a_loss_is_near_what_is_expected(second, status):
    found = judge_steps(FACTS | {"first": {"a": 2.0, "b": second}}, {"a": 2.0, "b": 1.0})
    assert found.status == status
    assert f"a 2 at start, b {second:g} at start, ln(classes) is 2, ln(classes) is 1; after 2 updates" in found.text


@pytest.mark.parametrize(
    "losses, seconds, made",
    [
        ([4.0, 3.0, 2.0, 1.0], 0.25, 3),  # until half of the first one
        ([1.0, 4.0, 0.5], 0.25, 3),  # at least one update
        ([4.0, 1.0], 40.0, 2),
        ([4.0] * 30, 1.5, 21),
        ([4.0] * 30, 15.0, 3),  # after 30 seconds none begins
    ],
)
def test_updates_of_two_ranks_are_measured_until_the_loss_is_halved(tmp_path, monkeypatch, losses, seconds, made):
    config = settings.load([*DIGITS, "-accum_iter=2", f"-output={tmp_path}", "TRAIN.BASE_LR", "0.5"]).values
    now, calls = [7.0, 8.0], [[], []]
    model = paddle.nn.Linear(3, 2)
    model.bias.stop_gradient = True
    model.eval()

    def step(batches, position, rate):
        """The second rank has three times the loss and takes twice the time, and the first update thrice."""
        rank = distributed.rank()
        update = len(calls[rank])
        assert (position, rate) == (StepPosition(1, update, 100, epochs_left=0), 0.5) and model.training
        calls[rank].append([batch.pop("images") for batch in batches])
        now[rank] += seconds * (rank + 1) * (1 if update else 3) if seconds < 1 else seconds * (0.9 + 0.1 * rank)
        loss = losses[update] * (1 + 2 * rank)
        terms = {"ce": LossTerm(paddle.to_tensor(4 * loss), 4, 0.25), "none": LossTerm(paddle.zeros([]), 0, 1.0)}
        return [{**terms, "shown": LossTerm(paddle.to_tensor(9.0), 0, 0.0)}, {}]

    step.captured = None

    def read(epochs):
        yield from ({"images": (*epochs, number)} for number in range(5))

    monkeypatch.setattr("paddlevit_dist.core.logging.meters.memory_mib", lambda: 100.0 + 28 * distributed.rank())
    training = SimpleNamespace(model=model, step=step, loader=SimpleNamespace(epochs=lambda *epochs: read(epochs)))
    facts, other = ThreadRanks(2).run(lambda rank: measure_steps(training, config, lambda: now[rank]))
    assert {**other, "seconds": facts["seconds"]} == facts and calls == [[[(1, 1, 0), (1, 1, 1)]] * made] * 2
    assert facts["losses"] == [loss / 2 for loss in losses[:made]] and facts["first"] == {
        "ce": 2 * losses[0],
        "none": 0,
    }
    assert (facts["trained"], facts["memory_mib"]) == (0.75, 128.0)
    assert facts["seconds"] == pytest.approx(seconds if seconds < 1 else 0.9 * seconds)


@pytest.mark.parametrize("is_capturable", [True, False])
def test_captured_passes_are_timed_against_plain_ones(tmp_path, is_capturable):
    words = [*DIGITS, "-batch_size=4", f"-output={tmp_path}", "TRAIN.BASE_LR", "1e-9", "TRAIN.CAPTURE", "True"]
    words += ["MODEL.DEPTH", "1", "MODEL.EMBED_DIM", "8", "MODEL.NUM_HEADS", "2", "MODEL.MLP_RATIO", "1.0"]
    words += [] if is_capturable else ["MODEL.ATTENTION_DROPOUT", "0.1"]
    checkup, target = CheckContext(settings.load(words).values, tmp_path, MACHINE), tmp_path / "facts.json"
    with plain_layers(), recorded_graphs() as graphs:
        doctor_updates.run_device_steps(checkup.config, checkup.task, checkup.samples["train"], str(target))
    captured = json.loads(target.read_text())["captured"]
    if is_capturable:
        assert captured["said"].startswith("passes are captured (TRAIN.CAPTURE)")
        assert captured["seconds"] > 0 and captured["plain_seconds"] > 0
        assert sum(graph.replays for graph in graphs) > 5  # none by the five updates without it
    else:
        assert captured.keys() == {"said"} and "does not say that they can be" in captured["said"]
