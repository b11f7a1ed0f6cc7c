"""Which quantities share a chart: those of the classes that a run names, and never a loss and a score."""

import itertools

import pytest
from support.trainings.report_runs import event, write_run

from paddlevit_dist.extensions.report.runs import read_runs
from paddlevit_dist.extensions.report.training_curves import make_curves


def chart_lines(folder, classes, scores, losses=()):
    """Title -> names of the lines of each chart of a run with these quantities, which all have other values."""
    numbers = itertools.count(1)
    values = {name: next(numbers) for name in [*scores, *losses]}
    events = []
    for epoch in (1, 2):
        events += [event("training", epoch=epoch, update=epoch, **{name: values[name] * epoch for name in losses})]
        events += [event("evaluation", epoch=epoch, **{name: values[name] * epoch for name in scores})]
    parts = make_curves(read_runs([write_run(folder / "run", events, classes=classes)]))
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


def test_a_class_may_have_a_name_of_ours(tmp_path):
    lines = chart_lines(tmp_path, ["all", "points", "count"], ["IoU", "IoU all", "IoU points", "IoU count"])
    assert lines == {"IoU": ["all together", "all", "points", "count"]}


def test_of_classes_without_a_name_three_or_more_share_a_chart(tmp_path):
    lines = chart_lines(tmp_path, [], ["IoU wall", "IoU door", "IoU door frame", "AP x", "AP y"], ["IoU loss"])
    assert lines.pop("IoU") == ["wall", "door", "door frame"]
    assert lines == {"AP x": ["evaluation"], "AP y": ["evaluation"], "IoU loss": ["training"]}
