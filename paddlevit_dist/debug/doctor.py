"""``doctor [FLAGS]``: what this machine and its Paddle can do and, with the main job's flags, whether a training with
them would run; ``ok``, ``warning`` or ``failure`` for each check, with what mends it."""

import tempfile
from pathlib import Path

from .. import settings as configuration
from ..launch import devices, stale_resources, tuning
from ..runtime import signals
from ..runtime.errors import UserError
from ..runtime.printing import one_line
from ..settings.command_line import parse

# What these set says nothing of data or model.
_OF_THE_MACHINE = ("SAVE", "NGPUS", "DEVICE", "DATA.NUM_WORKERS", "SEED", "CPU_TUNING")


def run(arguments: list[str]) -> None:
    """Carry out the command.

    Args:
        arguments: the words behind its name, as a training takes them.
    Raises:
        UserError: the command line or the configuration is wrong.
        SystemExit: with 1, a check has failed.
    """
    loaded = configuration.load(arguments, configuration.EXAMPLE, command="doctor")
    values, command = loaded.values, parse(arguments)
    for name in ("EVAL", "SELFTEST"):
        if values[name]:
            raise UserError(f"doctor looks at a training: leave out {name}")
    signals.set_mode(training=False)
    if devices.is_launched():
        raise UserError("doctor starts its own processes: run it without Paddle's launcher")
    tuning.restart_with_environment(values.NGPUS, values.CPU_TUNING, values.DEVICE)
    from ..launch import plan_processes
    from .doctor_checks import (  # with Paddle
        CHECKS,
        CHECKS_OF_DATA,
        FAILURE,
        OK,
        SKIPPED,
        WARNING,
        CheckContext,
        carry_out,
    )

    looks_at_data = command.cfg is not None or any(s.name not in _OF_THE_MACHINE for s in command.settings)
    checks = [*CHECKS, *(CHECKS_OF_DATA if looks_at_data else ())]
    plan = plan_processes(values.NGPUS, device=values.DEVICE)
    token = stale_resources.new_token()
    try:
        with tempfile.TemporaryDirectory(prefix="paddlevit_dist_doctor_") as folder:
            checkup = CheckContext(values, Path(folder), plan)
            carry_out(checkup, checks)
    finally:  # what processes had in shared memory that were killed
        stale_resources.new_token()
        stale_resources.remove(token, tempfile.gettempdir())
    for notice in [*loaded.notices, *plan.notices]:
        print(one_line(f"note: {notice}"))
    statuses = [finding.status for finding in checkup.found.values()]
    numbers = [f"{statuses.count(OK)} ok", f"{statuses.count(WARNING)} warnings", f"{statuses.count(FAILURE)} failures"]
    print(", ".join(numbers + ([f"{statuses.count(SKIPPED)} skipped"] if SKIPPED in statuses else [])))
    if not looks_at_data:
        print("With -cfg=FILE, -dataset or -data_path, data and a step of a training are looked at, too.")
    if FAILURE in statuses:
        raise SystemExit(1)
