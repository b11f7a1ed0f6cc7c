"""A strict type checker on a user's program."""

import shutil
from pathlib import Path

import pytest
from support.processes import ROOT


def test_a_strict_type_checker_passes_a_users_program_and_finds_its_mistakes(tmp_path, monkeypatch):
    mypy = pytest.importorskip("mypy.api")
    monkeypatch.setenv("MYPYPATH", str(ROOT))

    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-paddle.*]\nignore_missing_imports = True\n")  # 2.6 has no types
    words = ["--strict", f"--config-file={tmp_path / 'mypy.ini'}", f"--cache-dir={tmp_path / 'cache'}"]

    def check(path) -> tuple:
        out, err, code = mypy.run([*words, str(path)])
        return out + err, code

    said, code = check(shutil.copy(Path(__file__).with_name("user_script.py"), tmp_path / "program.py"))
    assert code == 0, said
    wrong = 'import paddlevit_dist as pv\n\nscore: str = pv.train("vit_digits").values["top-1"]\npv.trian("x")\n'
    (tmp_path / "wrong.py").write_text(wrong)
    said, code = check(tmp_path / "wrong.py")
    assert code == 1 and 'expression has type "float"' in said and 'no attribute "trian"' in said, said
