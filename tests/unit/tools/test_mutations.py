"""Changes of code that tests should notice."""

import ast
import random
import sys
from pathlib import Path

import pytest
from support.processes import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import mutations  # noqa: E402


def list_changes(code: str) -> dict[str, str]:
    """Return the kind of each change and the changed code, of a statement on one line."""
    found = {}
    for kind, old, new in mutations.walk(ast.parse(code)):
        text = ast.unparse(ast.fix_missing_locations(new))
        found[kind] = code[: old.col_offset] + text + code[old.end_col_offset :]
    return found


@pytest.mark.parametrize(
    ("code", "kind", "changed"),
    [
        ("x = a < b", "comparison", "x = a <= b"),
        ("x = a not in b", "comparison", "x = a in b"),
        ("x = a - b", "arithmetic", "x = a + b"),
        ("x = a and b", "and/or", "x = a or b"),
        ("x = -a", "sign or not dropped", "x = a"),
        ("x = True", "constant", "x = False"),
        ("x = 3", "constant", "x = 4"),
        ("x = [a for a in b if c]", "filter dropped", "x = [a for a in b if True]"),
        ("x = a[:b]", "slice", "x = a[:b + 1]"),
        ("f(a)", "statement dropped", "pass"),
        ("x = f(a, b)", "arguments swapped", "x = f(b, a)"),
        ("x = min(a)", "function", "x = max(a)"),
        ("x = sorted(a, key=b)", "function", "x = list(a)"),
        ("x = np.clip(a, b)", "clip dropped", "x = a"),
        ("x = f(a, b=c)", "keyword dropped", "x = f(a)"),
        ("x = a if b else c", "condition negated", "x = a if not b else c"),
    ],
)
def test_each_kind_of_change(code, kind, changed):
    assert list_changes(code)[kind] == changed


@pytest.mark.parametrize(
    "code", ["raise ValueError(1)", "import a", "def f(x: int = None) -> int: pass", "x = 'a' + b"]
)
def test_texts_errors_imports_and_annotations_stay(code):
    assert list_changes(code) == {}


def test_a_seed_draws_the_same_mutants_of_different_lines(tmp_path):
    lines = [f"x{number} = a{number} - {number}\n" for number in range(40)]
    (tmp_path / "code.py").write_text("".join(lines))
    drawn = [mutations.draw(tmp_path, tmp_path, 9, random.Random(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({mutant.line for mutant in drawn[0]}) == 9
    for mutant in drawn[0]:
        changed = mutant.source.splitlines(keepends=True)
        assert [n for n in range(40) if changed[n] != lines[n]] == [mutant.line - 1]


def test_the_tests_of_a_line_are_read_from_its_contexts():
    import mutants

    assert mutants._parse_context("tests.unit.engine.test_step.test_a") == "tests/unit/engine/test_step.py::test_a"
    assert mutants._parse_context("support.runs.main") == ""
    mutant = mutations.Mutant("paddlevit_dist/engine/step.py", 12, "", "", "", "")
    tests = {
        ("paddlevit_dist/engine/step.py", 10): {"tests/unit/x/test_b.py::test_c", "tests/unit/engine/test_step.py::d"}
    }
    first, near, *whole = mutants.list_stages(mutant, tests)
    assert first == ["tests/unit/engine/test_step.py::d", "tests/unit/x/test_b.py::test_c"]
    assert near[0].startswith("tests/unit/engine/test_step") and all(Path(ROOT, name).exists() for name in near)
    assert whole == [["tests/integration/test_promises.py"], ["tests/integration/engine"]]
