"""Changes of code that tests should notice."""

import ast
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
from coverage import CoverageData
from support.processes import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import mutants  # noqa: E402
import mutations  # noqa: E402
import mutations_in_context as in_context  # noqa: E402


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
        ("x = np.minimum(a, b)", "function", "x = np.maximum(a, b)"),
        ("x = sorted(a, key=b)", "function", "x = list(a)"),
        ("x = np.clip(a, b)", "clip dropped", "x = a"),
        ("x = f(a, b=c)", "keyword dropped", "x = f(a)"),
        ("x = a if b else c", "condition negated", "x = a if not b else c"),
        ("x = a if b else c", "branches swapped", "x = c if b else a"),
        ("x = a - b", "left side only", "x = a"),
        ("x = a - b", "sides swapped", "x = b - a"),
        ("x = a | b", "sides swapped", "x = b | a"),
        ("x = a and b", "part of a condition dropped", "x = a"),
        ("x = np.float64", "dtype", "x = np.float32"),
        ("x = 'int64'", "dtype", "x = 'int32'"),
        ("x = a.astype(b)", "astype dropped", "x = a"),
        ("x = default_rng(a)", "seed fixed", "x = default_rng(0)"),
        ("x = len(a)", "one less", "x = len(a) - 1"),
        ("x = range(a, b)", "one less", "x = range(a, b - 1)"),
        ("x = f(a, axis=1)", "axis", "x = f(a, axis=0)"),
        ("x = a[::-1]", "step dropped", "x = a[::1]"),
        ("x = f(a.b, c.d, e.f)", "arguments swapped", "x = f(a.b, e.f, c.d)"),
        ("if a: b = 1", "if never", "if False: b = 1"),
        ("if a < 1: raise b", "if always", "if True: raise b"),
        ("raise ValueError(1)", "statement dropped", "pass"),
        ("x = x + a", "statement dropped", "pass"),
        ("x[a] = b", "statement dropped", "pass"),
        ("x += a", "sum becomes its last part", "x = a"),
        ("a, b = c", "unpacking swapped", "(b, a) = c"),
    ],
)
def test_each_kind_of_change(code, kind, changed):
    assert list_changes(code)[kind] == changed


@pytest.mark.parametrize(
    "code",
    ["x = ValueError(1, a)", "import a", "def f(x: int = None) -> int: pass", "x = 'a' + b", "x = zip(a, strict=True)"]
    + ["if TYPE_CHECKING: f(a)"],
)
def test_texts_errors_imports_annotations_and_strictness_stay(code):
    assert list_changes(code) == {}


METHOD = """
class Crop:
    def __init__(self, rows, columns):
        self.row_start, self.row_end, self.other = rows, columns, 0

    def take(self, height, weight):
        right = f(height)
        return right["left"], self.row_start, right["right"], right[1]
"""


def test_names_are_replaced_by_others_of_the_same_function_and_class():
    assert list(in_context.list_changes(ast.parse(METHOD), lambda node: True)) == []
    changes = in_context.list_changes(ast.parse(METHOD), lambda node: False)
    found = [(kind, ast.unparse(old), ast.unparse(new)) for kind, old, new in changes]
    assert found == [
        ("wrong variable", "height", "weight"),
        ("wrong key", "'left'", "'right'"),
        ("wrong variable", "right", "height"),
        ("wrong field", "self.row_start", "self.row_end"),
        ("wrong key", "'right'", "'left'"),
        ("wrong variable", "right", "height"),
        ("wrong index", "1", "0"),
        ("wrong variable", "right", "height"),
    ]


def test_folders_are_drawn_from_by_their_lines(tmp_path, monkeypatch):
    for name, lines in (("large", 60), ("small", 25), ("tiny", 15)):
        (tmp_path / "package" / name).mkdir(parents=True)
        (tmp_path / "package" / name / "code.py").write_text("x = a - 3\n" * lines)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "PACKAGE", "package")
    drawn = mutants.draw_by_lines(["large", "small", "tiny"], 10, random.Random(0))
    assert Counter(Path(mutant.file).parts[1] for mutant in drawn) == {"large": 6, "small": 3, "tiny": 1}


def test_a_seed_draws_the_same_mutants_of_different_lines(tmp_path):
    lines = [f"x{number} = a{number} - {number}\n" for number in range(40)]
    (tmp_path / "code.py").write_text("".join(lines))
    drawn = [mutations.draw(tmp_path, tmp_path, 9, random.Random(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({mutant.line for mutant in drawn[0]}) == 9
    for mutant in drawn[0]:
        changed = mutant.source.splitlines(keepends=True)
        assert [n for n in range(40) if changed[n] != lines[n]] == [mutant.line - 1]


STEP = mutations.Mutant("paddlevit_dist/core/engine/step.py", 12, "", "", "", "")
FIRST, OTHER = "tests/unit/core/engine/test_step.py::d", "tests/unit/x/test_b.py::test_c"


def test_the_tests_of_a_line_come_first_and_those_of_its_package_last():
    tests = {
        ("paddlevit_dist/core/engine/step.py", 10): {OTHER, FIRST},
        ("paddlevit_dist/core/engine/step.py", 13): {"later"},
    }
    first, near, *whole = mutants.list_stages(STEP, {"unit": tests})
    assert first == [FIRST, OTHER]
    assert near[0].startswith("tests/unit/core/engine/test_step") and all(Path(ROOT, name).exists() for name in near)
    assert whole == [["tests/integration/test_promises.py"], ["tests/integration/core/engine"]]


def test_integration_tests_of_several_files_follow_by_twelves_where_they_are_measured():
    near = [f"tests/integration/core/engine/test_z.py::test_{letter}" for letter in "abc"]
    far = [f"tests/integration/images/test_{letter}.py::test_{number}" for letter in "abcde" for number in (1, 2, 3)]
    tests = {("paddlevit_dist/core/engine/step.py", 12): {*far, *near, "tests/integration/core/engine/test_z.py"}}
    _, first, second = mutants.list_stages(STEP, {"unit": {}, "integration": tests})
    assert first == [*near[:2], *(test for test in far if test[-1] != "3")]
    whole_file = "tests/integration/core/engine/test_z.py"
    assert second == [f"{whole_file}::test_c", whole_file, *(test for test in far if test[-1] == "3")]
    many = {(STEP.file, 12): {f"tests/unit/core/engine/test_step.py::test_{number}" for number in range(70)}}
    stages = mutants.list_stages(STEP, {"unit": many, "integration": tests})
    assert [len(stage) for stage in stages if stage[0] in many[STEP.file, 12]] == [60, 10]
    assert [FIRST] == mutants.list_stages(STEP, {"unit": {(STEP.file, 12): {FIRST}}, "integration": {}})[0]


def test_a_compiled_functions_tests_are_those_of_the_plain_functions_that_call_it(tmp_path, monkeypatch):
    loop = "@compiled\ndef add(a, b):\n    return a + b\n"
    files = {"kernels": loop, "others": f"{loop}from .kernels import other\n"}
    files["layers"] = "from . import kernels\n\n\ndef call():\n    return kernels.add(1, 2)\n"
    for name, text in files.items():
        file = tmp_path / "paddlevit_dist" / "core" / "engine" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    changed = STEP._replace(file="paddlevit_dist/core/engine/kernels.py", line=3, source=loop)
    tests = {("paddlevit_dist/core/engine/layers.py", 5): {FIRST}, ("paddlevit_dist/core/engine/layers.py", 1): {OTHER}}
    assert mutants.list_stages(changed, {"unit": tests}) == [[FIRST]]
    written = write_coverage(tmp_path / "1", [(FIRST, "/a/paddlevit_dist/core/engine/layers.py", [1, 5])])
    mutants.merge_files([written], tmp_path / "merged")
    assert mutants.read_tests(tmp_path / "merged", [changed]) == {("paddlevit_dist/core/engine/layers.py", 5): {FIRST}}


def write_coverage(path: Path, rows: list[tuple[str, str, list[int]]]) -> Path:
    """Write a file of coverage: tests, files and lines that they execute."""
    data = CoverageData(str(path))
    for context, file, lines in rows:
        data.set_context(context)
        data.add_lines({file: lines})
    data.close()
    return path


def test_processes_are_merged_by_test_and_lines_and_a_torn_file_is_left_out(tmp_path):
    step, loop = "/a/paddlevit_dist/core/engine/step.py", "/b/paddlevit_dist/core/engine/loop.py"
    files = [
        write_coverage(tmp_path / "1", [(FIRST, step, [7, 12]), ("", step, [1]), (OTHER, loop, [12])]),
        write_coverage(tmp_path / "2", [(f"start|{FIRST}", step, [8, 30]), (OTHER, step, [12])]),
        tmp_path / "3",
    ]
    files[2].write_bytes(files[0].read_bytes()[:5000])
    mutants.merge_files(files, tmp_path / "merged")
    assert mutants.read_tests(tmp_path / "merged", [STEP]) == {
        (STEP.file, 7): {FIRST},
        (STEP.file, 8): {FIRST},
        (STEP.file, 12): {FIRST, OTHER},
    }
    assert [path.name for path in tmp_path.iterdir()] == ["merged"]
