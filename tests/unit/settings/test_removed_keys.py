"""Keys of earlier versions in files of earlier runs: accepted with the value that the code has now."""

import pytest

from paddlevit_dist.inference.trained import build_configuration
from paddlevit_dist.registry.lookup import TABLES, key_tables
from paddlevit_dist.settings.table import index_removed_keys, is_as_removed, keys

NAMES = sorted(index_removed_keys(key_tables()))


def test_a_removed_key_is_not_a_key_and_has_another_effect_than_a_path():
    rows = index_removed_keys(key_tables())
    assert not set(rows) & set(keys()) and {row.effect for row in rows.values()} <= {
        "network",
        "score",
        "training",
        "neutral",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_file_with_the_value_that_the_code_has_now_is_read_in_silence(name, load_text):
    (task, *_) = [task for task in TABLES if name in index_removed_keys(key_tables(task))]
    row = index_removed_keys(key_tables(task))[name]
    plain = load_text(f"TASK: {task}")
    for value in row.values:
        nested = str(list(value) if isinstance(value, tuple) else value)
        for part in reversed(name.split(".")):
            nested = f"{{{part}: {nested}}}"
        configuration = load_text(f"{nested[1:-1]}\nTASK: {task}")
        assert configuration.values == plain.values and configuration.notices == plain.notices


def test_a_file_with_another_value_is_refused_with_key_line_and_remedy(load_text, refuse):
    message = refuse(load_text, "TRAIN: {OPTIMIZER: {FUSED: 3}}")
    assert message.startswith("x.yaml:1: TRAIN.OPTIMIZER.FUSED 3 is not supported any more: the value is always True: ")
    assert message.endswith("remove this key, or use the version of paddlevit_dist that wrote the file")


def test_a_message_says_what_does_the_same(load_text, refuse):
    frozen = "TASK: pointgroup\nPOINTS: {INSTANCES: {FROZEN_MODULES: [unet]}}"
    assert refuse(load_text, frozen).endswith("remove this key, or name the modules in TRAIN.FREEZE, such as unet.*")
    dilated = "TASK: detection\nMODEL: {NAME: detr_resnet50, DILATION: true}"
    assert refuse(load_text, dilated) == (
        "x.yaml:2: MODEL.DILATION True is not supported any more: the value is always None: remove this key, or use "
        "the network of MODEL.NAME detr_resnet50_dc5"
    )


def test_an_evaluation_accepts_what_only_a_training_read(load_text, refuse):
    gray = "TRAIN: {GRAYSCALE_PROB: 0.2}"
    assert load_text(gray, "-eval", "-pretrained=x").notices == load_text("SEED: 0", "-eval", "-pretrained=x").notices
    assert "TRAIN.GRAYSCALE_PROB 0.2 is not supported any more" in refuse(load_text, gray)
    assert "DATA.ALBUMENTATIONS" in refuse(load_text, gray)


def test_sharded_gradients_of_an_earlier_run_are_answered_with_sharded_optimizers(load_text):
    configuration = load_text("TRAIN: {SHARDING: gradients}")
    assert configuration.values.TRAIN.SHARDING == "optimizer"
    assert configuration.notices == ["x.yaml:1: TRAIN.SHARDING 'gradients' is called 'optimizer' here"]


def test_numbers_tuples_and_lists_that_are_equal_are_the_same():
    row = index_removed_keys(key_tables())["TRAIN.OPTIMIZER.FUSED"]._replace(values=((1.0, 2.0),))
    assert is_as_removed(row, [1, 2]) and not is_as_removed(row, [1, 3])


def test_words_in_quotes_are_values_of_removed_keys_too():
    row = index_removed_keys(key_tables())["POINTS.INSTANCES.USE_POSITIONS"]
    assert is_as_removed(row, "true") and is_as_removed(row, "On") and not is_as_removed(row, "off")


def test_settings_of_weights_are_named_by_their_weights(refuse):
    def build(**model):
        settings = {"TASK": "detection", "MODEL": {"NAME": "detr_resnet50", **model}}
        return build_configuration("run/model.pdparams", settings)

    assert build(DILATION=None).values.MODEL.NAME == "detr_resnet50"
    message = refuse(lambda: build(DILATION=True))
    assert message.startswith("settings of run/model.pdparams: MODEL.DILATION True is not supported any more: ")
