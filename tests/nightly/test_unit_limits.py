"""A unit test that starts a process fails, whatever it asserts; a slow one does not."""

import shutil
import sys

from support.processes import ROOT, run_command

TESTS = """
import multiprocessing, subprocess, sys, time

def test_computes():
    begun = time.process_time()
    while time.process_time() < begun + 3:
        pass

def test_starts_a_program():
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_spawns():
    process = multiprocessing.get_context("spawn").Process(target=print)
    process.start()
    process.join()
"""


def test_a_unit_test_that_is_none_fails(tmp_path):
    shutil.copy(ROOT / "tests" / "unit" / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    ended = run_command([sys.executable, *words], folder=tmp_path, COLUMNS="200")
    found = [line.split(" - ") for line in ended.out.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    assert [where for where, _ in found] == [
        "ERROR test_some.py::test_starts_a_program",
        "ERROR test_some.py::test_spawns",
    ], ended.out
    assert "started a process (subprocess.Popen" in found[0][1] and "(spawnv_passfds" in found[1][1]
