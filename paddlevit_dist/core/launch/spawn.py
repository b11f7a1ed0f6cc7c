"""Start one worker per device, watch them, and stop all of them when one fails.

``dist.spawn`` does not supervise processes: peers of a killed worker wait forever, Ctrl-C inside a worker counts as
success, and a parent that dies leaves orphans. Here every worker records how it ended, the parent looks for the failure
that caused the others, and workers die with their parent.
"""

import contextlib
import faulthandler
import logging
import math
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..registry import plugins
from ..registry.lookup import list_names
from ..registry.names import REGISTRY
from ..registry.register import (
    register_dataset,
    register_model,
    register_scene_format,
    register_score_kind,
    register_task,
    register_transform,
)
from ..runtime import printing, process_exit, signals
from ..runtime.errors import DeviceFailure, OwnCodeError, Stopped, UserError, WorkerFailure
from ..runtime.outages import StorageOutage
from . import failures, secret, stale_resources, status, tuning
from .devices import ProcessPlan, is_pool_worker
from .watchdog import Watchdog, dump_stacks_on_request

_GRACE_SECONDS = 3.0  # for the other ranks to end by themselves, so that the root cause can be distinguished
_JOIN_SECONDS = 5.0  # for a killed process to disappear
_STOP_SECONDS = 1800.0  # for the current update and a save of the largest models; a watchdog ends hanging ranks
_SEMAPHORES_PER_WORKER = 4  # for the queue of a worker's error, and some spare ones


def launch_workers(
    worker: Callable[..., None],
    arguments: tuple[Any, ...],
    plan: ProcessPlan,
    watchdog_seconds: float | None = None,
    in_child: bool = False,
    note_end: Callable[[WorkerFailure], None] = lambda error: None,
) -> None:
    """Run ``worker(*arguments)`` in every process of the plan and return when all of them have finished.

    Args:
        worker: a function of a module that workers can import; it runs after the group is joined.
        arguments: small, picklable values; each worker gets a copy.
        plan: from ``plan_processes``. One process, or one that paddle.distributed.launch has started, runs in place.
        watchdog_seconds: a process without progress for this long ends a run of several; None: never.
        in_child: run even a single process as a child, so that this process touches no device: a process that has
            computed on a GPU holds memory there while it lives, and blocks a GPU in exclusive-process mode.
        note_end: called on rank 0, in a thread, if the failure of another rank is about to end this process, which
            raises nothing then; only if paddle.distributed.launch has started it.

    Raises:
        UserError: a worker raised one.
        WorkerFailure: a worker raised something else, ended early or was killed.
        Stopped: the user stopped the training run; it is saved, and all workers have ended.
        KeyboardInterrupt: the user stopped the run before there was anything to save; all workers have ended.
    """
    with signals.installed():
        tuning.choose_kernels()
        tuning.import_paddle()
        if plan.by_paddle_launcher or (plan.processes == 1 and not in_child):
            _run_in_place(worker, arguments, plan, watchdog_seconds, note_end)
        elif is_pool_worker():
            raise UserError(
                f"{plan.processes} processes (NGPUS): a worker of a process pool cannot start processes; use one "
                "(NGPUS 1), or start the run outside of the pool"
            )
        else:
            _run_workers(worker, arguments, plan, watchdog_seconds)


def _run_workers(
    worker: Callable[..., None], arguments: tuple[Any, ...], plan: ProcessPlan, watchdog_seconds: float | None
) -> None:
    stale_resources.require_semaphores(
        _SEMAPHORES_PER_WORKER * plan.processes, "the queues of the processes", "lower -ngpus"
    )
    with stale_resources.temporary_folder("ends") as folder:
        signals.record_only_as_parent()
        status_pages = status.new_pages(plan.processes)  # shared memory, one page per rank
        others = multiprocessing.active_children()
        try:
            # Keep a reference to the context: it owns the queues that workers open.
            context = _start(worker, arguments, plan, folder, status_pages)
            watchdog = Watchdog(status_pages, context.processes, watchdog_seconds, folder)
            failed = wait_for_workers(context.processes, folder, watchdog)
            failed_ranks = {end["rank"] for end in failed}
            # Stop these before the failed ones, which wait: a rank that loses a peer in a collective aborts noisily.
            _end_all([process for rank, process in enumerate(context.processes) if rank not in failed_ranks])
        finally:
            _end_all([process for process in multiprocessing.active_children() if process not in others])
        if failed:
            raise_cause(failures.find_root_cause(failed))


def _run_in_place(
    worker: Callable[..., None],
    arguments: tuple[Any, ...],
    plan: ProcessPlan,
    watchdog_seconds: float | None,
    note_end: Callable[[WorkerFailure], None],
) -> None:
    import paddle

    tuning.use_threads()
    with signals.blocked():
        paddle.disable_signal_handler()  # its dump at SIGTERM looks like a crash
        signals.install()
    signals.poll_in_thread()
    if plan.total_processes == 1:
        paddle.set_device(plan.device)
        worker(*arguments)
        return

    from . import group_watch, rendezvous

    def join() -> None:
        rendezvous.join_group(plan.device, spawned=False)

    process_exit.note_group()
    if watchdog_seconds is not None:
        group_watch.run(join, lambda: worker(*arguments), watchdog_seconds, note_end)
    else:
        join()
        worker(*arguments)


@stale_resources.named_semaphores()
def _start(
    worker: Callable[..., None], arguments: tuple[Any, ...], plan: ProcessPlan, folder: Path, status_pages: status.Pages
) -> Any:
    import paddle.distributed as dist

    from ..runtime import device_kinds

    payload = WorkerPayload.pack(worker, arguments)
    kind = device_kinds.get_kind(plan.device)
    prepare_rendezvous()
    if kind.backend == "xccl":  # as Paddle's launcher sets it
        os.environ["PADDLE_XCCL_BACKEND"] = kind.name
    tuning.hide_omp_threads_from_children()
    # Paddle logs INFO lines to the root logger while choosing ports.
    root_logger = logging.getLogger()
    previous_level = root_logger.level
    root_logger.setLevel(logging.WARNING)
    try:
        with signals.blocked():
            # SIGHUP stays blocked in the tracker; starting it unblocks SIGINT and SIGTERM here, hence block().
            multiprocessing.resource_tracker.ensure_running()
            signals.block()
            with plugins.folders_hidden(), _package_before_paddle(), warnings.catch_warnings():
                # The plan has already reported that this run uses the CPU.
                warnings.filterwarnings("ignore", message="Your model will be trained under CPUONLY mode")
                context = dist.spawn(
                    _worker_entry,
                    args=(payload, str(folder), os.getpid(), plan.device, secret.create_for_workers(), status_pages),
                    nprocs=plan.processes,
                    join=False,
                    backend=kind.backend,
                )
    finally:
        root_logger.setLevel(previous_level)
    return context


@contextlib.contextmanager
def _package_before_paddle() -> Iterator[None]:
    """Let processes that are spawned in the block import this package before Paddle, as 2.6 needs (see ``__init__``).

    They run the parent's main module first, except that of a package started with ``python -m`` and cells of a
    notebook, and would then begin with the function that Paddle passes them, so another module is named instead.
    """
    main = sys.modules["__main__"]
    before = getattr(main, "__spec__", None)
    if _program() and (before is None or not before.name.endswith(".__main__")):
        yield
        return
    main.__spec__ = signals.__spec__
    try:
        yield
    finally:
        main.__spec__ = before


def prepare_rendezvous() -> None:
    """Let workers of this machine meet on its loopback, and find their devices."""
    if not os.environ.get("GLOO_SOCKET_IFNAME") and os.path.exists("/sys/class/net/lo"):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # spawned workers share one machine
    if "CUDA_VISIBLE_DEVICES" in os.environ:  # Paddle does not find names with spaces around them
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"].replace(" ", "")


def _worker_entry(
    payload: "WorkerPayload", folder: str, parent: int, device: str, run_secret: bytes, status_pages: status.Pages
) -> None:
    """Run a spawned process: join the group, work, record how it ended."""
    printing.ignore_broken_pipe()
    printing.hide_known_warnings()
    faulthandler.enable()
    process_exit.die_with_parent(parent)
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    failures.keep_records(Path(folder), rank)
    signals.forward_to_parent(parent, forwards_saves=rank > 0, exit_now=_exit_now)
    secret.use(run_secret)
    dump_stacks_on_request(Path(folder), rank)
    status.publish(status_pages, rank)
    # For the loader processes: spawned ones would re-import everything, taking seconds in every evaluation.
    multiprocessing.set_start_method("fork", force=True)
    try:
        import paddle

        from . import rendezvous

        tuning.use_threads()
        paddle.disable_signal_handler()
        faulthandler.disable()  # Paddle has reset the signals that it handles
        faulthandler.enable()
        signals.install()  # until now the parent's mask blocks them
        signals.poll_in_thread()
        worker, arguments = payload.unpack()
        status.note("joining the group")
        with status.waiting_for_ranks():
            rendezvous.join_group(device, spawned=True)
        status.note("at work")
        worker(*arguments)
        status.note(status.AT_END)
    except BaseException as error:
        signals.record_only()
        failures.record_failure(error)
        sys.stdout.flush()
        failures.wait_for_parent()
        # Exit handlers and the group's destructors must not wait for peers; the parent informs the user.
        os._exit(error.exit_code if isinstance(error, (UserError, StorageOutage)) else 1)
    signals.record_only()
    failures.record_finish()
    process_exit.end(0)


def _exit_now(number: int, again: bool) -> None:
    failures.record_interruption(number, again)
    os._exit(128 + number)


class SignalRelay:
    """Forwards the parent's stop and save requests to the workers.

    It sends SIGTERM, which may arrive any number of times: a terminal and a scheduler signal all processes.
    """

    def __init__(self, processes: list[Any]) -> None:
        self._processes = processes
        self._requested_at: float | None = None

    def forward(self) -> None:
        """Forward new requests; raise KeyboardInterrupt if the workers should end without a save."""
        if signals.interrupts() > 1:
            raise signals.ProcessInterrupted(signal.SIGINT, again=True)
        if signals.save_requested():
            signals.clear_save_request()
            if self._processes[0].exitcode is None:
                os.kill(self._processes[0].pid, signal.SIGUSR1)
        number = signals.number()
        if number is None:
            return
        if self._requested_at is None:
            self._requested_at = time.monotonic()
            for process in self._processes:
                process.terminate()
        waited = time.monotonic() - self._requested_at
        if waited > _STOP_SECONDS:
            raise WorkerFailure(0, f"still working {_STOP_SECONDS:g} s after the request to stop")


def wait_for_workers(processes: list[Any], folder: Path, watchdog: Watchdog) -> list[dict[str, Any]]:
    """Wait for all workers, until one hangs, or for ``_GRACE_SECONDS`` after the first failure; return failed records.

    A worker that has recorded its failure has ended. A user error has no other cause, so it gets no grace period.
    """
    running = dict(enumerate(processes))
    failed: list[dict[str, Any]] = []
    deadline = None
    requests = SignalRelay(processes)
    while running and (deadline is None or time.monotonic() < deadline):
        multiprocessing.connection.wait([child.sentinel for child in running.values()], timeout=0.2)
        requests.forward()
        for rank, process in list(running.items()):
            exit_code, record = process.exitcode, failures.read(folder, rank)
            if exit_code is None and (record is None or record["kind"] == failures.FINISHED):
                continue
            del running[rank]
            end = failures.describe_end(rank, exit_code, folder)
            if end["kind"] != failures.FINISHED:
                end.setdefault("time", time.time())
                failed.append(end)
                # Never the consequence of another rank's failure.
                needs_no_grace = end["kind"] in (failures.USER_ERROR, failures.INTERRUPTED)
                grace = 0.0 if needs_no_grace else _GRACE_SECONDS
                deadline = min(deadline or math.inf, time.monotonic() + grace)
        stuck = None if failed else watchdog.poll(running)
        if stuck:
            return [stuck]
    return watchdog.explain(failed, running)


def _end_all(processes: list[Any]) -> None:
    for process in processes:
        process.kill()  # SIGTERM would make a worker save
    for process in processes:
        process.join(_JOIN_SECONDS)


def raise_cause(cause: dict[str, Any]) -> None:
    """Raise the error of a record in this process, as ``launch_workers`` does."""
    if cause.get("own_traceback") is not None:
        raise OwnCodeError(cause["message"], cause["own_traceback"])
    if cause["kind"] == failures.USER_ERROR:
        kinds: dict[int, type[Exception]] = {kind.exit_code: kind for kind in (DeviceFailure, StorageOutage)}
        raise kinds.get(cause.get("exit_code", 0), UserError)(cause["message"])
    if cause["kind"] == failures.STOPPED:
        raise Stopped(signals.stop_reason() or cause["reason"], cause["saved"])
    if cause["kind"] == failures.INTERRUPTED:
        raise signals.ProcessInterrupted(signals.number() or cause["number"], cause["again"])
    raise WorkerFailure(cause["rank"], cause["message"], cause.get("traceback", ""), failures.is_lost(cause))


_GUARD = 'if __name__ == "__main__"'


class _RegisteredName(NamedTuple):
    """A name that a user has registered; ``pickled`` is its ``lookup.Registration``, None if it cannot be pickled."""

    kind: str
    name: str
    pickled: bytes | None


class WorkerPayload(NamedTuple):
    """A worker's function and arguments, pickled, with the user code that they need."""

    imports: plugins.WorkerImports
    registered: list[_RegisteredName]
    work: bytes
    program: str

    @classmethod
    def pack(cls, worker: Callable[..., None], arguments: tuple[Any, ...]) -> "WorkerPayload":
        """Pack everything in the parent; ``worker`` is the function that workers call.

        Raises UserError if the task or a dataset cannot be pickled, since its class cannot be imported.
        """
        registered = [
            _RegisteredName(kind, name, _pickle(registration))
            for (kind, name), registration in REGISTRY.registrations.items()
        ]
        try:
            work = pickle.dumps((worker, arguments))
        except (AttributeError, pickle.PicklingError) as error:  # a local class or a lambda
            raise UserError(
                f"{error}: worker processes import the classes of task and datasets: define them at the top level of a "
                "module"
            ) from error
        return cls(plugins.collect_imports(), registered, work, _program())

    def unpack(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """Unpack function and arguments in a worker. Raises UserError if a name that they need is not defined here."""
        plugins.load_imports(self.imports)
        for entry in self.registered:
            _register(entry)
        try:
            return pickle.loads(self.work)
        except AttributeError as error:
            mains = self.program or signals.__name__, "__main__", "__mp_main__"  # see ``_package_before_paddle``
            if not any(main in str(error) for main in mains):
                raise
            raise UserError(_explain_undefined(str(error).split(" on <")[0], self.program)) from error


def _pickle(registration: object) -> bytes | None:
    try:
        return pickle.dumps(registration)
    except (AttributeError, TypeError, pickle.PicklingError):  # a lambda or local class: a module may register it again
        return None


def _register(entry: _RegisteredName) -> None:
    """Register a name like the parent, unless a module has; skip it if unpickling fails, for ``lookup.find_name``."""
    if entry.pickled is None or entry.name in list_names(entry.kind):
        return
    try:
        registration = pickle.loads(entry.pickled)
    except (AttributeError, ImportError):
        return
    if entry.kind == "task":
        register_task(entry.name, registration.target, registration.tables, registration.keys or None)
    elif entry.kind in ("model", "dataset"):
        register = {"model": register_model, "dataset": register_dataset}[entry.kind]
        register(entry.name, registration.target, registration.keys or None)
    else:
        registers = {"score_kind": register_score_kind, "scene_format": register_scene_format}
        registers.get(entry.kind, register_transform)(entry.name, registration.target)


def _explain_undefined(what: str, program: str) -> str:
    if not program:
        return (
            f"{what}: worker processes do not run notebook cells or typed code: put it into a file, "
            "my_things.py, and import it with IMPORTS=['my_things.py'] (-import=my_things.py)"
        )
    return (
        f"{what}: worker processes do not run the code of {program} inside `{_GUARD}`: define and register it at the "
        "top level of that file, or in a module named with -import=MODULE"
    )


def _program() -> str:
    """Return the file of this process's main module, which workers import as ``__mp_main__``; empty in a notebook."""
    return os.path.basename(getattr(sys.modules.get("__main__"), "__file__", None) or "")
