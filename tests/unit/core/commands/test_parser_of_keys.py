"""Commands with positional words that also take flags and keys of the main job."""

import pytest
from support.refusals import refusal_of
from support.registrations import forgotten

from paddlevit_dist.core.commands.parser import CommandParser, at_least

OWN_KEY = """
from paddlevit_dist import Key, register_model
register_model("bright", "somewhere:Bright", keys=[Key("BRIGHTNESS", 1, "int", "how bright")])
"""


def parse(*words: str):
    """Positional words, options and settings of a command."""
    parser = CommandParser("apply", "Apply.", ("",), imports=True, keys=("least_score",))
    parser.add_argument("source")
    parser.add_argument("inputs", nargs="*")
    parser.option("output", "out", "folder")
    parser.option("batch_size", None, "inputs", at_least(1))
    options = parser.parse_args(words)
    return [options.source, *options.inputs], (options.output, options.batch_size), options.settings


@pytest.mark.parametrize(
    "words, inputs, settings",
    [
        ("run a.jpg DETECTION.FLIP true", ["run", "a.jpg"], ["DETECTION.FLIP=true"]),
        ("run a.jpg DETECTION.FLIP=true SEED 3", ["run", "a.jpg"], ["DETECTION.FLIP=true", "SEED=3"]),
        ("run -least_score=0.2 a.jpg", ["run", "a.jpg"], ["-least_score=0.2"]),
        ("run --least-score 0.2 a.jpg -amp", ["run", "a.jpg"], ["-least_score=0.2", "-amp"]),
        ("run DETECTION.MERGE_IOU -0.5", ["run"], ["DETECTION.MERGE_IOU=-0.5"]),
        ("run SEED 3 -- SEED TRAIN.BASE_LR=1", ["run", "SEED", "TRAIN.BASE_LR=1"], ["SEED=3"]),
        ("-- SEED DATA.SPLIT", ["SEED", "DATA.SPLIT"], []),
        ("run MODEL.UNKNOWN 3", ["run"], ["MODEL.UNKNOWN=3"]),
        ("run a.jpg ALBUM", ["run", "a.jpg", "ALBUM"], []),
    ],
)
def test_the_first_key_ends_the_inputs_and_after_two_dashes_all_are_inputs(words, inputs, settings):
    assert parse(*words.split()) == (inputs, ("out", None), settings)


@pytest.mark.parametrize("words", ["-output=there -batch_size=3", "SAVE there DATA.BATCH_SIZE=3"])
def test_a_key_whose_flag_is_an_option_of_the_command_is_the_option(words):
    assert parse("run", *words.split()) == (["run"], ("there", 3), [])


@pytest.mark.parametrize(
    "words, said",
    [
        ("run SEED", "command line: SEED needs a value: write SEED=VALUE"),
        ("run SEED -output=there", "command line: SEED needs a value: write SEED=VALUE"),
        ("run SEED = 3", "SEED: no spaces are allowed around '='"),
        ("run -least_scor=1", "-least_scor is not a known option: did you mean '-least_score'?"),
        ("run -lr=1", "-lr is not a known option: write TRAIN.BASE_LR VALUE"),
        ("run -cfg=vit_digits", "-cfg is not a known option: it is of train and evaluate, and "),
        ("run -j8", "-j8 is not a known option: options are "),
        ("run SEED 3 a.jpg", "a.jpg follows a key: write paths before the keys, or after --"),
        ("run EVAL true", "EVAL is a key and a path: write EVAL=VALUE for the key, ./EVAL for the path"),
        ("run DATA.BATCH_SIZE 0", "'0' is not a whole number from 1 up"),
    ],
)
def test_what_is_neither_is_refused_in_one_line(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jpg").touch()
    (tmp_path / "EVAL").mkdir()
    assert said in refusal_of(parse, *words.split())


@pytest.mark.parametrize(
    "words", ["-import={0},{1}", "-import {0} --import={1}", "IMPORTS {0},{1}", "IMPORTS=[{0},{1}]"]
)
def test_modules_are_imported_once_as_a_flag_or_as_a_key_names_them(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [f"{part}_{abs(hash(words))}.py" for part in ("first", "second")]  # modules of other cases stay imported
    for name in names:
        (tmp_path / name).write_text(f"open('{name}.txt', 'a').write('once')")
    assert parse("run", *words.format(*names).split(), "SEED=3") == (["run"], ("out", None), ["SEED=3"])
    assert [(tmp_path / f"{name}.txt").read_text() for name in names] == ["once", "once"]


def test_a_key_of_an_imported_module_needs_no_section(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keyed.py").write_text(OWN_KEY)
    with forgotten():
        assert parse("run", "a.jpg", "BRIGHTNESS", "3", "-import=keyed.py")[2] == ["BRIGHTNESS=3"]


def test_a_file_that_looks_like_a_key_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "IMG.0001").touch()
    assert parse("run", "IMG.0001")[0] == ["run", "IMG.0001"]
