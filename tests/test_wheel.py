"""What is built from this repository: every recipe once, one console script, and a package that works elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.processes import ROOT, run_command
from support.runs import last_line, well

BUILT_FROM = ("LICENSE", "MANIFEST.in", "README.md", "configs", "paddlevit_dist", "pyproject.toml", "setup.py")
TINY = ["-epochs=1", "-num_workers=0", "TRAIN.WARMUP_EPOCHS=0", "MODEL.DEPTH=1", "MODEL.EMBED_DIM=16"]
TINY += ["CPU_TUNING=false"]  # nothing to compile


@pytest.fixture
def source(tmp_path) -> Path:
    """A copy of what is built, so that nothing is left in the repository."""
    folder = tmp_path / "source"
    folder.mkdir()
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def files_below(folder: Path, pattern: str) -> dict:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}


def test_a_build_has_every_module_and_every_recipe_once(source, tmp_path):
    stale = tmp_path / "built" / "paddlevit_dist" / "recipes" / "of_an_earlier_build.yaml"
    stale.parent.mkdir(parents=True)
    stale.touch()

    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py", f"--build-lib={tmp_path / 'built'}"], cwd=source, check=True
    )

    built = tmp_path / "built"
    assert files_below(built / "paddlevit_dist" / "recipes", "*") == files_below(ROOT / "configs", "*.yaml")
    assert files_below(built, "*.yaml").keys() == {
        f"paddlevit_dist/recipes/{name}" for name in files_below(ROOT / "configs", "*.yaml")
    }
    assert files_below(built, "*.txt").keys() == {"paddlevit_dist/images/data/imagenet_classes.txt"}
    assert files_below(built, "*.py") == {
        f"paddlevit_dist/{name}": text for name, text in files_below(ROOT / "paddlevit_dist", "*.py").items()
    }


def test_the_packages_version_is_the_one_it_tells():
    told = subprocess.run([sys.executable, "setup.py", "--version"], cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
    text = (ROOT / "paddlevit_dist" / "__init__.py").read_text(encoding="utf-8")
    assert told.strip() == re.search(r'__version__ = "(.+)"', text)[1]


@pytest.mark.long
def test_an_installed_wheel_trains_and_evaluates_in_another_folder(source, tmp_path):
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    wheels, installed, elsewhere = tmp_path / "wheels", tmp_path / "installed", tmp_path / "elsewhere"
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", f"-w{wheels}", str(source)], check=True)
    (wheel,) = wheels.iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) == len(set(names)) and "paddlevit_dist/recipes/_base_/vit_imagenet.yaml" in names
    subprocess.run([*pip, "install", "--no-deps", f"--target={installed}", str(wheel)], check=True)
    (elsewhere / "paddlevit_dist").mkdir(parents=True)  # a folder of a user's that happens to be called so
    path = os.pathsep.join([str(installed), str(ROOT / "tests")])

    def command(*words: str):
        program = ["env", sys.executable, str(installed / "bin" / "paddlevit-dist")]
        return well(run_command([*program, *words], timeout=300, folder=elsewhere, PYTHONPATH=path))

    assert (
        command("inspect", "recipes", "vit_digits").out.splitlines()[-1].endswith(f"{installed}/paddlevit_dist/recipes")
    )
    trained = command("train", "-cfg=vit_digits", "-ngpus=2", "-output=two", *TINY)
    assert last_line(trained).startswith("top-1 ") and (elsewhere / "two" / "checkpoints" / "best").exists()
    evaluated = command("evaluate", "-cfg=vit_digits", "-pretrained=two", "-output=again", *TINY[3:])
    assert last_line(trained).startswith(f"{last_line(evaluated)} (")
