"""Large JSON files are read element by element, whatever the window, as ``json.loads`` reads the whole."""

from __future__ import annotations

import json
import random
import tracemalloc

import pytest

from paddlevit_dist.images.detection.json_stream import elements

WINDOWS = [1, 2, 3, 7, 64, 1 << 20]


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


def gathered(path, window):
    found = {}
    for element in elements(path, window):
        if element.number < 0:
            found[element.name] = element.value
        else:
            found.setdefault(element.name, []).append(element.value)
            assert len(found[element.name]) == element.number + 1
        content = path.read_bytes()[element.start : element.end]
        assert json.loads(content.decode("utf-8")) == element.value
    return found


@pytest.mark.parametrize("window", WINDOWS)
def test_any_document_is_read_as_the_whole_would_be(tmp_path, window):
    generator = random.Random(window)
    path = tmp_path / "x.json"
    for case in range(15):
        document = {f"名{n}": drawn(generator) for n in range(4)}
        text = json.dumps(document, ensure_ascii=case % 2 == 0, indent=[None, 2, "\t"][case % 3])
        path.write_bytes((b"\xef\xbb\xbf" if case % 5 == 0 else b"") + text.encode() + b" \n" * (case % 2))
        assert gathered(path, window) == {name: value for name, value in document.items() if value != []}
        if case % 2:
            as_list = list(document.values())
            path.write_text(json.dumps(as_list))
            assert gathered(path, window) == {"": as_list}


@pytest.mark.parametrize("window", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "neither a JSON object nor a list"),
        (b"12", "neither"),
        (b'{"a": [1, 2', "byte 11: expected ',' or ']'"),
        (b'{"a": [1 2]}', "byte 9: expected ','"),
        (b'{"a": [1,]}', "byte 9: Expecting value"),
        (b'{"a" 3}', "byte 5: expected ':'"),
        (b'{"a": 3,}', "byte 8: expected a name"),
        (b"[1] 2", "byte 4: expected its end"),
        (b'["abc', "byte 1: Unterminated string"),
        (b'["\xff"]', "byte 2: not UTF-8"),
        (b'{"a": [{"b": tru}]}', "byte 13: Expecting value"),
        (b"[" + b"7" * 5000 + b"]", "byte 1: "),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_damage_is_told_with_its_place(tmp_path, text, message, window):
    path = tmp_path / "x.json"
    path.write_bytes(text)
    with pytest.raises(ValueError) as refused:
        list(elements(path, max(window, len(text) // 100)))
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_memory_is_that_of_a_window_and_not_of_the_file(tmp_path):
    path = tmp_path / "x.json"
    with open(path, "w") as file:
        file.write('{"annotations": [')
        file.write(",".join([json.dumps({"id": 1, "segmentation": [[1.25] * 60]})] * 4_000))
        file.write("]}")
    assert path.stat().st_size > 1_500_000
    tracemalloc.start()
    try:
        assert sum(element.value["id"] for element in elements(path, 1 << 16)) == 4_000
        assert tracemalloc.get_traced_memory()[1] < 600_000
    finally:
        tracemalloc.stop()
