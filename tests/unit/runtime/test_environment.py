"""The interpreter of a command: how it is called, what it lacks, and which Paddle it would import."""

import os
import sys
from types import SimpleNamespace

import pytest

from paddlevit_dist.runtime import environment


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
def lacking(monkeypatch, tmp_path, module_specs):
    """Make modules missing for this interpreter, and the project's folder an empty one."""
    restarted = []
    monkeypatch.setattr(environment, "ROOT", tmp_path / "a project")
    (tmp_path / "a project").mkdir()
    monkeypatch.setattr(environment, "restart", restarted.append)
    monkeypatch.delenv("PADDLEVIT_DIST_PYTHON", raising=False)

    def lack(*names):
        module_specs.update(dict.fromkeys(names))
        return restarted

    return lack


def advise(name):
    return environment.restart_in_venv(ModuleNotFoundError(name=name))


def test_all_that_is_not_installed_is_named_with_its_package(lacking, tmp_path):
    restarted = lacking("yaml", "PIL")
    python = sys.executable
    assert advise("torch") is None
    assert advise("yaml") == f"not installed for {python}: PyYAML, pillow; {python} -m pip install PyYAML pillow"
    root = tmp_path / "a project"
    (root / "setup.py").touch()
    before = f"not installed for {python}: PyYAML, pillow; `make demo` in {root} creates {root}/.venv,"
    advice = advise("PIL")
    assert advice.startswith(before) and advice.endswith(f", or {python} -m pip install -e '{root}'")
    assert not restarted
    assert advise("paddle").endswith(f" -m pip install -e '{root}[cpu]'")


def test_an_environment_next_to_the_package_is_used_once(lacking, tmp_path, capsys, monkeypatch):
    restarted = lacking("yaml")
    python = tmp_path / "a project" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    monkeypatch.setitem(os.environ, "PADDLEVIT_DIST_PYTHON", "")
    advise("yaml")
    assert restarted == []
    del os.environ["PADDLEVIT_DIST_PYTHON"]
    advise("yaml")
    assert restarted == [str(python)] and os.environ["PADDLEVIT_DIST_PYTHON"] == str(python)
    assert capsys.readouterr().err == f"yaml is not installed for {sys.executable}: continuing with {python}\n"


def test_a_process_is_replaced_by_the_same_command(monkeypatch):
    calls = []
    monkeypatch.setattr(
        environment,
        "signals",
        SimpleNamespace(block=lambda: calls.append("block"), check=lambda: calls.append("check")),
    )
    monkeypatch.setattr(os, "execv", lambda *words: calls.append(words))
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "paddlevit_dist", "train"])
    with monkeypatch.context() as patch:
        for name in ("stdout", "stderr"):
            patch.setattr(sys, name, SimpleNamespace(flush=lambda name=name: calls.append(name)))
        environment.restart("/other/python", "-epochs=3", "SEED")
        environment.restart()
    flushed = ["stdout", "stderr"]
    words = ["-m", "paddlevit_dist", "train"]
    other = "/other/python", ["/other/python", *words, "-epochs=3", "SEED"]
    this = (sys.executable, [sys.executable, *words])
    assert calls == [*flushed, "block", "check", other, *flushed, "block", "check", this]


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
