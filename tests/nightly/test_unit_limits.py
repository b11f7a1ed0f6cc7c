"""A unit test that starts a process or computes for more than two seconds fails, whatever it asserts."""

import shutil
import sys

from support.processes import ROOT, run_command

TESTS = """
import multiprocessing, subprocess, sys, time

def test_computes():
    begun = time.process_time()
    while time.process_time() < begun + 9:
        pass

def test_waits():
    time.sleep(2.2)

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
        "FAILED test_some.py::test_computes",
        "ERROR test_some.py::test_starts_a_program",
        "ERROR test_some.py::test_spawns",
    ], ended.out
    assert "a unit test took 9." in found[0][1]
    assert "started a process (subprocess.Popen" in found[1][1] and "(spawnv_passfds" in found[2][1]
