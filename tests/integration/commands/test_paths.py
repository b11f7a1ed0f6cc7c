"""One rule for every path: ``~`` is the home folder, and a run's folder means a checkpoint in it."""

import shutil
import sys

from support.processes import run_command
from support.trainings.runs import DIGITS, IMAGES, last_line, run_main, well, write_images


def test_home_folders_are_understood_in_every_option(tmp_path, monkeypatch):
    home = tmp_path / "home"
    write_images(home / "images")
    monkeypatch.chdir(tmp_path)
    arguments = ["-dataset=folder", "-data_path=~/images", "-output=~/runs/one", "DATA.CACHE_FOLDER", "~/cache"]
    well(run_main(*IMAGES, *arguments, HOME=str(home)))
    evaluation = [word for word in (*IMAGES, *arguments) if not word.startswith(("-epochs", "-output"))]
    well(run_main(*evaluation, "-output=~/runs/two", "-eval", "-pretrained=~/runs/one", HOME=str(home)))
    command = [sys.executable, "-m", "paddlevit_dist"]
    well(run_command([*command, "convert", "~/runs/one", "~/weights.safetensors"], HOME=str(home)))
    well(run_command([*command, "export", "~/runs/one", "~/exported/one"], HOME=str(home)))
    assert (home / "weights.safetensors").is_file() and list((home / "exported").glob("one.pdiparams"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_a_runs_folder_is_its_best_checkpoint_else_its_last(trained, tmp_path):
    run = shutil.copytree(trained.output, tmp_path / "run", symlinks=True)
    digits = [word for word in DIGITS if word != "-epochs=1"]

    def evaluate(source):
        ended = well(run_main(*digits, f"-output={tmp_path / 'output'}", "-eval", f"-pretrained={source}"))
        return next(line for line in ended.out.splitlines() if line.startswith("weights ")), last_line(ended)

    said, score = evaluate(run)
    assert (said, score) == evaluate(run / "checkpoints" / "best")
    (run / "checkpoints" / "best").unlink()
    assert evaluate(run) == evaluate(run / "checkpoints") == evaluate(run / "checkpoints" / "last")
