"""Pages of help offer nothing that a command refuses."""

import re
import sys

import pytest
from support.registrations import forgotten

from paddlevit_dist.core.registry.register import register_dataset
from paddlevit_dist.core.settings import command_line
from paddlevit_dist.core.settings.help import ABOUT, _section, help_text
from paddlevit_dist.core.settings.key import Key
from paddlevit_dist.core.settings.key_tables import common_tables
from paddlevit_dist.core.settings.table import find_keys


@pytest.mark.parametrize("command", sorted(ABOUT))
def test_every_flag_and_example_is_known(command):
    for example in ABOUT[command].examples:
        command_line.read_words(
            [word for word in example.split() if command != "evaluate" or word[0] == "-"]
        )  # not RUN
    flags = re.findall(r"^ {9}-(\w+)", help_text(("-h",), command), re.MULTILINE)
    assert set(flags) <= set(command_line.all_flags())


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


OWN = Key("DATA.MINE.FOLD", 0, "int", "which part is for validation")


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_page_of_keys_has_each_key_once_and_counts_or_lists_those_of_other_tasks(is_whole):
    with forgotten():
        register_dataset("mine", object, keys=OWN)
        lines = help_text(["-h", "all" if is_whole else "keys", "-dataset=coco"]).splitlines()
        every_run = {key.name for table in common_tables() for key in table.keys}
        known = [
            set(find_keys("detection")) - every_run,
            every_run - {"BASE"},
            set(find_keys()) - set(find_keys("detection")),
        ]
    known[0] -= {OWN.name}
    known[2] -= {OWN.name}
    sections = {}
    for line in lines[1:]:
        if line.endswith(":") and line[0] != " ":
            sections[line[:-1]] = names = []
        elif line.startswith("  ") and line[2] != " ":
            names.append(line.split()[0])
    titles = ["keys of TASK detection", "keys of your own code", "keys of every run"]
    assert list(sections) == titles + ["keys of other tasks"] * is_whole
    assert sections["keys of your own code"] == [OWN.name]
    shown = [sections[title] for title in (titles[0], *list(sections)[2:])]
    assert list(map(len, shown)) == [len(names) for names in known[: len(shown)]]
    assert [set(names) for names in shown] == known[: len(shown)]
    note = f"{len(known[2])} keys of other tasks: use -h all, or -h keys with their recipe, -cfg=FILE"
    assert (lines[-1] == note) == (note in lines) == (not is_whole)


def test_the_keys_are_those_of_the_task_of_a_recipe():
    for words, task in ((["-cfg=detr_shapes"], "detection"), (["-cfg=detr_shapes", "TASK", "landmarks"], "landmarks")):
        assert f"keys of TASK {task}:" in help_text(["-h", "keys", *words]).splitlines()


@pytest.mark.parametrize("words", [["-import=keys_of_mine"], ["-cfg=vit_digits", "-import", "fractions,keys_of_mine"]])
def test_a_page_of_keys_has_those_of_modules_that_the_words_name(tmp_path, monkeypatch, words):
    text = "from paddlevit_dist import Key, register_dataset\n"
    text += f"register_dataset('mine', object, keys=Key({OWN.name!r}, 0, 'int', {OWN.meaning!r}))\n"
    (tmp_path / "keys_of_mine.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "keys_of_mine", raising=False)
    with forgotten():
        lines = help_text(["-h", "keys", *words]).splitlines()
    start = lines.index("keys of your own code:")
    assert lines[start + 1 : start + 3] == ["  DATA.MINE.FOLD which part is for validation (default 0)", ""]
    assert "keys of TASK classification:" in lines
    assert not [line for line in help_text(["-h", "keys"]).splitlines() if line == "keys of your own code:"]
