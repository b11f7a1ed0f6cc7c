"""Train or evaluate on every device of this machine: options, configuration, data sets, one worker per device."""

import sys
import time

from paddlevit_dist.errors import run_and_report
from paddlevit_dist.registry import resolve


def main() -> None:
    from paddlevit_dist import config as configuration

    run = configuration.load(sys.argv[1:], configuration.EXAMPLE)

    from paddlevit_dist.parallel import tuning

    tuning.restart_with_environment(run.values.NGPUS, run.values.CPU_TUNING)

    from paddlevit_dist.engine.schedule import with_fitting_warmup
    from paddlevit_dist.observe.heartbeat import Heartbeat
    from paddlevit_dist.observe.history import note_end
    from paddlevit_dist.observe.progress import write_line
    from paddlevit_dist.observe.record import cache_folder, prepare_folder, refuse_another_run
    from paddlevit_dist.parallel import launch_workers, plan_processes

    plan = plan_processes(run.values.NGPUS)
    if run.show:
        show(run, plan)
        return
    folder = prepare_folder(run.values.SAVE)
    refuse_another_run(folder, run.values)
    task = resolve("task", run.values.TASK)(run.values)
    splits = ("val",) if run.values.EVAL else ("train", "val")
    with Heartbeat(write_line, shown=plan.is_main).at("reading the data sets"):
        datasets = {split: task.build_dataset(split, cache_folder(folder)) for split in splits}
    run = with_fitting_warmup(run, plan.total_processes, datasets)
    task.notices = [*run.notices, *plan.notices, *task.notices]
    began = time.time()
    try:
        launch_workers(worker, (run.values, task, datasets), plan)
    except BaseException as error:
        if plan.is_main:
            note_end(folder, began, error, is_training=not run.values.EVAL)
        raise


def worker(config, task, datasets) -> None:
    """What each process runs once it has joined the others."""
    from paddlevit_dist import Trainer

    trainer = Trainer(config, task, datasets)
    if config.EVAL:
        trainer.evaluate_only()
    else:
        trainer.train()


def show(run, plan) -> None:
    """-show_config: the merged configuration and what follows from it."""
    from paddlevit_dist.engine.schedule import describe_rates

    task = resolve("task", run.values.TASK)(run.values)
    problems = task.check_model()
    print(run.describe())
    print(describe_rates(run.values, plan.total_processes))
    for notice in [*run.notices, *plan.notices, *task.notices, *problems]:
        print(notice)


if __name__ == "__main__":
    sys.exit(run_and_report(main))
