"""``-selftest``: whether the configured training depends on the number of processes, on the configured data."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

from ..errors import UserError
from ..observe.progress import write_line

_FOR_ALL = {
    "TRAIN.OPTIMIZER.NAME": "SGD",
    "TRAIN.BATCH_NORM": "sync",
    "TRAIN.MODEL_EMA": False,
    "TRAIN.TF32": False,
    "MODEL.RESUME": None,
    "AMP": False,
}


class _Way(NamedTuple):
    name: str
    processes: int
    batch: int
    accumulated: int


def run(run: Any) -> None:
    """Carry out the command, a ``Configuration`` with SELFTEST. Nothing is written to the output folder.

    Raises:
        SystemExit: with 1, tensors differ.
    """
    from ..contracts.task import make_task
    from ..engine.selftest import PERTURBED, UPDATES, read_way, run_way
    from ..parallel import launch_workers, plan_processes

    plan = plan_processes(run.values.NGPUS)
    if plan.launched:
        raise UserError("-selftest starts its own processes: run it without Paddle's launcher")
    with tempfile.TemporaryDirectory(prefix="paddlevit_dist_selftest_") as name:
        folder = Path(name)
        own_cache = Path(run.values.DATA.CACHE_FOLDER or Path(run.values.SAVE, "data"))
        run, off = _comparable(run, str(folder))
        ways = _ways(plan, run.values.DATA.BATCH_SIZE, run.values.NGPUS)
        for line in [
            f"selftest: {UPDATES} updates in each of these ways, float32, SGD",
            *(f"  {w.name}" for w in ways),
        ]:
            write_line(line)
        write_line(f"off, since each rank draws its own or rounds otherwise: {', '.join(['dropout layers', *off])}")
        # What a run has made of the data is read, and what it has not is thrown away.
        task = make_task(run.values)
        train = task.build_dataset("train", own_cache if own_cache.is_dir() else folder)
        results: Dict[str, Any] = {}
        for number, way in enumerate(ways):
            if way.accumulated > 1 and results[ways[0].name].has_batch_norm:
                write_line(f"not compared: {way.name}: batch norm has other statistics in each micro-batch")
                continue
            place = folder / str(number)
            place.mkdir()
            config = _of_way(run, way).values
            these = plan._replace(processes=way.processes)
            perturbed = PERTURBED if way.processes == way.accumulated else 0  # of the one that others are compared with
            arguments = (config, task, train, str(place), perturbed)
            launch_workers(run_way, arguments, these, config.WATCHDOG_SECONDS, apart=True)
            results[way.name] = read_way(place)
        if len(results) == 1:
            raise UserError(
                "-selftest: a single process with batch norm has nothing to be compared with; expected -ngpus=2 or "
                "more, on CPUs if need be (CUDA_VISIBLE_DEVICES=)"
            )
        if not _compare(results, ways):
            raise SystemExit(1)


def _comparable(run: Any, folder: str) -> Tuple[Any, List[str]]:
    """The configuration without what is random on each rank, and what that is."""
    from ..contracts.task import make_task

    task = make_task(run.values)
    off = []
    for name, value in {**_FOR_ALL, **task.of_each_rank, "SAVE": folder}.items():
        node = run.values
        for part in name.split("."):
            node = node[part]
        if node != value:
            run = run.changed(name, value, "")
            if name in task.of_each_rank or name == "AMP":
                off.append(f"{name} {node}")
    return run, off


def _ways(plan: Any, batch: int, requested: int) -> List[_Way]:
    """The ways that are compared, the one with a single process and a whole batch last but one."""
    processes = plan.processes
    if processes == 1 and not plan.uses_gpu and requested == -1:
        processes = 2
    parts = max(2, processes)
    share = max(1, batch // parts)
    ways = [_Way(f"{processes} processes x {share}", processes, share, 1)] if processes > 1 else []
    ways.append(_Way(f"1 process x {share * parts}", 1, share * parts, 1))
    return [*ways, _Way(f"1 process x {share} x {parts} accumulated", 1, share, parts)]


def _of_way(run: Any, way: _Way) -> Any:
    for name, value in {
        "NGPUS": way.processes,
        "DATA.BATCH_SIZE": way.batch,
        "TRAIN.ACCUM_ITER": way.accumulated,
    }.items():
        run = run.changed(name, value, "")
    return run


def _compare(results: Dict[str, Any], ways: List[_Way]) -> bool:
    """Print what differs; whether nothing does."""
    from ..engine.selftest import differences

    one = next(way.name for way in ways if way.processes == way.accumulated)
    is_equal = True
    for way in ways:
        if way.name == one or way.name not in results:
            continue
        if results[way.name].differing is not None:
            is_equal = False
            write_line(f"FAIL: {way.name}: {results[way.name].differing}")
        found = differences(results[one], results[way.name], with_buffers=way.accumulated == 1)
        broken = [difference for difference in found if difference.share > difference.allowed]
        if broken:
            is_equal = False
            write_line(f"FAIL: {way.name} and {one}: {len(broken)} of {len(found)} tensors differ, first:")
            gradients = [difference for difference in broken if difference.name.startswith("gradient")]
            for difference in dict.fromkeys([broken[0], *gradients[:1]]):
                write_line(f"  {_told(difference)}")
        else:
            worst = max(found, key=lambda difference: difference.share / difference.allowed)
            write_line(f"{way.name} and {one}: {len(found)} tensors agree; closest to what is allowed:")
            write_line(f"  {_told(worst)}")
    write_line("PASS" if is_equal else "FAIL")
    return is_equal


def _told(difference: Any) -> str:
    return (
        f"{difference.name}: by {difference.largest:.3g}, {difference.share:.2g} of {difference.scale:.3g} "
        f"(allowed {difference.allowed:.2g})"
    )
