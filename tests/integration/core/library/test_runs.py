"""Trainings, evaluations and predictions that a program calls: the command's numbers, and a process that goes on."""

import json
from pathlib import Path

from support.processes import run_main, succeeded
from support.trainings.calling_programs import TINY, run_program


def last_evaluation(folder: Path) -> dict:
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [event for event in events if event["kind"] == "evaluation"][-1]


CALLS = """
before = state()
first = pv.train("vit_digits", epochs=1, output="first", **TINY)
again = pv.train("vit_digits", epochs=1, output="again", **TINY)
kept = state() == before
scored = pv.evaluate(first, output="scored")
try:
    pv.train("vit_digits", epochs=1, output="first", **TINY)
except pv.UserError as error:
    refused = str(error)
samples = pv.open_dataset("vit_digits", "val")
images = [samples.dataset[index][0] for index in range(9)]
rows = pv.predict("first", images)
transform = pv.create_transform(first.model)
import numpy as np, paddle
shown = transform(images[4])
fed = transform.normalize(paddle.to_tensor(samples[4][0][None]))[0]
logits = first.model(transform.normalize(paddle.to_tensor(np.stack([transform.pixels(one) for one in images]))))
print(json.dumps([first.values, first.intervals, again.values, kept, scored.values, refused, [row["class"] for row in
    rows], [samples.class_names[label] for label in logits.argmax(axis=-1).tolist()],
    bool((shown == fed).all()), len(rows)]))
"""


def test_calls_have_the_commands_numbers_and_leave_the_process_as_it_was(tmp_path):
    words = [f"{name}={value}" for name, value in TINY.items() if name != "batch_size"]
    succeeded(run_main("-cfg=vit_digits", "-epochs=1", f"-output={tmp_path / 'command'}", "-batch_size=128", *words))
    told = run_program(CALLS, tmp_path)
    values, intervals, again, is_kept, scored, refused, rows, argmax, is_fed, number = told
    event = last_evaluation(tmp_path / "command")
    assert values == {name: event[name] for name in values} and {"top-1", "loss", "samples"} <= set(values)
    assert {name: event["interval"][name] for name in intervals} == intervals and "top-1" in intervals
    assert again == scored == values
    weights = [tmp_path / name / "checkpoints/last/model.pdparams" for name in ("command", "first", "again")]
    assert len({path.read_bytes() for path in weights}) == 1
    assert is_kept
    assert "first already holds a run's checkpoints" in refused
    assert rows == argmax and number == 9 and is_fed
