"""Text, JSON and YAML within limits: what honest files hold is read as the libraries themselves read it."""

import json
import tracemalloc
from pathlib import Path

import msgspec
import pytest
import yaml

from paddlevit_dist.runtime import text_files

CONFIGS = sorted(Path(__file__).resolve().parents[3].glob("configs/**/*.yaml"))
SHARED = "a: &a {x: 1, y: [1, 2.5, 1e3, 31, 1_000, true, ~, 2001-12-14]}\nb: {<<: *a, x: 2}\nc: [*a, *a]\n"


def test_honest_yaml_is_read_as_the_library_reads_it():
    for text in [*(file.read_text() for file in CONFIGS), SHARED, "", "--- {}", "'x'"]:
        assert text_files.parse_yaml(text) == yaml.safe_load(text), text


def test_many_class_names_are_no_bomb():
    names = [f"n{number:08d} name" for number in range(22_000)]
    assert len(text_files.parse_yaml(yaml.safe_dump({"train": names[:5_000]}))["train"]) == 5_000
    assert text_files.parse_json(json.dumps(names)) == names


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_json_is_read_in_each_unicode(tmp_path, encoding):
    (tmp_path / "a.json").write_text('{"\u00e4": [1, -2, 3.5, "[", null]}', encoding)
    assert text_files.read_json(tmp_path / "a.json") == {"\u00e4": [1, -2, 3.5, "[", None]}


class Person(msgspec.Struct):
    name: str
    age: int = 0


def test_rows_of_a_list_are_read_one_by_one(tmp_path):
    rows = '[{"name": "\u00e4", "more": [[]]}, {"age": 3, "name": "b"}, {"name": 1}]'
    (tmp_path / "a.json").write_text(rows, encoding="utf-8")
    people = text_files.iterate_rows(tmp_path / "a.json", Person)
    assert [next(people), next(people)] == [Person("\u00e4"), Person("b", 3)]
    with pytest.raises(ValueError, match="row 2: Expected `str`, got `int`"):
        next(people)
    for text in ("{}", "[1,", "", "[" * 99_999):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(ValueError):
            list(text_files.iterate_rows(tmp_path / "a.json", Person))


def test_a_file_is_read_no_further_than_the_limit(tmp_path):
    with open(tmp_path / "long", "wb") as stream:
        stream.truncate(1 << 40)  # takes no room on the disk
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="it has more than 1,000,000 bytes"):
            text_files.read_text(tmp_path / "long", largest=1_000_000)
        with pytest.raises(ValueError, match="it has more than 8,388,608 bytes"):
            text_files.read_yaml(tmp_path / "long")
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_json_of_nothing_but_lists_takes_no_memory():
    content = "[" + "[]," * 4_000_001 + "0]"
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="it has more than 4,000,000 lists and objects"):
            text_files.parse_json(content)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
