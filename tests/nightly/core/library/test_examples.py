"""The examples, each as a reader would run it: scripts as programs, notebooks cell by cell in one process."""

import json
import re
import sys

import pytest
from support.processes import ROOT, run_command, succeeded

FOLDER = ROOT / "examples"

# What a script prints last: its figure has to be above what guessing gives.
SCRIPTS = {
    "fine_tune.py": (r"^even or odd: ([\d.]+) % \[", 60.0),
    "custom_training_loop.py": (r"^top-1 ([\d.]+) \[[\d., ]+\] of 360$", 15.0),
    "custom_dataset_and_model.py": (r"^stripes: ([\d.]+) %, 2514 parameters$", 90.0),
    "sparse_network.py": (r"^ball or box: ([\d.]+) % of 120$", 80.0),
    "score_in_parallel.py": (r"^top-1 ([\d.]+) \[[\d., ]+\] of 360$", 80.0),
    "sparse_completion.py": (r"IoU ([\d.]+) of the half", 0.7),
    "sparse_sequences.py": (r"accuracy ([\d.]+)$", 0.9),
    "score_anything.py": (r"^Accuracy: top-5 ([\d.]+) \[", 60.0),
}


# ``tests/nightly/images/test_few_labels.py`` and ``test_serve_example.py`` run these.
ELSEWHERE = {"few_labels.py", "serve.py"}


def run(words: list, folder) -> str:
    return succeeded(run_command([sys.executable, *words], folder=folder)).out


def test_every_example_is_run():
    assert {path.name for path in FOLDER.glob("*.py")} == {*SCRIPTS, *ELSEWHERE}
    assert {path.name for path in FOLDER.glob("*.ipynb")} == {"first_steps.ipynb", "custom_model.ipynb"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_prints_its_figure(name, tmp_path):
    pattern, least = SCRIPTS[name]
    (figure,) = re.findall(pattern, run([str(FOLDER / name)], tmp_path), re.MULTILINE)
    assert float(figure) > least


def test_a_loop_prints_the_same_with_two_processes(tmp_path):
    one, two = (run([str(FOLDER / "custom_training_loop.py"), number], tmp_path).splitlines()[-1] for number in "12")
    assert one == two and one.startswith("top-1 ")


@pytest.mark.parametrize("name", ["first_steps", "custom_model"])
def test_a_notebook_runs_from_its_first_cell_to_its_last(name, tmp_path):
    notebook = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4 and all(cell["source"] for cell in notebook["cells"])
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    # As a kernel does: one after the other, in a main module that has no file.
    program = f"for cell in {cells!r}:\n    exec(compile(cell, 'cell', 'exec'), globals())\nprint(run.values['top-1'])"
    printed = run(["-c", program], tmp_path).splitlines()
    assert float(printed[-1]) > 15.0
    assert all("outputs" not in cell or cell["outputs"] == [] for cell in notebook["cells"])


def test_intervals_are_the_same_with_two_processes(tmp_path):
    one, two = (run([str(FOLDER / "score_in_parallel.py"), number], tmp_path) for number in "12")
    assert (
        [line for line in two.splitlines() if " of 360" in line]
        == one.splitlines()[-4:]
        == [
            "top-1 88.06 [84.3, 91.0] of 360",
            "top-3 97.22 [95.0, 98.5] of 360",
            "balanced accuracy 88.31 [84.4, 91.4] of 360",
            "recall 8 86.11 [71.3, 93.9] of 360",
        ]
    )
