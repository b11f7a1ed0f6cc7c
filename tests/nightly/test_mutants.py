"""Which tests execute a line is measured in all processes that tests start."""

import sys
from pathlib import Path

import pytest
from support.processes import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import mutants  # noqa: E402
from mutations import Mutant  # noqa: E402

DISPLAY = "tests/integration/core/logging/test_display.py"  # starts processes itself
DRAWN = [f"{DISPLAY}::test_without_unicode_the_bar_is_made_of_ascii"]
DRAWN += [f"{DISPLAY}::test_where_lines_would_be_torn_nothing_is_drawn"]
COPIED = [
    "tests/integration/core/logging/test_callbacks.py::test_a_missing_package_and_an_unknown_name_are_told_before_the_run"
]
CALLED = ["tests/unit/core/logging/test_progress.py"]


def list_executing(table: Path, file: str, code: str) -> set[str]:
    """List the tests that execute the line with this code."""
    lines = (ROOT / "paddlevit_dist" / file).read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if line.strip() == code)
    tests = mutants.read_tests(table, [Mutant(f"paddlevit_dist/{file}", number, "", "", "", "")])
    return tests.get((f"paddlevit_dist/{file}", number), set())


def test_processes_and_copies_count_for_the_test_that_starts_them_and_finished_tests_are_left_out(tmp_path, capfd):
    (tmp_path / "finished.1").write_text(f"{DRAWN[1]}[behind tee]\n{DRAWN[1]}[a dumb terminal]\n")
    mutants.measure_tests(tmp_path, [*DRAWN, *COPIED, *CALLED], jobs=0)
    table = tmp_path / mutants.COMPLETE
    assert list_executing(
        table, "core/logging/progress.py", 'return other is self or getattr(other, "_wrapped", other) is self.stream'
    ) == {DRAWN[0]}
    assert list_executing(table, "core/runtime/process_exit.py", "atexit._run_exitfuncs()") == set(COPIED)
    said = list_executing(table, "core/logging/progress.py", 'self._log(f"still {text}")')
    assert said == {f"{CALLED[0]}::test_a_quiet_run_says_where_it_is_until_it_ends"}
    assert capfd.readouterr().out.splitlines()[-1].endswith(" measured")


def test_what_was_measured_in_part_is_not_taken_for_complete(tmp_path):
    with pytest.raises(SystemExit, match="pytest ended with 4: see .*log"):
        mutants.measure_tests(tmp_path, ["tests/unit/no_such_file.py"], jobs=0)
    assert not (tmp_path / mutants.COMPLETE).exists()


def test_a_change_is_noticed_by_its_tests_and_taken_back(tmp_path):
    file = "paddlevit_dist/core/losses/overlap.py"
    source = (ROOT / file).read_text()
    changed = Mutant(file, 1, "", "", "", source.replace("return ", "return 0.9 * "))
    same = Mutant(file, 1, "", "", "", f"{source}\n# nothing\n")
    copied = mutants.copy_project(tmp_path / "copy")
    stages = [["tests/unit/tools/test_mutations.py"], ["tests/unit/core/losses/test_losses.py"]]
    row = mutants.try_mutant(changed, stages, copied, 300)
    assert row["killed"] and row["last"][1].startswith("FAILED tests/unit/core/losses/test_losses.py::")
    assert not mutants.try_mutant(same, stages, copied, 300)["killed"]
    assert (tmp_path / "copy" / file).read_text() == source
    for limited in (copied, copied._replace(server=None)):  # by a fork, and by a new process
        row = mutants.try_mutant(changed, stages[1:], limited, 0.01)
        assert (row["killed"], row["last"]) == (False, ["FAILED to end in time"])
    hanging = changed._replace(source=source.replace("return ", "while True: pass\n    return "))
    row = mutants.try_mutant(hanging, stages[1:], copied, 15)
    assert (row["killed"], row["last"]) == (True, ["FAILED to end in time"])
