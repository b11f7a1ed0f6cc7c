"""What commands read from the command line, and how they show it."""

import os
import sys
from argparse import ArgumentTypeError

import pytest
from support.refusals import refusal_of
from support.registrations import forgotten

from paddlevit_dist import UserError
from paddlevit_dist.core.commands import parser as parsers
from paddlevit_dist.core.commands.parser import (
    CommandParser,
    HelpShown,
    above_zero,
    at_least,
    choice,
    image_size,
    path,
    split_imports,
)
from paddlevit_dist.core.runtime.environment import program


@pytest.fixture
def parser() -> CommandParser:
    built = CommandParser("walk", "Walk.", ("a b", ""), other_names={"steps": "write -count=N"})
    built.add_argument("source", metavar="SOURCE", type=path, help="where\nfrom")
    built.add_argument("targets", metavar="TARGET", nargs="+", help="where to")
    built.add_argument("--fast", "-fast", action="store_true", help="run")
    built.option("count", 3, "steps", at_least(1))
    built.option("pace", None, "kind of steps", choices=("short", "long"))
    built.option("jobs", 2, "at once", at_least(0), shown="by the cores")
    built.option("words", None, "of the way")
    return built


def test_options_stand_anywhere_with_one_hyphen_or_two(parser):
    read = parser.parse_args(["-fast", "a", "--count=4", "b", "-pace", "long", "c"])
    assert (read.source, read.targets, read.fast, read.count, read.pace) == ("a", ["b", "c"], True, 4, "long")
    read = parser.parse_args(["~/a", "b"])
    assert (read.source, read.fast, read.count, read.pace, read.jobs) == (os.path.expanduser("~/a"), False, 3, None, 2)
    assert parser.parse_args(["a", "--", "-b", "-c"]).targets == ["-b", "-c"]
    assert parser.parse_args(["a", "-1"]).targets == ["-1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-cuont=3", "a", "b"], "walk: -cuont is not a known option: did you mean '-count'?"),
        (["-steps=3"], "walk: -steps is not a known option: write -count=N"),
        (["--Steps"], "walk: --Steps is not a known option: write -count=N"),
        (["-zzzz"], "walk: -zzzz is not a known option: options are -fast, -count, -pace, -jobs, -words"),
        (["-fas", "a", "b"], "walk: -fas is not a known option: did you mean '-fast'?"),
        (["a"], "walk: the following arguments are required: TARGET"),
        (["a", "b", "-count=0"], "walk: argument --count/-count: '0' is not a whole number from 1 up"),
        (["a", "b", "-pace=slow"], "walk: argument --pace/-pace: invalid choice: 'slow' (choose from "),
    ],
)
def test_a_mistake_names_the_command_and_how_to_get_help(parser, words, message):
    line = refusal_of(parser.parse_args, words)
    assert line.startswith(message) and line.endswith(f"; see {program('walk')} -h")


def test_an_option_of_this_name_elsewhere_is_suggested(parser):
    parser.option("output", None, "folder", path)
    with pytest.raises(UserError, match="--output-dir is not a known option: did you mean '-output'"):
        parser.parse_args(["a", "b", "--output-dir=x"])


def test_modules_of_import_are_loaded_by_the_commands_that_take_them(parser, monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        (tmp_path / f"walked_{name}.py").write_text(f"print('walked {name}')")
    taking = CommandParser("walk", "Walk.", (), imports=True)
    with forgotten():
        taking.parse_args(["-import=walked_a,walked_b", "--import", "walked_c.py"])
        taking.parse_args([])
        parser.parse_args(["a", "b"])
    assert capsys.readouterr().out.splitlines() == ["walked a", "walked b", "walked c"]
    for name in "abc":
        del sys.modules[f"walked_{name}"]


def test_help_has_a_row_for_each_argument_as_it_is_typed(parser, capsys):
    assert parser.rows() == [
        ("SOURCE", "where from"),
        ("TARGET ...", "where to"),
        ("-fast", "run"),
        ("-count=N", "steps (default: 3)"),
        ("-pace=short|long", "kind of steps"),
        ("-jobs=N", "at once (default: by the cores)"),
        ("-words=WORDS", "of the way"),
    ]
    with pytest.raises(HelpShown) as shown:
        parser.parse_args(["a", "-h"])
    assert shown.value.code == 0 and shown.value.parser is parser
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: {program('walk')} SOURCE TARGET ... [-flag=value ...]\n")
    assert f"  {program('walk')} a b\n  {program('walk')}\n" in shown
    without = CommandParser("rest", "Rest.", ())
    without.add_argument("place", nargs="?")
    assert without.format_help().startswith(f"usage: {program('rest')} [PLACE]\n")


def test_the_parser_of_a_command_is_found_by_its_help():
    def walk(words):
        CommandParser("walk", "Walk.", ()).parse_args(words)

    def leave(words):
        raise SystemExit(0)

    assert parsers.build_parser(walk).command == "walk" and parsers.build_parser(leave) is None
    with pytest.raises(AssertionError, match="continued"):
        parsers.build_parser(len)


@pytest.mark.parametrize(
    ("parse", "good", "bad"),
    [
        (at_least(2), {"2": 2, "70": 70, str(2**31 - 1): 2**31 - 1}, ["1", "-3", "2.0", "", "x", str(2**31)]),
        (at_least(2, 9), {"2": 2, "9": 9}, ["10", "1"]),
        (above_zero, {"0.5": 0.5, "1e-9": 1e-9, "7": 7.0}, ["0", "-1", "nan", "inf", "x"]),
        (choice("a", "b"), {"a": "a", "b": "b"}, ["", "c", "ab"]),
        (image_size, {"224": 224, "224x320": (224, 320), "3X5": (3, 5)}, ["0", "3x0", "1x2x3", "x", "-4", "3.5"]),
    ],
)
def test_each_kind_of_value_has_its_bounds(parse, good, bad):
    assert {text: parse(text) for text in good} == good
    assert all(type(parse(text)) is type(value) for text, value in good.items())
    for text in bad:
        with pytest.raises(ArgumentTypeError, match=f"'{text}'"):
            parse(text)


def test_the_bounds_are_told():
    with pytest.raises(ArgumentTypeError, match="^'1' is not a whole number from 2 to 9$"):
        at_least(2, 9)("1")
    assert (at_least(2).metavar, choice("a", "b").metavar, path.metavar) == ("N", "a|b", "PATH")


def test_imports_are_separated_from_the_other_words():
    words = ["new", "-import=a.py,b", "KEY=a=b", "3", "--import", "c.py", "-k", "--", "-import=d"]

    assert split_imports(words) == (["a.py", "b", "c.py"], ["new", "KEY=a=b", "3", "-k", "--", "-import=d"])
    assert split_imports(["-import="]) == split_imports(["-import"]) == ([], [])
