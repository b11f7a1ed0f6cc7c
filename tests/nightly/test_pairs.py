"""Pairs of settings: a new seed every night, for as long as PAIRS_MINUTES says (20), a share of it for each task.

PAIRS_SEED repeats a night; the seed and every failing command are in the message. Nights in a row draw parts of one
sequence of combinations, so that in ``NIGHTS`` of them all pairs come up, those that no earlier night had first.
"""

import datetime
import os
import random
import re
import time

import numpy as np
import pytest
from support.key_pages import read_list
from support.pairs.averages import share_rows
from support.pairs.campaign import Campaign
from support.pairs.covering import NIGHTLY, NIGHTS, draw, list_all_pairs, list_pairs, skip_earlier
from support.pairs.features import TASKS, list_avoided, list_features
from support.pairs.materials import Materials
from support.processes import ROOT

SHARES = {
    "classification": 0.1,
    "multi_label": 0.08,
    "masked_autoencoder": 0.05,
    "self_distillation": 0.07,
    "detection": 0.1,
    "keypoint_detection": 0.06,
    "keypoint_heatmaps": 0.06,
    "segmentation": 0.07,
    "panoptic": 0.05,
    "scenes": 0.06,
    "instances": 0.06,
    "shapes": 0.05,
    "organs": 0.07,
    "landmarks": 0.07,
    "outside": 0.05,
}
SEED = int(os.environ.get("PAIRS_SEED") or datetime.date.today().toordinal())
MINUTES = float(os.environ.get("PAIRS_MINUTES") or 20.0)
LEAST_COVERED = 0.15  # of the pairs of a task: 4 combinations have 0.2 to 0.38


@pytest.mark.parametrize("task", SHARES)
def test_settings_of_a_combination_do_not_disturb_each_other(task, tmp_path):
    with Materials(tmp_path) as materials:
        deadline = time.monotonic() + 60 * MINUTES * SHARES[task]
        result = Campaign(task, tmp_path, materials, SEED, deadline, fixed={}).run(jobs=2)
    print(f"{task}: {result.format()}, seed {SEED}")
    assert not result.failures, f"PAIRS_SEED={SEED}\n" + "\n".join(map(str, result.failures))
    assert result.covered >= min(1.0, MINUTES / 20.0) * LEAST_COVERED * result.pairs, result.format()


@pytest.mark.parametrize("task", TASKS)
def test_the_nights_of_a_series_draw_all_pairs_and_first_those_that_none_has_drawn(task):
    features, avoided = list_features(task), list_avoided(task)
    targets = list_all_pairs(features, avoided)
    last = NIGHTS * 1_000 + NIGHTS - 1
    earlier, generator = skip_earlier(features, avoided, targets, last, task)
    assert len(targets - earlier) <= 0.015 * len(targets)
    before, _ = skip_earlier(features, avoided, targets, last - NIGHTS + 3, task)
    assert 0.2 < len(before & targets) / len(targets) < 0.8 and before <= earlier
    assert skip_earlier(features, avoided, targets, last + 1, task)[0] == set()


def test_each_task_has_a_share_of_a_night_and_a_job_a_week():
    jobs = re.search(r"task: \[(.*)\]", (ROOT / ".github/workflows/pairs.yml").read_text())
    assert SHARES.keys() == TASKS.keys() == set(jobs[1].split(", "))
    assert sum(SHARES.values()) == pytest.approx(1.0)


def test_most_keys_have_a_row():
    known = {key.name for key in read_list()}
    words = {
        word
        for task in TASKS
        for values in list_features(task).values()
        for value in values.values()
        for word in value.words.split()
    }
    assert len(known & words) >= 280, f"no row of tests/support/pairs sets {sorted(known - words)}"


def test_a_night_draws_a_pair_that_no_earlier_night_drew():
    features, avoided = list_features("shapes"), list_avoided("shapes")
    targets = list_all_pairs(features, avoided)
    rare = (("model", "solids"), ("turned", "turned"))
    assert rare in targets
    combination = draw(features, avoided, [{rare}, targets], {}, random.Random(0))
    assert rare in list_pairs(combination)


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_in_another_order_or_partly_new_are_told_from_other_values(axis):
    rows = np.random.default_rng(0).normal(size=(4, 3))
    turned = np.flip(rows, axis) + 1e-8
    assert share_rows(turned, rows, 2e-8)
    assert not share_rows(turned + 1e-3, rows, 2e-8)
    last = np.take(rows, [-1], axis)
    assert share_rows(np.concatenate([last, np.delete(turned + 1.0, 0, axis)], axis), rows, 2e-8)


def test_a_failed_base_run_is_a_finding_and_its_network_is_not_drawn_again(tmp_path):
    blocked = tmp_path / "shapes" / "base_solids"  # a file where this run wants its folder
    blocked.parent.mkdir()
    blocked.touch()
    with Materials(tmp_path) as materials:
        result = Campaign("shapes", tmp_path, materials, 1, time.monotonic() + 60, {"data": "drawn"}).run()
    assert result.combinations == 1 < NIGHTLY  # no other network is left
    (failure,) = result.failures
    assert failure.check == "training"
    assert "the base run: train: exit code 2: error: " in failure.found
    assert f"-output={blocked}" in failure.command
