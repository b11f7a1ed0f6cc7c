"""Pairs of settings: a new seed every night, for as long as PAIRS_MINUTES says (10), a share of it for each task.

PAIRS_SEED repeats a night; the seed and every failing command are in the message.
"""

import datetime
import os
import time

import pytest
from support.pairs.campaign import Campaign
from support.pairs.runs import Materials

SHARES = {"classification": 0.5, "detection": 0.15, "segmentation": 0.1, "points": 0.15, "volumes": 0.1}
SEED = int(os.environ.get("PAIRS_SEED") or datetime.date.today().toordinal())
MINUTES = float(os.environ.get("PAIRS_MINUTES") or 10.0)


@pytest.mark.parametrize("task", SHARES)
def test_settings_of_a_combination_do_not_disturb_each_other(task, tmp_path):
    with Materials(tmp_path) as materials:
        deadline = time.monotonic() + 60 * MINUTES * SHARES[task]
        result = Campaign(task, tmp_path, materials, SEED, deadline, fixed={}).run()
    print(f"{task}: {result.combinations} combinations, {result.covered} of {result.pairs} pairs, seed {SEED}")
    assert result.combinations > 0
    assert not result.failures, f"PAIRS_SEED={SEED}\n" + "\n".join(map(str, result.failures))


def test_a_failed_base_run_is_a_finding_and_ends_no_campaign(tmp_path):
    blocked = tmp_path / "classification" / "base_vit"  # a file where this run wants its folder
    blocked.parent.mkdir()
    blocked.touch()
    with Materials(tmp_path) as materials:
        fixed = {"model": "vit", "lora": "none"}
        result = Campaign("classification", tmp_path, materials, 1, time.monotonic() + 1, fixed).run()
    assert result.combinations >= 1
    (failure,) = result.failures  # the same complaint of further combinations is not listed again
    assert failure.check == "training"
    assert "the base run: train: exit code 2: error: " in failure.found
    assert f"-output={blocked}" in failure.command
