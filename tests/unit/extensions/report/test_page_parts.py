"""The sections of a page as plain data: rows, notes and charts, counted."""

import json
import time

import numpy as np
import pytest
from support.trainings.report_runs import event, training, write_run

from paddlevit_dist.core.tasks.figures import ConfusionMatrix, FigureTable
from paddlevit_dist.extensions.report import page, parts, store, summary, training_curves
from paddlevit_dist.extensions.report.runs import RunMetrics, read_runs


def read(*folders):
    return read_runs(list(folders))


def update(folder, name="run.json", **values) -> None:
    """Add facts to a file of a run."""
    file = folder / name
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**known, **values}))


def test_a_single_run_has_its_score_with_what_it_was_measured_on_and_several_have_a_row_each(tmp_path):
    one = write_run(tmp_path / "one", config="MODEL: {NAME: vit}\nDATA: {DATASET: coco}\nTRAIN: {NUM_EPOCHS: 2}\n")
    counts = {"samples": "9 images", "counts": {"a": 6, "b": 3}}
    update(one, processes=3, device="gpu", effective_batch=8, machine={"processor": "odd one"}, data={"val": counts})
    two = write_run(tmp_path / "two", [], config="SEED: 1\n")
    (two / "run.json").write_text(json.dumps({"machine": "unknown"}))
    hint = "this run has no figures of its model's predictions"
    score, advice, notices = summary.make_summary(read(one), tmp_path)
    assert notices["lines"] == [hint] and advice["title"] == "What to look at next" and score["links"] == []
    assert (score["main"].name, score["main"].value, score["beside"]) == ("loss", 0.75, ["top-1 80"])
    assert score["facts"] == {
        "weights": "the last",
        "measured on": "coco; val: 9 images",
        "trained on": "20 updates of 8 samples",
        "model": "vit; from random weights",
        "compared with": "1.5 at the first evaluation and 0.75 at the last",
        "state": "complete, 2 epochs; 0 min 1 s on 3 x gpu, odd one",
    }
    published = {"repository": "me/leaves", "configuration": "small", "split": "train", "share": 0.2}
    for facts, measured in (
        (published, "me/leaves small; 0.2 of train: 9 images"),
        ({"split": "test"}, "coco; test: 9 images"),
    ):
        update(one, data={"val": {**counts, "published_as": facts}})
        assert summary.make_summary(read(one), tmp_path)[0]["facts"]["measured on"] == measured
    table, links, notices = summary.make_summary(read(one, two), tmp_path)
    assert table["columns"] == ["run", "score", "state", "time", "model", "data", "device"] and links["links"] == []
    assert table["rows"] == [
        ["one", "loss 0.75, top-1 80 (the last)", "complete, 2 epochs", "0 min 1 s", "vit", "coco", "3 x gpu, odd one"],
        ["two", None, "nothing recorded yet", None, None, None, "? x ?"],
    ]
    assert notices["lines"] == [f"one: {hint}", f"two: {hint}"]


def best_event(value, epoch=2, **values):
    return event("evaluation", epoch=epoch, best="top-1", **{"top-1": value, "top-1 count": 5, **values})


def test_a_rate_is_compared_with_the_most_frequent_class(tmp_path):
    data = {"train": {"samples": "4 images"}, "val": {"samples": "20 images", "counts": {"ant": 5, "dog": 15}}}
    events = [training(4)[0], best_event(50.0, epoch=1)]
    events.append(best_event(80.0, interval={"percent": 95, "top-1": [70.0, 90.0]}))
    update(write_run(tmp_path / "one", events), data=data)
    (score, *_) = summary.make_summary(read(tmp_path / "one"), tmp_path)
    assert score["main"] == ("top-1", 80.0, (70.0, 90.0), 95, True)
    assert score["facts"]["compared with"].endswith("; 75 if dog were always predicted")
    assert score["facts"]["trained on"].startswith("4 images; ") and score["facts"]["measured on"] == "val: 20 images"
    data["val"]["counts"]["dog"] = "many"
    update(tmp_path / "one", data=data)
    assert "predicted" not in summary.make_summary(read(tmp_path / "one"), tmp_path)[0]["facts"]["compared with"]


def test_a_run_that_was_evaluated_alone_says_so_with_the_scores_and_their_intervals(tmp_path):
    scores = {"top-1": 50.125, "top-5": 80.0, "mean error": 1.0, "loss": 0.5, "samples": 64, "top-1 count": 9}
    interval = {"percent": 90, "top-1": [40.0, 60.004]}
    done = write_run(tmp_path / "done", [event("evaluation", **scores, interval=interval)], config="")
    assert summary.format_state(*read(done)) == "evaluated"
    ((score, *_),) = [summary.make_summary(read(done), tmp_path)]
    assert "trained on" not in score["facts"] and all(score["facts"].values())
    assert summary.format_best(*read(done)) == "top-1 50.12 % [40.00, 60.00] (90 %), top-5 80, mean error 1"
    assert summary.format_best(*read(write_run(tmp_path / "none", []))) is None
    last = [training(4)[0], event("evaluation", epoch=2, **scores)]
    assert (
        summary.format_best(*read(write_run(tmp_path / "last", last)))
        == "top-1 50.12 %, top-5 80, mean error 1 (the last)"
    )


@pytest.mark.parametrize(
    ("last", "config", "state"),
    [
        (event("interruption", epoch=1, reason="by\nhand"), "", "interrupted after epoch 1 of ?: by"),
        (event("ended_early", epoch=2), "TRAIN: {NUM_EPOCHS: 9}", "ended early after epoch 2 of 9"),
        (event("evaluation", epoch=9, x=1.0), "TRAIN: {NUM_EPOCHS: 9}", "complete, 9 epochs"),
        (
            event("evaluation", epoch=4, x=1.0),
            "TRAIN: {NUM_EPOCHS: 9, STOP_AFTER_EPOCH: 4}",
            "stopped after epoch 4 of 9",
        ),
        (event("training", epoch=9, update=9), "TRAIN: {NUM_EPOCHS: 9}", "killed in epoch 9 of 9, without a message"),
        (event("evaluation", epoch=3, x=1.0), "TRAIN: {NUM_EPOCHS: 9}", "killed in epoch 3 of 9, without a message"),
    ],
)
def test_the_state_is_that_of_the_last_event(tmp_path, last, config, state):
    (run,) = read(write_run(tmp_path / "run", [*training(4), last], config))
    assert summary.format_state(run._replace(is_running=False)).startswith(state)
    if "killed" in state:
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1_700_000_000))
        for unknown in (None, True):
            shown = f"in epoch {last['epoch']} of 9; last entry {began}"
            assert summary.format_state(run._replace(is_running=unknown)) == shown


def test_a_run_that_was_interrupted_before_its_first_update_says_so(tmp_path):
    events = [event("interruption", epoch=0, reason="no memory")]
    (run,) = read(write_run(tmp_path / "run", events))
    assert summary.format_state(run) == "interrupted after epoch 0 of 2: no memory"


def test_times_facts_and_durations_are_short(tmp_path):
    assert [parts.format_time(value) for value in (0, -1, 1e11, None, "x", True)] == ["?"] * 6
    assert parts.format_time(1).endswith(":01")
    facts = {"of": "x", "share": 0.123456, "n": 12345678, "none": None, "empty": {}, "list": [], "zero": 0, "name": "a"}
    assert parts.format_facts(facts, ("of",)) == "share 0.1235, n 12345678, zero 0, name a"
    (run,) = read(write_run(tmp_path / "run"))
    resumed = RunMetrics()
    for kind in ("epoch", "resume", "resume"):
        resumed.add(event(kind, epoch=1, time=5.0))
    assert summary.format_duration(run._replace(seconds=61, metrics=resumed)) == "1 min 1 s in 3 sessions"
    shown = {None: None, 59.4: "0 min 59 s", 61: "1 min 1 s", 3599.6: "1 h 0 min", 90_061: "25 h 1 min"}
    assert {value: summary.format_duration(run._replace(seconds=value)) for value in shown} == shown


def test_groups_count_their_seeds_and_name_those_that_are_not_complete(tmp_path):
    for seed, (value, ends) in enumerate([(4.0, True), (1.0, True), (2.5, False)]):
        best = event("evaluation", epoch=2 if ends else 1, best="score", score=value)
        write_run(tmp_path / "group" / f"seed_{seed}", [*training(4)[:3], best])
    early = [*training(4), event("evaluation", epoch=1, best="other", other=7.0), event("ended_early", epoch=1)]
    write_run(tmp_path / "second" / "seed_7", early)
    runs = [run._replace(is_running=False) for run in read(tmp_path / "group", tmp_path / "second")]
    alone = write_run(tmp_path / "alone", [*training(4), event("evaluation", epoch=2, best="score", score=99.0)])
    (table,) = summary.make_groups([*runs, *read(alone)])
    assert table["columns"] == ["group", "seeds", "best", "mean", "standard deviation", "minimum", "maximum"]
    assert table["rows"] == [["group", 3, "score", 2.5, 1.5, 1, 4], ["second", 1, "other", 7, None, 7, 7]]
    assert table["note"] == "Not complete, counted with their best score so far: seed_2."
    assert summary.make_groups(read(alone)) == [] and summary.make_groups(runs[:2])[0]["note"] == ""


def test_the_data_are_told_of_each_split_and_run_with_each_note_once(tmp_path):
    one, two = (write_run(tmp_path / name) for name in ("one", "two"))
    splits = {"train": {"holds": "9 images", "notes": ["a", "b"]}, "val": {"holds": "3 images", "notes": ["b"]}}
    update(one, data=splits)
    update(two, data={"test": {"holds": "1", "notes": "no list"}})
    (one / "quarantine.tsv").write_text("path\treason\n" + "".join(f"{n}.png\tcut\n" for n in range(11)))
    table, notes = page.make_data(read(one))
    assert table["rows"] == [["train", "9 images"], ["val", "3 images"]] and table["columns"] == ["split", "contents"]
    bad = "; ".join(f"{n}.png: cut" for n in range(10))
    assert notes["lines"] == ["a", "b", f"11 unreadable samples were replaced by others: {bad}"]
    table, notes = page.make_data(read(one, two))
    assert [row[0] for row in table["rows"]] == ["one: train", "one: val", "two: test"]
    assert [line[:6] for line in notes["lines"]] == ["one: a", "one: b", "one: 1"]
    assert page.make_data(read(write_run(tmp_path / "none"))) == []


def test_counts_of_classes_are_bars_with_the_rarest_of_many(tmp_path):
    one, two = (write_run(tmp_path / name) for name in ("one", "two"))
    few = {
        "train": {"samples": "9 images", "counts": {"a": 6, "b": 3}},
        "val": {"samples": "2 images", "counts": {"b": 2}},
    }
    for folder in (one, two):
        update(folder, data=few)
    bars, notes = page.make_data(read(one, two))  # the same data
    assert bars["rows"] == [("a", [(6, 1.0), (0, 0.0)]), ("b", [(3, 0.5), (2, 1.0)])] and notes["lines"] == []
    assert bars["splits"] == ["train: 9 images", "val: 2 images"] and bars["note"] == ""
    update(one, data={"train": {"samples": "many", "counts": {f"c{n}": n for n in range(99)}}, "val": {"holds": "x"}})
    table, bars, _ = page.make_data(read(one))
    assert table["rows"] == [["val", "x"]] and bars["note"] == "The 20 most and the 20 least frequent of 99 classes."
    assert [name for name, _ in bars["rows"]] == [f"c{n}" for n in (*range(98, 78, -1), *range(19, -1, -1))]


def make_figures(*titles):
    return [FigureTable(title, ("a",), [(1,)]) for title in titles]


def test_figures_of_each_run_are_a_section_and_those_of_later_ones_folded(tmp_path):
    one, two = (write_run(tmp_path / name, figures=make_figures("t", "u")) for name in ("one", "two"))
    (only,) = page.make_figures(read(one), lambda part: f"<{part['title']}>")
    assert only[:2] == ("figures-0-training", "Predictions")
    note, figures = only[2]
    assert note == {"kind": "note", "text": "Of the best weights."}
    assert figures == {"kind": "figures", "groups": [("table", ["<t>", "<u>"])]}
    store.save(two / store.EVALUATION, make_figures("v"), {"of": "w", "task": "some", "split": "val", "time": 5.0})
    sections = page.make_figures(read(one, two), lambda part: f"<{part['title']}>")
    assert [section[:2] for section in sections] == [
        ("figures-0-training", "one: predictions"),
        ("figures-1-training", "two: predictions, at the end of training"),
        ("figures-1-evaluation", "two: predictions for val, evaluated afterwards"),
    ]
    assert [part["kind"] for part in sections[0][2]] == ["note", "figures"]
    for (_, _, (folded,)), number in zip(sections[1:], (2, 1)):
        assert folded["kind"] == "folded" and folded["summary"] == ("2 figures" if number == 2 else "1 figure")
        assert [part["kind"] for part in folded["parts"]] == ["note", "figures"]
    assert sections[2][2][0]["parts"][0]["text"] == "Of w (task some, split val)."


@pytest.mark.parametrize("size", [3, 30])
def test_a_matrix_of_pairs_says_nothing_of_predictions(tmp_path, size):
    counts, names = np.full((size, size), 2), [f"c{number}" for number in range(size)]
    counts[1, 1] = 8
    for is_confusion in (True, False):
        figures = [ConfusionMatrix("Together", names, counts, is_confusion=is_confusion)]
        text = page.render(read(write_run(tmp_path / f"{is_confusion}", figures=figures)))
        text = text[text.index("Together") : text.index("</figure>", text.index("Together"))]
        assert ("Rows are true classes, columns are predicted classes" in text) == is_confusion
        assert ('"is_pairs":true' in text) == (size == 30 and not is_confusion)
        if size == 3:
            shares = ("0.333", "0.667") if is_confusion else ("0.250", "1.000")
            assert all(f"--share:{share}" in text for share in shares)
            assert ('class="miss' in text) == is_confusion


def test_a_small_matrix_has_all_its_counts_and_a_large_one_its_cells_alone():
    figure = {"names": list("abc"), "cells": [0, 1, 5, 2, 2, 7, 2, 0, 1]}
    assert page.prepare_matrix(figure)["rows"] == [[0, 5, 0], [0, 0, 0], [1, 0, 7]]
    for size, has_rows in ((24, True), (25, False)):
        assert ("rows" in page.prepare_matrix({"names": ["x"] * size, "cells": []})) == has_rows


def test_a_figure_may_be_folded_with_the_reason(tmp_path):
    plain = FigureTable("Classes", ("class", "AP %"), [("a", 1.0)])
    figures = [plain, plain._replace(title="Labels", folded="none stands out")]
    (run,) = read(write_run(tmp_path / "run", figures=figures))
    ((_, _, (*_, shown)),) = page.make_figures([run], lambda part: part)
    (_, [table]), (kind, [folded]) = shown["groups"]
    assert table["title"] == "Classes" and kind == folded["kind"] == "folded"
    assert folded["summary"] == "Labels: none stands out" and folded["parts"][0]["title"] == "Labels"


def test_all_classes_of_a_quantity_are_lines_of_one_chart(tmp_path):
    many = {f"IoU class {n}": (n + 1) / 20 for n in range(20)}
    names = ["Dice", "Dice left eye", "threshold a", "mIoU", "learning_rate"]
    names += [f"labeled {name}" for name in ("Dice", "Dice left eye", "Dice right eye")]
    events = [
        event("evaluation", epoch=n, **{name: value * n for name, value in many.items()}, **dict.fromkeys(names, n))
        for n in (1, 2)
    ]
    classes = [*(f"class {n}" for n in range(20)), "left eye", "right eye", "a"]
    runs = read(*(write_run(tmp_path / name, events, classes=classes) for name in ("one", "two")))
    (charts,) = training_curves.make_curves(runs[:1])
    by_title = {chart["title"]: chart for chart in charts["charts"]}
    assert list(by_title) == ["Dice", "mIoU", "IoU", "threshold a", "labeled Dice", "Learning rate"]
    assert [line["name"] for line in by_title["Dice"]["data"]["lines"]] == ["all", "left eye"]
    assert [line["name"] for line in by_title["labeled Dice"]["data"]["lines"]] == ["all", "left eye", "right eye"]
    lines = by_title["IoU"]["data"]["lines"]
    assert [line["style"] for line in lines].count("thin") == 12 and len(lines) == 20
    colored = [line["name"] for line in lines if line["style"] != "thin"]
    assert colored == [f"class {n}" for n in (0, 1, 2, 3, 16, 17, 18, 19)]
    assert {line["color"] for line in lines if line["style"] != "thin"} == {2, 3, 4, 5, 8, 9, 10, 11}  # by number
    assert by_title["IoU"]["note"] == "The 4 lowest and the 4 highest of 20 at the end are in color."
    parts_of_two = training_curves.make_curves(runs)
    assert [part.get("summary") for part in parts_of_two] == [None, "Dice (2)", "IoU (20)", "labeled Dice (3)"]
    assert parts_of_two[2]["parts"][0]["charts"][0]["title"] == "IoU class 0"


def test_a_class_that_stays_at_0_is_drawn_and_has_one_color_in_all_charts(tmp_path):
    dice = [{"bone": 0.5, "eyes": 0.0, "brain": 0.9}, {"bone": 0.6, "eyes": 0.0, "brain": 0.8}]
    events = [
        event("evaluation", epoch=n, **{"Dice": 0.4 + n / 10, **{f"Dice {name}": value for name, value in own.items()}})
        for n, own in enumerate(dice, 1)
    ]
    table = FigureTable("Classes", ("class", "Dice"), [("bone", 0.6), ("eyes", 0.0), ("brain", 0.8)])
    (run,) = read(write_run(tmp_path / "run", events, figures=[table]))
    (part,) = training_curves.make_curves([run])
    (chart,) = part["charts"]
    colors = {line["name"]: line["color"] for line in chart["data"]["lines"]}
    assert colors == {"all": 0, "bone": 2, "eyes": 3, "brain": 4}
    lines = [{"name": name, "x": [0, 1], "y": [0, 1]} for name in ("brain", "any", "bone")]
    figure = {"lines": lines, "shape": "line", **dict.fromkeys(("title", "x_label", "y_label", "note"), "")}
    shown = page.prepare_chart(figure, run.classes)["data"]["lines"]
    assert [line["color"] for line in shown] == [colors["brain"], 0, colors["bone"]]
    assert [line["color"] for line in page.prepare_chart(figure)["data"]["lines"]] == [0, 1, 2]


def test_curves_beyond_the_first_and_those_of_the_machine_are_folded_and_constants_told(tmp_path):
    names = [f"q{number:02d}" for number in range(12)]
    events = [
        event("training", epoch=1, update=n, rate=0.5, zero=0.0, memory_mib=n, **dict.fromkeys(names, float(n)))
        for n in (1, 2, 3)
    ]
    events += [event("evaluation", epoch=n, **{"top-1 count": n, "points": n, "once": 7.0}) for n in (1, 2)]
    charts, constant, more, machine = training_curves.make_curves(read(write_run(tmp_path / "run", events)))
    assert [chart["title"] for chart in charts["charts"]] == names[:10] and charts["kind"] == "charts"
    assert constant["text"] == "Constant: once 7, rate 0.5."
    assert more["summary"] == "More charts (2)" and machine["summary"] == "Speed and memory (1)"
    assert [chart["title"] for chart in more["parts"][0]["charts"]] == names[10:]
    assert charts["charts"][0]["x_label"] == "update" and charts["charts"][0]["data"]["lines"][0]["name"] == "training"
    assert training_curves.make_curves(read(write_run(tmp_path / "none", []))) == []
    single = [event("evaluation", epoch=1, loss=2.0)]
    (once,) = training_curves.make_curves(read(write_run(tmp_path / "single", single)))
    assert once == {"kind": "note", "text": "Measured once, so without a curve: Loss 2."}
    (part,) = training_curves.make_curves(
        read(write_run(tmp_path / "two", [*single, event("evaluation", epoch=2, loss=1.0)]))
    )
    assert [(chart["title"], chart["x_label"]) for chart in part["charts"]] == [("Loss", "epoch")]


def test_settings_that_differ_are_rows_but_not_the_folder(tmp_path):
    texts = ["SAVE: a\nSEED: 1\nAMP: true\n", "SAVE: b\nSEED: 1\nAMP: false\n", "SAVE: c\nSEED: 1\nX: 3\n"]
    runs = read(*(write_run(tmp_path / f"{n}", config=text) for n, text in enumerate(texts)))
    (table,) = page.make_differences(runs)
    assert table["title"] == "Settings that differ" and table["columns"] == ["key", "0", "1", "2"]
    assert table["rows"] == [["AMP", "True", "False", "(not set)"], ["X", "(not set)", "(not set)", "3"]]
    assert page.make_differences(runs[:1]) == []
    assert page.make_differences([runs[0], runs[0]]) == [{"kind": "note", "text": "The configurations are the same."}]


def test_weights_are_told_with_each_parameter_that_was_not_copied(tmp_path):
    one, two, none = (write_run(tmp_path / name) for name in ("one", "two", "none"))
    entries = {
        "missing": [{"name": "m", "model_shape": [3]}, "odd"],
        "resized": [{"name": "r", "source_shape": [2, 3], "model_shape": [4, 3]}],
        "unexpected": [{"name": f"u{n}"} for n in range(201)],
        "reinitialized": "no list",
    }
    facts = {"source": "w", "origin": "ours", "loaded": ["a", "b", "c"], "loaded_fraction": 0.98765}
    update(one, "load_report.json", **facts, **entries, notices=["first", "second"])
    update(two, "load_report.json", source="v", loaded=3, notices="none")
    lines, table = page.make_weights(read(one))
    assert lines["kind"] == "weights" and lines["run"] == ""
    assert lines["lines"] == ["w: ours; 3 parameters and buffers loaded (98.8 %)", "first", "second"]
    assert table["columns"] == ["parameter", "status", "shape in the file", "shape in the model"]
    assert table["rows"][:2] == [["r", "resized", "[2, 3]", "[4, 3]"], ["m", "missing", None, "[3]"]]
    assert [row[0] for row in table["rows"][2:]] == [f"u{n}" for n in range(200)]
    parts = page.make_weights(read(none, one, two))
    assert [part.get("run") for part in parts] == ["one", None, "two"]
    assert parts[2]["lines"] == ["v: None; ? parameters and buffers loaded (?)"]


def test_initial_weights_are_those_of_any_run_that_was_trained(tmp_path):
    trained = write_run(tmp_path / "trained")
    evaluated = write_run(tmp_path / "evaluated", [event("evaluation", loss=1.0)])
    for folder in (trained, evaluated):
        update(folder, "load_report.json", source="w")
    for folders, title in (((evaluated,), "Evaluated weights"), ((evaluated, trained), "Initial weights")):
        content = page.render(read(*folders))
        assert [f">{name}<" in content for name in ("Evaluated weights", "Initial weights")] == [
            name == title for name in ("Evaluated weights", "Initial weights")
        ]


def test_the_environment_of_each_run_has_its_first_facts(tmp_path):
    one, two = (write_run(tmp_path / name) for name in ("one", "two"))
    (one / "run.json").write_text(json.dumps({f"f{n:03d}": n for n in range(205)}))
    (two / "run.json").write_text("{}")
    (part,) = page.make_environment(read(one, two))
    (table,) = part["parts"]
    assert part["summary"] == "one" and table["columns"] == ["fact", "value"]
    assert table["rows"] == [(f"f{n:03d}", str(n)) for n in range(200)]


def test_events_of_all_runs_are_sorted_by_time(tmp_path):
    later = [{**event("interruption", epoch=1, reason="r" * 2000), "time": 1_700_000_100.0}]
    first = [
        {**event("resume", epoch=1, update=3), "time": 1_700_000_050.0},
        {**event("evaluation", epoch=1, loss=0.5, superseded=True), "time": 1_700_000_200.0},
        {**event("evaluation", loss=0.25, stages=3, operators=4, interval={"percent": 9}), "time": 1_700_000_001.0},
    ]
    (table,) = page.make_events(read(write_run(tmp_path / "b", later), write_run(tmp_path / "a", first)))
    assert table["title"] == "Events" and table["columns"] == ["time", "run", "event", "details"]
    assert [row[1:] for row in table["rows"]] == [
        ["a", "evaluation", "loss 0.25"],
        ["a", "resume", "epoch 1, update 3"],
        ["b", "interruption", f"epoch 1, reason {'r' * 2000}"[:1000]],
        ["a", "superseded evaluation", "epoch 1, loss 0.5"],
    ]
    (note,) = page.make_events(read(write_run(tmp_path / "none", [])))
    assert note["text"] == "There are no interruptions, resumptions or superseded evaluations."


def test_a_run_that_was_stopped_counts_its_saved_updates_and_says_how_to_continue(tmp_path):
    stopped = event("interruption", epoch=0, reason="asked to stop (SIGTERM)")
    events = [*training(20)[:2], stopped]
    for name, target, updates in (("within", "update_00000017", 17), ("none", None, 2), ("epoch", "epoch_0001", 2)):
        folder = write_run(tmp_path / name, events)
        if target:
            (folder / "checkpoints").mkdir()
            (folder / "checkpoints" / "last").symlink_to(target)
        (score, *_) = summary.make_summary(read(folder), folder)
        assert score["facts"]["trained on"].startswith(f"{updates} updates of ")
        command = f"python -m paddlevit_dist train -resume={folder}" if target else None
        assert score["command"] == command
    with_lock = read(tmp_path / "within")[0]._replace(is_running=True)  # while its last page is written
    assert with_lock.continuation is not None
    own = with_lock._replace(settings={"IMPORTS": str(["own.py"])})
    assert own.continuation == f"python -m paddlevit_dist train -resume={tmp_path / 'within'} 'IMPORTS=[own.py]'"
    going_on = with_lock._replace(metrics=read(write_run(tmp_path / "on", training(20)[:2]))[0].metrics)
    assert going_on.continuation is None and going_on._replace(is_running=False).continuation is not None
    done = going_on._replace(metrics=read(write_run(tmp_path / "done"))[0].metrics, is_running=False)
    assert done.continuation is None
