"""``predict`` with several processes, and after a kill."""

from pathlib import Path

import pytest
from integration.core.commands.test_predict import (
    NAMES,
    assert_same,
    end_early,
    objects,
    predict,
    require_continuation,
    table,
    write_pictures,
)
from support.trainings.runs import well
from support.trainings.trained import write_weights

from paddlevit_dist import Predictor


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights"), NAMES)


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("pictures"))


def test_any_number_of_processes_and_any_batch_gives_the_same_rows(weights, images, tmp_path):
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut/cut.png").write_bytes((images / "3.png").read_bytes()[:300])
    words = [weights, images, "cut", images / "5.png"]
    well(predict(*words, "-output=one", folder=tmp_path))
    ended = predict(*words, "-output=by_3", "-ngpus=3", "-batch_size=4", folder=tmp_path)
    assert ended.code == 0, ended.err
    assert_same(objects(tmp_path / "one"), objects(tmp_path / "by_3"))
    assert table(tmp_path / "by_3", "unreadable.tsv") == table(tmp_path / "one", "unreadable.tsv")


def test_of_several_processes_one_that_is_killed_loses_nothing_that_was_written(weights, images, tmp_path):
    ended = end_early(weights, images, tmp_path, 2, "SIGKILL", "-ngpus=2")
    assert ended.code == 1, ended.err
    folder = tmp_path / "predictions"
    done = [number for number in range(12) if any(f"/{number + 1}.png" in row[0] for row in table(folder)[1:])]
    assert {0, 1} & set(done) and len(done) < 12 and "run the same command to continue" in ended.out
    again = well(predict(weights, images, folder=tmp_path))
    assert f"continuing: {len(done)} of 12 inputs are done" in again.out
    assert_same(Predictor(weights)(images), objects(folder))


def test_the_same_command_goes_on_where_a_killed_one_has_ended(weights, images, tmp_path):
    require_continuation(weights, images, tmp_path, "SIGKILL", -9)
