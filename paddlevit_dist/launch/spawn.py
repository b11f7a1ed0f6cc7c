"""Start one worker per device, watch them, and stop all of them when one fails.

``dist.spawn`` starts processes but does not supervise them: a killed worker leaves its peers waiting, Ctrl-C inside a
worker counts as success, and a parent that dies leaves orphans. Here every worker records how it ended, the parent
looks for the failure that caused the others, and workers die with their parent.
"""

import contextlib
import ctypes
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

from .. import plugins
from ..registry import REGISTRATIONS, list_names, register_dataset, register_model, register_task, register_transform
from ..runtime import printing, process_exit, signals
from ..runtime.errors import DeviceFailure, Stopped, UserError, WorkerFailure
from . import failures, secret, stale_resources, status, tuning
from .devices import ProcessPlan, is_pool_worker
from .watchdog import Watchdog, answer_with_stacks

_GRACE_SECONDS = 3.0  # lets the other ranks end on their own, so that the root cause can be told from its echoes
_TERMINATE_SECONDS = 5.0
_STOP_SECONDS = 1800.0  # for the update at hand and a save of the largest models; a watchdog ends what stands still
_SEMAPHORES_PER_WORKER = 4  # of the queue in which spawn gets a worker's error, and some to spare
_PR_SET_PDEATHSIG = 1


def launch_workers(
    worker: Callable[..., None],
    arguments: tuple[Any, ...],
    plan: ProcessPlan,
    watchdog_seconds: float | None = None,
    apart: bool = False,
) -> None:
    """Run ``worker(*arguments)`` in every process of the plan and return when all of them have finished.

    Args:
        worker: a function of a module that workers can import. It runs after the group has been joined.
        arguments: small, picklable values; each worker gets a copy.
        plan: from ``plan_processes``. One process, or one that paddle.distributed.launch has started, runs in place.
        watchdog_seconds: one of several processes that stands still for this long ends the run; None: never.
        apart: a single process is a child of this one, too, which so touches no device: one that has computed on a GPU
            holds memory there as long as it lives, and in exclusive-process mode no other can use that GPU.
    Raises:
        UserError: a worker raised one.
        WorkerFailure: a worker raised something else, left early or was killed.
        Stopped: the user asked a training to stop; it is saved, and all workers have ended.
        KeyboardInterrupt: the user asked to stop before there was anything to save; all workers have ended.
    """
    with signals.installed():
        tuning.import_paddle()
        if plan.launched or (plan.processes == 1 and not apart):
            _run_in_place(worker, arguments, plan, watchdog_seconds)
        elif is_pool_worker():
            raise UserError(
                f"{plan.processes} processes (NGPUS): a worker of a process pool cannot start processes; take one "
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
    with stale_resources.temporary_folder("ends") as name:
        folder = Path(name)
        signals.supervise()
        pages, others = status.new_pages(plan.processes), multiprocessing.active_children()
        try:
            # Keep a reference to the context: it owns the queues that workers open.
            context = _start(worker, arguments, plan, folder, pages)
            watchdog = Watchdog(pages, context.processes, watchdog_seconds, folder)
            failed = _wait(context.processes, folder, watchdog)
            failed_ranks = {end["rank"] for end in failed}
            # Stop these before the failed ones, which wait: a rank that loses a peer in a collective aborts noisily.
            _end_all([process for rank, process in enumerate(context.processes) if rank not in failed_ranks])
            watchdog.kill(failed)
        finally:
            _end_all([process for process in multiprocessing.active_children() if process not in others])
        if failed:
            _raise(failures.root_cause(failed))


def _run_in_place(
    worker: Callable[..., None], arguments: tuple[Any, ...], plan: ProcessPlan, watchdog_seconds: float | None
) -> None:
    import paddle

    from . import group_watch, rendezvous

    tuning.use_threads()
    paddle.disable_signal_handler()  # its SIGTERM dump looks like a crash
    signals.install()
    signals.poll_in_thread()

    def join() -> None:
        rendezvous.join_group(plan.device, spawned=False)

    if plan.total_processes > 1:
        process_exit.note_group()
    if plan.total_processes > 1 and watchdog_seconds is not None:
        group_watch.run(join, lambda: worker(*arguments), watchdog_seconds)
    else:
        join()
        worker(*arguments)


@stale_resources.named_semaphores()
def _start(worker: Callable[..., None], arguments: tuple[Any, ...], plan: ProcessPlan, folder: Path, pages: Any) -> Any:
    import paddle.distributed as dist

    from ..runtime import device_kinds

    payload = WorkerPayload.pack(worker, arguments)
    kind = device_kinds.get_kind(plan.device)
    _prepare_rendezvous()
    if kind.backend == "xccl":  # as Paddle's launcher sets it
        os.environ["PADDLE_XCCL_BACKEND"] = kind.name
    tuning.hide_threads()
    # Paddle logs INFO lines to the root logger while choosing ports.
    root_logger = logging.getLogger()
    previous_level = root_logger.level
    root_logger.setLevel(logging.WARNING)
    try:
        with signals.blocked():
            multiprocessing.resource_tracker.ensure_running()  # a hangup waits for ever there, but others pass again
            signals.block()
            with plugins.folders_hidden(), _package_before_paddle():
                context = dist.spawn(
                    _worker_entry,
                    args=(payload, str(folder), os.getpid(), plan.device, secret.for_workers(), pages),
                    nprocs=plan.processes,
                    join=False,
                    backend=kind.backend,
                )
    finally:
        root_logger.setLevel(previous_level)
    return context


@contextlib.contextmanager
def _package_before_paddle() -> Iterator[None]:
    """Let processes that are spawned in the block import this package before Paddle, as 2.6 needs (see its ``zlib``).

    They run the parent's main module first, but not that of a package, which ``python -m`` has started, nor cells of a
    notebook: they would begin with the function that Paddle hands them. So they are told of another module.
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


def _prepare_rendezvous() -> None:
    # The plan has already reported that this run uses the CPU.
    warnings.filterwarnings("ignore", message="Your model will be trained under CPUONLY mode")
    if not os.environ.get("GLOO_SOCKET_IFNAME") and os.path.exists("/sys/class/net/lo"):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # spawned workers share one machine
    if "CUDA_VISIBLE_DEVICES" in os.environ:  # Paddle looks for a name without spaces among names that have them
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"].replace(" ", "")


def _worker_entry(payload: "WorkerPayload", folder: str, parent: int, device: str, of_run: bytes, pages: Any) -> None:
    """Run in a spawned process: join the group, work, record how it ended."""
    printing.ignore_broken_pipe()
    faulthandler.enable()
    die_with_parent(parent)
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    failures.keep_records(Path(folder), rank)
    signals.work_for(parent, rank > 0, _leave)
    secret.use(of_run)
    answer_with_stacks(Path(folder), rank)
    status.publish(pages, rank)
    # For the loader processes: spawned ones would re-import everything, taking seconds in every evaluation.
    multiprocessing.set_start_method("fork", force=True)
    try:
        import paddle

        from . import rendezvous

        tuning.use_threads()
        paddle.disable_signal_handler()
        faulthandler.disable()  # Paddle has set what it handles back to the default
        faulthandler.enable()
        signals.install()
        signals.poll_in_thread()
        worker, arguments = payload.unpack()
        status.note("joining the group")
        with status.waiting_for_ranks():
            rendezvous.join_group(device, spawned=True)
        status.note("at work")
        worker(*arguments)
        status.note(status.AT_END)
    except BaseException as error:
        signals.defer()
        failures.record_failure(error)
        sys.stdout.flush()
        failures.wait_for_parent()
        # Exit handlers and the group's destructors must not wait for peers; the parent informs the user.
        os._exit(error.exit_code if isinstance(error, UserError) else 1)
    signals.defer()
    failures.record_finish()
    process_exit.end(0)


def _leave(number: int, again: bool) -> None:
    """End a worker from whichever thread asks."""
    failures.record_interruption(number, again)
    os._exit(128 + number)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, for whatever reason (Linux)."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)


class _SignalRelay:
    """Passes on to the workers what the parent is asked by signals. All may have come to them, too: a terminal and a
    scheduler send theirs to all processes. So it is SIGTERM that asks, which may come any number of times."""

    def __init__(self, processes: list[Any]) -> None:
        self._processes = processes
        self._asked_at: float | None = None

    def pass_on(self) -> None:
        """Raise KeyboardInterrupt if nothing more is to be waited for."""
        if signals.interrupts() > 1:
            raise signals.ProcessInterrupted(signal.SIGINT, again=True)
        if signals.save_is_asked():
            signals.forget_save()
            if self._processes[0].exitcode is None:
                os.kill(self._processes[0].pid, signal.SIGUSR1)
        number = signals.number()
        if number is None:
            return
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            for process in self._processes:
                process.terminate()
        waited = time.monotonic() - self._asked_at
        if waited > _STOP_SECONDS:
            raise WorkerFailure(0, f"asked to stop, but still at work {_STOP_SECONDS:g} s later")


def _wait(processes: list[Any], folder: Path, watchdog: Watchdog) -> list[dict[str, Any]]:
    """Wait for all workers, until one stands still, or ``_GRACE_SECONDS`` after the first failure; return the failed
    ranks' records.

    A worker that has recorded its failure counts as ended, even though it still waits. A user error is never the echo
    of another failure, so it gets no grace period.
    """
    running = dict(enumerate(processes))
    failed: list[dict[str, Any]] = []
    deadline = None
    requests = _SignalRelay(processes)
    while running and (deadline is None or time.monotonic() < deadline):
        multiprocessing.connection.wait([process.sentinel for process in running.values()], timeout=0.2)
        requests.pass_on()
        for rank, process in list(running.items()):
            exit_code, record = process.exitcode, failures.read(folder, rank)
            if exit_code is None and (record is None or record["kind"] == failures.FINISHED):
                continue
            del running[rank]
            end = failures.describe_end(rank, exit_code, folder)
            if end["kind"] != failures.FINISHED or exit_code != 0:
                end.setdefault("time", time.time())
                failed.append(end)
                is_plain = end["kind"] in (failures.USER_ERROR, failures.INTERRUPTED)
                grace = 0.0 if is_plain else _GRACE_SECONDS
                deadline = min(deadline or math.inf, time.monotonic() + grace)
        stuck = None if failed else watchdog.look(running)
        if stuck:
            return [stuck]
    return watchdog.explain(failed, running)


def _end_all(processes: list[Any]) -> None:
    for process in processes:
        process.kill()  # SIGTERM would ask a worker to save
    for process in processes:
        process.join(_TERMINATE_SECONDS)


def _raise(cause: dict[str, Any]) -> None:
    if cause["kind"] == failures.USER_ERROR:
        kind = DeviceFailure if cause.get("exit_code") == DeviceFailure.exit_code else UserError
        raise kind(cause["message"])
    if cause["kind"] == failures.STOPPED:
        raise Stopped(signals.stop_reason() or cause["reason"], cause["saved"])
    if cause["kind"] == failures.INTERRUPTED:
        raise signals.ProcessInterrupted(signals.number() or cause["number"], cause["again"])
    raise WorkerFailure(cause["rank"], cause["message"], cause.get("traceback", ""))


_GUARD = 'if __name__ == "__main__"'


class _RegisteredName(NamedTuple):
    """A name that a user has registered; ``pickled`` holds its ``registry.Registration``, None if that cannot be
    pickled."""

    kind: str
    name: str
    pickled: bytes | None


class WorkerPayload(NamedTuple):
    """A worker's function and its arguments, pickled, with the code of users that they need."""

    carried: plugins.WorkerImports
    registered: list[_RegisteredName]
    work: bytes
    program: str

    @classmethod
    def pack(cls, worker: Callable[..., None], arguments: tuple[Any, ...]) -> "WorkerPayload":
        """Called by the parent.

        Raises:
            UserError: the task or a dataset cannot be pickled, since its class cannot be imported.
        """
        registered = [
            _RegisteredName(kind, name, _pickle(own))
            for (kind, name), own in REGISTRATIONS.items()
            if name in list_names(kind)
        ]
        try:
            work = pickle.dumps((worker, arguments))
        except (AttributeError, pickle.PicklingError) as error:  # of a local class, a lambda
            raise UserError(
                f"{error}: worker processes import the classes of task and datasets: define them at the top level of a "
                "module"
            ) from error
        return cls(plugins.collect_carried(), registered, work, _program())

    def unpack(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """Called by a worker: function and arguments.

        Raises:
            UserError: what they need is not defined here.
        """
        plugins.load_carried(self.carried)
        for entry in self.registered:
            _register(entry)
        try:
            return pickle.loads(self.work)
        except AttributeError as error:
            mains = self.program or signals.__name__, "__main__", "__mp_main__"  # see ``_package_before_paddle``
            if not any(main in str(error) for main in mains):
                raise
            raise UserError(_explanation(str(error).split(" on <")[0], self.program)) from error


def _pickle(own: Any) -> bytes | None:
    try:
        return pickle.dumps(own)
    except (AttributeError, TypeError, pickle.PicklingError):  # a lambda, a local class: a module may register it again
        return None


def _register(entry: _RegisteredName) -> None:
    """Register it as the parent has, unless a module has done so already, when it was imported here. What cannot be
    unpickled here is left out: ``registry.find_name`` says why once the run asks for it."""
    if entry.pickled is None or entry.name in list_names(entry.kind):
        return
    try:
        own = pickle.loads(entry.pickled)
    except (AttributeError, ImportError):
        return
    if entry.kind == "task":
        register_task(entry.name, own.target, own.tables, own.keys or None)
    elif entry.kind == "transform":
        register_transform(entry.name, own.target)
    else:
        {"model": register_model, "dataset": register_dataset}[entry.kind](entry.name, own.target, own.keys or None)


def _explanation(what: str, program: str) -> str:
    if not program:
        return (
            f"{what}: worker processes do not run the cells of a notebook, nor what is typed: put it into a file, "
            "my_things.py, and name it with IMPORTS=['my_things.py'] (-import=my_things.py)"
        )
    return (
        f"{what}: worker processes do not run what {program} has inside `{_GUARD}`: define and register it at the top "
        "level of that file, or in a module that -import=MODULE names"
    )


def _program() -> str:
    """The file of this process's main module, which its workers import as ``__mp_main__``; empty where it has none, as
    in a notebook."""
    return os.path.basename(getattr(sys.modules.get("__main__"), "__file__", None) or "")
