"""Keys of earlier versions that are constants now: recorded configurations still load, other values are an error."""

import pytest

from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.settings import load


def load_text(tmp_path, text):
    (tmp_path / "old.yaml").write_text(text)
    return load([f"-cfg={tmp_path / 'old.yaml'}"])


def test_a_recorded_configuration_of_an_earlier_version_loads(tmp_path):
    cycle = "{NAME: onecycle, PCT_START: 0.3, DIV_FACTOR: 25.0, FINAL_DIV_FACTOR: 10000.0}"
    found = load_text(tmp_path, f"TRAIN: {{EMPTY_CACHE_FREQ: null, LR_SCHEDULER: {cycle}}}\nTO_STATIC: auto")
    assert found.values.TO_STATIC is False and "PCT_START" not in found.values.TRAIN.LR_SCHEDULER
    assert [line for line in found.notices if "FACTOR" in line or "FREQ" in line] == []
    assert any("TO_STATIC 'auto' is called 'False' here" in line for line in found.notices)


def test_another_value_is_an_error_that_says_the_constant(tmp_path):
    with pytest.raises(UserError, match=r"TRAIN.LR_SCHEDULER.DIV_FACTOR is gone: it is 25; leave it out"):
        load_text(tmp_path, "TRAIN: {LR_SCHEDULER: {NAME: onecycle, DIV_FACTOR: 10}}")
    notices = load_text(tmp_path, "TRAIN: {EMPTY_CACHE_FREQ: 5}").notices
    assert any("EMPTY_CACHE_FREQ does not exist here and is not needed: point clouds" in line for line in notices)


CONSTANTS = {
    "MODEL.FROZEN_STAGES": (None, 1),
    "MODEL.FROZEN_BATCH_NORM": (None, False),
    "MODEL.FEEDFORWARD": (None, 1024),
    "TRAIN.DISTILLATION_TAU": (1.0, 3.0),
    "VOLUMES.UNET_BLOCKS": (1, 2),
    "POINTS.INSTANCES.COLOR_NOISE": (0.1, 0.0),
    "SHAPES.SCALE": ([0.8, 1.25], [1.0, 1.0]),
    "SHAPES.SHIFT": (0.1, 0.0),
    "SHAPES.JITTER": (0.01, 0.0),
}


def test_keys_that_are_constants_now_are_read_with_their_value_and_refused_with_another():
    for name, (recorded, other) in CONSTANTS.items():
        assert not [line for line in load([name, str(recorded)]).notices if name in line]
        with pytest.raises(UserError, match=rf"{name} is gone: .*; leave it out"):
            load([name, str(other)])
