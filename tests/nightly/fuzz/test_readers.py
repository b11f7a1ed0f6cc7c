"""Each reader of files on many damaged ones: they are read or refused in one line, and nothing else ever happens.

300 cases of each, 1,000 in ``make fuzz`` (FUZZ_CASES), with a new seed every night: ``FUZZ_SEED=SEED make fuzz``
repeats one. A failure names seed, reader and case: ``python -m support.fuzz.run COUNT SEED FOLDER READER`` in tests/
repeats it.
"""

import pytest
from support.fuzz.night import CASES, SEED
from support.fuzz.readers import READERS
from support.fuzz.run import check


@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_read_or_refused(tmp_path, name):
    check([name], CASES, tmp_path, SEED, timeout=3600.0)
