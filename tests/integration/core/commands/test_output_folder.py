"""What a run leaves behind and prints; for two processes at night."""

import json
import re
import shlex
import shutil

import numpy as np
import paddle
import pytest
import yaml
from support.trainings.finished_runs import EPOCHS, SAVE_FREQ
from support.trainings.runs import DIGITS, contents, last_line, read_events, run_main, well

import paddlevit_dist
from paddlevit_dist.core.settings import load


@pytest.fixture
def run(trained):
    """A finished training; its fixture has seen that nothing was written to stderr."""
    return trained


def test_the_folder_is_flat_and_holds_the_named_files(run):
    names = {path.name for path in run.output.iterdir()}
    records = {"config.yaml", "run.json", "log.txt", "metrics.jsonl", "checkpoints", "data"}
    assert names == {
        *records,
        "report.html",
        "report_data.zip",
        "intervals.json",
        "quantities.json",
        "scored_samples.npz",
    }


def test_the_configuration_loads_back_to_the_same_values(run):
    assert load([f"-cfg={run.output / 'config.yaml'}"]).values == load(run.arguments).values


def test_the_run_record_tells_command_versions_devices_tuning_and_seed(run):
    record = json.loads((run.output / "run.json").read_text())
    processes = 2 if "-ngpus=2" in run.arguments else 1
    assert shlex.split(record["command"])[2:] == run.arguments
    assert record["versions"]["paddle"] == paddle.__version__
    assert record["versions"]["paddlevit_dist"] == paddlevit_dist.__version__
    assert record["versions"]["numpy"] == np.__version__
    assert (record["processes"], record["device"], record["seed"]) == (processes, "cpu", 3)
    assert record["effective_batch"] == 64 * processes
    assert record["tuning"]["FLAGS_paddle_num_threads"] == "1"
    assert "PYTHONWARNINGS" in record["tuning"]["set_by_us"]
    assert record["product_check"]["relative_error"] < 1e-5


def test_the_log_has_every_line_of_stdout_behind_its_time_and_all_of_those_that_are_shortened(run):
    log = [line.split(" ", 2)[2] for line in (run.output / "log.txt").read_text().splitlines()]
    shown = run.ended.out.splitlines()
    assert len(log) == len(shown)
    for line, whole in zip(shown, log):
        if line == whole:
            continue
        assert whole.startswith("epoch ") and len(line) <= 80 < len(whole)
        missing = set(whole.split()) - set(line.split())
        assert missing and set(line.split()) - set(whole.split()) <= {"(best)"}


def test_every_epoch_is_reported_once_with_its_evaluation(run):
    lines = read_events(run.output)
    assert {line["kind"] for line in lines} == {"training", "epoch", "evaluation"}
    for kind in ("epoch", "evaluation"):
        assert [line["epoch"] for line in lines if line["kind"] == kind] == list(range(1, EPOCHS + 1))
    updates = [line["update"] for line in lines if line["kind"] == "training"]
    assert updates == sorted(set(updates))
    assert all(line["samples"] == 360 for line in lines if line["kind"] == "evaluation")
    losses = [line["loss"] for line in lines if line["kind"] == "epoch"]
    assert losses[-1] < losses[0]


def test_the_last_lines_are_the_last_evaluation_and_the_best(run):
    evaluations = [line for line in read_events(run.output) if line["kind"] == "evaluation"]
    most = max(values["top-1"] for values in evaluations)
    best = [values["epoch"] for values in evaluations if values["top-1"] == most][-1]
    told = []
    for values in evaluations:
        low, high = values["interval"]["top-1"]
        shown = f"top-1 {values['top-1']:.2f} [{low:.1f}, {high:.1f}] top-5 {values['top-5']:.2f}"
        told.append(f"{shown} loss {values['loss']:.4f}")
    chosen = "; chosen on these samples: expect worse on others"
    expected = [f"{told[-1]} (last, epoch {EPOCHS})", f"{told[best - 1]} (best, epoch {best}{chosen})"]
    if best == EPOCHS:
        expected = [f"{told[-1]} (last and best, epoch {EPOCHS}{chosen})"]
    assert run.ended.out.splitlines()[-len(expected) :] == expected
    assert evaluations[-1]["top-1"] == pytest.approx(100 * evaluations[-1]["top-1 count"] / 360)


def test_an_evaluation_of_the_saved_weights_ends_with_the_same_line_and_its_own_record(run, tmp_path):
    output = shutil.copytree(run.output, tmp_path / "copy", symlinks=True)
    before = contents(output)
    digits = [word for word in DIGITS if word != "-epochs=1"]
    ended = well(run_main(f"-output={output}", *digits, "-eval", f"-pretrained={run.last}"))
    last = run.ended.out.partition(f"epoch {EPOCHS} evaluation: ")[2].splitlines()[0]
    assert last_line(ended) == re.sub(r" \(best.*\)$", "", last)
    after = contents(output)
    of_scores = {"eval_intervals.json", "eval_quantities.json", "eval_scored_samples.npz"}
    assert set(after) - set(before) == {"eval_config.yaml", "eval_load_report.json", "eval_run.json", *of_scores}
    assert json.loads((output / "eval_load_report.json").read_text())["loaded_fraction"] == 1.0
    assert all(after[name] == value for name, value in before.items() if name != "metrics.jsonl")
    assert read_events(output)[-1]["kind"] == "evaluation"


def test_plain_paddle_reads_the_saved_weights(run):
    state = paddle.load(str(run.last / "model.pdparams"))
    model = paddlevit_dist.create_model("vit", 10, 16, in_channels=1, patch_size=8, embed_dim=16, depth=1, num_heads=2)
    assert {name: tuple(value.shape) for name, value in state.items()} == {
        name: tuple(value.shape) for name, value in model.state_dict().items()
    }
    assert paddlevit_dist.load_weights(model, run.last, strict=True).loaded_fraction == 1.0


def test_kept_are_every_nth_the_last_and_the_best_checkpoint(run):
    """Each epoch was saved before its evaluation and has gone when the next was saved, the best when a better came."""
    scores = [line["top-1"] for line in read_events(run.output) if line["kind"] == "evaluation"]
    bests = [epoch for epoch, score in enumerate(scores, 1) if score >= max(scores[: epoch - 1], default=-1.0)]
    kept = {epoch for epoch in range(1, EPOCHS + 1) if epoch % SAVE_FREQ == 0} | {EPOCHS, bests[-1]}
    assert set(bests) - kept, "no epoch was a best one only for a while: the test proves nothing"
    saved = [line.rpartition("_")[2] for line in run.ended.out.splitlines() if line.startswith("saved")]
    assert [int(epoch) for epoch in saved] == list(range(1, EPOCHS + 1))

    checkpoints = run.output / "checkpoints"
    names = {path.name for path in checkpoints.iterdir()}
    assert names == {"last", "best", *(f"epoch_{epoch:04d}" for epoch in kept)}
    assert str((checkpoints / "last").readlink()) == f"epoch_{EPOCHS:04d}"
    assert str((checkpoints / "best").readlink()) == f"epoch_{bests[-1]:04d}"


def test_links_survive_a_move_of_the_folder(trained, tmp_path):
    first = shutil.copytree(trained.output, tmp_path / "first", symlinks=True)
    moved = first.rename(tmp_path / "moved")
    best = [line for line in trained.ended.out.splitlines() if re.search(r" \(best( top-1)?\)$", line)][-1]
    ended = well(
        run_main(f"-output={tmp_path / 'output'}", *DIGITS, "-eval", f"-pretrained={moved / 'checkpoints' / 'best'}")
    )
    assert best.partition(" (best")[0] == f"epoch {best.split()[1]} evaluation: {last_line(ended)}"
    assert trained.ended.out.splitlines()[-1].startswith(f"{last_line(ended)} (")  # and the run's last line is the best


def test_amp_on_the_cpu_says_so_once_and_changes_nothing(trained, tmp_path):
    output = tmp_path / "output"
    ended = well(run_main(*trained.arguments, f"-output={output}", "-amp"))
    notices = [line for line in ended.out.splitlines() if "half-precision" in line]
    assert notices == ["-amp: this device has no half-precision kernels, training continues in float32"]

    def numbers(folder):
        varying = ("time", "seconds", "samples_per_second", "data_wait_fraction", "memory_mib")
        return [{name: value for name, value in line.items() if name not in varying} for line in read_events(folder)]

    assert numbers(output) == numbers(trained.output)
    digests = [
        yaml.safe_load((last / "about.yaml").read_text())["weights"]
        for last in (output / "checkpoints" / "last", trained.last)
    ]
    assert digests[0] == digests[1]
    assert digests[0] == json.loads((trained.last / "state.json").read_text())["extra"]["weights_digest"]


def test_a_finished_run_that_is_resumed_has_nothing_to_do(copy, trained):
    before = contents(copy)
    ended = well(run_main(*trained.arguments, f"-output={copy}", "-resume=auto"))
    assert last_line(ended) == f"nothing to do: epoch {EPOCHS} of {EPOCHS} is already done"
    assert contents(copy) == before
