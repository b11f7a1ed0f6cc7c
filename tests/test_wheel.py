"""What is built from this repository: every file of the package and every recipe once, and a package that works
elsewhere."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from support.clones import copy_of_repository
from support.processes import ROOT, run_command
from support.runs import last_line, well

from paddlevit_dist import __version__

TINY = ["-epochs=1", "-num_workers=0", "TRAIN.WARMUP_EPOCHS=0", "MODEL.DEPTH=1", "MODEL.EMBED_DIM=16"]
TINY += ["CPU_TUNING=false"]  # nothing to compile
GIT = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A repository of one commit, which has everything that is tracked here."""
    folder = copy_of_repository(tmp_path_factory.mktemp("clone"))
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*GIT, *words], cwd=folder, check=True)
    return folder


def release(clone: Path, *words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(clone / "tools" / "release.py"), *words]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True)


def files_below(folder: Path, pattern: str) -> dict:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}


def test_a_build_has_every_file_of_the_package_and_every_recipe_once(clone, tmp_path):
    stale = tmp_path / "built" / "paddlevit_dist" / "recipes" / "of_an_earlier_build.yaml"
    stale.parent.mkdir(parents=True)
    stale.touch()
    (tmp_path / "source").mkdir()
    for name in ("LICENSE", "README.md", "setup.py", "configs", "paddlevit_dist"):
        (tmp_path / "source" / name).symlink_to(clone / name)

    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py", f"--build-lib={tmp_path / 'built'}"],
        cwd=tmp_path / "source",
        check=True,
    )

    recipes = {f"recipes/{name}": text for name, text in files_below(clone / "configs", "*.yaml").items()}
    assert files_below(tmp_path / "built" / "paddlevit_dist", "*") == {
        **files_below(clone / "paddlevit_dist", "*"),
        **recipes,
    }


CHANGES = f"# Changes\n\n## {__version__} - {{}}\n"


@pytest.mark.parametrize(
    "changes, tag, said",
    [
        (CHANGES.format("2027-01-31"), "v9.9.9", "this commit has the tag v9.9.9, but paddlevit_dist/__init__.py says"),
        (CHANGES.format("unreleased"), f"v{__version__}", f"CHANGELOG.md says '## {__version__} - unreleased': write"),
        ("# Changes\n", None, f"CHANGELOG.md has no section '## {__version__.partition('.dev')[0]} - unreleased'"),
    ],
)
def test_nothing_is_built_of_a_commit_whose_tag_or_changelog_says_something_else(clone, tmp_path, changes, tag, said):
    (clone / "CHANGELOG.md").write_text(changes, encoding="utf-8")
    subprocess.run([*GIT, "commit", "-qam", "other"], cwd=clone, check=True)
    if tag:
        subprocess.run([*GIT, "tag", tag], cwd=clone, check=True)
    try:
        ended = release(clone, str(tmp_path / "dist"))
    finally:
        subprocess.run([*GIT, "reset", "-q", "--hard", "HEAD~1"], cwd=clone, check=True)
        if tag:
            subprocess.run([*GIT, "tag", "-d", tag], cwd=clone, stdout=subprocess.DEVNULL, check=True)
    assert ended.returncode == 1 and ended.stderr.startswith(f"error: {said}"), ended.stderr
    assert not (tmp_path / "dist").exists()


def test_a_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__ and citation["license"] == "Apache-2.0"


@pytest.mark.long
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
        return well(run_command([*program, *words], timeout=300, folder=elsewhere, **variables))

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
