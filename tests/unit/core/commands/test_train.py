"""Where a run is written, which weights are looked for, and what its workers get."""

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import paddle
import pytest
import yaml
from support.hosts.servers import Server
from support.refusals import refusal_of
from support.registrations import forgotten
from support.trainings import small_runs
from support.trainings.runs import read_events

from paddlevit_dist import Callback, UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.checkpoint import download
from paddlevit_dist.core.commands import train
from paddlevit_dist.core.launch import devices, lock, rendezvous
from paddlevit_dist.core.logging import record
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.runtime import signals
from paddlevit_dist.core.tasks.task_factory import make_task

EVALUATED = ["-eval", "-pretrained=weights"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def find_output(*words: str, launched: bool = False) -> tuple[str, bool]:
    run, is_numbered = train.with_output(settings.load(["-cfg=vit_digits", *words]), launched)
    return run.values.SAVE, is_numbered


def test_the_folder_is_named_after_the_recipe_and_numbered_only_where_it_may(tmp_path):
    assert find_output() == ("output/vit_digits", True)
    assert find_output(*EVALUATED) == ("output/vit_digits_eval", True)
    assert find_output(launched=True) == ("output/vit_digits", False)
    assert find_output("-resume=auto") == ("output/vit_digits", False)
    assert find_output("-output=mine") == find_output("-output=mine", *EVALUATED) == ("mine", False)


def test_a_resumed_run_goes_on_in_the_last_folder_that_holds_checkpoints(tmp_path):
    for name, holds in (
        ("vit_digits", True),
        ("vit_digits-2", True),
        ("vit_digits-10", True),
        ("vit_digits-11", False),
    ):
        folder = tmp_path / "output" / name / "checkpoints"
        folder.mkdir(parents=True)
        if holds:
            (folder / "last").symlink_to("gone")
    assert find_output("-resume=auto") == ("output/vit_digits-10", False)
    assert find_output("-resume=auto", launched=True) == ("output/vit_digits", False)


def test_an_evaluation_of_a_runs_file_is_written_beside_the_run(tmp_path):
    Path("done").mkdir()
    run = settings.load(["-cfg=vit_digits", "-output=done", "-epochs=3"])
    Path("done/config.yaml").write_text(settings.dump_yaml(run.values))
    words = ["-cfg=done/config.yaml", *EVALUATED]
    before = train.with_output(settings.load(words), False)
    Path("done/run.json").write_text("{}")
    after, is_numbered = train.with_output(settings.load(words), False)
    assert (before[0].values.SAVE, before[1]) == ("done", False)
    assert (after.values.SAVE, is_numbered) == ("done_eval", True)
    assert train.with_output(settings.load([*words, "-output=done"]), False)[0].values.SAVE == "done"


# Weights


@pytest.fixture(autouse=True)
def full(here):
    """A folder of checkpoints."""
    Path("full").mkdir()
    Path("full/last").symlink_to("gone")


def look(fetches: bool, folder: str = "empty", **values) -> list[str]:
    """Look for the weights of a run, and return those that have to be there, in order."""
    model = {"PRETRAINED": None, "RESUME": None, "PRETRAINED_REQUIRED": False, **values.pop("model", {})}
    model = type("Model", (dict,), {"__getattr__": dict.get})(model)
    config = SimpleNamespace(EVAL=values.pop("evaluates", False), MODEL=model, TRAIN=values.pop("train", {}))
    found: list[str] = []
    while True:
        try:
            train.find_weights(config, Path(folder), lambda line: None, fetches)
        except UserError as error:
            missing = re.match(r"no weights at (\w+) ", str(error))
            if missing is None:
                raise
            found.append(missing[1])
            Path(missing[1]).touch()
        else:
            for name in found:
                Path(name).unlink()
            return found


def test_local_weights_are_looked_for_first_and_others_fetched_later(monkeypatch, tmp_path):
    monkeypatch.setenv(download.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        address = server.address("missing/net.pdparams")
        assert look(False, model={"PRETRAINED": "file"}) == ["file"] and look(True, model={"PRETRAINED": "file"}) == []
        assert look(False, model={"PRETRAINED": address}) == [] and server.requests == []
        with pytest.raises(UserError, match="net.pdparams.*404"):
            look(True, model={"PRETRAINED": address})


def test_weights_of_the_backbone_and_the_teacher_count_in_training_only():
    teacher = {"DISTILLATION_TYPE": "soft", "TEACHER_WEIGHTS": "teacher"}
    both = {"BACKBONE_PRETRAINED": "part", "PRETRAINED": "whole"}
    assert look(False, model={"BACKBONE_PRETRAINED": "part"}, train=teacher) == ["teacher", "part"]
    assert look(False, model=both, train=teacher, evaluates=True) == look(False, model=both) == ["whole"]
    assert look(False, model={"BACKBONE_PRETRAINED": "part"}, train=teacher, evaluates=True) == []
    assert look(False, train={**teacher, "DISTILLATION_TYPE": "none"}) == []
    assert look(False, train={"DISTILLATION_TYPE": "soft", "TEACHER_WEIGHTS": None}) == []


def test_a_run_that_resumes_needs_no_other_weights():
    required = {"PRETRAINED": "file", "PRETRAINED_REQUIRED": True}
    with pytest.raises(UserError, match="other"):
        look(False, model={**required, "RESUME": "other"})
    assert look(False, "full", model={**required, "RESUME": "auto"}) == []
    assert look(False, "empty", model={**required, "RESUME": "auto"}) == look(False, "full", model=required) == ["file"]


def test_a_recipe_that_needs_weights_says_so_in_training_only():
    with pytest.raises(UserError, match="MODEL.PRETRAINED_REQUIRED.*add -pretrained=PATH"):
        look(False, model={"PRETRAINED_REQUIRED": True})
    assert look(False, model={"PRETRAINED_REQUIRED": True}, evaluates=True) == look(False) == []


# Start


@pytest.mark.parametrize(("answer", "starts"), [("", True), ("  ", True), ("n", False), (None, False)])
def test_a_recipe_is_offered_and_started_only_with_enter(monkeypatch, capsys, replacements, answer, starts):
    questions = []

    def ask(question):
        questions.append(question)
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", ask)
    train.offer(SimpleNamespace(reason="no recipe", recipe="vit_digits"))
    assert capsys.readouterr().out.startswith("no recipe. The recipe for this data is vit_digits: ")
    assert questions == ["Press Enter to start it (-cfg=vit_digits); type anything else to stop: "]
    words = [sys.executable, *sys.orig_argv[1:], "-cfg=vit_digits"]
    assert replacements == [(sys.executable, words)] * starts


class OwnCallback(Callback):
    def start(self, run):
        print("mine starts")


@pytest.mark.parametrize("evaluates", [True, False])
def test_a_worker_trains_or_evaluates_with_the_parents_callbacks(capsys, own_handlers, evaluates):
    weights = small_runs.build("weights", val_size=8).model.state_dict()
    paddle.save(weights, "weights.pdparams")
    words = ["-output=out", "-epochs=1", "-batch_size=8", "-log_to=mine", "EVALUATION.INTERVAL=off"]
    words += EVALUATED if evaluates else []
    with forgotten():
        REGISTRY.kinds["callback"]["mine"] = OwnCallback
        config = settings.load([*small_runs.DIGITS, *small_runs.TINY, *words]).values
        del REGISTRY.kinds["callback"]["mine"]
        task = make_task(config)
        Path("out").mkdir()
        parts = {split: small_runs.Part(task.build_dataset(split, Path("out")), 8) for split in ("train", "val")}
        train.worker(config, task, parts, ["a note"], {"mine": OwnCallback, "other": Path})
        assert REGISTRY.kinds["callback"]["mine"] is OwnCallback and REGISTRY.kinds["callback"]["other"] is Path
    told = capsys.readouterr().out.splitlines()
    events = [event["kind"] for event in read_events("out")]
    assert "a note" in told and ("mine starts" in told) == ("training" in events) == (not evaluates)
    assert events.count("evaluation") == 1


@pytest.mark.parametrize("words", [[], EVALUATED, ["TRAIN.NUM_SAMPLES", "None"]])
def test_a_shown_configuration_ends_with_its_rates_and_all_notices(capsys, words):
    run = settings.load(["-cfg=vit_digits", "TRAIN.NUM_SAMPLES", "54321", "TRAIN.EPOCH_LIMITS", "[6,9]", *words])
    train.show_plan(run, SimpleNamespace(total_processes=2, notices=["of the plan", "two\nlines"]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["# of the plan", "# two\\nlines"]
    assert yaml.safe_load("\n".join(lines)) == yaml.safe_load(settings.dump_yaml(run.values))
    said = "# epochs: 6 to 9, to read 54,321 images (TRAIN.NUM_SAMPLES)"
    assert lines.count(said) == (not words) and "effective batch 64 = 32 per process x 2 process(es) x 1 " in "\n".join(
        lines
    )


@pytest.fixture
def begun(workers) -> list:
    """Note what a run is started with, instead of starting workers, and how its folder is locked."""
    calls = []

    def note(started):
        function, arguments, plan, seconds, _ = started
        held = Path(arguments[0].SAVE, lock.FILE)
        locked = json.loads(held.read_text())["is_evaluation"] if held.exists() else None
        calls.append((function, arguments, plan, seconds, locked))

    workers.work = note
    return calls


def make_plan(is_main: bool = True, processes: int = 2, notices: Sequence[str] = ()) -> SimpleNamespace:
    """A plan of processes, which this one reports for or not."""
    return SimpleNamespace(
        is_main=is_main, by_paddle_launcher=False, processes=processes, total_processes=processes, notices=notices
    )


def start(*words: str, is_main: bool = True, folder: str = "out") -> None:
    Path(folder).mkdir(exist_ok=True)
    run = settings.load(["-cfg=vit_digits", "-batch_size=16", "-epochs=2", f"-output={folder}", *words])
    train.run_in_folder(run, make_plan(is_main, notices=["of the plan"]), is_numbered=False)


def test_workers_get_the_settings_the_data_and_all_notices(begun):
    start("WATCHDOG_SECONDS", "77", "-log_to=tensorboard")
    function, (config, task, datasets, notices, callbacks), plan, seconds, _ = begun.pop()
    assert function is train.worker and plan.total_processes == 2 and seconds == 77
    assert (config.DATA.BATCH_SIZE, config.SAVE, set(datasets)) == (16, "out", {"train", "val"})
    assert len(datasets["train"]) > len(datasets["val"]) and notices[-1] == "of the plan"
    assert type(task).__name__ == "Classification" and list(callbacks) == ["tensorboard"]
    samples = len(datasets["train"])
    start("DATA.GLOBAL_BATCH_SIZE=90", f"TRAIN.NUM_SAMPLES={8 * samples - 1}", "TRAIN.EPOCH_LIMITS=6,9")
    _, (config, _, _, notices, _), *_ = begun.pop()
    assert (config.DATA.BATCH_SIZE, config.TRAIN.NUM_EPOCHS) == (45, 8)  # of two processes
    assert any(line.startswith(f"{samples:,} training images: 8 epochs, ") for line in notices)
    Path("weights.pdparams").touch()
    start("-eval", "-pretrained=weights.pdparams", "-split=val")
    _, (config, _, datasets, _, callbacks), *_ = begun.pop()
    assert set(datasets) == {"val"} and callbacks == {} and config.EVAL


def test_a_folder_of_another_run_is_not_trained_into(begun):
    Path("out/checkpoints").mkdir(parents=True)
    Path("out/checkpoints/last").symlink_to("gone")
    with pytest.raises(UserError, match=r"^-output=out already holds a run's checkpoints; continue with -resume=auto"):
        start()
    start("-resume=auto")
    Path("weights.pdparams").touch()
    start("-eval", "-pretrained=weights.pdparams")
    assert len(begun) == 2
    Path("seeds").mkdir()
    Path("seeds", record.SEEDS).touch()
    with pytest.raises(UserError, match="^-output=seeds contains training runs with several seeds"):
        start(folder="seeds")
    assert len(begun) == 2


def test_local_weights_that_are_missing_are_told_before_the_data_are_opened(begun):
    with pytest.raises(UserError, match="gone.pdparams"):
        start("-eval", "-pretrained=gone.pdparams", "-dataset=folder", "-data_path=nowhere")
    Path("there.pdparams").touch()
    with pytest.raises(UserError, match="nowhere"):
        start("-eval", "-pretrained=there.pdparams", "-dataset=folder", "-data_path=nowhere")
    assert not begun


@pytest.mark.parametrize("is_main", [True, False])
def test_the_end_of_a_run_that_fails_is_noted_by_the_main_process(workers, is_main):
    def fail(started):
        Path("out/run.json").touch()
        os.utime("out/run.json", (time.time() + 1,) * 2)
        raise ZeroDivisionError

    workers.work = fail
    with pytest.raises(ZeroDivisionError):
        start(is_main=is_main)
    told = Path("out/log.txt").read_text() if Path("out/log.txt").exists() else ""
    assert ("interrupted: ZeroDivisionError; continue with -resume=auto" in told) == is_main
    assert bool(told) == Path("out/metrics.jsonl").exists() == is_main


IS_TUNED, THREADS = "PADDLEVIT_DIST_ENVIRONMENT", "FLAGS_paddle_num_threads"
STALE = "ignored, as no launcher started this run: PADDLE_NNODES=2 (left in this shell; unset them)"


@pytest.mark.parametrize(
    ("words", "is_training", "outcome"),
    [
        ((), True, "started"),
        (("-show_config",), False, "shown"),
        (("-seeds=3",), True, "paddlevit_dist.extensions.compare.seeds:run"),
        (("-seeds=3", "-show_config"), False, "shown"),
        (("-selftest",), False, "paddlevit_dist.extensions.debug.selftest:run"),
        (("-eval", "-pretrained=weights"), False, "started"),
    ],
)
def test_a_job_runs_instead_of_training_unless_the_configuration_is_shown(
    monkeypatch, capsys, own_handlers, not_launched, machine, replacements, begun, words, is_training, outcome
):
    Path("weights.pdparams").touch()
    calls, machine.cores = [], 6
    for name in (IS_TUNED, THREADS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PADDLE_NNODES", "2")
    for key, target in list(REGISTRY.jobs.items()):
        monkeypatch.setitem(REGISTRY.jobs, key, lambda run, target=target: calls.append(target))
    train.run(["-cfg=vit_digits", "-ngpus=3", "-device=cpu", *words])
    calls += ["started" for _, (*_, notices, _), *_ in begun if STALE in notices]
    calls += ["shown"] * (f"# {STALE}" in capsys.readouterr().out.splitlines())
    restarts = int(outcome != "shown")  # what computes nothing needs no environment from its start on
    assert (calls, signals.is_training(), len(replacements)) == ([outcome], is_training, restarts)
    assert (os.environ[THREADS], os.environ["CUDA_VISIBLE_DEVICES"]) == ("2", "")
    assert "PADDLEVIT_DIST_PLAIN_LAYERS" not in os.environ  # it is tuned
    monkeypatch.delenv(IS_TUNED)
    with pytest.raises(UserError, match="-ngpus=99999"):
        train.run(["-cfg=vit_digits", "-ngpus=99999", *words])
    assert (len(calls), len(replacements)) == (1, restarts) and len(begun) == calls.count("started")


@pytest.fixture
def not_launched(monkeypatch):
    for name in devices.LAUNCHER_VARIABLES + ("PADDLE_TRAINER_ID",):
        monkeypatch.delenv(name, raising=False)


def test_lines_on_old_variables_join_those_of_the_plan(begun, not_launched):
    run = settings.load(["-cfg=vit_digits", "-ngpus=3", "-device=cpu"])
    assert train.carry_out(run, ["stale", "older"]) == Path("output/vit_digits")
    _, (config, _, _, notices, _), plan, *_ = begun.pop()
    assert (plan.processes, plan.device, config.SAVE) == (3, "cpu", "output/vit_digits")
    assert notices[-2:] == ["stale", "older"]
    Path("output/vit_digits/run.json").touch()
    assert train.carry_out(run) == Path("output/vit_digits-2")


@pytest.mark.parametrize("is_shown", [False, True])
def test_a_launchers_ranks_learn_that_the_start_has_failed(monkeypatch, capsys, begun, is_shown):
    events = []

    @contextlib.contextmanager
    def broadcast(seconds):
        events.append(seconds)
        yield

    monkeypatch.setattr(rendezvous, "broadcast_startup_failure", broadcast)
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    folder = Path("output/vit_digits")
    folder.mkdir(parents=True)
    (folder / "of_others").touch()
    words = ["-cfg=vit_digits", "-device=cpu", "WATCHDOG_SECONDS", "77", *["-show_config"] * is_shown]
    assert train.carry_out(settings.load(words), lines=["told: first"]) == (None if is_shown else folder)
    assert (events, len(begun)) == (([], 0) if is_shown else ([77], 1))
    out = capsys.readouterr().out
    assert ("effective batch" in out) == is_shown and out.startswith("# told: first" if is_shown else "told: first")
    assert not is_shown or yaml.safe_load(out)["WATCHDOG_SECONDS"] == 77


@pytest.mark.parametrize(("is_numbered", "is_main"), [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("words", [[], EVALUATED])
def test_a_run_has_its_folder_for_itself(begun, is_numbered, is_main, words):
    Path("mine").mkdir()
    Path("mine/of_others").touch()
    Path("weights.pdparams").touch()
    run = settings.load(["-cfg=vit_digits", "-output=mine", *words])
    plan = make_plan(is_main, processes=1)
    folder = Path("mine-2" if is_numbered else "mine")
    assert train.run_in_folder(run, plan, is_numbered) == folder and folder.is_dir()
    _, (config, _, _, notices, _), _, _, locked = begun.pop()
    assert config.SAVE == str(folder) and locked == (bool(words) if is_main else None)
    said = [f"output folder: {folder} (add -output=FOLDER for another)"] * is_numbered
    assert [notice for notice in notices if "output folder" in notice] == said
    assert not (folder / lock.FILE).exists()


@pytest.mark.parametrize(("split", "purpose"), [("train", "to learn from"), ("val", "for the score that chooses")])
def test_a_split_without_labels_is_refused_before_the_training(split, purpose):
    datasets = {name: SizedSamples(name != split, "scenes") for name in ("train", "val")}
    message = refusal_of(train.require_labeled, None, datasets)
    assert message.startswith(f"none of the 3 scenes of {split} has labels {purpose}")
    train.require_labeled(None, {"train": SizedSamples(True, "scenes")})


class SizedSamples:
    """Three samples, with labels or not."""

    def __init__(self, labeled, sample_name):
        self.labeled, self.sample_name = labeled, sample_name

    def __len__(self):
        return 3
