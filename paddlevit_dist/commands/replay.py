"""``-replay=FILE``: run an update that was not finite once more, and name the layer where that begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..config.key import COMMAND_LINE


def run(run: Any) -> None:
    """Carry out the command, a ``Configuration`` with REPLAY. Writes nothing but what reading the data caches."""
    from ..contracts.task import make_task
    from ..engine.evidence import FOLDER, read_skipped, weights_file
    from ..engine.replay import replay, weights_for
    from ..errors import UserError
    from ..observe.progress import write_line
    from ..observe.record import cache_folder
    from ..parallel import launch_workers, plan_processes

    file = Path(run.values.REPLAY)
    skipped = read_skipped(file)
    given = run.values.MODEL.PRETRAINED if run.sources["MODEL.PRETRAINED"] == COMMAND_LINE else None
    weights = weights_for(file, weights_file(file.parent, skipped.first_of_row), given)
    folder = file.absolute().parent
    if folder.name == FOLDER:  # the run's own caches, wherever it is now
        run = run.changed("SAVE", str(folder.parent), "")
    ranks = len(skipped.keys)
    plan = plan_processes(run.values.NGPUS)
    if not plan.launched:
        plan = plan._replace(processes=min(plan.processes, ranks))
    task = make_task(run.values)
    samples = task.build_dataset("train", cache_folder(run.values))
    largest = max(key.index for rank in skipped.keys for micro in rank for key in micro)
    if largest >= len(samples):
        raise UserError(
            f"-replay={file}: it names sample {largest}, but there are {len(samples)}: the data are not the run's"
        )
    if plan.is_main:
        numbers = f"{ranks} rank(s) x {skipped.accumulation_steps} micro-batch(es) x {len(skipped.keys[0][0])}"
        write_line(f"replay of update {skipped.update} in epoch {skipped.epoch}, {numbers} {task.sample_name}")
        write_line(f"weights: {weights}")
        if plan.total_processes != ranks:
            write_line(
                f"note: the run had {ranks} processes, this has {plan.total_processes}: mixing and synchronised batch "
                f"norm are not those of the run (-ngpus={ranks} repeats them)"
            )
    launch_workers(replay, (run.values, task, samples, skipped, weights), plan)
