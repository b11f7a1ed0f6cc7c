"""``tools/install.py`` with a stand-in for the interpreter of the environment: what pip says is shown when it fails."""

import sys

import pytest
from support.processes import ROOT, run_command

IMPORT = "import sys; sys.path.insert(0, sys.argv[1]); import install; "
CALL = IMPORT + "install.install(sys.argv[2], '-e', '.[cpu,dev]')"
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


def test_an_environment_of_another_copy_stays_where_a_new_one_replaces_the_link(tmp_path):
    shared, link = tmp_path / "shared", tmp_path / ".venv"
    shared.mkdir()
    (shared / "pyvenv.cfg").write_text("kept")
    link.symlink_to(shared)
    make = IMPORT + "install.make_environment(install.Path(sys.argv[2]))"

    ended = run_command([sys.executable, "-c", make, str(ROOT / "tools"), str(link)])

    assert ended.code == 0, ended.err
    assert (shared / "pyvenv.cfg").read_text() == "kept" and not link.is_symlink()
    assert (link / "bin" / "python").exists()
