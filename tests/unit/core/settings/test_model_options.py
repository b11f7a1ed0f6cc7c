"""MODEL.OPTIONS: options of a network by name, from files and the command line."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import dump_yaml, load
from paddlevit_dist.core.settings.command_line import format_words, parse_value
from paddlevit_dist.core.settings.table import effects, leaves


def read(*words):
    return load(list(words)).values.MODEL.OPTIONS


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("24", 24), ("0.5", 0.5), ("1e-6", 1e-6), ("-2E3", -2000.0), ("average", "average"), ("'24'", "24")],
        *[("null", None), ("None", None), ("~", None), ("no", False), ("'no'", "no"), ("[1, a, null]", [1, "a", None])],
        ("{any_size: true}", {"any_size": True}),
    ],
)
def test_values_are_those_of_yaml_on_the_command_line_and_in_a_file(text, value, load_text):
    assert read("MODEL.OPTIONS.pool", text) == read(f"MODEL.OPTIONS={{pool: {text}}}") == {"pool": value}
    options = load_text(f"MODEL:\n  OPTIONS:\n    pool: {text}\n").values.MODEL.OPTIONS
    assert options == {"pool": value} and type(options["pool"]) is type(value)


def test_files_and_the_command_line_are_merged_and_null_drops_what_was_before(write):
    write("base.yaml", "MODEL: {OPTIONS: {width: 8, backbone_options: {any_size: true, depth: 2}}}")
    file = write("run.yaml", "BASE: base.yaml\nMODEL: {OPTIONS: {pool: average}}")
    words = ["MODEL.OPTIONS.width=9", "MODEL.OPTIONS.backbone_options.depth=3"]
    inner = {"any_size": True, "depth": 3}
    assert read(f"-cfg={file}", *words) == {"width": 9, "pool": "average", "backbone_options": inner}
    assert read(f"-cfg={file}", "MODEL.OPTIONS=null") is None
    write("none.yaml", "BASE: run.yaml\nMODEL: {OPTIONS: null}")
    assert read(f"-cfg={file.replace('run', 'none')}", "MODEL.OPTIONS.width=1") == {"width": 1}


def test_they_are_written_and_read_again_as_one_value(write):
    values = {"a": None, "b": "no", "c": [1, "null"], "d": {"e": 1e-6}, "f": "1.50", "g": "猫\n"}
    first = load(format_words({f"MODEL.OPTIONS.{name}": value for name, value in values.items()})).values
    again = load([f"-cfg={write('again.yaml', dump_yaml(first))}"]).values
    assert first.MODEL.OPTIONS == again.MODEL.OPTIONS == values == read(*format_words({"MODEL.OPTIONS": values}))
    assert leaves(again)["MODEL.OPTIONS"] == values and effects(again)["MODEL.OPTIONS"] == "network"
    assert parse_value("MODEL.OPTIONS.b", "'no'", None) == "no"


@pytest.mark.parametrize("words", [["7"], ["{1: 2}"], ["{no: 2}"], ["{a b: 2}"], ["{a: .nan}"], ["{a: 2026-01-01}"]])
def test_what_is_not_a_value_by_name_is_refused(words):
    expected = "expected values by name, such as {width: 24, pool: average}, or None"
    with pytest.raises(UserError, match=f"^command line: MODEL.OPTIONS is .*: {expected}$"):
        read("MODEL.OPTIONS", *words)
