"""``doctor [FLAGS]``: what this machine and its Paddle can do and, with the main job's flags, whether a training with
them would run; ``ok``, ``warning`` or ``failure`` for each check, with what mends it."""

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .. import config as configuration
from ..config.command_line import parse
from ..parallel import devices, leftovers, tuning
from ..runtime import signals
from ..runtime.errors import UserError
from ..runtime.printing import one_line
from . import doctor_data, doctor_machine, doctor_training
from .doctor_checks import FAILURE, OK, SKIPPED, WARNING, Check, CheckProcess, Checkup, Finding, temporary_in

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
    looks_at_data = command.cfg is not None or any(s.name not in _OF_THE_MACHINE for s in command.settings)
    checks = list(doctor_machine.CHECKS)
    if looks_at_data:
        checks += [*doctor_data.CHECKS, *doctor_training.CHECKS]
    from ..parallel import plan_processes

    plan = plan_processes(values.NGPUS)
    with _nothing_left(), temporary_in(values.SAVE) as (folder, unwritable):
        checkup = Checkup(values, folder, plan.processes, plan.uses_gpu, unwritable)
        found, seconds = _carry_out(checkup, checks, as_json)
    notices = [*loaded.notices, *plan.notices]
    if as_json:
        print(json.dumps(_document(found, seconds, notices), indent=1))
    else:
        _close(found, notices, looks_at_data)
    if any(finding.status == FAILURE for finding in found.values()):
        raise SystemExit(1)


@contextlib.contextmanager
def _nothing_left() -> Iterator[None]:
    """Removes from shared memory and the folder for temporary files what processes had there that were killed."""
    token = leftovers.new_token()
    try:
        yield
    finally:
        leftovers.new_token()
        leftovers.remove(token, tempfile.gettempdir())


def _carry_out(checkup: Checkup, checks: list[Check], as_json: bool) -> tuple[dict[str, Finding], dict[str, float]]:
    from ..observe.heartbeat import Heartbeat
    from ..observe.progress import Progress, write_line

    say: Callable[[str], None] = (lambda text: print(text, file=sys.stderr, flush=True)) if as_json else write_line
    seconds: dict[str, float] = {}
    process = CheckProcess(checkup, checks, Path(checkup.folder, "log"))
    bar = Progress(len(checks), "doctor", shown=True)
    with process, contextlib.closing(bar), Heartbeat(say) as heartbeat:
        for number, check in enumerate(checks):
            bar.note(check.name, at_once=True)
            heartbeat.at(f"at the check '{check.name}'")
            started = time.perf_counter()
            lacking = [name for name in check.needs if checkup.found[name].status in (FAILURE, SKIPPED)]
            if lacking:
                finding = Finding(SKIPPED, f"not looked at: '{lacking[0]}' has to be right first")
            else:
                finding = process.carry_out(number)
            checkup.found[check.name] = finding
            seconds[check.name] = round(time.perf_counter() - started, 2)
            bar.step()
            if not as_json:
                write_line(line_of(check.name, finding))
    return checkup.found, seconds


def line_of(name: str, finding: Finding) -> str:
    """A check in one line."""
    mend = f" -> {finding.mend}" if finding.mend else ""
    return one_line(f"{finding.status:8} {name:15} {finding.text}{mend}")


def _close(found: dict[str, Finding], notices: list[str], looks_at_data: bool) -> None:
    for notice in notices:
        print(one_line(f"note: {notice}"))
    print(_summary(found))
    if not looks_at_data:
        print("With -cfg=FILE, -dataset or -data_path, data, model and a few steps of a training are looked at, too.")


def _summary(found: dict[str, Finding]) -> str:
    numbers = dict.fromkeys((OK, WARNING, FAILURE, SKIPPED), 0)
    for finding in found.values():
        numbers[finding.status] += 1
    parts = [f"{numbers[OK]} ok", f"{numbers[WARNING]} warnings", f"{numbers[FAILURE]} failures"]
    return ", ".join(parts + ([f"{numbers[SKIPPED]} skipped"] if numbers[SKIPPED] else []))


def _document(found: dict[str, Finding], seconds: dict[str, float], notices: list[str]) -> dict[str, Any]:
    checks = [{"name": name, **finding._asdict(), "seconds": seconds[name]} for name, finding in found.items()]
    return {
        "ok": all(finding.status != FAILURE for finding in found.values()),
        "summary": _summary(found),
        "checks": checks,
        "notices": notices,
    }
