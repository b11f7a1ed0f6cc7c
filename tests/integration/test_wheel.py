"""What is built from this repository: every file of the package and every recipe once, and a package that works
elsewhere."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.hosts.clones import copy_of_repository
from support.processes import ROOT

from paddlevit_dist import __version__

GIT = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]


def committed_clone(folder: Path) -> Path:
    """A repository of one commit, which has everything that is tracked here."""
    copy_of_repository(folder)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*GIT, *words], cwd=folder, check=True)
    return folder


def release(clone: Path, *words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(clone / "tools" / "release.py"), *words]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True)


def files_below(folder: Path, pattern: str) -> dict:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    return committed_clone(tmp_path_factory.mktemp("clone"))


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
        (
            CHANGES.format("2027-01-31"),
            "v9.9.9",
            "this commit has the tag v9.9.9, but paddlevit_dist/core/runtime/version.py says",
        ),
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


def test_files_of_a_release_are_not_built_for_an_address_that_is_a_placeholder(clone):
    command, setup = ["make", "-s", "address"], clone / "setup.py"
    refused = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert refused.returncode and refused.stderr.startswith("error: setup.py: replace ADDRESS, https://example.org")
    before = setup.read_text(encoding="utf-8")
    setup.write_text(before.replace("https://example.org/", "https://vision.test/"), encoding="utf-8")
    try:
        assert subprocess.run(command, cwd=clone).returncode == 0
    finally:
        setup.write_text(before, encoding="utf-8")


def test_a_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__ and citation["license"] == "Apache-2.0"
