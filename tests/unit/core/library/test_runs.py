"""The configuration of a call."""

import pytest

from paddlevit_dist import UserError, train
from paddlevit_dist.core.library.runs import load_config


def test_keys_that_only_the_command_supports_are_refused(tmp_path):
    with pytest.raises(UserError) as error:
        train("vit_digits", seeds=2, output=tmp_path / "out")
    assert str(error.value) == "SEEDS: only the command supports this key: run paddlevit-dist train"
    assert not (tmp_path / "out").exists()


def test_a_configuration_is_loaded_by_name():
    values = load_config("vit_digits", epochs=3, **{"TRAIN.BASE_LR": 5e-4, "TRAIN.SMOOTHING": 0.1, "AMP": False})
    assert (values.TRAIN.NUM_EPOCHS, values.TRAIN.BASE_LR, values.TRAIN.SMOOTHING, values.NGPUS) == (3, 5e-4, 0.1, 1)
    for name in ("show_config", "ngpus", "TRAIN.BASE_LRR"):
        with pytest.raises(UserError, match=name):
            load_config("vit_digits", **{name: 1})
