"""Each reader of files on many damaged ones: they are read or refused in one line, and nothing else ever happens.

300 cases of each, 1,000 in ``make fuzz`` (FUZZ_CASES). A failure names the reader and the case: ``python -m
support.fuzz.run COUNT FOLDER READER`` in tests/ repeats it.
"""

import os

import pytest
from support.fuzz.checking import check
from support.fuzz.readers import READERS

MANY = int(os.environ.get("FUZZ_CASES", "300"))


@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_read_or_refused(tmp_path, name):
    check([name], MANY, tmp_path, timeout=3600.0)
