"""Large JSON files are read element by element, as ``json.loads`` reads the whole."""

import json
import random
from typing import Any

import pytest

from paddlevit_dist.images.detection.json_lists import elements


def drawn(generator, depth=0):
    kind = generator.randrange(9 if depth < 3 else 7)
    if kind < 3:
        return generator.choice([0, -12, 345678901234, 1.5e-3, -0.25, 1e300])
    if kind < 5:
        return generator.choice(["", 'a "quoted" \\ back\n', "Bär 画像 \u2028", "é" * 30])
    if kind < 7:
        return generator.choice([True, False, None])
    if kind == 7:
        return [drawn(generator, depth + 1) for _ in range(generator.randrange(4))]
    return {f"key {n}": drawn(generator, depth + 1) for n in range(generator.randrange(4))}


NAMES = ["a", "名"]


def gathered(path):
    found, content = {}, path.read_bytes()
    for name, parts in elements(path, dict.fromkeys(NAMES, Any)).items():
        found[name] = list(parts)
        for number, element in enumerate(found[name]):
            assert json.loads(content[element.start : element.end].decode("utf-8")) == element.value
            assert element.number == number
    return {name: [element.value for element in parts] for name, parts in found.items()}


@pytest.mark.parametrize("case", range(30))
def test_any_document_is_read_as_the_whole_would_be(tmp_path, case):
    generator = random.Random(case)
    path = tmp_path / "x.json"
    document = {name: [drawn(generator) for _ in range(generator.randrange(4))] for name in NAMES}
    text = json.dumps(
        {"other": drawn(generator), **document}, ensure_ascii=case % 2 == 0, indent=[None, 2, "\t"][case % 3]
    )
    path.write_bytes((b"\xef\xbb\xbf" if case % 5 == 0 else b"") + text.encode() + b" \n" * (case % 2))
    assert gathered(path) == document
    path.write_text(" " + json.dumps(list(document.values())))
    assert gathered(path) == {"": list(document.values())}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "truncated"),
        (b"12", "Expected `object | array`"),
        (b'{"a": [1, 2', "truncated"),
        (b'{"a": [1 2]}', "(byte 9)"),
        (b"[1] 2", "(byte 5)"),
        (b'{"a": [{"b": tru}]}', "(byte 14)"),
        (b'{"a": [NaN]}', "(byte 7)"),
        (b"[1, " + b"7" * 5000 + b"]", "[1]: Integer value out of range"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": {"1": 2}}', "a: expected a list of objects"),
    ],
)
def test_damage_is_told_with_its_place(tmp_path, text, message):
    path = tmp_path / "x.json"
    path.write_bytes(text)
    with pytest.raises(ValueError) as refused:
        gathered(path)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_bytes_that_are_no_text_are_told_with_their_place(tmp_path):
    (tmp_path / "x.json").write_bytes(b'["\xff"]')
    with pytest.raises(ValueError, match=r"(?i)^\[0\]: .*utf-8"):  # msgspec's words change with its version
        gathered(tmp_path / "x.json")
