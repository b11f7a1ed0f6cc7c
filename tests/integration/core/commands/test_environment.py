"""The first commands in a plain shell: which interpreter runs them, and what they say when it lacks a package."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from support.processes import ROOT

from paddlevit_dist import __version__
from paddlevit_dist.core.runtime.environment import REQUIRED

SCRIPTS = ("run_train_multi.sh", "run_eval_multi.sh")
WORDS = ["-cfg=a b.yaml", "it's", 'a "word"', "[2,2,2]", "*", "$HOME", ""]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A copy of the repository, in a folder with a space in its name, without an environment."""
    folder = tmp_path_factory.mktemp("a place") / "the copy"
    shutil.copytree(ROOT / "paddlevit_dist", folder / "paddlevit_dist", ignore=shutil.ignore_patterns("__pycache__"))
    for name in (*SCRIPTS, "tools", "main_multi_gpu.py", "Makefile", "setup.py"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory) -> Path:
    """An interpreter without any package."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture
def environment_beside(place):
    """``.venv`` in the copy: an interpreter that has all packages."""
    python = place / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    write_script(python, f'exec "{sys.executable}" "$@"')
    yield python
    shutil.rmtree(place / ".venv")


def write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def run(*command, folder=None, path: str = "/usr/bin:/bin", **variables: str) -> subprocess.CompletedProcess:
    """In a plain shell: nothing but a PATH."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={"PATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=600,
    )


def shells() -> list:
    return [name for name in ("sh", "dash", "bash") if shutil.which(name)]


@pytest.mark.parametrize("shell", shells())
@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_hand_every_argument_on_as_it_is(shell, script, place, tmp_path):
    python = tmp_path / "print arguments"
    write_script(python, """printf '<%s>' "$@" """)
    opening = "<-eval>" if "eval" in script else ""
    expected = opening + "".join(f"<{word}>" for word in WORDS)
    for folder, name in ((place, script), (place, f"./{script}"), (tmp_path, place / script)):
        said = run(shell, name, *WORDS, folder=folder, PYTHON=str(python), CDPATH="/")
        assert said.returncode == 0 and said.stderr == ""
        assert said.stdout.startswith(f"<{place / 'main_multi_gpu.py'}>")
        assert said.stdout.endswith(expected)
    chosen = run(shell, place / script, "--ngpus", "3", PYTHON=str(python)).stdout
    assert chosen.count("ngpus") == 1
    if not Path("/dev/nvidia0").exists():
        assert "<-ngpus=2>" in said.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_executable_and_pass_a_failure_on(script, place, tmp_path):
    write_script(tmp_path / "python", "exit 3")
    assert run(place / script, "-h", PYTHON=str(tmp_path / "python")).returncode == 3


def test_scripts_choose_the_named_then_the_active_then_the_environment_beside_them(place, environment_beside, tmp_path):
    for name in ("named", "active/bin/python", "conda/bin/python", "path/python3"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_script(tmp_path / name, f"echo {name}")
    write_script(environment_beside, "echo beside")
    named, active, conda = (str(tmp_path / name) for name in ("named", "active", "conda"))

    def chosen(**variables: str) -> tuple:
        said = run("sh", place / SCRIPTS[0], path=f"{tmp_path / 'path'}:/usr/bin:/bin", **variables)
        return said.stdout.strip(), said.stderr

    assert chosen(PYTHON=named, VIRTUAL_ENV=active) == ("named", "")
    assert chosen(VIRTUAL_ENV=active, CONDA_PREFIX=conda) == ("active/bin/python", "")
    assert chosen(CONDA_PREFIX=conda) == ("conda/bin/python", "")
    for variables in ({}, {"VIRTUAL_ENV": "/removed since"}):
        python, said = chosen(**variables)
        assert python == "beside" and said == f"no environment is active: using {environment_beside}\n"
    environment_beside.unlink()
    tools = tmp_path / "path"
    (tools / "dirname").symlink_to(shutil.which("dirname"))
    said = run("/bin/sh", place / SCRIPTS[0], path=str(tools))  # no `python`, as on Debian
    assert said.stdout.strip() == "path/python3" and said.stderr == ""
    (tools / "python3").unlink()
    said = run("/bin/sh", place / SCRIPTS[0], path=str(tools))
    assert said.returncode == 2 and said.stderr.startswith("error: ") and said.stderr.count("\n") == 1


ENTRIES = {"main": ["main_multi_gpu.py", "--help"], "tool": ["-m", "paddlevit_dist", "convert", "--help"]}


@pytest.mark.parametrize("words", ENTRIES.values(), ids=ENTRIES)
def test_python_without_the_packages_goes_on_with_the_environment_beside(words, place, bare_python, environment_beside):
    said = run(bare_python, *words, folder=place)
    assert said.returncode == 0, said.stderr
    assert len(said.stdout.splitlines()) > 3
    assert re.fullmatch(rf"\w+ is not installed for {bare_python}: continuing with {environment_beside}\n", said.stderr)


@pytest.mark.parametrize("words", ENTRIES.values(), ids=ENTRIES)
@pytest.mark.parametrize("beside", ["nothing", "broken", "empty"])
def test_without_one_that_has_them_it_says_in_one_line_what_to_install(words, beside, place, bare_python):
    python = place / ".venv" / "bin" / "python"
    if beside != "nothing":
        python.parent.mkdir(parents=True)
        python.symlink_to(bare_python if beside == "empty" else "/removed/since")
    try:
        said = run(bare_python, *words, folder=place)
    finally:
        shutil.rmtree(place / ".venv", ignore_errors=True)
    assert said.returncode == 2 and said.stdout == ""
    *before, last = said.stderr.splitlines()
    assert len(before) == (beside == "empty")
    assert last.startswith("error: ") and "yacs, " in last and "paddlepaddle" in last and "make demo" in last


def test_what_setup_always_installs_is_what_a_command_may_lack():
    (core,) = re.findall(
        r"^CORE = \[(.*?)^\]", (ROOT / "setup.py").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert {*re.findall(r'"(\w+)>=', core), "paddlepaddle", "numba"} == {*REQUIRED.values()}


def test_versions_are_told_by_both_entries_and_without_paddle(place, bare_python):
    paddle = subprocess.run(
        [sys.executable, "-c", "import paddle, platform; print(paddle.__version__, platform.python_version())"],
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.split()
    expected = f"paddlevit_dist {__version__}, paddle {paddle[0]}, Python {paddle[1]}\n"
    for words in (
        ["main_multi_gpu.py", "--version"],
        ["-m", "paddlevit_dist", "--version"],
        ["-m", "paddlevit_dist", "version"],
    ):
        said = run(sys.executable, *words, folder=place)
        assert (said.returncode, said.stdout, said.stderr) == (0, expected, "")
    said = run(bare_python, "-m", "paddlevit_dist", "version", folder=place)
    assert said.returncode == 0 and "no paddle" in said.stdout


@pytest.mark.parametrize("words", [["doctor", "-h"], ["doctor", "--help"], ["prepare", "-h"]], ids=" ".join)
def test_help_is_printed_and_nothing_is_run(words, place):
    said = run(sys.executable, "-m", "paddlevit_dist", *words, folder=place)
    assert said.returncode == 0 and said.stderr == ""
    assert words[0] in said.stdout and "GFLOP" not in said.stdout


OWN_PROGRAM = """
import warnings
import paddlevit_dist
paddlevit_dist.rank()
warnings.warn("a warning of the program")
warnings.warn("No ccache found, says the program too")
"""


def test_an_own_program_sees_its_own_warnings_only(place):
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if not Path(part, "ccache").exists())
    ended = run(sys.executable, "-c", OWN_PROGRAM, folder=place, path=path, CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == 0
    said = [line for line in ended.stderr.splitlines() if "Warning: " in line and "GPU version" not in line]
    assert [line.partition("Warning: ")[2] for line in said] == [
        "a warning of the program",
        "No ccache found, says the program too",
    ]
