"""The help of every command has one form, its examples are right, and words of other tools are answered with ours."""

import shlex

import pytest
from support.processes import ROOT
from support.refusals import refusal_of

from paddlevit_dist.__main__ import _run
from paddlevit_dist.core.commands import COMMANDS, import_command
from paddlevit_dist.core.commands.parser import build_parser, path
from paddlevit_dist.core.runtime.environment import program
from paddlevit_dist.core.settings.command_line import all_flags
from paddlevit_dist.core.settings.help import ABOUT
from paddlevit_dist.extensions.compare.search import split_words


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_usage_meaning_examples_and_a_row_for_each_option(capsys, command):
    with pytest.raises(SystemExit) as ended:
        _run([*command.split(), "-h"])
    assert ended.value.code == 0
    usage, *further = capsys.readouterr().out.rstrip("\n").split("\n\n")
    assert usage.startswith(f"usage: {program(command)}") and len(usage.splitlines()) > 1
    examples = further[0].replace("\\\n   ", "").splitlines()  # as a shell joins them
    assert all(example.startswith(f"  {program(command)}") for example in examples)
    rows = [line for part in further[1:] for line in part.splitlines()]
    assert [line for line in rows if len(line) > 80 or line.startswith("  --")] == []
    parser = build_parser(import_command(command))
    assert (parser is None) == (command in ABOUT)
    for example in examples if parser else ():
        words = shlex.split(example.partition(" > ")[0])[len(program(command).split()) :]
        parser.parse_args(split_words(words)[0] if command == "search" else words)  # the others are train's


PAGE = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
NO_PATHS = [("convert", "input"), ("convert", "output"), ("inspect", "name"), ("inspect recipes", "part")]
NO_PATHS += [("export", "weights"), ("export", "output")]


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in ABOUT])
def test_the_page_of_commands_has_a_row_for_each_argument_and_paths_begin_with_home(command):
    parser = build_parser(import_command(command))
    section = PAGE.partition(f"\n## {command}\n")[2].partition("\n## ")[0].replace("\\", "").strip()
    about, _, table = section.partition("\n\n")
    assert about.removesuffix(".") == parser.description.removesuffix(".")
    assert table.splitlines()[2:] == [f"| `{form}` | {meaning} |" for form, meaning in parser.rows()]
    arguments = [action for action in parser._actions if not action.option_strings]
    assert all((action.type is path) == ((command, action.dest) not in NO_PATHS) for action in arguments)


def test_the_flags_of_prediction_are_on_the_page_of_predict(capsys):
    with pytest.raises(SystemExit):
        _run(["predict", "-h"])
    page, groups = capsys.readouterr().out, ("prediction", "exported")
    names = [flag.name for flag in all_flags().values() if flag.group in groups]
    assert len(names) == 5 and all(f"\n  -{name}=" in page for name in [*names, "max_detections"])
    assert "[KEY VALUE ...]" in " ".join(page.split())


@pytest.mark.parametrize(
    "words, advice",
    [
        ("predict --conf 0.3 run images", "--conf is not a known option: write -least_score=SHARE"),
        ("predict --source images --weights run", "as in 'predict output/mine new_images'"),
        ("predict --weights=run", "write the weights and then the inputs, without flags"),
        ("predict run images --batch 4", "did you mean '-batch_size'?"),
        ("report --outputs=x run", "did you mean '-output'?"),
        ("val -cfg=vit_digits", f"did you mean '{program('evaluate')}'?"),
        ("detect run images", f"did you mean '{program('predict')}'?"),
        ("trian -cfg=vit_digits", "did you mean 'train'?"),
    ],
)
def test_words_of_other_tools_and_slips_are_answered(words, advice):
    assert advice in refusal_of(_run, shlex.split(words))


@pytest.mark.parametrize("words", ["frobnicate", "-cfg=vit_digits", "prepare nothing", "Completion", "x" * 30])
def test_a_wrong_command_is_one_short_line_that_says_where_all_are(words):
    said = refusal_of(_run, shlex.split(words))
    assert said.startswith("no command ") and said.endswith(f"'{program('-h')}' lists all")
    assert len(said) < 200
