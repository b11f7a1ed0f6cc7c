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


def test_a_text_is_read_as_it_is(tmp_path):
    (tmp_path / "a").write_bytes("ä\r\nb".encode("latin-1"))
    assert text_files.read_text(tmp_path / "a", "latin-1") == "ä\r\nb"
    assert text_files.read_bytes(tmp_path / "a", 4) == b"\xe4\r\nb"
    with pytest.raises(ValueError, match=r"^it has more than 3 bytes, far more than such files need$"):
        text_files.read_bytes(tmp_path / "a", 3)
    with pytest.raises(UnicodeDecodeError):
        text_files.read_text(tmp_path / "a")
    assert (text_files.LARGEST_BYTES, text_files.LARGEST_YAML_BYTES) == (256 * 1024**2, 8 * 1024**2)


@pytest.mark.parametrize("as_bytes", [True, False])
def test_json_is_within_limits(monkeypatch, as_bytes):
    def parse(text, **options):
        return text_files.parse_json(text.encode() if as_bytes else text, **options)

    assert parse('{"a": 1, "a": [2]}', pairs=list) == [("a", 1), ("a", [2])]
    assert parse("9" * 400) == int("9" * 400)
    with pytest.raises(ValueError, match="^it has a number of 401 digits$"):
        parse("[" + "9" * 401 + "]")
    with pytest.raises(ValueError, match="^it is nested too deeply$"):
        parse("[" * 100_000)
    monkeypatch.setattr(text_files, "_MOST_CONTAINERS", 3)
    assert parse('[{"a": []}]') == [{"a": []}]
    for text in ("[[], [], []]", "[{}, {}, {}]"):
        with pytest.raises(ValueError, match="^it has more than 3 lists and objects$"):
            parse(text)


@pytest.mark.parametrize(
    "text, value",
    [("0040", 40), ("-0_7", -7), ("0x10", "0x10"), ("+0b11", "+0b11"), ("1:30", "1:30"), ("1:30.5", "1:30.5")]
    + [("1.5e+3", 1500.0), ("-.inf", float("-inf")), ("9" * 400, int("9" * 400)), ("0b", "0b")],
)
def test_numbers_of_yaml_are_what_a_reader_expects(text, value):
    found = text_files.parse_yaml(text)
    assert found == value and type(found) is type(value)


WORDS = ["no", "yes", "on", "OFF", "true", "007", "1e3", "1.50", "null", "~", "2001-12-14", "0x10", "1:30", "NaN"]


@pytest.mark.parametrize(
    "written",
    [
        f"[{', '.join(WORDS)}]",
        "".join(f"\n- {word}" for word in WORDS),
        "".join(f"\n  {number}: {word}" for number, word in enumerate(WORDS)),
        f"&same [{', '.join(map(repr, WORDS))}]",
    ],
)
def test_words_of_text_keys_stay_as_they_are_written(written):
    found = text_files.parse_yaml(f"names: {written}\nother: [no, 007, 1.50]", ("names",))
    assert (list(found["names"].values()) if isinstance(found["names"], dict) else found["names"]) == WORDS
    assert found["other"] == [False, 7, 1.5]
    nothing = text_files.parse_yaml("a: ~\nb:\nc: {0: , 1: x}\nd: 1.50\ne: [[no]]", tuple("abcde"))
    assert nothing == {"a": None, "b": None, "c": {0: None, 1: "x"}, "d": "1.50", "e": [[False]]}


@pytest.mark.parametrize(
    "text, told",
    [
        ("a: 1\nb: " + "9" * 401, "line 2: a number of 401 characters"),
        ("\n" + "[" * 101 + "]" * 101, "line 2: nested too deeply"),
        ("[" + "[], " * 60 + "[" * 100 + "]" * 101, "line 1: nested too deeply"),
        ("a: &a [*a]", "line 1: the value of *a contains itself"),
        ("a: 2001-99-99", "line 1: '2001-99-99' is not timestamp"),
        ("a: !!int [1]", "line 1: expected a scalar node, but found sequence"),
        ("a: !!int " + "x" * 50, f"line 1: '{'x' * 40}' is not int"),
        ("a: !!float ''", "line 1: '' is not float"),
        ("a: !own 1", "line 1: could not determine a constructor for the tag '!own'"),
        ("a: [1", "line 1: expected ',' or ']', but got '<stream end>'"),
        ("a: \x00", "unacceptable character #x0000: special characters are not allowed"),
        ("a: 1\n---\nb: 2", "line 2: but found another document"),
    ],
)
def test_yaml_that_is_wrong_is_told_with_its_line(text, told):
    with pytest.raises(ValueError) as refused:
        text_files.parse_yaml(text)
    assert str(refused.value) == told


def test_yaml_is_within_limits(monkeypatch):
    assert text_files.parse_yaml("[" * 100 + "]" * 100)
    assert text_files._MOST_NODES == 250_000
    monkeypatch.setattr(text_files, "_MOST_NODES", 12)
    assert text_files.parse_yaml("a: &a [1, 2]\nb: [*a, 3]") == {"a": [1, 2], "b": [[1, 2], 3]}
    with pytest.raises(ValueError, match="^line 2: more than 12 values with its aliases expanded$"):
        text_files.parse_yaml("a: &a [1, 2]\nb: [*a, 3, 4]")
    monkeypatch.setattr(text_files, "LARGEST_YAML_BYTES", 8)
    assert text_files.parse_yaml("abcdefgh") == "abcdefgh"
    with pytest.raises(ValueError, match="^it has more than 8 bytes$"):
        text_files.parse_yaml("abcdefghi")
