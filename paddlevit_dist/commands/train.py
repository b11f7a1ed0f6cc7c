"""Train, or evaluate with ``-eval``: options, configuration, datasets, one worker per device."""

from __future__ import annotations

import textwrap
import time
from typing import Any, Dict, List

from .. import config as configuration
from .. import signals
from ..printing import one_line
from . import replay


def run(arguments: List[str]) -> None:
    """Carry out the command. Nothing here imports Paddle before its environment is set."""
    run = configuration.load(arguments, configuration.EXAMPLE)

    signals.expect(training=not run.values.EVAL and not run.show)

    from ..parallel import tuning

    tuning.restart_with_environment(run.values.NGPUS, run.values.CPU_TUNING)
    if run.values.REPLAY and not run.show:
        replay.run(run)
        return

    from ..contracts.task import make_task
    from ..engine.schedule import with_fitting_warmup
    from ..observe.heartbeat import Heartbeat
    from ..observe.history import note_end
    from ..observe.progress import write_line
    from ..observe.record import cache_folder, prepare_folder, refuse_another_run
    from ..parallel import launch_workers, plan_processes

    plan = plan_processes(run.values.NGPUS)
    if run.show:
        _show(run, plan)
        return
    folder = prepare_folder(run.values.SAVE)
    refuse_another_run(folder, run.values)
    task = make_task(run.values)
    splits = ("val",) if run.values.EVAL else ("train", "val")
    with Heartbeat(write_line, shown=plan.is_main).at("reading the datasets"):
        datasets = {split: task.build_dataset(split, cache_folder(run.values)) for split in splits}
    run = with_fitting_warmup(run, plan.total_processes, datasets)
    began = time.time()
    try:
        arguments = (run.values, task, datasets, [*run.notices, *plan.notices])
        launch_workers(worker, arguments, plan, watchdog_seconds=run.values.WATCHDOG_SECONDS)
    except BaseException as error:
        if plan.is_main:
            note_end(folder, began, error, is_training=not run.values.EVAL)
        raise


def worker(config: Any, task: Any, datasets: Dict[str, Any], notices: List[str]) -> None:
    """What each process runs after joining the group."""
    from ..engine.trainer import Trainer

    trainer = Trainer(config, task, datasets, notices)
    if config.EVAL:
        trainer.evaluate_only()
    else:
        trainer.train()


def _show(run: Any, plan: Any) -> None:
    """-show_config: the merged configuration and values derived from it."""
    from ..contracts.task import make_task
    from ..engine.schedule import describe_rates

    task = make_task(run.values)
    problems = task.check_model()
    print(run.describe())
    rates = describe_rates(run.values, plan.total_processes)
    print(textwrap.fill(rates, configuration.COLUMNS, subsequent_indent="  ", break_on_hyphens=False))
    for notice in [*run.notices, *plan.notices, *task.notices, *problems]:
        print(one_line(notice))
