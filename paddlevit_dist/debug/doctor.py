"""``doctor [FLAGS]``: what this machine and its Paddle can do and, with the main job's flags, whether a training with
them would run; ``ok``, ``warning`` or ``failure`` for each check, with what mends it."""

import contextlib
import json
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import settings as configuration
from ..launch import devices, leftovers, tuning
from ..runtime import signals
from ..runtime.errors import UserError, WorkerFailure
from ..runtime.printing import one_line
from ..settings.command_line import parse
from . import doctor_data, doctor_machine
from .doctor_machine import FAILURE, OK, SKIPPED, WARNING, Check, Checkup, Finding

# What these set says nothing of data or model.
_OF_THE_MACHINE = ("SAVE", "NGPUS", "DATA.NUM_WORKERS", "SEED", "CPU_TUNING")


def run(arguments: list[str]) -> None:
    """Carry out the command.

    Raises:
        UserError: the command line or the configuration is wrong.
        SystemExit: with 1, a check has failed.
    """
    as_json = bool({"-json", "--json"} & set(arguments))
    words = [word for word in arguments if word not in ("-json", "--json")]
    loaded = configuration.load(words, configuration.EXAMPLE, command="doctor")
    values, command = loaded.values, parse(words)
    for name in ("EVAL", "SELFTEST"):
        if values[name]:
            raise UserError(f"doctor looks at a training: leave out {name}")
    signals.expect(training=False)
    if devices.is_launched():
        raise UserError("doctor starts its own processes: run it without Paddle's launcher")
    tuning.restart_with_environment(values.NGPUS, values.CPU_TUNING)
    from ..launch import plan_processes

    looks_at_data = command.cfg is not None or any(s.name not in _OF_THE_MACHINE for s in command.settings)
    checks = [*doctor_machine.CHECKS, *(doctor_data.CHECKS if looks_at_data else ())]
    plan = plan_processes(values.NGPUS)
    token = leftovers.new_token()
    try:
        with tempfile.TemporaryDirectory(prefix="paddlevit_dist_doctor_") as folder:
            checkup = Checkup(values, Path(folder), plan)
            carry_out(checkup, checks, as_json)
    finally:  # what processes had in shared memory that were killed
        leftovers.new_token()
        leftovers.remove(token, tempfile.gettempdir())
    notices = [*loaded.notices, *plan.notices]
    if as_json:
        print(json.dumps(_document(checkup.found, notices), indent=1))
    else:
        for notice in notices:
            print(one_line(f"note: {notice}"))
        print(_summary(checkup.found))
        if not looks_at_data:
            print("With -cfg=FILE, -dataset or -data_path, data and a step of a training are looked at, too.")
    if any(finding.status == FAILURE for finding in checkup.found.values()):
        raise SystemExit(1)


def carry_out(checkup: Checkup, checks: list[Check], as_json: bool) -> None:
    """Make these checks, one after another, each a line unless ``as_json``; ``checkup.found`` has them."""
    from ..logging.heartbeat import Heartbeat
    from ..logging.progress import Progress, write_line

    say: Callable[[str], None] = (lambda text: print(text, file=sys.stderr, flush=True)) if as_json else write_line
    bar = Progress(len(checks), "doctor", shown=True)
    with contextlib.closing(bar), Heartbeat(say) as heartbeat:
        for check in checks:
            bar.note(check.name, at_once=True)
            heartbeat.at(f"at the check '{check.name}'")
            checkup.found[check.name] = try_check(check, checkup)
            bar.step()
            if not as_json:
                write_line(line_of(check.name, checkup.found[check.name]))


def try_check(check: Check, checkup: Checkup) -> Finding:
    """What comes of a check: what it raises is a failure."""
    lacking = [name for name in check.needs if checkup.found[name].status in (FAILURE, SKIPPED)]
    if lacking:
        return Finding(SKIPPED, f"not looked at: '{lacking[0]}' has to be right first")
    try:
        return check.function(checkup)
    except UserError as error:
        return Finding(FAILURE, str(error))
    except WorkerFailure as error:
        return Finding(FAILURE, str(error).partition("\n")[0], facts={"traceback": error.traceback})
    except Exception as error:  # code of a user's may raise anything
        text = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
        return Finding(FAILURE, text, facts={"traceback": traceback.format_exc()})


def line_of(name: str, finding: Finding) -> str:
    """A check in one line."""
    mend = f" -> {finding.mend}" if finding.mend else ""
    return one_line(f"{finding.status:8} {name:15} {finding.text}{mend}")


def _summary(found: dict[str, Finding]) -> str:
    numbers = dict.fromkeys((OK, WARNING, FAILURE, SKIPPED), 0)
    for finding in found.values():
        numbers[finding.status] += 1
    parts = [f"{numbers[OK]} ok", f"{numbers[WARNING]} warnings", f"{numbers[FAILURE]} failures"]
    return ", ".join(parts + ([f"{numbers[SKIPPED]} skipped"] if numbers[SKIPPED] else []))


def _document(found: dict[str, Finding], notices: list[str]) -> dict[str, Any]:
    return {
        "ok": all(finding.status != FAILURE for finding in found.values()),
        "summary": _summary(found),
        "checks": [{"name": name, **finding._asdict()} for name, finding in found.items()],
        "notices": notices,
    }
