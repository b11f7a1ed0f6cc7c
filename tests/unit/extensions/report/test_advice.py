"""What a report says to look at next."""

import json

from support.trainings.report_runs import event, write_run

from paddlevit_dist.core.tasks.figures import FigureTable
from paddlevit_dist.extensions.report.advice import advise
from paddlevit_dist.extensions.report.runs import read_runs


def read_advice(folder, events, figures=None, counts=None, epochs=4):
    write_run(folder, events, f"TRAIN: {{NUM_EPOCHS: {epochs}}}\n", figures)
    data = {"train": {"counts": counts}} if counts else {}
    (folder / "run.json").write_text(json.dumps({"data": data}))
    return advise(*read_runs([folder]))


def test_the_worst_class_is_named_with_what_it_is_taken_for_and_how_rare_it_is(tmp_path):
    columns = ("class", "images", "recall %", "most often taken for")
    rows = [("ant", 5, 90.0, None), ("cow", 5, 40.5, "ant"), ("dog", 5, 80.0, "cow"), ("none", 0, None, None)]
    figures = [FigureTable("Pairs", ("a", "b"), [(1, 2)]), FigureTable("Classes", columns, rows)]
    (line,) = read_advice(tmp_path / "rare", [], figures, {"ant": 90, "cow": 9, "dog": 50})
    text = "Class cow has the lowest recall, 40.5 %; the median is 80; it is most often taken for ant"
    assert line == f"{text}; it has only 9 training samples (median 50): add some."
    assert read_advice(tmp_path / "plain", [], figures) == [f"{text}."]
    equal = [FigureTable("Classes", columns, [(name, 1, 50.0, None) for name in "ab"])]
    assert read_advice(tmp_path / "equal", [], equal) == []


def evaluate(values, **more):
    best = max(range(len(values)), key=values.__getitem__)
    return [
        event("evaluation", epoch=n + 1, score=value, **({"best": "score"} if n == best else {}), **more)
        for n, value in enumerate(values)
    ]


def test_a_score_that_rises_to_the_end_suggests_a_longer_training_and_a_flat_one_does_not(tmp_path):
    trained = [event("training", epoch=1, update=1, loss=1.0)]
    (line,) = read_advice(tmp_path / "rising", [*trained, *evaluate([1.0, 2.0, 3.0, 4.0])])
    assert line == "score was best in the last of 4 epochs: try more (TRAIN.NUM_EPOCHS)."
    assert read_advice(tmp_path / "flat", [*trained, *evaluate([1.0, 3.99, 3.999, 4.0])]) == []
    assert read_advice(tmp_path / "fallen", [*trained, *evaluate([1.0, 2.0, 4.0, 3.0])]) == []


def test_a_loss_that_rises_and_wide_intervals_are_told(tmp_path):
    events = []
    for epoch, (train, evaluation) in enumerate([(1.0, 0.9), (0.5, 0.4), (0.2, 0.6)], 1):
        update = 10 * epoch
        events.append(event("training", epoch=epoch, update=update, loss=train))
        events.append(event("evaluation", epoch=epoch, loss=evaluation))
    (rise,) = read_advice(tmp_path / "run", events)
    assert rise.startswith("The loss of the evaluation rises from 0.4 after update 20 to 0.6, while that of training")
    trained = [event("training", epoch=1, update=1, loss=1.0)]
    wide = evaluate([50.0], interval={"percent": 95, "score": [40.0, 62.5]})
    (line,) = read_advice(tmp_path / "wide", [*trained, *wide])
    assert line.startswith("The interval of score is 22.5 wide")
    narrow = evaluate([50.0], interval={"percent": 95, "score": [49.5, 50.5]})
    assert read_advice(tmp_path / "narrow", [*trained, *narrow]) == []
