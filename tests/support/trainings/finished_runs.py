"""Runs shared by several tests; no test may change their folders."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from support.processes import Finished
from support.trainings.runs import DIGITS, run_first_start, well

EPOCHS, SAVE_FREQ = 5, 3


class Trained(NamedTuple):
    """A training that ended well, and its output folder."""

    ended: Finished
    output: Path
    arguments: list

    @property
    def last(self) -> Path:
        return self.output / "checkpoints" / "last"


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Trained:
    """Five epochs on the digits in one process."""
    return _train(tmp_path_factory.mktemp("one process"), "REPORT_FREQ", "10")


@pytest.fixture(scope="session")
def trained_by_two(tmp_path_factory) -> Trained:
    """The same with two processes, each with a loader process."""
    return _train(tmp_path_factory.mktemp("two processes"), "-ngpus=2", "-num_workers=1")


@pytest.fixture
def copy(trained, tmp_path) -> Path:
    """A copy of a finished run's folder, for a test that runs in it or damages it."""
    return Path(shutil.copytree(trained.output, tmp_path / "copy", symlinks=True))


def _train(folder: Path, *further: str) -> Trained:
    output = folder / "output"
    arguments = [f"-output={output}", *DIGITS, f"-epochs={EPOCHS}", "-seed=3", "REPORT", "True", *further]
    arguments += ["SAVE_FREQ", str(SAVE_FREQ), "TRAIN.BASE_LR", "3e-3"]
    return Trained(well(run_first_start(*arguments)), output, arguments)
