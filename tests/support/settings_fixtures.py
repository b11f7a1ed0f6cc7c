"""Configuration files for tests: written to an empty working directory, so that messages show short paths."""

import textwrap

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load


@pytest.fixture
def write(tmp_path, monkeypatch):
    """``write(name, text)`` makes a file in the working directory of the test and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return name

    return write


@pytest.fixture
def load_text(write):
    """``load_text(yaml, *words)`` loads a file x.yaml of that content and the further words of the command line."""
    return lambda text, *words: load([f"-cfg={write('x.yaml', text)}", *words])


@pytest.fixture
def refuse():
    """``refuse(call, *arguments)`` returns the message of the UserError that the call must end with: one line."""

    def refuse(call, *arguments):
        with pytest.raises(UserError) as caught:
            call(*arguments)
        message = str(caught.value)
        assert "\n" not in message
        return message

    return refuse
