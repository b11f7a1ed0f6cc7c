"""The wheel of a release works elsewhere."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from integration.test_wheel import committed_clone, files_below, release
from support.processes import run_command
from support.trainings.runs import last_line, well

from paddlevit_dist import __version__


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    return committed_clone(tmp_path_factory.mktemp("clone"))


TINY = ["-epochs=1", "-num_workers=0", "TRAIN.WARMUP_EPOCHS=0", "MODEL.DEPTH=1", "MODEL.EMBED_DIM=16"]
TINY += ["CPU_TUNING=false"]  # nothing to compile


def test_the_wheel_of_a_release_trains_and_evaluates_in_another_folder(clone, tmp_path):
    (clone / "uncommitted.py").touch()
    built = release(clone, str(tmp_path / "dist"))
    assert built.returncode == 0 and f"version {__version__}" in built.stdout, built.stderr
    sdist, wheel = (
        tmp_path / "dist" / f"paddlevit_dist-{__version__}{end}" for end in (".tar.gz", "-py3-none-any.whl")
    )
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = [*clone.glob("configs/**/*.yaml"), *clone.glob("paddlevit_dist/**/*.*"), clone / "LICENSE"]
    assert {str(path.relative_to(clone)) for path in needed} <= names and "uncommitted.py" not in names

    of_wheel = zipfile.ZipFile(wheel).namelist()
    assert len(of_wheel) == len(set(of_wheel))
    files = [f"paddlevit_dist/{name}" for name in files_below(clone / "paddlevit_dist", "*")]
    files += [f"paddlevit_dist/recipes/{name}" for name in files_below(clone / "configs", "*.yaml")]
    assert {name for name in of_wheel if name.startswith("paddlevit_dist/")} == set(files)

    empty, elsewhere = tmp_path / "empty", tmp_path / "elsewhere"
    venv.create(empty)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", f"--python={empty / 'bin' / 'python'}"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True)
    (elsewhere / "paddlevit_dist").mkdir(parents=True)  # a folder of a user's that happens to be called so

    def command(*words: str, **variables: str):
        program = ["env", str(empty / "bin" / "paddlevit-dist")]
        return well(run_command([*program, *words], folder=elsewhere, **variables))

    assert command("version", PYTHONPATH="").out.startswith(f"paddlevit_dist {__version__}, no paddle, Python ")
    packages = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))  # numpy, Paddle, ...
    (installed,) = empty.glob("lib/python3*/site-packages/paddlevit_dist")
    said = command("inspect", "recipes", "vit_digits", PYTHONPATH=packages).out
    assert said.splitlines()[-1].endswith(f"{installed}/recipes")
    trained = command("train", "-cfg=vit_digits", "-ngpus=2", "-output=two", *TINY, PYTHONPATH=packages)
    made = [elsewhere / "two" / name for name in ("checkpoints/best", "report.html")]
    assert last_line(trained).startswith("top-1 ") and all(path.exists() for path in made)
    words = ["evaluate", "-cfg=vit_digits", "-pretrained=two", "-output=again", *TINY[3:]]
    evaluated = command(*words, PYTHONPATH=packages)
    assert last_line(trained).startswith(f"{last_line(evaluated)} (")
