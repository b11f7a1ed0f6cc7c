"""Large JSON files in parts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from paddlevit_dist.images.detection.json_stream import BEGINS, WHOLE, parts


def read(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [tuple(part) for part in parts(path)]


def test_a_list_and_an_object(tmp_path):
    assert read(tmp_path / "a", " [1, {\"b\": [2]}\n,\"x,]\"] ") == [
        ("", BEGINS, None), ("", 0, 1), ("", 1, {"b": [2]}), ("", 2, "x,]"),
    ]  # fmt: skip
    assert read(tmp_path / "a", "\ufeff{\"info\": {\"a\": [1]}, \"images\": [], \"n\": 12}") == [
        ("info", WHOLE, {"a": [1]}), ("images", BEGINS, None), ("n", WHOLE, 12),
    ]  # fmt: skip
    assert read(tmp_path / "a", "{}") == [] and read(tmp_path / "a", "[ ]") == [("", BEGINS, None)]


def test_elements_across_the_parts_that_are_read_at_a_time(tmp_path):
    rng = np.random.default_rng(0)
    values = [{"text": 'é\\"]}' * int(n), "n": [1.5, -2e9, 123456789], "o": {}} for n in rng.integers(1, 60_000, 90)]
    content = json.dumps(values, ensure_ascii=False)
    assert len(content.encode()) > 1 << 24
    sizes = []
    (tmp_path / "a").write_text(content, encoding="utf-8")
    assert [part.value for part in parts(tmp_path / "a", sizes.append)][1:] == values
    assert sum(sizes) == len(content.encode()) and len(sizes) > 8


@pytest.mark.parametrize("content, message", [
    ("", "is empty"),
    ("  \n", "is empty"),
    ("12", "with a list or an object"),
    ("[1, 2", "line 1: expected , or ], there is its end"),
    ("[1,\n2,\n]", "line 3: Expecting value"),
    ("[1,\n{\"a\" 2}]", "line 2: Expecting ':' delimiter"),
    ("[1]\n[2]", "line 2: there is more after its end"),
    ("{1: 2}", "expected a name"),
    ("{\"a\": [1}", "expected , or ], there is '}'"),
    ("{\"a\"}", "expected :, there is '}'"),
    ("[" + "[" * 100_000, "nested too deeply"),
    (b"\xff\xfe[\x00", "is not text in UTF-8"),
    (b"\x89PNG\r\n", "is not text in UTF-8"),
])  # fmt: skip
def test_what_is_no_json_is_refused_in_a_line(tmp_path, content, message):
    with pytest.raises(ValueError) as caught:
        read(tmp_path / "a", content)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_mistake_in_a_large_file_is_told_by_its_line(tmp_path):
    content = "[\n" + '{"a": 1},\n' * 300_000 + '{"a": 1 "b"},\n' + '{"a": 1},\n' * 300_000 + "{}]"
    with pytest.raises(ValueError, match="line 300002: Expecting ',' delimiter"):
        read(tmp_path / "a", content)
