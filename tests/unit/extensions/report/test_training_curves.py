"""Which quantities share a chart: those of the classes that a run names, and never a loss and a score."""

import itertools
import json

import pytest
from support.trainings.report_runs import event, write_run

from paddlevit_dist.core.logging.record import SCORES
from paddlevit_dist.core.tasks.score import Score, to_plain
from paddlevit_dist.extensions.report.curves import MUTED
from paddlevit_dist.extensions.report.parts import make_note
from paddlevit_dist.extensions.report.runs import read_runs
from paddlevit_dist.extensions.report.training_curves import make_curves


def chart_lines(folder, classes, scores, losses=(), described=None):
    """Title -> names of the lines of each chart of a run with these quantities, which all have other values.

    ``described``: what the scores are, as the run's evaluations have stored it.
    """
    numbers = itertools.count(1)
    values = {name: next(numbers) for name in [*scores, *losses]}
    events = []
    for epoch in (1, 2):
        events += [event("training", epoch=epoch, update=epoch, **{name: values[name] * epoch for name in losses})]
        events += [event("evaluation", epoch=epoch, **{name: values[name] * epoch for name in scores})]
    write_run(folder / "run", events, classes=classes)
    if described is not None:
        (folder / "run" / SCORES).write_text(json.dumps(to_plain(described, [])))
    parts = make_curves(read_runs([folder / "run"]))
    charts = [chart for part in parts for own in [part, *part.get("parts", ())] for chart in own.get("charts", ())]
    drawn = [line["y"] for chart in charts for line in chart["data"]["lines"]]
    assert sorted(drawn) == sorted([value, 2 * value] for value in values.values())  # each once
    return {chart["title"]: [line["name"] for line in chart["data"]["lines"]] for chart in charts}


def test_the_loss_and_the_scores_of_masks_are_in_charts_of_their_own(tmp_path):
    scores = ["AP", "AP50", "AP car", "AP tree", "mask AP", "mask AP50", "mask AP75", "mask AR_1"]
    scores += ["mask AP car", "mask AP tree"]
    lines = chart_lines(tmp_path, ["car", "tree"], scores, ["mask", "mask_auxiliary"])
    assert lines["mask"] == lines["mask_auxiliary"] == ["training"]
    assert lines["AP"] == lines["mask AP"] == ["all", "car", "tree"]
    assert lines["mask (evaluation)"] == ["AP50", "AP75", "AR_1"]


@pytest.mark.parametrize(
    ("classes", "pattern", "overall"),
    [
        (["car", "car door", "door"], "AP {}", "AP"),
        (["mask", "AP", "loss"], "AP {}", "AP"),
        (["eye", "left eye", "left"], "{} mre_mm", "mre_mm"),
        (["a", "b c", "c"], "pooled Dice {}", "pooled Dice"),
    ],
)
def test_each_class_has_its_line_whatever_the_others_are_called(tmp_path, classes, pattern, overall):
    more = ["mask AP", "micro AP", "mIoU"]
    lines = chart_lines(tmp_path, classes, [overall, *map(pattern.format, classes), *more], ["loss"])
    assert sorted(lines.pop(overall)) == sorted(["all", *classes])
    assert lines == {**{name: ["evaluation"] for name in more}, "Loss": ["training"]}


def test_what_a_run_says_of_its_scores_is_not_read_from_their_names(tmp_path):
    classes = ["car", "mask", "big car"]
    scores = ["AP", "of car: AP", "of mask: AP", "of big car: AP", "mask AP", "points"]
    described = {name: Score(name) for name in scores}
    described |= {f"of {name}: AP": Score("AP", name) for name in classes}
    lines = chart_lines(tmp_path, classes, scores, ["loss"], described)
    assert lines.pop("Loss") == ["training"] and sorted(lines.pop("AP")) == sorted(["all", *classes])
    assert lines == {"mask AP": ["evaluation"], "points": ["evaluation"]}  # an own score, not the number of points


def test_a_class_may_have_a_name_of_ours(tmp_path):
    lines = chart_lines(tmp_path, ["all", "points", "count"], ["IoU", "IoU all", "IoU points", "IoU count"])
    assert lines == {"IoU": ["all together", "all", "points", "count"]}


def test_of_classes_without_a_name_three_or_more_share_a_chart(tmp_path):
    lines = chart_lines(tmp_path, [], ["IoU wall", "IoU door", "IoU door frame", "AP x", "AP y"], ["IoU loss"])
    assert lines.pop("IoU") == ["wall", "door", "door frame"]
    assert lines == {"AP x": ["evaluation"], "AP y": ["evaluation"], "IoU loss": ["training"]}


def make_parts(folder, training, evaluation, classes=(), runs=1):
    """The parts of runs with these values of two epochs, by name; an empty mapping has no events."""
    folders = []
    for run in range(runs):
        events = []
        for epoch in (1, 2):
            for kind, values in (("training", training), ("evaluation", evaluation)):
                found = {name: pair[epoch - 1] for name, pair in values.items()}
                events += [event(kind, epoch=epoch, update=epoch, **found)] if values else []
        folders.append(write_run(folder / f"run{run}", events, classes=classes))
    return make_curves(read_runs(folders))


def list_titles(part) -> list[str]:
    return [chart["title"] for chart in part["charts"]]


def test_the_loss_is_first_and_the_machine_is_folded_behind_all_others(tmp_path):
    names = ["gradient_norm", "samples_per_second", "loss of boxes", "memory_mib", "learning_rate", "box", "loss"]
    names += ["data_wait_fraction", "skipped_updates", "own memory"]
    changing = dict.fromkeys(names, (1.0, 2.0))
    first, folded = make_parts(tmp_path, changing, {})
    assert list_titles(first) == ["Loss", "box", "loss of boxes", "Learning rate", "Gradient norm"]
    assert folded["summary"] == "Speed and memory (5)"
    assert list_titles(folded["parts"][0]) == [
        *("Throughput (samples per second)", "Memory (MiB)", "Data wait (share of the time)"),
        *("Updates skipped so far", "own memory"),
    ]
    assert {chart["x_label"] for chart in first["charts"]} == {"update"}
    assert {chart["x_label"] for part in make_parts(tmp_path / "e", {}, changing)[:1] for chart in part["charts"]} == {
        "epoch"
    }


@pytest.mark.parametrize(("number", "folded"), [(10, None), (11, "More charts (1)"), (13, "More charts (3)")])
def test_up_to_ten_charts_are_open(tmp_path, number, folded):
    first, *more = make_parts(tmp_path, {f"q{n}": (1.0, 2.0) for n in range(number)}, {})
    assert list_titles(first) == [f"q{n}" for n in range(min(number, 10))]
    assert [part["summary"] for part in more] == ([folded] if folded else [])


def test_what_does_not_change_is_a_line_unless_it_is_zero(tmp_path):
    values = {"loss": (2.0, 1.0), "learning_rate": (0.25, 0.25), "own": (0.0, 0.0), "memory_mib": (512.5, 512.5)}
    first, note = make_parts(tmp_path, values, {"score": (3.0, 3.0), "samples": (64, 64)})
    assert list_titles(first) == ["Loss"]
    assert note == make_note("Constant: score 3, Learning rate 0.25, Memory (MiB) 512.5.")
    assert make_parts(tmp_path / "alone", {"own": (1.0, 1.0)}, {}) == []


@pytest.mark.parametrize("number", [8, 9, 12])
def test_of_many_classes_the_four_lowest_and_highest_at_the_end_have_colors(tmp_path, number):
    classes = [f"c{n}" for n in range(number)]
    ends = {name: float((5 * n) % number) for n, name in enumerate(classes)}  # in no order, if 5 divides nothing
    (part,) = make_parts(tmp_path, {}, {f"IoU {name}": (9.5, end) for name, end in ends.items()}, classes)
    (chart,) = part["charts"]
    lines = chart["data"]["lines"]
    colored = {name for name, end in ends.items() if end < 4 or end >= number - 4}
    assert [line["name"] for line in lines if line["style"] != "thin"] == [name for name in classes if name in colored]
    thin = lines[: number - len(colored)]  # drawn first, below the others
    assert {line["name"] for line in thin} == {*classes} - colored and all(line["color"] == MUTED for line in thin)
    assert len({line["color"] for line in lines} - {MUTED}) == min(number, 8)
    note = f"The 4 lowest and the 4 highest of {number} at the end are in color."
    assert chart["note"] == (note if number > 8 else "")


def test_a_class_in_training_and_evaluation_has_a_line_and_dots_of_one_color(tmp_path):
    both = {f"loss {name}": (3.0, 2.0 + n) for n, name in enumerate("abc")}
    (part,) = make_parts(tmp_path, both, {"loss b": (5.0, 6.0)}, ())
    (chart,) = part["charts"]
    lines = {line["name"]: (line["style"], line["color"]) for line in chart["data"]["lines"]}
    assert {name: style for name, (style, _) in lines.items()} == {
        **{"a": "line", "b training": "line", "b evaluation": "dots", "c": "line"}
    }
    colors = {name: color for name, (_, color) in lines.items()}
    assert colors["b training"] == colors["b evaluation"] and len({*colors.values()}) == 3


def test_classes_of_several_runs_have_a_chart_each_and_stay_at_zero_with_others(tmp_path):
    scores = {"IoU": (1.0, 2.0), "IoU a": (0.0, 0.0), "IoU b": (1.0, 3.0), "Dice a": (0.0, 0.0), "Dice b": (0.0, 0.0)}
    (folded,) = make_parts(tmp_path, {}, scores, ["a", "b"], runs=2)
    assert folded["summary"] == "IoU (3)" and list_titles(folded["parts"][0]) == ["IoU", "IoU a", "IoU b"]
    assert [len(chart["data"]["lines"]) for chart in folded["parts"][0]["charts"]] == [2, 2, 2]
