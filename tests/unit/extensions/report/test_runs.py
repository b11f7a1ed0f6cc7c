"""What is read of the folders of runs: names, settings, curves, events, times, and what is missing or damaged."""

import json
from types import SimpleNamespace

import pytest
from support.trainings.report_runs import event, one_of_each, training, write_run

import paddlevit_dist
from paddlevit_dist import UserError
from paddlevit_dist.extensions.report import runs, store
from paddlevit_dist.extensions.report.runs import RunMetrics, read_run, read_runs


def test_names_are_the_shortest_ends_of_paths_that_differ(tmp_path, monkeypatch):
    for name in ("a/x/run", "b/x/run", "a/other", "group/seed_10", "group/seed_9", "group/seed_x", "bare/seed_1"):
        write_run(tmp_path / name)
    (tmp_path / "group" / "seed_11").mkdir()  # is not a run
    (tmp_path / "bare" / "config.yaml").write_text("SEED: 3\n")  # is a run itself
    monkeypatch.chdir(tmp_path / "a")

    def read_names(*folders):
        return [(run.name, run.group) for run in read_runs([runs.Path(folder) for folder in folders])]

    assert read_names("x/run") == [("run", "")] and read_names("x/run", "other") == [("run", ""), ("other", "")]
    assert read_names("x/run", tmp_path / "b/x/run") == [("a/x/run", ""), ("b/x/run", "")]
    assert read_names("other", tmp_path / "a/other") == [("other (1)", ""), ("other (2)", "")]
    assert read_names("../group", "other") == [("seed_9", "group"), ("seed_10", "group"), ("other", "")]
    assert runs.shorten_names([runs.Path("/a/x"), runs.Path("/b/x")]) == ["a/x", "b/x"]
    assert read_names("../bare") == [("bare", "")]
    with pytest.raises(
        UserError, match=r"report: \.\./group/seed_11 does not contain a run \(metrics.jsonl is missing"
    ):
        read_names("../group/seed_11")


def test_each_file_that_is_missing_or_damaged_is_a_notice(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "run.json").write_text("{")
    (folder / "quarantine.tsv").write_text("path\treason\na.png\tcut\nb.png\tgone\n")
    (folder / "load_report.json").write_text('{"source": "w"}')
    (folder / store.TRAINING).write_bytes(b"x" * 99)
    run = read_run(folder, "run")
    assert [notice.partition(":")[0] for notice in run.notices] == [
        "run.json cannot be read",
        f"{store.TRAINING} cannot be shown",
        "this run has no figures of its model's predictions",
    ]
    assert run.unreadable == ["a.png: cut", "b.png: gone"] and run.load_report == {"source": "w"} and run.facts == {}
    assert run.settings == {"TRAIN.NUM_EPOCHS": "2", "TRAIN.BASE_LR": "0.001", "MODEL.NAME": "vit"}
    (folder / "metrics.jsonl").unlink()
    assert read_run(folder, "run").notices[1] == "there is no metrics.jsonl, so there are no curves"
    (folder / "metrics.jsonl").mkdir()
    assert read_run(folder, "run").notices[1] == "metrics.jsonl cannot be read: Is a directory"


def test_figures_are_read_or_their_command_is_told_where_weights_are(tmp_path):
    folder = write_run(tmp_path / "a run")
    (plain,) = read_run(folder, "run").notices
    assert plain == "this run has no figures of its model's predictions"
    (folder / "checkpoints").mkdir()
    (notice,) = read_run(folder, "run").notices
    assert notice == f"{plain}; to create them, run: python -m paddlevit_dist evaluate '{folder}' REPORT True"
    store.save(folder / store.EVALUATION, one_of_each()[:1], {"of": "x"})
    run = read_run(folder, "run")
    assert run.notices == [] and list(run.figures) == ["Evaluation"]


def test_an_evaluation_alone_has_its_own_files(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text(json.dumps(event("evaluation", loss=0.5)) + "\n")
    (folder / "eval_config.yaml").write_text("EVAL: true\n")
    (folder / "eval_run.json").write_text('{"processes": 3, "data": {"val": {"holds": "9"}, "odd": 3}}')
    for name, source in (("load_report.json", "old"), ("eval_load_report.json", "evaluated")):
        (folder / name).write_text(json.dumps({"source": source}))
    run = read_run(folder, "run")
    assert run.settings == {"EVAL": "True"} and run.facts == {"processes": 3} and run.data == {"val": {"holds": "9"}}
    assert run.load_report == {"source": "evaluated"}
    (folder / "config.yaml").write_text("EVAL: false\n")
    assert read_run(folder, "run").load_report == {"source": "old"}


def test_events_beyond_the_limit_are_counted(tmp_path):
    lines = [event("interruption", epoch=1, reason=f"{number}") for number in range(2002)]
    lines += [event("epoch", epoch=1, seconds=1.0), event("evaluation_without_average", epoch=1, loss=3.0)]
    run = read_run(write_run(tmp_path / "run", [*lines, *training(4)], figures=one_of_each()), "run")
    assert [line["reason"] for line in run.metrics.events] == [f"{number}" for number in range(2000)]
    assert run.notices == ["2 more events are not listed"] and run.metrics.omitted == 2


def read_metrics(*events) -> RunMetrics:
    metrics = RunMetrics()
    for line in events:
        metrics.add(line)
    return metrics


def test_evaluations_stand_at_the_last_update_of_their_epoch_or_where_it_would_be():
    made = [event("training", epoch=epoch, update=update, loss=1.0) for epoch, update in ((1, 4), (1, 9), (2, 18))]
    scores = [event("evaluation", epoch=epoch, score=10.0 * epoch) for epoch in (1, 2, 4)]
    metrics = read_metrics(*made, *scores, event("evaluation", score=99.0))
    assert metrics.evaluation == {"score": [(9, 10.0), (18, 20.0), (36, 40.0)]}
    assert [line["score"] for line in metrics.evaluations] == [99.0] and metrics.last["epoch"] == 4
    assert read_metrics(*scores).evaluation == {"score": [(1, 10.0), (2, 20.0), (4, 40.0)]}


def test_curves_have_the_numbers_of_their_events_and_nothing_else():
    values = {
        "loss": 2,
        "text": "x",
        "flag": True,
        "huge": 1e301,
        "inf": float("inf"),
        "rate": -0.5,
        "superseded": False,
    }
    metrics = read_metrics(
        event("training", epoch=1, update=3, **values),
        event("training", epoch="one", update=5, loss=1.5),
        event("training", epoch=1, update=None, loss=9.0),
        event("training", epoch=1, update=4, loss=7.0) | {"superseded": True},
        event("evaluation", epoch=1, loss=8.0, superseded=True),
        event("resume", epoch=1, update=3),
    )
    assert metrics.training == {"loss": [(3, 2.0), (5, 1.5)], "rate": [(3, -0.5)]}
    assert [(line["kind"], line.get("loss")) for line in metrics.events] == [("evaluation", 8.0), ("resume", None)]


def test_the_best_is_what_an_epoch_names_with_its_interval():
    interval = {"percent": 90, "score": [1.0, 3.0], "half": [1.0], "other": [2, True]}
    scores = {"score": 2.0, "half": 3.0, "other": 4.0}
    for name, shown in (("score", {"interval": (1.0, 3.0), "percent": 90}), ("half", {}), ("other", {})):
        line = event("evaluation", epoch=3, best=name, interval=interval, **scores)
        expected = {"name": name, "value": scores[name], "epoch": 3, **shown}
        assert read_metrics(line, event("evaluation", epoch=4, score=0.0)).best == expected
    assert read_metrics(event("evaluation", epoch=3, best="absent"), event("evaluation", best="x", x=1.0)).best is None


def at(seconds, kind="training", **values):
    return {"kind": kind, "time": 1000.0 + seconds, **values}


@pytest.mark.parametrize(
    "events, started, seconds",
    [
        ([at(5, epoch=1), at(30, epoch=1)], None, 25),
        ([at(5, epoch=1), at(30, epoch=1)], 2, 28),
        ([at(5, epoch=1), at(30, epoch=1)], 9, 25),  # of another run: after its first event
        ([at(5, epoch=1), at(30, epoch=1), at(100, "resume", epoch=1), at(107, epoch=2)], 96, 25 + 11),
        ([at(5, epoch=1), at(30, epoch=1), at(100, "resume", epoch=1), at(107, epoch=2)], 20, 25 + 7),
        ([at(30, "epoch", epoch=1) | {"seconds": 27.0}, at(100, "resume", epoch=1), at(107, epoch=2)], 96, 27 + 11),
        ([at(5, epoch=1), at(50, "interruption", epoch=1, reason=runs.FOUND_LATER), at(30, epoch=1)], None, 25),
        ([at(50, "evaluation", loss=1.0)], 42, 8),
        ([at(50, "evaluation", loss=1.0)], None, None),
        ([{"kind": "training", "epoch": 1}], 42, None),
    ],
)
def test_sessions_last_from_their_start_to_their_last_event(events, started, seconds):
    found = read_metrics(*events).compute_seconds(None if started is None else 1000.0 + started)
    assert found == (None if seconds is None else pytest.approx(seconds))


def test_what_is_not_text_is_cut_and_shown_and_numbers_too_large_to_draw_are_none(tmp_path):
    folder = write_run(tmp_path / "run", [])
    (folder / "metrics.jsonl").write_bytes(b"x" * 300 + b"\n")
    (folder / "quarantine.tsv").write_bytes(b"path\treason\n\xff.png\tcut\n")
    run = read_run(folder, "run")
    assert [len(line["text"]) for line in run.metrics.events] == [200] and run.unreadable == [r"\xff.png: cut"]
    numbers = [0, -2.5, 1e299, -1e299, 1e300, -1e300, float("nan"), True, "1", None]
    assert [runs.is_number(number) for number in numbers] == [True] * 4 + [False] * 6


def test_paths_are_relative_to_folder_data_and_package(tmp_path):
    folder = write_run(tmp_path / "run")
    root = runs.Path(paddlevit_dist.__file__).parents[1]
    config = {"DATA": {"DATA_PATH": "/mnt/data"}, "BASE": [f"{root}/configs/a.yaml"], "LABELS": "/mnt/data/labels.csv"}
    config |= {"SAVE": f"{tmp_path}/work/out", "OTHER": f"/x{root}/configs/a.yaml"}
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    (folder / "run.json").write_text(json.dumps({"folder": f"{tmp_path}/work"}))
    settings = read_run(folder, "run").settings
    assert (settings["SAVE"], settings["LABELS"], settings["BASE"]) == ("out", "labels.csv", "['configs/a.yaml']")
    assert settings["OTHER"] == config["OTHER"]


def with_figures(folder, *figures, data=None):
    """A run whose files of figures hold these, whatever they are."""
    run = read_run(write_run(folder), "run")
    stored = {str(place): SimpleNamespace(figures=[figure]) for place, figure in enumerate(figures)}
    return run._replace(figures=stored, data=data or {})


def make_table(columns, rows):
    return {"kind": "table", "columns": columns, "rows": rows}


def test_figures_of_a_kind_are_those_that_say_so(tmp_path):
    table, chart = make_table(["a"], [[1]]), {"kind": "chart"}
    run = with_figures(tmp_path / "run", chart, None, ["table"], table, {"columns": ["a"]}, "table", {"kind": "tables"})
    assert run.list_figures("table") == [table] and run.list_figures("chart") == [chart] and run.list_figures("x") == []


@pytest.mark.parametrize(
    "damaged",
    [
        ("ab", [[1, 2]]),
        (["a", "b"], "12"),
        (["a", "b"], [[1, 2], [3]]),
        (["a", "b"], [[1, 2], "34"]),
        (["a"], [[1]]),
        (None, None),
    ],
)
def test_a_table_is_the_first_whole_one_with_all_columns(tmp_path, damaged):
    good, later = make_table(["a", 3, "b"], [[1, 2, 3], [4, 5, 6]]), make_table(["a", "b"], [])
    run = with_figures(tmp_path / "run", make_table(*damaged), good, later)
    assert run.find_table("b", "a") == {"a": [1, 4], "3": [2, 5], "b": [3, 6]} == run.find_table("3", "b")
    assert run.find_table("c") is run.find_table("a", "c") is None
    assert with_figures(tmp_path / "empty", later).find_table("a") == {"a": [], "b": []}


@pytest.mark.parametrize("column", ["class", "category", "point", "landmark"])
def test_classes_are_those_of_the_data_then_those_of_figures_without_all_of_them(tmp_path, column):
    data = {
        "train": {"class_names": ["cow", "ant"], "counts": {"dog": 3}},
        "val": {"class_names": None, "counts": {"ant": 1}},
    }
    figure = make_table([column, "x"], [["emu", 1], ["ant", 2], ["all", 3]])
    assert with_figures(tmp_path / "both", figure, data=data).classes == ["cow", "ant", "dog", "emu"]
    assert with_figures(tmp_path / "alone", figure).classes == ["emu", "ant"]
    named = make_table([column, "x"], [["all", 1], ["b", 2], ["all together", 3]])  # a class is called "all"
    assert with_figures(tmp_path / "named", named).classes == ["all", "b"]
    assert with_figures(tmp_path / "none").classes == []


def test_names_and_counts_of_classes_that_are_damaged_are_dropped(tmp_path):
    folder = write_run(tmp_path / "run")
    splits = {
        "good": {"class_names": ["a"], "counts": {"a": 0}},
        "names": {"class_names": "a", "counts": {"a": 1.5}},
        "text": {"class_names": [], "counts": {"a": "1"}},
        "below": {"counts": {"a": -1, "b": 2}},
        "list": {"counts": [1]},
        "none": 3,
    }
    (folder / "run.json").write_text(json.dumps({"data": splits}))
    assert read_run(folder, "run").data == {
        "good": splits["good"],
        "names": {"counts": {"a": 1.5}},
        "text": {"class_names": []},
        **{"below": {}, "list": {}},
    }


def test_numbers_of_landmarks_are_counts_beside_their_errors():
    names = {"nose mre_mm", "nose landmarks", "chin landmarks", "chin"}
    assert [runs.is_count(name, names) for name in ("nose landmarks", "chin landmarks", "nose mre_mm")] == [
        True,
        False,
        False,
    ]


def test_epochs_tell_the_start_of_the_first_session_alone():
    metrics = RunMetrics()
    for kind, time, more in (
        ("training", 100.0, {}),
        ("epoch", 110.0, {"seconds": 30.0}),
        ("epoch", 120.0, {"seconds": "x"}),
        ("resume", 200.0, {}),
        ("epoch", 230.0, {"seconds": 90.0}),
    ):
        metrics.add({"kind": kind, "time": time, "epoch": 1, **more})
    assert metrics.sessions == [[80.0, 120.0], [200.0, 230.0]] and metrics.compute_seconds(None) == 70.0
    assert metrics.compute_seconds(190.0) == 80.0 and metrics.compute_seconds(119.0) == 70.0
