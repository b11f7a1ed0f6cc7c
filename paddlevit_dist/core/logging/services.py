"""Weights & Biases and MLflow as callbacks (LOG_TO), by their clients.

``run_id`` in the folder with the service's name has the service's id of the run, which a resumed run
continues. Machine, command line and code are not sent: they may contain passwords.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterator
from typing import Any

from ..runtime.errors import UserError
from ..runtime.metrics_file import get_values
from ..runtime.printing import one_line
from ..runtime.text_files import parse_yaml
from ..settings.table import leaves
from ..tasks.callback import RunFacts
from .callbacks import FAILED, FINISHED, STOPPED
from .event_logs import NumbersLog, claim_tag, collect_scalars

PROJECT = "paddlevit_dist"  # default, if the environment names none
_LONGEST_TEXT, _MOST_PARAMETERS = 500, 100  # of MLflow: a value, a request


class ServiceLog(NumbersLog):
    """Common parts of the services; ``name`` is the service's, and that of its folder in the run's folder."""

    name = ""

    def start(self, run: RunFacts) -> None:
        """Begin or continue the service's run, and send the history to a new one."""
        self._sends = run.trains
        if not run.trains:
            return
        file = run.folder / self.name / "run_id"
        file.parent.mkdir(exist_ok=True)
        run_id = file.read_text(encoding="utf-8") if run.update and file.is_file() else None
        with self._convert_errors(UserError, f"LOG_TO {self.name}: ", f"; fix this, or remove {self.name} from LOG_TO"):
            file.write_text(self.begin(run, run_id), encoding="utf-8")
            for event in run.history() if run_id is None else ():  # not logged from the beginning
                self.scalars(collect_scalars(event["kind"], get_values(event)), event["update"], event["time"])

    def add(self, group: str, update: int, values: dict[str, float]) -> None:
        """Send the numbers."""
        if self._sends:
            with self._convert_errors(OSError):
                self.scalars(collect_scalars(group, values), update, time.time())

    def end(self, outcome: str) -> None:
        """Finish the service's run."""
        if self._sends:
            with self._convert_errors(OSError):
                self.finish(outcome)

    @staticmethod
    @contextlib.contextmanager
    def _convert_errors(kind: type[Exception], before: str = "", after: str = "") -> Iterator[None]:
        """Convert an exception of a library, for example due to a missing server, into one line."""
        try:
            yield
        except Exception as error:
            raise kind(f"{before}{type(error).__name__}: {one_line(error)}{after}") from error

    def begin(self, run: RunFacts, run_id: str | None) -> str:
        """Begin a run named like its folder, or continue ``run_id``; return its id."""
        raise NotImplementedError

    def scalars(self, values: dict[str, float], step: int, seconds: float) -> None:
        """Send numbers by their tags, such as ``training/loss``; ``seconds`` since 1970."""
        raise NotImplementedError

    def finish(self, outcome: str) -> None:
        """Send the rest and the outcome of the run."""
        raise NotImplementedError


class WandbLog(ServiceLog):
    """Weights & Biases; its variables, such as WANDB_PROJECT and WANDB_MODE, are respected."""

    name = "wandb"
    requires = {"wandb": "wandb"}

    def begin(self, run: RunFacts, run_id: str | None) -> str:
        """Begin or continue a run."""
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=os.environ.get("WANDB_NAME", run.folder.name),
            id=run_id,
            resume="allow",
            dir=str(run.folder),
            config=parse_yaml(run.config_text),
            settings=wandb.Settings(
                console="off",
                host=os.environ.get("WANDB_HOST", ""),
                x_disable_meta=True,
                x_disable_stats=True,
                disable_git=True,
                x_save_requirements=False,
                save_code=False,
            ),
        )
        self._run.define_metric("update")  # W&B's step only grows, but a resumed run may repeat updates
        self._run.define_metric("*", step_metric="update")
        return self._run.id

    def scalars(self, values: dict[str, float], step: int, seconds: float) -> None:
        """Send numbers by their tags."""
        self._run.log({"update": step, **values})

    def finish(self, outcome: str) -> None:
        """Finish the run."""
        self._run.finish(exit_code=int(outcome == FAILED))


class MlflowLog(ServiceLog):
    """MLflow, at MLFLOW_TRACKING_URI and in the experiment MLFLOW_EXPERIMENT_NAME."""

    name = "mlflow"
    requires = {"mlflow": "mlflow-skinny"}

    def begin(self, run: RunFacts, run_id: str | None) -> str:
        """Begin or continue a run."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        # A missing server costs seconds and then this callback, not minutes of training.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        from mlflow import MlflowClient, entities

        self._client, self._metric, self._tags = MlflowClient(), entities.Metric, dict[str, str]()
        if run_id is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            experiment = self._client.get_experiment_by_name(name)
            number = experiment.experiment_id if experiment else self._client.create_experiment(name)
            run_id = self._client.create_run(number, run_name=run.folder.name).info.run_id
            settings = leaves(parse_yaml(run.config_text))
            parameters = [entities.Param(key, str(value)[:_LONGEST_TEXT]) for key, value in settings.items()]
            for first in range(0, len(parameters), _MOST_PARAMETERS):
                self._client.log_batch(run_id, params=parameters[first : first + _MOST_PARAMETERS])
        else:
            self._client.update_run(run_id, status="RUNNING")
        self._id = run_id
        return run_id

    def scalars(self, values: dict[str, float], step: int, seconds: float) -> None:
        """Send numbers by their tags."""
        tags = [claim_tag(self._tags, tag, re.sub(r"[^\w\-. :/]", "_", tag)) for tag in values]
        milliseconds = int(seconds * 1000)
        metrics: list[Any] = [self._metric(tag, value, milliseconds, step) for tag, value in zip(tags, values.values())]
        self._client.log_batch(self._id, metrics=metrics)

    def finish(self, outcome: str) -> None:
        """Set the final status of the run."""
        self._client.set_terminated(self._id, {FINISHED: "FINISHED", STOPPED: "KILLED", FAILED: "FAILED"}[outcome])
