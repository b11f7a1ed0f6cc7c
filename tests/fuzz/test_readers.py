"""Each reader of files on damaged ones: they are read or refused in one line, and nothing else ever happens.

30 cases of each in ``make test``, 300 in ``make test-long``, 1,000 in ``make fuzz`` (FUZZ_CASES). A failure names the
reader and the case: ``python -m fuzz.run COUNT FOLDER READER`` in tests/ repeats it.
"""

import json
import os
import sys

import pytest
from support.processes import run_command, succeeded

from .readers import READERS

MANY = int(os.environ.get("FUZZ_CASES", "300"))
SUBJECTS = ("boxes", "other_files", "images", "results", "scenes", "volumes")  # the modules beside this one


def check(names, count, folder, timeout):
    ended = succeeded(run_command([sys.executable, "-m", "fuzz.run", str(count), str(folder / "run"), *names], timeout))
    found = dict(map(json.loads, ended.out.splitlines()))
    told = [f"{name}, case {one['case']}: {one['how']}" for name in found for one in found[name]["failures"]]
    assert not told, "\n".join(told[:5])
    assert set(found) == set(names)
    for name, outcome in found.items():
        assert outcome["read"] + outcome["refused"] == count
        # Else the damage does not reach the reader.
        assert outcome["refused"] >= READERS[name].least_refused * count, f"{name}: {outcome}"


@pytest.mark.parametrize("subject", SUBJECTS)
def test_thirty_damaged_files_of_each_reader_are_read_or_refused(tmp_path, subject):
    names = [name for name, reader in READERS.items() if reader.read.__module__.endswith(f".{subject}")]
    assert len(names) >= 6
    check(names, 30, tmp_path, timeout=300.0)


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_read_or_refused(tmp_path, name):
    check([name], MANY, tmp_path, timeout=3600.0)
