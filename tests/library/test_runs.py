"""Trainings, evaluations and predictions that a program calls: the command's numbers, and a process that goes on."""

import json
import sys
from pathlib import Path

import pytest
from support.processes import run_command, run_main, succeeded

from paddlevit_dist.library.runs import load_config
from paddlevit_dist.runtime.errors import UserError

TINY = {"TRAIN.WARMUP_EPOCHS": 0, "MODEL.DEPTH": 1, "MODEL.EMBED_DIM": 16, "batch_size": 128}
HEAD = f"""
import json, os, signal, sys, threading, time
import paddlevit_dist as pv
TINY = {TINY}
HANDLED = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM]

def state():
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return dict(os.environ), [signal.getsignal(number) for number in HANDLED], blocked

def interrupt(folder):
    "Ctrl-C, once that run has made its first update."
    def wait():
        while not os.path.exists(folder + "/metrics.jsonl"):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=wait).start()
"""


def run_program(text: str, folder: Path, is_cell: bool = False) -> dict:
    """What it prints last, as JSON.

    Args:
        is_cell: it has no file, as the cells of a notebook.
    """
    (folder / "program.py").write_text(HEAD + text, encoding="utf-8")
    words = ["-c", HEAD + text] if is_cell else [str(folder / "program.py")]
    ended = succeeded(run_command([sys.executable, *words], timeout=180, folder=folder, is_copy=False))
    return json.loads(ended.out.splitlines()[-1])


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
fed = transform.normalise(paddle.to_tensor(samples[4][0][None]))[0]
logits = first.model(transform.normalise(paddle.to_tensor(np.stack([transform.pixels(one) for one in images]))))
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


LATE = """
import paddle
paddle.ones([2]).numpy()
views = paddle.get_flags(["FLAGS_use_stride_kernel"])
first = pv.train("vit_digits", epochs=1, output="first", **TINY)
interrupt("second")
try:
    pv.train("vit_digits", epochs=400, output="second", **TINY)
except KeyboardInterrupt as error:
    stopped = str(error)
deadline = time.monotonic() + 20  # Paddle's threads look every five seconds
while threading.active_count() > 1 and time.monotonic() < deadline:
    time.sleep(0.1)
is_kept = paddle.get_flags(["FLAGS_use_stride_kernel"]) == views and threading.active_count() == 1
print(json.dumps([first.values, stopped, is_kept]))
"""


@pytest.mark.long
def test_paddle_that_was_imported_before_trains_too_and_ctrl_c_saves(tmp_path):
    values, stopped, is_kept = run_program(LATE, tmp_path)
    assert set(values) >= {"top-1", "loss"} and is_kept
    assert stopped.startswith("asked to stop (SIGINT): saved second/checkpoints/update_")
    log = (tmp_path / "second" / "log.txt").read_text()
    assert "stopped: asked to stop (SIGINT)" in log


CELL = """
from paddlevit_dist.images.models.vit import VisionTransformer
class Mine(VisionTransformer):
    pass
pv.register_model("mine", Mine)
from paddlevit_dist.launch import launch_workers, plan_processes
def work():
    pass
try:
    launch_workers(work, (), plan_processes(2))
except pv.UserError as error:
    of_a_cell = str(error)
before = state()
own = pv.train("vit_digits", epochs=1, output="own", **{**TINY, "MODEL.NAME": "mine"})
try:
    pv.train("vit_digits", epochs=1, output="none", devices=2, **{**TINY, "MODEL.NAME": "mine"})
except pv.UserError as error:
    refused = str(error)
TINY["batch_size"] = 64
open("of_a_file.py", "w").write("class Blur:\\n    def __call__(self, image, mask):\\n        pass\\n")
sys.path.insert(0, "")
import of_a_file
pv.register_transform("blur", of_a_file.Blur())  # an object that workers can have
two = pv.train("vit_digits", epochs=1, output="two", devices=2, **TINY)
interrupt("stopped")
try:
    pv.train("vit_digits", epochs=400, output="stopped", devices=2, **TINY)
except KeyboardInterrupt as error:
    stopped = str(error)
open("of_mine.py", "w").write(
    "import paddlevit_dist as pv\\nfrom paddlevit_dist.images.models.vit import VisionTransformer\\n"
    "class InFile(VisionTransformer):\\n    pass\\npv.register_model('in_file', InFile)\\n")
in_file = pv.train("vit_digits", epochs=1, output="in_file", devices=2, IMPORTS=["of_mine.py"],
                   **{**TINY, "MODEL.NAME": "in_file"})
print(json.dumps([own.values, refused, of_a_cell, two.values, stopped, in_file.values, state() == before]))
"""


@pytest.mark.long
def test_a_cell_trains_on_two_devices_and_says_what_workers_cannot_know(tmp_path):
    own, refused, of_a_cell, two, stopped, in_file, is_kept = run_program(CELL, tmp_path, is_cell=True)
    assert of_a_cell.startswith("Can't get attribute 'work': worker processes do not run the cells of a notebook")
    assert refused.startswith("model 'mine'") and "IMPORTS=['my_things.py']" in refused and "\n" not in refused
    for one in (two, in_file):
        assert one["top-1"] == pytest.approx(own["top-1"], abs=0.6)
        assert one["loss"] == pytest.approx(own["loss"], abs=2e-3)  # the same batches, added in another order
    assert stopped.startswith("asked to stop (SIGINT): saved stopped/checkpoints/update_") and is_kept


def test_a_configuration_is_loaded_by_name():
    values = load_config("vit_digits", epochs=3, **{"TRAIN.BASE_LR": 5e-4, "TRAIN.SMOOTHING": 0.1, "AMP": False})
    assert (values.TRAIN.NUM_EPOCHS, values.TRAIN.BASE_LR, values.TRAIN.SMOOTHING) == (3, 5e-4, 0.1)
    for name in ("show_config", "ngpus", "TRAIN.BASE_LRR"):
        with pytest.raises(UserError, match=name):
            load_config("vit_digits", **{name: 1})
