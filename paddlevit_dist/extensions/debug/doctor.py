"""Command ``doctor [FLAGS]``: check this machine, its Paddle and, with the main job's flags, the first training steps.

Each check prints ``ok``, ``warning`` or ``failure``, and how to fix the problem.
"""

import tempfile

from ...core import settings as configuration
from ...core.launch import devices, stale_resources, tuning
from ...core.runtime import signals
from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line
from ...core.settings.command_line import parse_command_line

# These keys do not select data or a model.
_MACHINE_KEYS = ("SAVE", "NGPUS", "DEVICE", "DATA.NUM_WORKERS", "SEED", "CPU_TUNING")


def run(arguments: list[str]) -> None:
    """Run the command with the main job's flags.

    Raises:
        UserError: if the command line or the configuration is invalid.
        SystemExit: with code 1 if a check has failed.
    """
    loaded = configuration.load(arguments, configuration.DEFAULT_RECIPE, command="doctor")
    values, command = loaded.values, parse_command_line(arguments)
    for name in ("EVAL", "SELFTEST"):
        if values[name]:
            raise UserError(f"doctor checks a training run: remove -{name.lower()} ({name})")
    signals.set_mode(training=False)
    if devices.is_launched():
        raise UserError("doctor starts its own processes: run it without Paddle's launcher")
    tuning.restart_with_environment(values.NGPUS, values.CPU_TUNING, values.DEVICE)
    from ...core.launch import plan_processes
    from .doctor_checks import (  # with Paddle
        CHECKS,
        DATA_CHECKS,
        FAILURE,
        OK,
        SKIPPED,
        WARNING,
        CheckContext,
        run_checks,
    )
    from .doctor_updates import UPDATE_CHECK

    checks_data = command.cfg is not None or any(s.name not in _MACHINE_KEYS for s in command.settings)
    checks = [*CHECKS, *((*DATA_CHECKS, UPDATE_CHECK) if checks_data else ())]
    plan = plan_processes(values.NGPUS, device=values.DEVICE)
    with stale_resources.working_folder("doctor") as folder:
        context, token = CheckContext(values, folder, plan), stale_resources.token()
        try:
            run_checks(context, checks)
        finally:  # killed processes may leave shared memory
            stale_resources.new_token()
            stale_resources.remove(token, tempfile.gettempdir())
    for notice in [*loaded.notices, *plan.notices]:
        print(one_line(f"note: {notice}"))
    statuses = [result.status for result in context.results.values()]
    numbers = [f"{statuses.count(OK)} ok", f"{statuses.count(WARNING)} warnings", f"{statuses.count(FAILURE)} failures"]
    print(", ".join(numbers + ([f"{statuses.count(SKIPPED)} skipped"] if SKIPPED in statuses else [])))
    if not checks_data:
        print("To check data and a training step as well, add -cfg=FILE, -dataset or -data_path.")
    if FAILURE in statuses:
        raise SystemExit(1)
