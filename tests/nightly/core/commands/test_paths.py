"""One rule for every path: ``~`` is the home folder."""

import sys

from support.processes import run_command
from support.trainings.runs import IMAGES, run_main, well, write_images


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
