"""The interpreter of a command: how it is called, what it lacks, and which Paddle it would import."""

import contextlib
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.processes import ROOT

import paddlevit_dist
from paddlevit_dist.core.runtime import environment


def test_the_folders_of_the_package_and_of_the_clone_are_known():
    assert environment.PACKAGE == Path(paddlevit_dist.__file__).resolve().parent
    assert environment.ROOT == ROOT and (environment.ROOT / "setup.py").is_file()


@pytest.mark.parametrize(
    "called, words, text",
    [
        ("/x/main_multi_gpu.py", "train", "python main_multi_gpu.py"),
        ("/x/main_multi_gpu.py", "evaluate", "python main_multi_gpu.py -eval"),
        ("main_multi_gpu.py", "doctor", "python -m paddlevit_dist doctor"),
        ("/x/__main__.py", "train", "python -m paddlevit_dist train"),
        ("/x/paddlevit-dist", "evaluate", "paddlevit-dist evaluate"),
        ("", "train", "paddlevit-dist train"),
    ],
)
def test_messages_call_a_command_as_its_user_did(command_line, called, words, text):
    command_line(called)
    assert environment.program(words) == text


@pytest.fixture
def advise(tmp_path, monkeypatch, module_specs):
    """Return a function that advises about a module that is missing in an empty project."""
    (tmp_path / "a project").mkdir()
    monkeypatch.setattr(environment, "ROOT", tmp_path / "a project")
    monkeypatch.delenv("PADDLEVIT_DIST_PYTHON", raising=False)
    module_specs.update(dict.fromkeys(("yaml", "PIL")))
    return lambda name: environment.restart_in_venv(ModuleNotFoundError(name=name))


def test_all_that_is_not_installed_is_named_with_its_package(advise, replacements, tmp_path):
    python = sys.executable
    assert advise("torch") is None
    assert advise("yaml") == f"not installed for {python}: PyYAML, pillow; {python} -m pip install PyYAML pillow"
    root = tmp_path / "a project"
    (root / "setup.py").touch()
    before = f"not installed for {python}: PyYAML, pillow; `make demo` in {root} creates {root}/.venv,"
    advice = advise("PIL")
    assert advice.startswith(before) and advice.endswith(f", or {python} -m pip install -e '{root}'")
    assert not replacements
    assert advise("paddle").endswith(f" -m pip install -e '{root}[cpu]'")


def test_an_environment_next_to_the_package_is_used_once(advise, replacements, tmp_path, capsys):
    python = tmp_path / "a project" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    os.environ["PADDLEVIT_DIST_PYTHON"] = ""
    advise("yaml")
    assert replacements == []
    del os.environ["PADDLEVIT_DIST_PYTHON"]
    advise("yaml")
    assert replacements == [(str(python), [str(python), *sys.orig_argv[1:]])]
    assert os.environ["PADDLEVIT_DIST_PYTHON"] == str(python)
    assert capsys.readouterr().err == f"yaml is not installed for {sys.executable}: continuing with {python}\n"


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_process_is_replaced_by_the_same_command(replacements, tmp_path, name):
    file, words = tmp_path / "lines", sys.orig_argv[1:]
    with open(file, "w") as stream, getattr(contextlib, f"redirect_{name}")(stream):
        stream.write("before")
        environment.restart("/other/python", "-epochs=3", "SEED")
        assert file.read_text() == "before"
    assert signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, [])  # until the new process can handle it
    environment.restart()
    other = "/other/python", ["/other/python", *words, "-epochs=3", "SEED"]
    assert replacements == [other, (sys.executable, [sys.executable, *words])]


@pytest.mark.parametrize(
    "content, version",
    [
        ("major = '3'\nfull_version     = '3.3.1'\n", "3.3.1"),
        ('full_version="2.6.2"', "2.6.2"),
        ("not_full_version = '1'", "of unknown version"),
        (None, "of unknown version"),
    ],
)
def test_paddles_version_is_read_without_importing_it(module_specs, tmp_path, content, version):
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    module_specs["paddle"] = spec
    if content is not None:
        (tmp_path / "version").mkdir()
        (tmp_path / "version" / "__init__.py").write_text(content)
    assert environment.paddle_version() == version
    assert f", paddle {version}, Python 3." in environment.versions()
    spec.origin = None
    assert environment.paddle_version() is None and ", no paddle, Python 3." in environment.versions()
