"""What barriers, metrics and gathered objects cost: ours against the usual ways, in the same processes.

python benchmarks/collectives.py [--ranks 2 4 8 16] [--start launcher spawn]

Each number of ranks is started by our launcher, tuned as it tunes itself, and by a plain ``dist.spawn`` in an
environment that nobody has tuned. The parts of ours are timed one by one.
"""

import argparse
import contextlib
import functools
import json
import pickle
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import children
import rounds
from rounds import Spread
from smallest import sized

TIMEOUT_SECONDS = 280  # of one number of ranks, started in one way
STARTS = ("launcher", "spawn")
ROUNDS = sized(7, 1)
SMALL_CALLS = sized(20, 1)  # of one round
METRIC_ROUNDS = 15
METRIC_STEPS = sized(100, 20)  # of one round
REPORT_EVERY = 20
MEGABYTES = sized(10, 1)

METERS = f"meters, reduced every {REPORT_EVERY} steps"
REDUCED = "reduce_dict at each step"
SCALARS = "3 x all_reduce + item()"

NETWORK = "network"
OBJECT = "paddle all_gather_object"
INFLATED = "pickle as int32, padded"


def scalar_means(values: list[Any]) -> list[float]:
    """The peer for metrics: each scalar is reduced by itself and read at once."""
    import paddle
    from paddle import distributed as dist

    means = []
    for value in values:
        total = paddle.assign(value)
        dist.all_reduce(total)
        means.append((total / dist.get_world_size()).item())
    return means


def inflated_gather(data: Any) -> list[Any]:
    """The peer for objects: each byte of the pickle becomes an int32, padded to the longest rank's."""
    import numpy as np
    import paddle
    from paddle import distributed as dist

    own = paddle.to_tensor(np.frombuffer(pickle.dumps(data), dtype=np.uint8).astype(np.int32))  # (bytes,)
    sizes: list[Any] = []
    dist.all_gather(sizes, paddle.to_tensor([own.shape[0]], dtype="int64"))
    lengths = [int(size.item()) for size in sizes]
    if own.shape[0] < max(lengths):
        own = paddle.concat([own, paddle.zeros([max(lengths) - own.shape[0]], dtype="int32")])
    gathered: list[Any] = []
    dist.all_gather(gathered, own)
    return [pickle.loads(part.numpy()[:length].astype(np.uint8).tobytes()) for part, length in zip(gathered, lengths)]


def paddle_gather(data: Any) -> list[Any]:
    """Paddle's own gathering of objects."""
    from paddle import distributed as dist

    gathered: list[Any] = []
    dist.all_gather_object(gathered, data)
    return gathered


@contextlib.contextmanager
def handed_over() -> Iterator[dict[str, int]]:
    """Counts the calls and bytes that this rank hands to Paddle's collectives inside the block."""
    from paddle.distributed.communication import stream

    counted = {"calls": 0, "bytes": 0}
    originals = {name: getattr(stream, name) for name in ("all_gather", "all_reduce")}

    def counting(name: str) -> Callable[..., Any]:
        @functools.wraps(originals[name])
        def call(*arguments: Any, **options: Any) -> Any:
            # all_reduce(tensor, ...), all_gather(list of outputs, tensor, ...)
            tensor = arguments[1 if name == "all_gather" else 0]
            counted["calls"] += 1
            counted["bytes"] += tensor.numpy().nbytes
            return originals[name](*arguments, **options)

        return call

    for name in originals:
        setattr(stream, name, counting(name))
    try:
        yield counted
    finally:
        for name, original in originals.items():
            setattr(stream, name, original)


@contextlib.contextmanager
def stopwatch(owner: Any, name: str, part: str, seconds: dict[str, float]) -> Iterator[None]:
    """Adds what calls of ``owner.name`` take inside the block to ``seconds[part]``."""
    original = getattr(owner, name)
    seconds[part] = 0.0

    def call(*arguments: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return original(*arguments, **options)
        finally:
            seconds[part] += time.perf_counter() - started

    setattr(owner, name, call)
    try:
        yield
    finally:
        setattr(owner, name, original)


class Group:
    """This rank, and the way of ours."""

    def __init__(self) -> None:
        from paddlevit_dist import rank, world_size
        from paddlevit_dist.core.distributed import collectives

        self.rank, self.size = rank(), world_size()
        self._collectives = collectives
        self.ways = {NETWORK: collectives.get_channel()}

    def timed(self, function: Callable[[], Any], calls: int = 1) -> Callable[[], float]:
        """Seconds of one of ``calls`` calls that all ranks begin together."""

        def call() -> float:
            self.ways[NETWORK].wait_for_all()
            started = time.perf_counter()
            for _ in range(calls):
                function()
            return (time.perf_counter() - started) / calls

        return call

    def slowest(self, seconds: dict[str, list[float]]) -> dict[str, list[float]]:
        """For each round the seconds of the rank that took longest."""
        of_ranks = self._collectives.all_gather(seconds)
        return {name: [max(of_round) for of_round in zip(*(s[name] for s in of_ranks))] for name in seconds}


def measure_start() -> dict[str, float]:
    """Seconds of a request to the group's store as Paddle's client sends it, of the first collective, and of a later
    request."""
    import paddle
    from paddle import distributed as dist

    from paddlevit_dist import all_gather

    store = paddle.base.core.create_or_get_global_tcp_store()

    def request() -> float:
        started = time.perf_counter()
        store.add(f"benchmark/{dist.get_rank()}", 1)
        return time.perf_counter() - started

    dist.barrier()
    before = min(request() for _ in range(3))
    dist.barrier()
    started = time.perf_counter()
    all_gather(None)
    first = time.perf_counter() - started
    dist.barrier()
    return {"request before": before, "first all_gather": first, "request after": min(request() for _ in range(20))}


def measure_small(group: Group) -> dict[str, list[float]]:
    """Seconds of one call of each collective with next to nothing to carry."""
    from paddlevit_dist import all_gather, barrier, reduce_dict

    metrics = {"loss": 0.5, "top-1": 3, "top-5": 5}
    calls = {"barrier": barrier, "all_gather": lambda: all_gather(1), "reduce_dict": lambda: reduce_dict(metrics)}
    contenders = {f"{name} {way}": group.timed(call, SMALL_CALLS) for name, call in calls.items() for way in group.ways}
    contenders[OBJECT] = group.timed(lambda: paddle_gather(1), SMALL_CALLS)
    return group.slowest(rounds.interleave(contenders, ROUNDS))


def measure_large(group: Group) -> dict[str, Any]:
    """Seconds of each way to gather 10 MB from every rank, as an array, with what was handed to Paddle."""
    import numpy as np

    from paddlevit_dist import all_gather

    data = np.random.default_rng(group.rank).standard_normal(MEGABYTES * 1_000_000 // 4, dtype=np.float32)
    ways = {way: lambda: all_gather(data) for way in group.ways}
    ways[OBJECT] = lambda: paddle_gather(data)
    if group.size == 2:  # at 16 ranks it would need 10 GB
        ways[INFLATED] = lambda: inflated_gather(data)
    counted = {}
    for name, way in ways.items():
        with handed_over() as counts:
            gathered = way()
        counted[name] = counts["bytes"]
        assert len(gathered) == group.size and np.array_equal(gathered[group.rank], data), name
        del gathered
    seconds = rounds.interleave({name: group.timed(way) for name, way in ways.items()}, ROUNDS)
    parts = {way: measure_parts(group, way, data) for way in group.ways}
    return {"seconds": group.slowest(seconds), "counted": counted, "pickle": len(pickle.dumps(data)), "parts": parts}


def measure_parts(group: Group, way: str, data: Any) -> dict[str, list[float]]:
    """Seconds of the parts of a gathering; what is left over is mostly copying."""
    from paddle import distributed as dist

    from paddlevit_dist.core.distributed import collectives
    from paddlevit_dist.core.launch import secret

    rounds_of_parts: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        parts: dict[str, float] = {}
        group.ways[NETWORK].wait_for_all()
        with contextlib.ExitStack() as watches:
            watches.enter_context(stopwatch(collectives.pickle, "dump", "pickle.dump", parts))
            watches.enter_context(stopwatch(collectives.pickle, "loads", "pickle.loads", parts))
            watches.enter_context(stopwatch(secret, "_signature", "signing and verifying", parts))
            watches.enter_context(stopwatch(group.ways[way], "wait_for_all", "waiting for all", parts))
            watches.enter_context(stopwatch(dist, "all_gather", "gloo all_gather", parts))
            started = time.perf_counter()
            collectives.all_gather(data)
            total = time.perf_counter() - started
        parts["copies and the rest"] = total - sum(parts.values())
        rounds_of_parts.append(parts)
    return {part: [parts[part] for parts in rounds_of_parts] for part in rounds_of_parts[0]}


def measure_metrics() -> dict[str, Any]:
    """Seconds per step of each way to keep three metrics."""
    import paddle

    from paddlevit_dist import rank, reduce_dict, world_size
    from paddlevit_dist.core.logging.meters import StepMeters
    from paddlevit_dist.core.tasks.step_types import LossTerm

    names = ("loss", "top-1", "top-5")
    values = {name: paddle.to_tensor(float(position + rank())) for position, name in enumerate(names)}
    terms = {name: LossTerm(value, 32) for name, value in values.items()}

    def with_meters() -> None:
        meters = StepMeters()
        for step in range(1, METRIC_STEPS + 1):
            meters.add(terms)
            if step % REPORT_EVERY == 0:
                meters.reduce()

    def reduced() -> None:
        for _ in range(METRIC_STEPS):
            reduce_dict(values)

    def scalars() -> None:
        for _ in range(METRIC_STEPS):
            scalar_means(list(values.values()))

    expected = [position + (world_size() - 1) / 2 for position in range(3)]
    assert [value.item() for value in reduce_dict(values).values()] == expected == scalar_means(list(values.values()))
    ways = {METERS: with_meters, REDUCED: reduced, SCALARS: scalars}
    counted = {}
    for name, way in ways.items():
        with handed_over() as counts:
            way()
        counted[name] = {what: count / METRIC_STEPS for what, count in counts.items()}
    group = Group()
    seconds = rounds.interleave({name: group.timed(way) for name, way in ways.items()}, METRIC_ROUNDS)
    return {"seconds": {name: [s / METRIC_STEPS for s in all_] for name, all_ in seconds.items()}, "counted": counted}


def work(folder: str) -> None:
    """Every rank: measure everything; rank 0 writes down what it saw."""
    start = measure_start()
    metrics = measure_metrics()
    group = Group()
    measured = {"start": start, "metrics": metrics, "small": measure_small(group), "large": measure_large(group)}
    if group.rank == 0:
        Path(folder, "measured.json").write_text(json.dumps(measured), encoding="utf-8")


def spawned_work(folder: str) -> None:
    """The same in a user's own script."""
    from paddle import distributed as dist

    dist.init_parallel_env()
    work(folder)


def key(*words: Any) -> str:
    """A name in RESULT."""
    return re.sub(r"\W+", "_", "_".join(map(str, words)))


def milliseconds(values: list[float]) -> str:
    return Spread.of(values).text(1e3, 2 if min(values) < 0.1 else 1)


def show(start: str, ranks: int, measured: dict[str, Any]) -> dict[str, float]:
    """Print the tables of one number of ranks and return the named medians and ratios."""
    print(f"\n== {ranks} ranks started by {'our launcher' if start == 'launcher' else 'dist.spawn'}")
    for what, seconds in measured["start"].items():
        print(f"{what}: {1e3 * seconds:.2f} ms")
    result = {key(start, ranks, what, "ms"): 1e3 * s for what, s in measured["start"].items()}

    small = measured["small"]
    rows = [[what, milliseconds(s)] for what, s in small.items()]
    rounds.print_table(
        f"Small, median of {ROUNDS} rounds of {SMALL_CALLS} calls [lowest, highest]", ["call", "ms"], rows
    )
    result.update({key(start, ranks, what, "ms"): 1e3 * Spread.of(s).median for what, s in small.items()})

    metrics = measured["metrics"]
    seconds, counted = metrics["seconds"], metrics["counted"]
    rows = [
        [way, Spread.of(seconds[way]).text(1e3, 3), rounds.ratios(seconds[SCALARS], seconds[way]).text()]
        + [f"{counted[way][what]:.2f}" for what in ("calls", "bytes")]
        for way in seconds
    ]
    header = ["way", "ms per step", "peer / this", "calls per step", "bytes per step and rank"]
    rounds.print_table(f"Three metrics, median of {METRIC_ROUNDS} rounds of {METRIC_STEPS} steps", header, rows)
    result[key(start, ranks, "scalars_over_meters")] = rounds.ratios(seconds[SCALARS], seconds[METERS]).median
    result[key(start, ranks, "scalars_over_reduce_dict")] = rounds.ratios(seconds[SCALARS], seconds[REDUCED]).median

    large = measured["large"]
    seconds, counted = large["seconds"], large["counted"]
    ours = seconds[NETWORK]
    rows = [
        [way, milliseconds(s), rounds.ratios(s, ours).text(), counted[way], f"{counted[way] / large['pickle']:.3f}"]
        for way, s in seconds.items()
    ]
    header = ["way", "ms", "this / ours", "bytes per rank", "bytes / pickle"]
    rounds.print_table(f"{MEGABYTES} MB of every rank gathered, median of {ROUNDS} rounds", header, rows)
    for way, s in seconds.items():
        result[key(start, ranks, MEGABYTES, "MB", way, "ms")] = 1e3 * Spread.of(s).median
    for way, parts in large["parts"].items():
        rows = [[part, milliseconds(s)] for part, s in parts.items()]
        rounds.print_table(f"Parts of it by {way}, on rank 0", ["part", "ms"], rows)
        for part, s in parts.items():
            result[key(start, ranks, MEGABYTES, "MB", way, part, "ms")] = 1e3 * Spread.of(s).median
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2], help="numbers of processes (default: 2)")
    parser.add_argument("--start", choices=STARTS, nargs="+", default=sized(STARTS, STARTS[:1]), help="default: both")
    parser.add_argument("--worker", nargs=3, metavar=("START", "RANKS", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        run_workers(options.worker[0], int(options.worker[1]), options.worker[2])
        return
    rounds.print_machine()
    result: dict[str, float] = {}
    for ranks in options.ranks:
        for start in options.start:
            tuned = children.tuned_environment(ranks)
            environment = tuned if start == "launcher" else children.clean_environment()
            with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
                command = [sys.executable, __file__, "--worker", start, str(ranks), folder]
                children.run(command, environment, TIMEOUT_SECONDS)
                measured = json.loads(Path(folder, "measured.json").read_text(encoding="utf-8"))
            result.update(show(start, ranks, measured))
    rounds.print_result(result)


def run_workers(start: str, ranks: int, folder: str) -> None:
    """Start the ranks in one of the two ways."""
    if start == "launcher":
        from paddlevit_dist.core.launch import launch_workers, plan_processes

        launch_workers(work, (folder,), plan_processes(ranks))
    else:
        from paddle import distributed as dist

        dist.spawn(spawned_work, args=(folder,), nprocs=ranks, backend="gloo")


if __name__ == "__main__":
    main()
