"""Kept rows of a network: computed once, and again when their file was changed, cut or is of others."""

import re
from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.data.checked_files import checked_file
from paddlevit_dist.core.engine import feature_cache
from paddlevit_dist.core.engine.feature_cache import FeatureCache, open_rows
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.step_types import TaskTraits


class NumberSamples:
    """Five rows of three numbers."""

    replacements, content_key = None, ""

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
    places = []
    run_log, heartbeat = SimpleNamespace(log_and_print=said.append), SimpleNamespace(at=places.append)
    return SimpleNamespace(config=config, task=task, run_log=run_log, heartbeat=heartbeat, said=said, places=places)


class OwnLinear(paddle.nn.Linear):
    """Is in a file of a user's."""


def keep(run, rows, scale=1.0, layer="", sizes=None, samples=NumberSamples, kind=paddle.nn.Linear):
    network = kind(3, 3)
    network.weight.set_value(scale * paddle.eye(3))
    holder = paddle.nn.Sequential((layer, network)) if layer else network

    def compute(batch):
        assert not network.training
        if sizes is not None:
            sizes.append(len(batch["rows"]))
        return network(batch["rows"])

    features = FeatureCache(run.config, run.task, run.run_log.log_and_print, run.heartbeat)
    return features("train", samples(rows), holder, compute)


ROWS = np.arange(15, dtype=np.float32).reshape(5, 3)


def test_rows_are_kept_with_a_checksum(run):
    np.testing.assert_array_equal(keep(run, ROWS), ROWS)
    np.testing.assert_array_equal(keep(run, ROWS), ROWS)
    first, second = run.said
    assert second == f"{first}, computed before"
    assert re.fullmatch(r"features of 5 numbers of train: /.+/features-train-[0-9a-f]{16}\.npy", first)
    assert run.places == [f"computing features of train, {done} of 3 batches done" for done in range(3)]


@pytest.mark.parametrize("eval_size, expected", [(None, [2, 2, 1]), (4, [4, 1]), (5, [5])])
def test_batches_have_the_size_of_an_evaluation(run, eval_size, expected):
    run.config.defrost()
    run.config.DATA.BATCH_SIZE_EVAL = eval_size
    sizes = []
    np.testing.assert_array_equal(keep(run, ROWS, sizes=sizes), ROWS)
    assert sizes == expected


class Listed(NumberSamples):
    def listed_digests(self):
        return {"names": b"1"}


class Elsewhere(NumberSamples):
    def describe(self, index):
        return f"row {index}"


class InTars(NumberSamples):
    content_key = "of the tar files"


def change(config, name, value):
    config.defrost()
    section, _, key = name.rpartition(".")
    (config[section] if section else config)[key] = value


def test_rows_are_those_of_everything_that_they_depend_on(run, tmp_path):
    keep(run, ROWS)
    changes = [
        lambda: keep(run, ROWS, scale=2.0),
        lambda: keep(run, ROWS, layer="first"),
        lambda: keep(run, ROWS, kind=OwnLinear),
        lambda: keep(run, ROWS, layer="second"),
        lambda: keep(run, ROWS[:4]),
        lambda: keep(run, ROWS, samples=Listed),
        lambda: keep(run, ROWS, samples=Elsewhere),
        lambda: keep(run, ROWS, samples=InTars),
        lambda: change(run.config, "MODEL.NAME", "other") or keep(run, ROWS),
        lambda: change(run.config, "DATA.DATASET", "other") or keep(run, ROWS),
        lambda: setattr(run.task, "signature", lambda: {"size": 3}) or keep(run, ROWS),
    ]
    for number, act in enumerate(changes, 2):
        act()
        assert len(list(tmp_path.glob("features-train-*.npy"))) == number
    for key in ("PRETRAINED", "PRETRAINED_PART", "RESUME"):  # the weights count, not where they come from
        change(run.config, f"MODEL.{key}", "elsewhere")
        keep(run, ROWS)
        assert run.said[-1].endswith(", computed before")


@pytest.mark.parametrize(
    "rows, found",
    [(ROWS, (True, False)), (ROWS[:4], (False, True)), (ROWS[:, 0], (False, True)), (None, (False, False))],
)
def test_files_have_a_row_for_each_sample(tmp_path, rows, found):
    file = tmp_path / "rows.npy"
    if rows is not None:
        with checked_file(file) as stream:
            head = {"descr": "<f4", "fortran_order": False, "shape": rows.shape}
            np.lib.format.write_array_header_1_0(stream, head)
            stream.write(np.ascontiguousarray(rows))
    opened, is_damaged = open_rows(file, 5)
    assert (opened is not None, is_damaged) == found
    file.write_bytes(b"damaged")
    assert open_rows(file, 5) == (None, True)


def test_rows_that_another_machine_lacks_are_computed_again_and_have_to_be_there_then(run, monkeypatch):
    keep(run, ROWS)
    others = iter([(False, False), "host", None, None, None, False])
    monkeypatch.setattr(feature_cache, "all_gather", lambda own: [own, next(others)])
    with pytest.raises(
        UserError, match=r"npy is not on each machine: give them different host names, or one DATA.CACHE"
    ):
        keep(run, ROWS)
    assert list(others) == [] and len(run.said) == 1
    others = iter([(True, True), "host", None, None, None, True])
    np.testing.assert_array_equal(keep(run, ROWS), ROWS)
    assert len(run.said) == 2 and run.said[1] == f"{run.said[0]}, computed before"
    others = iter([(False, True), "host", None, None, None, True])
    np.testing.assert_array_equal(keep(run, ROWS), ROWS)
    assert run.said[2].endswith(" is damaged: its features are computed again") and run.said[3] == run.said[0]


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
    rows[3, 0] = 3e38  # finite, and infinite times ten
    with pytest.raises(UserError, match="the features of number 3 are not finite"):
        keep(run, rows, scale=10.0)
    assert not list(tmp_path.glob("features-*"))
