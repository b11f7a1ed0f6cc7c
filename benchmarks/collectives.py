"""What a metric and a gathered object cost with two processes: ours against the usual ways, in the same processes.

python benchmarks/collectives.py
"""

from __future__ import annotations

import contextlib
import functools
import json
import pickle
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import rounds
from rounds import Spread

from paddlevit_dist.parallel import launch_workers, plan_processes

PROCESSES = 2
TIMEOUT_SECONDS = 150
METRIC_ROUNDS = 15
METRIC_STEPS = 100  # of one turn
REPORT_EVERY = 20
GATHER_ROUNDS = 15
MEGABYTES = 10

METERS = f"meters, reduced every {REPORT_EVERY} steps"
REDUCED = "reduce_dict at each step"
SCALARS = "3 x all_reduce + item()"

OURS = "all_gather"
INFLATED = "pickle as int32, padded"
OBJECT = "paddle all_gather_object"


def scalar_means(values: List[Any]) -> List[float]:
    """The peer for metrics: each scalar is reduced by itself and read at once."""
    import paddle
    from paddle import distributed as dist

    means = []
    for value in values:
        total = paddle.assign(value)
        dist.all_reduce(total)
        means.append((total / dist.get_world_size()).item())
    return means


def inflated_gather(data: Any) -> List[Any]:
    """The peer for objects: each byte of the pickle becomes an int32, padded to the longest rank's."""
    import numpy as np
    import paddle
    from paddle import distributed as dist

    own = paddle.to_tensor(np.frombuffer(pickle.dumps(data), dtype=np.uint8).astype(np.int32))  # (bytes,)
    sizes: List[Any] = []
    dist.all_gather(sizes, paddle.to_tensor([own.shape[0]], dtype="int64"))
    lengths = [int(size.item()) for size in sizes]
    if own.shape[0] < max(lengths):
        own = paddle.concat([own, paddle.zeros([max(lengths) - own.shape[0]], dtype="int32")])
    gathered: List[Any] = []
    dist.all_gather(gathered, own)
    return [pickle.loads(part.numpy()[:length].astype(np.uint8).tobytes()) for part, length in zip(gathered, lengths)]


def paddle_gather(data: Any) -> List[Any]:
    """Paddle's own gathering of objects."""
    from paddle import distributed as dist

    gathered: List[Any] = []
    dist.all_gather_object(gathered, data)
    return gathered


@contextlib.contextmanager
def handed_over() -> Iterator[Dict[str, int]]:
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


def timed(function: Callable[[], Any]) -> Callable[[], float]:
    """Seconds of one call that all ranks begin together."""
    from paddlevit_dist import barrier

    def call() -> float:
        barrier()
        started = time.perf_counter()
        function()
        return time.perf_counter() - started

    return call


def measure_metrics() -> Dict[str, Any]:
    """Seconds per step of each way to keep three metrics."""
    import paddle

    from paddlevit_dist import rank, reduce_dict
    from paddlevit_dist.engine.task import Term
    from paddlevit_dist.observe.meters import Meters

    names = ("loss", "top-1", "top-5")
    values = {name: paddle.to_tensor(float(position + rank())) for position, name in enumerate(names)}
    terms = {name: Term(value, 32) for name, value in values.items()}

    def with_meters() -> None:
        meters = Meters()
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

    expected = [position + (PROCESSES - 1) / 2 for position in range(3)]
    assert [value.item() for value in reduce_dict(values).values()] == expected == scalar_means(list(values.values()))
    ways = {METERS: with_meters, REDUCED: reduced, SCALARS: scalars}
    counted = {}
    for name, way in ways.items():
        with handed_over() as counts:
            way()
        counted[name] = {what: count / METRIC_STEPS for what, count in counts.items()}
    seconds = rounds.interleave({name: timed(way) for name, way in ways.items()}, METRIC_ROUNDS)
    return {"seconds": {name: [s / METRIC_STEPS for s in all_] for name, all_ in seconds.items()}, "counted": counted}


def measure_gather(kind: str) -> Dict[str, Any]:
    """Seconds of each way to gather 10 MB from every rank: ``kind`` "bytes" or "array"."""
    import numpy as np

    from paddlevit_dist import all_gather, rank

    generator = np.random.default_rng(rank())
    data = generator.standard_normal(MEGABYTES * 1_000_000 // 4, dtype=np.float32)
    if kind == "bytes":
        data = data.tobytes()
    ways = {OURS: all_gather, INFLATED: inflated_gather, OBJECT: paddle_gather}
    counted = {}
    for name, way in ways.items():
        with handed_over() as counts:
            gathered = way(data)
        counted[name] = counts
        assert len(gathered) == PROCESSES and np.array_equal(np.asarray(gathered[rank()]), np.asarray(data)), name
    contenders = {name: timed(functools.partial(way, data)) for name, way in ways.items()}
    seconds = rounds.interleave(contenders, GATHER_ROUNDS)
    return {"seconds": seconds, "counted": counted, "pickle": len(pickle.dumps(data))}


def work(folder: str) -> None:
    """Both ranks: measure everything; rank 0 writes down what it saw."""
    from paddlevit_dist import is_main

    measured = {"metrics": measure_metrics(), "bytes": measure_gather("bytes"), "array": measure_gather("array")}
    if is_main():
        Path(folder, "measured.json").write_text(json.dumps(measured), encoding="utf-8")


def show(measured: Dict[str, Any]) -> Dict[str, float]:
    """Print the tables and return the named ratios: how many times ours the peer takes."""
    result = {}
    metrics = measured["metrics"]
    seconds, counted = metrics["seconds"], metrics["counted"]
    rows = [
        [name, Spread.of(seconds[name]).text(1e3, 3), rounds.ratios(seconds[SCALARS], seconds[name]).text()]
        + [f"{counted[name][what]:.2f}" for what in ("calls", "bytes")]
        for name in seconds
    ]
    header = ["way", "ms per step", "peer / this", "calls per step", "bytes per step and rank"]
    title = f"Three metrics with {PROCESSES} processes, median of {METRIC_ROUNDS} rounds [lowest, highest]"
    rounds.table(title, header, rows)
    result["scalars_over_meters"] = rounds.ratios(seconds[SCALARS], seconds[METERS]).median
    result["scalars_over_reduce_dict"] = rounds.ratios(seconds[SCALARS], seconds[REDUCED]).median
    for kind in ("bytes", "array"):
        seconds, counted = measured[kind]["seconds"], measured[kind]["counted"]
        rows = [
            [name, Spread.of(seconds[name]).text(1e3, 1), rounds.ratios(seconds[name], seconds[OURS]).text()]
            + [counted[name]["bytes"], f"{counted[name]['bytes'] / measured[kind]['pickle']:.3f}"]
            for name in seconds
        ]
        header = ["way", "ms", "this / ours", "bytes per rank", "bytes / pickle"]
        rounds.table(f"{MEGABYTES} MB ({kind}) gathered by {PROCESSES} processes, {GATHER_ROUNDS} rounds", header, rows)
        for name, key in ((INFLATED, "int32"), (OBJECT, "all_gather_object")):
            result[f"{key}_over_all_gather_{kind}_time"] = rounds.ratios(seconds[name], seconds[OURS]).median
            result[f"{key}_over_all_gather_{kind}_bytes"] = counted[name]["bytes"] / counted[OURS]["bytes"]
    result["all_gather_bytes_over_pickle"] = measured["bytes"]["counted"][OURS]["bytes"] / measured["bytes"]["pickle"]
    return result


def main() -> None:
    if "--worker" in sys.argv:
        launch_workers(work, (sys.argv[-1],), plan_processes(PROCESSES))
        return
    rounds.print_machine()
    with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
        command = [sys.executable, __file__, "--worker", folder]
        rounds.run(command, rounds.tuned_environment(PROCESSES), TIMEOUT_SECONDS)
        measured = json.loads(Path(folder, "measured.json").read_text(encoding="utf-8"))
    rounds.print_result(show(measured))


if __name__ == "__main__":
    main()
