"""``tools/install.py`` with a stand-in for the interpreter of the environment: what pip says is shown when it fails."""

import sys

import pytest
from support.processes import ROOT, run_command

CALL = "import sys; sys.path.insert(0, sys.argv[1]); import install; install.install(sys.argv[2], '-e', '.[cpu,dev]')"
BOX = "*" * 80


@pytest.mark.parametrize("code", [0, 1])
def test_words_of_pip_are_shown_only_if_it_fails(tmp_path, code):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{BOX}'\necho 'no matching distribution' >&2\nexit {code}\n")
    python.chmod(0o755)

    ended = run_command([sys.executable, "-c", CALL, str(ROOT / "tools"), str(python)])

    lines = ended.out.splitlines()
    assert ended.code == code and lines[0] == "installing .[cpu,dev]"
    assert lines[1:] == ([BOX, "no matching distribution"] if code else [])
    assert ended.err == ("error: pip could not install -e .[cpu,dev]; see above\n" if code else "")
