"""Pages of help offer nothing that a command refuses."""

import re

import pytest

from paddlevit_dist.settings import command_line
from paddlevit_dist.settings.help import ABOUT, _section, help_text
from paddlevit_dist.settings.key import Key


@pytest.mark.parametrize("command", sorted(ABOUT))
def test_every_flag_and_example_is_known(command):
    for example in ABOUT[command].examples:
        command_line.read(example.split())
    flags = re.findall(r"^ {9}-(\w+)", help_text(("-h",), command), re.MULTILINE)
    assert set(flags) <= set(command_line.flags())


def test_meanings_of_a_section_stand_in_a_column():
    rows = [Key("A", 1, "int", "first"), Key("LONG.NAME", (1, 2), "int", "second", many=True)]
    title, *lines = _section("Keys of a task", {row.name: row for row in rows})[1:]
    assert title == "Keys of a task:" and _section("Keys of a task", {}) == []
    assert [line.split() for line in lines] == [
        "A first (default 1)".split(),
        "LONG.NAME second (default [1, 2])".split(),
    ]
    assert lines[0].index("first") == lines[1].index("second") > len("LONG.NAME")


@pytest.mark.parametrize(
    "words, task",
    [
        ([], "classification"),
        (["-dataset=coco"], "detection"),
        (["-dataset=ade20k"], "image_segmentation"),
        (["-dataset=synthetic_rooms"], "semantic_segmentation"),
        (["-dataset=folder"], "classification"),
        (["-dataset=coco", "TASK", "linear_probe"], "linear_probe"),
        (["-dataset=nobody_has_it"], "classification"),
    ],
)
def test_the_keys_are_those_of_the_task_of_the_data(words, task):
    lines = help_text(["-h", "keys", *words]).splitlines()
    assert f"keys of TASK {task}:" in lines
