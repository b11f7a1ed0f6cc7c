"""Kept rows of a network: computed once, and again when their file was changed, cut or is of others."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from paddlevit_dist.engine.feature_cache import FeatureCache
from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.settings import load
from paddlevit_dist.tasks.step_types import TaskTraits


class NumberSamples:
    """Five rows of three numbers."""

    replacements = None

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def sample(self, index, generator):
        return self.rows[index]

    def describe(self, index):
        return f"number {index}"

    def listed_digests(self):
        return {}


@pytest.fixture
def run(tmp_path):
    config = load(["DATA.CACHE_FOLDER", str(tmp_path), "DATA.NUM_WORKERS", "0", "DATA.BATCH_SIZE", "2"]).values
    said = []
    task = SimpleNamespace(
        traits=TaskTraits(sample_name="numbers"),
        signature=dict,
        collate=lambda rows: {"rows": np.stack(rows)},
    )
    run_log, heartbeat = SimpleNamespace(log_and_print=said.append), SimpleNamespace(at=lambda place: None)
    return SimpleNamespace(config=config, task=task, run_log=run_log, heartbeat=heartbeat, said=said)


def keep(run, rows, scale=1.0):
    network = paddle.nn.Linear(3, 3)
    network.weight.set_value(scale * paddle.eye(3))
    features = FeatureCache(run.config, run.task, run.run_log.log_and_print, run.heartbeat)
    return features("train", NumberSamples(rows), network, lambda batch: network(batch["rows"]))


ROWS = np.arange(15, dtype=np.float32).reshape(5, 3)


def test_rows_are_kept_with_a_checksum(run):
    np.testing.assert_array_equal(keep(run, ROWS), ROWS)
    np.testing.assert_array_equal(keep(run, ROWS), ROWS)
    first, second = run.said
    assert second == f"{first}, computed before"


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:128] + content[128:188][::-1] + content[188:],
        lambda content: content[:128] + np.full(15, np.nan, "<f4").tobytes() + content[188:],
        lambda content: content[:130],
        lambda content: b"",
        lambda content: content[:-16],  # as written without a checksum
    ],
    ids=["changed", "nan", "cut", "empty", "plain"],
)
def test_damaged_rows_are_computed_again(run, tmp_path, damage):
    keep(run, ROWS)
    (file,) = tmp_path.glob("features-train-*.npy")
    content = file.read_bytes()
    file.write_bytes(damage(content))
    np.testing.assert_array_equal(keep(run, ROWS), ROWS)
    assert run.said[1] == f"{file} is damaged: its features are computed again"
    assert file.read_bytes() == content


def test_rows_that_are_not_finite_are_refused_with_their_sample(run, tmp_path):
    rows = ROWS.copy()
    rows[3, 1] = 3e38  # finite, and infinite times ten
    with pytest.raises(UserError, match="the features of number 3 are not finite"):
        keep(run, rows, scale=10.0)
    assert not list(tmp_path.glob("features-*"))
