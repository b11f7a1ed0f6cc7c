"""Each extension, the bridges to other packages' models, and each task folder but classification can be deleted: what
it adds is unknown then, and everything else is as before."""

import re
import shutil
import sys

import numpy as np
from PIL import Image
from support.processes import ROOT, run_command
from support.trainings.runs import read_events

# One process that knows this copy alone, for an editable install would serve the folder that was deleted: a training of
# two updates, an evaluation and a prediction; then words that only the extension knows.
PROGRAM = """
import os, sys
here, repository = os.getcwd(), sys.argv.pop(1)
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
sys.path = [here] + [place for place in sys.path if os.path.realpath(place or here) != repository]
os.environ["PYTHONPATH"] = here
from paddlevit_dist.__main__ import _run
from paddlevit_dist import UserError

small = "MODEL.EMBED_DIM 32 MODEL.DEPTH 1 MODEL.NUM_HEADS 2 TRAIN.WARMUP_EPOCHS 0"
for command in (
    f"train -cfg=vit_digits -ngpus=1 -num_workers=0 -batch_size=700 -epochs=1 -output=run {small}",
    "evaluate -cfg=run/config.yaml -pretrained=run -output=scored",
    "predict run image.png -output=found",
):
    _run(command.split())
for words in sys.argv[1:]:
    try:
        _run(words.split())
    except UserError as error:
        print(f"{words}: {error}")
own = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "paddlevit_dist"}
strange = [name for name, module in own.items() if not module.__spec__.origin.startswith(here)]
assert len(own) > 100 and strange == [], strange
"""
UNKNOWN = {
    "extensions/cpu_kernels": {},
    "extensions/gpu_kernels": {"train GPU_KERNELS true": "command line: GPU_KERNELS (True) is not a known key"},
    "extensions/debug": {
        "doctor -h": "no command 'doctor'",
        "train -selftest": "-selftest is not a known flag",
        "train PROFILE 3": "command line: PROFILE (3) is not a known key",
    },
    "extensions/report": {
        "report run": "no command 'report'",
        "train REPORT false": "command line: REPORT (False) is not a known key",
    },
    "extensions/leakage": {"train -exclude_leaked": "-exclude_leaked is not a known flag"},
    "extensions/compare": {
        "compare run run": "no command 'compare'",
        "train -per_sample=a.csv": "-per_sample is not a known flag",
        "train -seeds=2": "-seeds is not a known flag",
    },
    "extensions/export": {
        "export -h": "no command 'export'",
        "evaluate model.onnx": "command line: 'model.onnx' is neither a flag nor a KEY with its VALUE",
    },
    "images/models/bridges": {
        "inspect paddle:resnet18": "model 'paddle:resnet18' is not known",
        "train MODEL.NAME timm:resnet18": "command line: MODEL.NAME: model 'timm:resnet18' is not known",
    },
}
FOLDERS = tuple(UNKNOWN)
TASK_FOLDERS = (
    *("points", "volumes", "images/detection", "images/segmentation", "images/panoptic"),
    *("images/multi_label", "images/pretraining", "images/keypoints"),
)


def in_a_copy_without(gone, tmp_path, planted="", words=None):
    """What ``PROGRAM`` says in a copy of the package without these folders, with a line added to the evaluation."""
    package = tmp_path / "paddlevit_dist"
    shutil.copytree(ROOT / "paddlevit_dist", package)
    for folder in gone.split():
        shutil.rmtree(package / folder)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "image.png")
    if planted:
        with open(package / "core/engine/evaluation.py", "a", encoding="utf-8") as module:
            module.write(planted)
    # A fresh process, and the repository is in no variable of its environment.
    command = [sys.executable, "-I", "-c", PROGRAM, str(ROOT), *(UNKNOWN[gone] if words is None else words)]
    return run_command(command, folder=tmp_path, is_copy=False, PYTHONPATH=str(tmp_path))


def test_without_all_extensions_one_trains_evaluates_and_predicts(tmp_path):
    """At night without each of them alone."""
    unknown = {words: said for folder in FOLDERS for words, said in UNKNOWN[folder].items()}
    ended = in_a_copy_without(" ".join(FOLDERS), tmp_path, words=unknown)
    assert ended.code == 0, ended.err
    events = read_events(tmp_path / "run")
    assert [event["update"] for event in events if event["kind"] == "training"] == [2]
    assert "top-1 " in ended.out and (tmp_path / "found").is_dir()
    assert not (tmp_path / "run/report.html").exists()
    for words, said in unknown.items():
        assert f"{words}: {said}" in ended.out


def test_a_batch_and_an_evaluation_enter_nothing_that_has_nothing_to_do():
    ended = run_command([sys.executable, str(ROOT / "tools" / "walk.py"), "-v"], is_copy=False)
    assert ended.code == 0, ended.err
    batch, _, evaluation = ended.out.partition("batch: ")[2].partition("evaluate: ")
    entered = list_files(evaluation)
    assert "core/inference/evaluation.py" in entered and "core/intervals/scores.py" in entered
    assert {file for file in entered if file.startswith("extensions/")} == {"extensions/cpu_kernels/accelerate.py"}
    assert not {"core/launch/rendezvous.py", "core/launch/gpu.py", "core/engine/rank_comparison.py"} & entered
    settings = {file for file in list_files(ended.out) if file.endswith("/settings.py")}
    assert settings == {"core/engine/settings.py", "images/settings.py", "images/classification/settings.py"}
    entered = list_files(batch)
    assert {"core/data/loader.py", "core/engine/step.py"} <= entered
    assert not [file for file in entered if file.startswith("extensions/")]  # compiled layers are disabled there


def list_files(walk):
    """Return the files of the functions in lines such as "      2 core/engine/step.py:283 _wait_for_ranks"."""
    return set(re.findall(r"^ +[\d,]+ (\S+):\d+ \w+$", walk, re.MULTILINE))
