"""Self-distillation of a network with batch norms, and on three processes, is that of one process."""

import re
from pathlib import Path
from typing import Any

import pytest
from integration.core.distributed.test_self_distillation import (
    BY_NIGHT,
    largest_difference,
    require_weights_of_one_process,
    saved,
    train_all,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("views")


@pytest.fixture(scope="module")
def runs(folder) -> dict[str, list[dict[str, Any]]]:
    return train_all(["one", *BY_NIGHT], folder)


def test_weights_and_center_of_three_processes_are_those_of_one(runs, folder):
    require_weights_of_one_process(runs, folder, "three")


def test_batch_norms_of_all_ranks_are_those_of_one_and_the_teacher_has_its_own(runs, folder):
    # Later, roundings have grown: the last maps have one pixel, whose deviations are small.
    one, two = (saved(folder / f"resnet {number}", "update_00000002") for number in ("one", "two"))
    names = [name for name in one if not name.startswith("moment")]
    assert largest_difference({name: one[name] for name in names}, {name: two[name] for name in names}) < 5e-5
    means = [name for name in one if re.fullmatch(r"student .*bn1\._mean", name)]
    assert means and all((one[name] != one[name.replace("student", "teacher")]).any() for name in means)
