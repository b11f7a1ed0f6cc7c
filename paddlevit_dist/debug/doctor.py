"""``doctor [FLAGS]``: what this machine and its Paddle can do and, with the main job's flags, whether a training with
them would run; ``ok``, ``warning`` or ``failure`` for each check, with what mends it."""

import contextlib
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from .. import settings as configuration
from ..launch import devices, leftovers, tuning
from ..runtime import signals
from ..runtime.errors import UserError, WorkerFailure
from ..runtime.printing import block, one_line
from ..settings.command_line import parse
from . import doctor_checks
from .doctor_checks import FAILURE, OK, SKIPPED, WARNING, Check, Checkup, Finding

# What these set says nothing of data or model.
_OF_THE_MACHINE = ("SAVE", "NGPUS", "DATA.NUM_WORKERS", "SEED", "CPU_TUNING")


def run(arguments: list[str]) -> None:
    """Carry out the command.

    Raises:
        UserError: the command line or the configuration is wrong.
        SystemExit: with 1, a check has failed.
    """
    if {"-json", "--json"} & set(arguments):
        raise UserError("doctor -json is gone: use its lines, which begin with ok, warning, failure or skipped")
    loaded = configuration.load(arguments, configuration.EXAMPLE, command="doctor")
    values, command = loaded.values, parse(arguments)
    for name in ("EVAL", "SELFTEST"):
        if values[name]:
            raise UserError(f"doctor looks at a training: leave out {name}")
    signals.expect(training=False)
    if devices.is_launched():
        raise UserError("doctor starts its own processes: run it without Paddle's launcher")
    tuning.restart_with_environment(values.NGPUS, values.CPU_TUNING)
    from ..launch import plan_processes

    looks_at_data = command.cfg is not None or any(s.name not in _OF_THE_MACHINE for s in command.settings)
    checks = [*doctor_checks.CHECKS, *(doctor_checks.CHECKS_OF_DATA if looks_at_data else ())]
    plan = plan_processes(values.NGPUS)
    token = leftovers.new_token()
    try:
        with tempfile.TemporaryDirectory(prefix="paddlevit_dist_doctor_") as folder:
            checkup = Checkup(values, Path(folder), plan)
            carry_out(checkup, checks)
    finally:  # what processes had in shared memory that were killed
        leftovers.new_token()
        leftovers.remove(token, tempfile.gettempdir())
    for notice in [*loaded.notices, *plan.notices]:
        print(one_line(f"note: {notice}"))
    statuses = [finding.status for finding in checkup.found.values()]
    numbers = [f"{statuses.count(OK)} ok", f"{statuses.count(WARNING)} warnings", f"{statuses.count(FAILURE)} failures"]
    print(", ".join(numbers + ([f"{statuses.count(SKIPPED)} skipped"] if SKIPPED in statuses else [])))
    if not looks_at_data:
        print("With -cfg=FILE, -dataset or -data_path, data and a step of a training are looked at, too.")
    if FAILURE in statuses:
        raise SystemExit(1)


def carry_out(checkup: Checkup, checks: Sequence[Check]) -> None:
    """Make these checks, one after another, each a line; ``checkup.found`` has them."""
    from ..logging.heartbeat import Heartbeat
    from ..logging.progress import Progress, write_line

    bar = Progress(len(checks), "doctor", shown=True)
    with contextlib.closing(bar), Heartbeat(write_line) as heartbeat:
        for check in checks:
            bar.note(check.name, at_once=True)
            heartbeat.at(f"at the check '{check.name}'")
            checkup.found[check.name] = try_check(check, checkup)
            bar.step()
            finding = checkup.found[check.name]
            mend = f" -> {finding.mend}" if finding.mend else ""
            write_line(one_line(f"{finding.status:8} {check.name:15} {finding.text}{mend}"))


def try_check(check: Check, checkup: Checkup) -> Finding:
    """Make a check: what it raises is a failure."""
    lacking = [name for name in check.needs if checkup.found[name].status in (FAILURE, SKIPPED)]
    if lacking:
        return Finding(SKIPPED, f"not looked at: '{lacking[0]}' has to be right first")
    try:
        return check.function(checkup)
    except UserError as error:
        return Finding(FAILURE, str(error))
    except WorkerFailure as error:
        trace, text = error.traceback, str(error)
    except Exception as error:  # code of a user's may raise anything
        trace, text = traceback.format_exc(), f"{type(error).__name__}: {error}".strip()
    print(block(trace), end="", file=sys.stderr)
    return Finding(FAILURE, text.partition("\n")[0])
