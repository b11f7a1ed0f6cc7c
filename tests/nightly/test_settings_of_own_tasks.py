"""A task of the guide to extensions on two processes with a sharded average, killed and resumed."""

from integration.test_settings_of_own_tasks import require_what_holds_for_all_runs

LABELS = {
    "model": "labels",
    "processes": "2",
    "average": "half",
    "sharding": "optimizer",
    "save": "update",
    "interruption": "kill",
    "freeze": "part",
    "command": "compare",
}


def test_a_task_from_outside_keeps_what_holds_for_all_runs(tmp_path):
    require_what_holds_for_all_runs(LABELS, tmp_path)
