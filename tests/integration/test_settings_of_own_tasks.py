"""Tasks of the guide to extensions with what a run of the package can be told, checked as ``make pairs`` checks it."""

import pytest
from support.pairs.invariants import CHECKS, check
from support.pairs.materials import Materials
from support.pairs.runs import Bench

# On two processes with sharded averages, killed and resumed; with groups of samples.
SETTINGS = {
    "labels": {
        "model": "labels",
        "processes": "2",
        "average": "half",
        "sharding": "optimizer",
        "save": "update",
        "interruption": "kill",
        "freeze": "part",
        "command": "compare",
    },
    "rows": {"model": "rows", "accumulation": "2", "average": "warmup", "interval": "99", "command": "groups"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_task_from_outside_keeps_what_holds_for_all_runs(name, tmp_path):
    with Materials(tmp_path) as materials:
        bench = Bench("outside", tmp_path, tmp_path / "runs", materials)
        found = {check_name: check(check_name, bench, bench.default | SETTINGS[name]) for check_name in CHECKS}
    assert found == dict.fromkeys(CHECKS), found
