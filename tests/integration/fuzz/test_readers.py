"""Each reader of files on a few damaged ones; ``tests/nightly/fuzz`` has many, and says how to repeat a case."""

import pytest
from support.fuzz.readers import READERS
from support.fuzz.run import check

SUBJECTS = sorted({reader.read.__module__.rpartition(".")[2] for reader in READERS.values()})


@pytest.mark.parametrize("subject", SUBJECTS)
def test_damaged_files_of_each_reader_are_read_or_refused(tmp_path, subject):
    names = [name for name, reader in READERS.items() if reader.read.__module__.endswith(f".{subject}")]
    check(names, 8, tmp_path)
