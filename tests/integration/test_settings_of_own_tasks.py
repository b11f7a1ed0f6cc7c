"""A task of the guide to extensions with what a run of the package can be told, checked as ``make pairs`` checks it.

Another task at night.
"""

from support.pairs.invariants import CHECKS, check
from support.pairs.materials import Materials
from support.pairs.runs import Bench

# With groups of samples.
ROWS = {"model": "rows", "accumulation": "2", "average": "warmup", "interval": "99", "command": "groups"}


def test_a_task_from_outside_keeps_what_holds_for_all_runs(tmp_path):
    require_what_holds_for_all_runs(ROWS, tmp_path)


def require_what_holds_for_all_runs(settings, tmp_path):
    with Materials(tmp_path) as materials:
        bench = Bench("outside", tmp_path, tmp_path / "runs", materials)
        found = {name: check(name, bench, bench.default | settings) for name in CHECKS}
    assert found == dict.fromkeys(CHECKS), found
