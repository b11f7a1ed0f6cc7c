"""Entries of several processes, read as one list."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.runtime.ordered_lines import LineWriter, format_entry, merge


def test_entries_of_all_files_come_in_order_and_once(tmp_path):
    files = [tmp_path / name for name in "abc"]
    for file, numbers in zip(files, ([0, 3, 9], [1, 3, 10, 11], [])):
        writer = LineWriter(file)
        for number in numbers:
            writer.add([[number, f"of {number}"]])
        writer.close()
    assert list(merge(files)) == [[number, f"of {number}"] for number in (0, 1, 3, 9, 10, 11)]
    assert list(merge([])) == []


def test_what_is_added_outlives_the_process_and_a_torn_line_is_left_out(tmp_path):
    file = tmp_path / "lines"
    writer = LineWriter(file)
    writer.add([[0, None], [2, {"a": [1.5]}]])
    assert file.read_bytes() == b'[0,null]\n[2,{"a":[1.5]}]\n'
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.add([[3, None]])
    file.write_bytes(file.read_bytes() + format_entry([5, "torn"])[:-4])
    assert list(merge([file])) == [[0, None], [2, {"a": [1.5]}]]


def test_the_file_is_closed_also_if_its_writer_is_interrupted(tmp_path):
    with pytest.raises(KeyboardInterrupt), LineWriter(tmp_path / "lines") as writer:
        writer.add([[1, None]])
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="closed"):
        writer.add([[2, None]])


def test_a_file_that_cannot_be_written_is_told_with_the_hint(tmp_path):
    (tmp_path / "there").touch()
    for name in ("there", "none/lines"):
        with pytest.raises(UserError, match=f"{name}.*add -restart"):
            LineWriter(tmp_path / name, "add -restart")
