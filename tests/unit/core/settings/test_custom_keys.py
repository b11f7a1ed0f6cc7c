"""Keys that come with a user's dataset, model or task: read like any other, by whom they belong to."""

import sys
from types import SimpleNamespace

import pytest
from support.registrations import forgotten

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.registry.register import register_dataset, register_model, register_task
from paddlevit_dist.core.settings import DEFAULT_RECIPE, default_config, dump_yaml, load
from paddlevit_dist.core.settings.help import help_text
from paddlevit_dist.core.settings.key import SHARE, Flag, Key
from paddlevit_dist.core.settings.table import KeyTable, get_value

FOLD = Key("DATA.MINE.FOLD", 0, "int", "which part is for validation")
NOISE = Key("MODEL.NOISE", 0.5, "float", "share of noise", SHARE)


class Mine:
    keys = [FOLD]


class Noisy:
    """Declares nothing itself."""


@pytest.fixture(autouse=True)
def own_names():
    """Each test registers the same ones."""
    with forgotten():
        yield


@pytest.mark.parametrize(
    "register",
    [
        lambda: register_dataset("mine", Mine),
        lambda: register_dataset("mine", Noisy, keys=FOLD),
        lambda: register_dataset("mine", Noisy, keys=KeyTable((FOLD,))),
        lambda: register_dataset("mine", "somewhere:Mine", keys="my_settings:KEYS"),
        lambda: register_task("classification_of_mine", Noisy, ["paddlevit_dist.images.settings:IMAGES"], [FOLD]),
        lambda: register_model("mine", "somewhere:Noisy", [FOLD]),
    ],
    ids=["class attribute", "keys", "table", "location", "task", "model"],
)
def test_they_are_read_checked_shown_and_kept(register, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "my_settings", SimpleNamespace(KEYS=[FOLD]))
    register()
    file = tmp_path / "mine.yaml"
    own = [(kind, name) for kind, name in REGISTRY.registrations if "mine" in name]
    choice = {"dataset": "DATASET: mine, ", "task": "", "model": ""}[own[0][0]]
    top = {"dataset": "", "task": "TASK: classification_of_mine", "model": "MODEL: {NAME: mine}"}[own[0][0]]
    file.write_text(f"{top}\nDATA: {{{choice}MINE: {{FOLD: 2}}}}\n")

    run = load([f"-cfg={file}"], DEFAULT_RECIPE)
    assert run.values.DATA.MINE.FOLD == 2 and "FOLD: 2" in run.describe() and str(file) in run.sources["DATA.MINE.FOLD"]
    assert load([f"-cfg={file}", "DATA.MINE.FOLD", "3"]).values.DATA.MINE.FOLD == 3
    assert default_config().DATA.MINE.FOLD == 0
    kept = tmp_path / "config.yaml"
    kept.write_text(dump_yaml(run.values))
    assert get_value(load([f"-cfg={kept}"]).values, "DATA.MINE.FOLD") == 2
    with pytest.raises(UserError, match="command line: DATA.MINE.FOLD is 'x': expected a whole number"):
        load([f"-cfg={file}", "DATA.MINE.FOLD", "x"])
    with pytest.raises(UserError, match="DATA.MINE.FOLT .* is not a known key: the closest is DATA.MINE.FOLD"):
        load([f"-cfg={file}", "DATA.MINE.FOLT", "1"])
    assert "which part is for validation (default 0)" in help_text(["-h", "keys"])


def test_a_run_of_something_else_refuses_them_and_does_not_keep_them():
    register_dataset("mine", Mine)
    register_model("noisy", "somewhere:Noisy", NOISE)
    with pytest.raises(UserError, match="DATA.MINE.FOLD is read by dataset mine, not by classification: remove it"):
        load(["DATA.MINE.FOLD", "1"])
    values = load(["-dataset=mine"]).values
    assert "FOLD" in dump_yaml(values) and "NOISE" not in dump_yaml(values)


def test_a_task_that_reads_all_keys_has_images_normalized_as_classification_does():
    register_task("own", Noisy)
    assert load(["TASK", "own"]).values.DATA.IMAGENET_MEAN == load([]).values.DATA.IMAGENET_MEAN == [0.5] * 3
    assert load(["TASK", "own", "DATA.IMAGE_CHANNELS", "1"]).values.DATA.IMAGENET_STD == [0.5]


def test_rules_of_a_table_are_applied():
    def check(given):
        raise UserError(f"{given['DATA.MINE.FOLD']}: too many")

    register_dataset("mine", Noisy, keys=KeyTable((FOLD,), check=check))
    with pytest.raises(UserError, match="^DATA.MINE.FOLD 9 .command line.: too many"):
        load(["-dataset=mine", "DATA.MINE.FOLD", "9"])
    assert load([]).values.DATA.MINE.FOLD == 0


@pytest.mark.parametrize(
    "key, message",
    [
        (Key("data.fold", 0, "int", ""), "'data.fold' is not a valid key: expected capitals, such as DATA.MINE.FOLD"),
        (Key("FOLD", 0, "integer", ""), "key FOLD has the kind 'integer': expected one of int, float"),
        (Key("FOLD", 0, "int", "", effect="none"), "key FOLD has the effect 'none': expected one of network, score"),
        (Key("FOLD", 0, "int", "", flag=Flag("fold", "N", "data")), "key FOLD has a flag, which only keys of"),
        (Key("FOLD", "x", "int", ""), "key FOLD has the default 'x': expected a whole number"),
        (Key("FOLD", None, "int", ""), "key FOLD has the default None but is not optional"),
        (Key("FOLDS", 3, "int", "", many=True), "key FOLDS has the default 3: expected "),
        (Key("SHARE", 2.0, "float", "", SHARE), "key SHARE has the default 2.0: expected a number >= 0 and <= 1"),
        (
            Key("DATA.BATCH_SIZE", 1, "int", ""),
            "key DATA.BATCH_SIZE exists already: training images per device and step",
        ),
        (Key("DATA", 1, "int", ""), "key DATA cannot be both a section and a key: DATA.BATCH_SIZE exists"),
        (Key("SEED.OF_MINE", 1, "int", ""), "key SEED.OF_MINE cannot be both a section and a key: SEED exists"),
        ("nowhere:KEYS", "keys='nowhere:KEYS' cannot be imported: No module named 'nowhere'"),
        ({"FOLD": 1}, "expected Key(name, default, kind, meaning), or a KeyTable"),
        ([FOLD, FOLD], "key DATA.MINE.FOLD is declared twice"),
    ],
)
def test_impossible_keys_are_refused_when_they_are_registered(key, message):
    with pytest.raises(UserError) as refusal:
        register_dataset("mine", Noisy, keys=key)
    assert message in str(refusal.value) and "dataset 'mine'" in str(refusal.value)
    assert "mine" not in REGISTRY.datasets


def test_one_key_of_two_owners_has_to_be_the_same():
    register_dataset("mine", Mine)
    register_dataset("mine_too", Noisy, keys=[Key(*vars(FOLD).values())])
    with pytest.raises(UserError, match="key DATA.MINE.FOLD exists already: which part is for validation"):
        register_model("noisy", "somewhere:Noisy", keys=[Key("DATA.MINE.FOLD", 5, "int", "another")])


def test_a_class_that_is_imported_later_declares_its_keys_where_it_is_registered(monkeypatch):
    monkeypatch.setitem(sys.modules, "mine_later", SimpleNamespace(Mine=Mine))
    register_dataset("mine", "mine_later:Mine")
    with pytest.raises(UserError, match="dataset 'mine' declares keys in its class, .* keys='my_settings:KEYS'"):
        resolve("dataset", "mine")


def test_a_name_is_registered_once_and_the_same_class_as_often_as_it_is_imported():
    register_dataset("mine", Mine)
    register_dataset("mine", Mine)
    with pytest.raises(
        UserError, match=r"test_custom_keys.py:\d+: dataset 'mine' is registered twice .test_custom_keys.py:"
    ):
        register_dataset("mine", Noisy)
    with pytest.raises(UserError, match="dataset 'digits' is registered twice .this package has one."):
        register_dataset("digits", Mine)
    register_dataset("mine", Noisy, replace=True)
    assert resolve("dataset", "mine") is Noisy


def test_rules_of_an_optional_table_apply_once_one_of_its_keys_has_another_value():
    called = []
    rules = {
        name: lambda *given, name=name: called.append(name) or [f"of {name}"] for name in ("resolve_defaults", "check")
    }
    register_dataset("mine", Noisy, keys=KeyTable((NOISE, FOLD), is_optional=True, **rules))
    for words in ([], ["DATA.MINE.FOLD", "0"], ["MODEL.NOISE", "0.5", "SEED", "3"]):
        assert load(["-dataset=mine", *words]).notices == called == []
    for words in (["DATA.MINE.FOLD", "1"], ["MODEL.NOISE", "0.25"]):
        called.clear()
        assert load(["-dataset=mine", *words]).notices == ["of resolve_defaults", "of check"]
        assert called == ["resolve_defaults", "check"]
