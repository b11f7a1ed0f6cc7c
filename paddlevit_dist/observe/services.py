"""Weights & Biases, MLflow and ClearML as observers (LOG_TO), each in a process of its own.

Their libraries start threads and processes, take over signals and exits, also those of processes that are forked later,
seed random generators and wait for servers. The training forks loader processes, ends by signals and has a watchdog: so
it writes lines to a pipe and never waits. A service that fails, or that takes nothing any more, is left out, and the
training goes on. What a library says is in ``log.txt`` in the folder of its name; ``run_id`` there names the run that
the service knows it by, which a training that is resumed continues.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..config.table import leaves
from ..parallel import status
from ..runtime.printing import one_line
from ..runtime.text_files import parse_yaml
from .event_logs import NumbersLog, scalars_of
from .observer import FAILED, FINISHED, STOPPED, RunFacts

PROJECT = "paddlevit_dist"  # where the user's environment names none
_PACKAGES = str(Path(__file__).resolve().parents[2])
_LAST_SECONDS = 120  # for what is still to be sent when the training ends
_LONGEST_TEXT, _MOST_PARAMETERS = 500, 100  # of MLflow: a value, a request


class ServiceLog(NumbersLog):
    """What the services have in common. ``begin``, ``scalars`` and ``finish`` are called in the other process, the
    methods of an observer in the training's.

    Attributes:
        name: of the service, and of its folder in the run's folder.
    """

    name = ""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._said = Path()

    # ---- in the training's process ---------------------------------------------------------------------------------

    def start(self, run: RunFacts) -> None:
        if not run.trains:
            return
        self._said = run.folder / self.name / "log.txt"
        self._said.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", __name__, self.name]
        paths = os.pathsep.join(filter(None, [_PACKAGES, os.environ.get("PYTHONPATH")]))
        with open(self._said, "wb") as said:
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                env={**os.environ, "PYTHONPATH": paths},
                start_new_session=True,  # Ctrl-C is for the training, which then says how it ended
            )
        self._send("begin", str(run.folder.resolve()), run.config_text, run.epochs, run.updates_per_epoch, run.update)
        os.set_blocking(self._process.stdin.fileno(), False)

    def add(self, group: str, update: int, values: dict[str, float]) -> None:
        self._send("scalars", scalars_of(group, values), update, time.time())

    def end(self, outcome: str) -> None:
        self._send("finish", outcome)
        if self._process is not None:
            for _ in range(_LAST_SECONDS):  # an end of its own: the watchdog's is not needed
                status.note(f"sending the rest to {self.name}")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(1)
                    break
            if self._process.poll() != 0:
                raise self._failure(f"it was not done {_LAST_SECONDS} s after the training")
            self._process.stdin.close()

    def _send(self, *message: Any) -> None:
        """A line to the service's process.

        Raises:
            OSError: it has ended, or the pipe is full; it is ended then.
        """
        if self._process is None:
            return
        try:
            os.write(self._process.stdin.fileno(), json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise self._failure(f"it takes nothing any more ({error.strerror})") from error

    def _failure(self, reason: str) -> OSError:
        """Ends the process; the reason is the library's own where that has told one."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # its helpers as well
        elif self._said.stat().st_size:
            reason = one_line(self._said.read_bytes().decode("utf-8", "replace").splitlines()[-1])
        self._process.wait()
        self._process.stdin.close()
        self._process = None
        return OSError(f"{self.name}: {reason}; see {self._said}")

    # ---- in the service's process ----------------------------------------------------------------------------------

    def begin(self, run: RunFacts, title: str, run_id: str | None) -> str:
        """Begin a run called ``title``, or continue ``run_id``; returns its id."""
        raise NotImplementedError

    def scalars(self, values: dict[str, float], step: int, seconds: float) -> None:
        """Send numbers by their tags, such as ``training/loss``; ``seconds`` since 1970."""
        raise NotImplementedError

    def finish(self, outcome: str) -> None:
        """Send the rest, and say how the training has ended."""
        raise NotImplementedError


class WandbLog(ServiceLog):
    """Weights & Biases; its own variables, such as WANDB_PROJECT and WANDB_MODE, are respected."""

    name = "wandb"
    requires = {"wandb": "wandb"}

    def begin(self, run: RunFacts, title: str, run_id: str | None) -> str:
        import wandb

        # Nothing of the machine, the command line and the code: there may be passwords in them.
        unwanted = ("x_disable_meta", "x_disable_stats", "disable_git")
        private = {**dict.fromkeys(unwanted, True), "x_save_requirements": False, "save_code": False}
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=os.environ.get("WANDB_NAME", title),
            id=run_id,
            resume="allow",
            dir=str(run.folder),
            config=parse_yaml(run.config_text),
            settings=wandb.Settings(console="off", host=os.environ.get("WANDB_HOST", ""), **private),
        )
        self._run.define_metric("update")  # its own step only grows, and a resumed run may repeat updates
        self._run.define_metric("*", step_metric="update")
        return self._run.id

    def scalars(self, values: dict[str, float], step: int, seconds: float) -> None:
        self._run.log({"update": step, **values})

    def finish(self, outcome: str) -> None:
        self._run.finish(exit_code=int(outcome == FAILED))


class MlflowLog(ServiceLog):
    """MLflow, at MLFLOW_TRACKING_URI and in the experiment MLFLOW_EXPERIMENT_NAME."""

    name = "mlflow"
    requires = {"mlflow": "mlflow-skinny"}

    def begin(self, run: RunFacts, title: str, run_id: str | None) -> str:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient, entities

        self._client, self._metric = MlflowClient(), entities.Metric
        if run_id is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            experiment = self._client.get_experiment_by_name(name)
            number = experiment.experiment_id if experiment else self._client.create_experiment(name)
            run_id = self._client.create_run(number, run_name=title).info.run_id
            settings = leaves(parse_yaml(run.config_text))
            parameters = [entities.Param(key, str(value)[:_LONGEST_TEXT]) for key, value in settings]
            for first in range(0, len(parameters), _MOST_PARAMETERS):
                self._client.log_batch(run_id, params=parameters[first : first + _MOST_PARAMETERS])
        else:
            self._client.update_run(run_id, status="RUNNING")
        self._id = run_id
        return run_id

    def scalars(self, values: dict[str, float], step: int, seconds: float) -> None:
        allowed = {re.sub(r"[^\w\-. :/]", "_", tag): value for tag, value in values.items()}
        metrics = [self._metric(tag, value, int(seconds * 1000), step) for tag, value in allowed.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def finish(self, outcome: str) -> None:
        self._client.set_terminated(self._id, {FINISHED: "FINISHED", STOPPED: "KILLED", FAILED: "FAILED"}[outcome])


class ClearmlLog(ServiceLog):
    """ClearML, as ``clearml.conf`` or its variables say, in the project CLEARML_PROJECT."""

    name = "clearml"
    requires = {"clearml": "clearml"}

    def begin(self, run: RunFacts, title: str, run_id: str | None) -> str:
        os.environ.setdefault("CLEARML_WORKER_NAME", PROJECT)  # else the machine's name
        from clearml import Task

        self._task = Task.init(
            project_name=os.environ.get("CLEARML_PROJECT", PROJECT),
            task_name=title,
            reuse_last_task_id=run_id or False,
            continue_last_task=0 if run_id else False,  # 0: updates are counted from the training's start
            auto_connect_arg_parser=False,
            auto_connect_frameworks={"detect_repository": False},
            auto_connect_streams=False,
            auto_resource_monitoring=False,
        )
        self._task.set_parameters({f"General/{key}": value for key, value in leaves(parse_yaml(run.config_text))})
        return self._task.id

    def scalars(self, values: dict[str, float], step: int, seconds: float) -> None:
        for tag, value in values.items():
            group, _, name = tag.partition("/")
            self._task.get_logger().report_scalar(name, group, value, step)  # one plot, a line for each group

    def finish(self, outcome: str) -> None:
        if outcome == FAILED:
            self._task.mark_failed()
        elif outcome == STOPPED:
            self._task.mark_stopped()
        self._task.close()


def _begin(service: ServiceLog, folder: str, config_text: str, epochs: int, per_epoch: int, update: int) -> None:
    run = RunFacts(Path(folder), None, config_text, True, epochs, per_epoch, update)
    file = run.folder / service.name / "run_id"
    known = file.read_text(encoding="utf-8") if update and file.is_file() else None
    file.write_text(service.begin(run, run.folder.name, known), encoding="utf-8")
    if known is None:  # it was not asked for from the beginning of the training
        for event in run.history():
            service.scalars(scalars_of(event["kind"], event), event["update"], event["time"])


def _serve(service: ServiceLog) -> None:
    """Do what the training's lines say; if they end without the last one, it was killed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a scheduler sends it to all; the training says how it ends
    outcome = FAILED
    for line in sys.stdin.buffer:
        method, *arguments = json.loads(line)
        if method == "finish":
            (outcome,) = arguments
            break
        _begin(service, *arguments) if method == "begin" else service.scalars(*arguments)
    signal.alarm(_LAST_SECONDS)
    service.finish(outcome)


if __name__ == "__main__":
    try:
        _serve({log.name: log for log in (WandbLog, MlflowLog, ClearmlLog)}[sys.argv[1]]())
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {one_line(error)}")
