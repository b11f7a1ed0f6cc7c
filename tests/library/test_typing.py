"""The public names as type checkers see them."""

import ast
import shutil

import pytest
from support.processes import ROOT

import paddlevit_dist

PACKAGE = ROOT / "paddlevit_dist"


def test_the_stub_has_the_names_of_the_package_from_the_modules_that_define_them():
    told = {}
    for line in ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8")).body:
        if isinstance(line, ast.ImportFrom):
            assert line.level == 1 and all(one.asname == one.name for one in line.names)  # else it is not exported
            told.update((one.name, line.module) for one in line.names)
    assert told == paddlevit_dist._NAMES
    assert sorted(told) == paddlevit_dist.__all__ == dir(paddlevit_dist)
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.long
def test_a_strict_type_checker_passes_a_users_program_and_finds_its_mistakes(tmp_path, monkeypatch):
    mypy = pytest.importorskip("mypy.api")
    monkeypatch.setenv("MYPYPATH", str(ROOT))

    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-paddle.*]\nignore_missing_imports = True\n")  # 2.6 has no types
    words = ["--strict", f"--config-file={tmp_path / 'mypy.ini'}", f"--cache-dir={tmp_path / 'cache'}"]

    def check(path) -> tuple:
        out, err, code = mypy.run([*words, str(path)])
        return out + err, code

    said, code = check(shutil.copy(ROOT / "tests" / "library" / "user_script.py", tmp_path / "program.py"))
    assert code == 0, said
    wrong = 'import paddlevit_dist as pv\n\nscore: str = pv.train("vit_digits").values["top-1"]\npv.trian("x")\n'
    (tmp_path / "wrong.py").write_text(wrong)
    said, code = check(tmp_path / "wrong.py")
    assert code == 1 and 'expression has type "float"' in said and 'no attribute "trian"' in said, said
