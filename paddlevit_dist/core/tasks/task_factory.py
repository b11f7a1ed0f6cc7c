"""Build the task that a configuration names, and name its network."""

from ..registry.lookup import require_derived, resolve
from ..registry.required_methods import is_builtin
from ..runtime.errors import UserError
from ..runtime.hints import find_similar
from ..runtime.printing import describe_value, shorten
from ..settings.every_run import RunSettings
from ..settings.table import default_config
from . import protocols
from .aspects import find_location, require_no_override
from .loss_checks import adds_own_loss, has_own_loss, has_own_step
from .measured_task import MeasuredTask
from .metrics import Metrics, TableMetrics
from .task import Task


def make_task(config: RunSettings) -> Task:
    """Build the task that TASK names.

    Raises:
        UserError: the name is unknown, the class is not derived from ``Task``, it has methods that are never called or
            no valid ``best_metric``, or the configuration does not fit it.
    """
    cls = require_derived(resolve("task", config.TASK), Task)
    require_asked_aspects(cls)
    task: Task = cls(config)
    require_called_losses(task)
    require_best_metric(task)
    return task


def build_metrics(task: Task, is_labeled: bool = True) -> Metrics:
    """Build a task's metrics, whose cross-entropy is called the loss only if a user has not written another one.

    Samples without labels have no loss. Raises UserError: a user's method returns something else.
    """
    metrics: object = task.build_metrics()
    if not isinstance(metrics, Metrics):
        raise UserError(
            f"{type(task).__name__}.build_metrics returns {describe_value(metrics)}, expected metrics, such as "
            "TableMetrics or super().build_metrics()"
        )
    if is_labeled and isinstance(metrics, TableMetrics) and has_own_loss(task):
        metrics.expect_own_loss(is_added=adds_own_loss(task))
    return metrics


def name_network(config: RunSettings, task: Task) -> str:
    """Return MODEL.NAME, or what builds the network if a user's task does and MODEL.NAME has its default."""
    if config.MODEL.NAME != default_config().MODEL.NAME or is_builtin(type(task).build_model):
        return config.MODEL.NAME
    return f"{type(task).__name__}.build_model"


def require_asked_aspects(cls: type) -> None:
    """Check that a task's aspects are asked for, and that it has no method that is never called; raises UserError."""
    known = {key: value for key, value in vars(protocols).items() if isinstance(value, type)}
    for owner in cls.__mro__:
        for name in vars(owner).get("aspects", {}):
            if name in known:
                found = find_location(cls, known[name])
                if found is not None and found[1] is not None:
                    require_no_override(cls, found[0], known[name])
            elif near := find_similar(name, known):
                raise UserError(f"{owner.__name__}.aspects: no command asks for {name}: did you mean {near[0]}?")


def require_called_losses(task: Task) -> None:
    """Raise UserError if a user's task has ``losses``, and a ``train_step`` of this package that does not call them."""
    ours = next(each for each in type(task).__mro__ if is_builtin(each) and issubclass(each, Task))
    is_known = hasattr(ours, "losses") or issubclass(ours, MeasuredTask)
    if hasattr(type(task), "losses") and not is_known and not has_own_step(task):
        name = type(task).__name__
        raise UserError(f"{name}.losses is never called: TASK {task.config.TASK} has others: override train_step")


def require_best_metric(task: Task) -> None:
    """Raise UserError if ``best_metric`` is not a name and a truth value: any text would count as True."""
    best: object = task.best_metric  # of a user's class, or set when the data were opened
    is_pair = isinstance(best, (tuple, list)) and len(best) == 2
    if not (is_pair and isinstance(best[0], str) and isinstance(best[1], bool)):  # type: ignore[index]
        raise UserError(
            f"best_metric of {type(task).__name__} is {shorten(repr(best), 60)}: expected the name of a score and "
            'whether higher is better, such as ("accuracy", True) or ("error", False)'
        )
