"""What the labels of landmarks cost: made, collated, handed to the training process and put on the device.

Contenders, 20 landmarks in cubes of 128 and 256 voxels, radius 10, all with the same values:

- loop: dense maps by a loop over landmarks and three axes in the loader process, as landmark projects often have it
- vectorized: dense maps by pasting a precomputed cube in the loader process (CenterNet's way in three dimensions)
- coordinates: ours; positions cross, and the device makes three factors per landmark, which is all that the loss needs
- coordinates, dense: the same, and the device multiplies the factors out

Each label is asked for from a loader process of its own, which sends it as the package's loader does, and the time ends
with the tensor on the device. Then the loss with its gradient on factors and on dense maps; the peak memory of both
processes for one label, each in new processes; and the seconds of an epoch of the embedded task by who makes its
labels, with 1 and 2 processes. In a round every contender has one turn; ratios are taken within a round.
"""

import argparse
import json
import multiprocessing
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import numpy as np
from process_memory import status_bytes
from rounds import ROOT, Spread, interleave, print_machine, print_result, print_table, ratios
from smallest import sized

from paddlevit_dist.core.tasks.dataset import TransformedDataset

LANDMARKS, RADIUS = sized((20, 10), (2, 3))
SIZES = sized((128, 256), (16,))
EPOCH_LABELS = sized(("loop", "vectorized", "coordinates"), ("coordinates",))
EPOCH_PROCESSES, PHANTOMS = sized((1, 2), (1,)), sized(32, 4)
EPOCH_RADIUS = 6
Shape = tuple[int, int, int]


def get_points(size: int) -> np.ndarray:
    """float32 (landmarks, 3): some near the border, none on a voxel's center."""
    return np.random.default_rng(size).uniform(0, size - 1, (LANDMARKS, 3)).astype(np.float32)


# ---- the labels, in the loader process -------------------------------------------------------------------------------


def by_loop(points: np.ndarray, shape: Shape, radius: int) -> np.ndarray:
    """Dense maps, voxel by voxel."""
    maps = np.zeros((len(points), *shape), dtype=np.float32)
    sigma = (2 * radius + 1) / 6
    for number, point in enumerate(points):
        if not np.isfinite(point).all():
            continue
        cz, cy, cx = (int(value) for value in point)
        for z in range(max(cz - radius, 0), min(cz + radius + 1, shape[0])):
            for y in range(max(cy - radius, 0), min(cy + radius + 1, shape[1])):
                for x in range(max(cx - radius, 0), min(cx + radius + 1, shape[2])):
                    distance = (z - cz) ** 2 + (y - cy) ** 2 + (x - cx) ** 2
                    value = np.exp(-distance / (2 * sigma * sigma))
                    maps[number, z, y, x] = max(maps[number, z, y, x], value)
    return maps


def vectorized(points: np.ndarray, shape: Shape, radius: int) -> np.ndarray:
    """Dense maps from one precomputed cube."""
    maps = np.zeros((len(points), *shape), dtype=np.float32)
    z, y, x = np.ogrid[-radius : radius + 1, -radius : radius + 1, -radius : radius + 1]
    sigma = (2 * radius + 1) / 6
    cube = np.exp(-(x * x + y * y + z * z) / (2 * sigma * sigma))
    cube[cube < np.finfo(cube.dtype).eps * cube.max()] = 0
    for number, point in enumerate(points):
        if not np.isfinite(point).all():
            continue
        center = point.astype(int)
        low, high = np.maximum(center - radius, 0), np.minimum(center + radius + 1, shape)
        if (low >= high).any():
            continue
        target = maps[number][tuple(slice(a, b) for a, b in zip(low, high))]
        source = cube[tuple(slice(a - c + radius, b - c + radius) for a, b, c in zip(low, high, center))]
        np.maximum(target, source, out=target)
    return maps


LABELS: dict[str, Callable[[np.ndarray, Shape, int], np.ndarray]] = {
    "loop": by_loop,
    "vectorized": vectorized,
    "coordinates": lambda points, shape, radius: points,
    "coordinates, dense": lambda points, shape, radius: points,
}


def serve(connection: Any, prefix: str) -> None:
    """The loader process: answers (label, size) with the collated label, as the package's loader sends arrays."""
    from paddlevit_dist.core.data.shared_arrays import share

    points = {size: get_points(size) for size in SIZES}
    while True:
        name, size = connection.recv()
        if name is None:
            return
        batch = np.stack([LABELS[name](points[size], (size,) * 3, RADIUS)])
        shared = share(batch, prefix)
        del batch  # a gigabyte takes its time to be given back: now, and not while the next contender waits
        connection.send_bytes(pickle.dumps(shared))


class Consumer:
    """The training process's side of a loader process."""

    def __init__(self) -> None:
        import paddle

        from paddlevit_dist.core.data.shared_arrays import new_prefix

        self.paddle = paddle
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, new_prefix()), daemon=True)
        self.process.start()

    def label(self, name: str, size: int) -> Any:
        """What the loss is given: a dense tensor, or factors."""
        from paddlevit_dist.volumes.landmarks.heatmaps import radius_factors

        self.connection.send((name, size))
        tensor = self.paddle.to_tensor(pickle.loads(self.connection.recv_bytes()))
        if not name.startswith("coordinates"):
            return tensor
        factors = radius_factors(tensor, (size,) * 3, RADIUS)
        return factors.dense() if name.endswith("dense") else factors

    def seconds(self, name: str, size: int) -> float:
        """Of one label; labels that take a millisecond are asked for twenty times in a turn."""
        repeats = 20 if name == "coordinates" else 1
        started = time.perf_counter()
        for _ in range(repeats):
            self.label(name, size)
        return (time.perf_counter() - started) / repeats

    def close(self) -> None:
        self.connection.send((None, 0))
        self.process.join()


# ---- measurements ----------------------------------------------------------------------------------------------------


def measure_labels(rounds: int) -> dict[str, float]:
    consumer = Consumer()
    results = {}
    for size in SIZES:
        reference = consumer.label("loop", size)
        for name in ("vectorized", "coordinates, dense"):
            error = (consumer.label(name, size) - reference).abs().max().item()
            if error > 1e-6:
                raise SystemExit(f"{name} differs from the loop by {error}")
        del reference
        contenders = {name: (lambda name=name, size=size: consumer.seconds(name, size)) for name in LABELS}
        times = interleave(contenders, rounds)
        rows = []
        for name, values in times.items():
            rows.append(
                [
                    name,
                    Spread.of(values).text(1e3, 3),
                    ratios(times["loop"], values).text(digits=1),
                    ratios(times["vectorized"], values).text(digits=1),
                ]
            )
            for peer in ("loop", "vectorized"):
                results[f"{size} {name} against {peer}"] = ratios(times[peer], values).median
        header = ["label", "ms", "times as fast as loop", "as vectorized"]
        print_table(f"whole way of a label, {LANDMARKS} landmarks in {size}^3, {rounds} rounds", header, rows)
    consumer.close()
    return results


def measure_losses(rounds: int, size: int = SIZES[0]) -> dict[str, float]:
    """Squared error with its gradient, given the prediction: on factors, and on dense maps that are already there."""
    import paddle

    from paddlevit_dist.volumes.landmarks.heatmaps import radius_factors
    from paddlevit_dist.volumes.landmarks.losses import weighted_squared_error

    maps = paddle.randn([1, LANDMARKS, size, size, size])
    maps.stop_gradient = False
    factors = radius_factors(paddle.to_tensor(get_points(size)[None]), (size,) * 3, RADIUS)
    dense = factors.dense()

    def timed(loss: Callable[[], Any]) -> float:
        started = time.perf_counter()
        loss().sum().backward()
        maps.clear_gradient()
        return time.perf_counter() - started

    contenders = {
        "plain, dense": lambda: timed(lambda: (maps - dense) ** 2),
        "plain, factors": lambda: timed(lambda: weighted_squared_error(maps, factors, 0.0)),
        "weighted, dense": lambda: timed(lambda: (1 + 10.0 * dense) * (maps - dense) ** 2),
        "weighted, factors": lambda: timed(lambda: weighted_squared_error(maps, factors, 10.0)),
    }
    times = interleave(contenders, rounds)
    rows = [[name, Spread.of(values).text(1e3, 1)] for name, values in times.items()]
    print_table(f"loss and gradient, {LANDMARKS} maps of {size}^3, {rounds} rounds", ["loss", "ms"], rows)
    return {
        f"loss {kind}": ratios(times[f"{kind}, dense"], times[f"{kind}, factors"]).median
        for kind in ("plain", "weighted")
    }


def memory(name: str, size: int, out: Path) -> None:
    """Growth of the two processes' peaks by one label (run in new processes)."""
    consumer = Consumer()
    consumer.label("coordinates", size)
    pids = ("self", consumer.process.pid)
    before = [status_bytes(pid, "VmHWM") for pid in pids]
    consumer.label(name, size)
    growth = [status_bytes(pid, "VmHWM") - start for pid, start in zip(pids, before)]
    consumer.close()
    out.write_text(json.dumps(growth))


def measure_memory(size: int) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in sized(list(LABELS), ["coordinates"]):
            out = Path(folder, "growth.json")
            command = [sys.executable, __file__, "--memory", name, str(size), str(out)]
            children.run(command, children.tuned_environment(1), timeout=300)
            rows.append([name, *(f"{value / 2**20:.0f}" for value in json.loads(out.read_text()))])
    print_table(
        f"peak memory of one label in {size}^3", ["label", "training process, MiB", "loader process, MiB"], rows
    )


# ---- an epoch of the embedded task -----------------------------------------------------------------------------------


def train_epochs(label: str, processes: int, output: str) -> None:
    """Two epochs of phantoms (run in new processes)."""
    from paddlevit_dist.core import settings
    from paddlevit_dist.core.launch import launch_workers, plan_processes
    from paddlevit_dist.volumes.landmarks.task import LandmarkDetection

    arguments = [f"-cfg={ROOT}/configs/landmark_unet3d.yaml", f"-output={output}", f"-batch_size={4 // processes}"]
    arguments += ["-epochs=2", "TRAIN.WARMUP_STEPS", "0", "VOLUMES.HEATMAP", "radius", "VOLUMES.RADIUS", EPOCH_RADIUS]
    values = settings.load([str(word) for word in arguments]).values
    task = LandmarkDetection(values)
    datasets = {"train": Few(task.build_dataset("train", Path(output)), PHANTOMS)}
    datasets["val"] = Few(task.build_dataset("val", Path(output)), 2)
    launch_workers(work, (values, task, datasets, label), plan_processes(processes))


def work(values: Any, task: Any, datasets: Any, label: str) -> None:
    from paddlevit_dist import Trainer

    if label != "coordinates":
        task = with_dense_labels(task, LABELS[label])
    Trainer(values, task, datasets).train()


def with_dense_labels(task: Any, make: Callable[[np.ndarray, Shape, int], np.ndarray]) -> Any:
    """The task with labels that are made in collate and a loss on dense maps."""
    collate = task.collate
    weight = task.config.VOLUMES.PEAK_WEIGHT

    def collate_dense(samples: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        batch = collate(samples)
        if "index" not in batch:
            shape = batch["volume"].shape[2:]
            batch["maps"] = np.stack([make(points, shape, EPOCH_RADIUS) for points in batch["points"]])
        return batch

    def train_step(model: Any, batch: dict[str, Any], step: Any) -> dict[str, Any]:
        import paddle

        from paddlevit_dist.core.tasks.step_types import LossTerm

        maps, target = model(batch["volume"]), batch["maps"]
        losses = ((1 + weight * target) * (maps - target) ** 2).sum(axis=[2, 3, 4]) / task.zero_map_cost()
        present = paddle.isfinite(batch["points"]).all(axis=-1).astype("float32")
        return {"heatmap": LossTerm((losses * present).sum(), present.sum())}

    task.collate, task.train_step = collate_dense, train_step
    return task


class Few(TransformedDataset):
    """The first samples of a split."""

    def __init__(self, samples: Any, size: int) -> None:
        self.samples, self.size = samples, size

    def __len__(self) -> int:
        return self.size

    def sample(self, index: int, generator: Any) -> Any:
        return self.samples.sample(index, generator)

    def describe(self, index: int) -> str:
        return self.samples.describe(index)


def epoch_seconds(label: str, processes: int) -> float:
    """Seconds of the second epoch."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--train", label, str(processes), folder]
        children.run(command, children.tuned_environment(processes), timeout=600)
        lines = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    return [line["seconds"] for line in lines if line["kind"] == "epoch"][-1]


def measure_epochs(rounds: int) -> dict[str, float]:
    contenders = {
        f"{label}, {processes} process{'es' * (processes > 1)}": (
            lambda label=label, processes=processes: epoch_seconds(label, processes)
        )
        for processes in EPOCH_PROCESSES
        for label in EPOCH_LABELS
    }
    times = interleave(contenders, rounds, warm_up=0)
    ours = times["coordinates, 1 process"]
    rows = [[name, Spread.of(v).text(digits=2), ratios(v, ours).text()] for name, v in times.items()]
    header = ["labels", "seconds", "to coordinates, 1 process"]
    print_table(f"epoch of {PHANTOMS} phantoms, radius {EPOCH_RADIUS}, {rounds} rounds", header, rows)
    return {f"epoch {name}": ratios(values, ours).median for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epoch-rounds", type=int, default=3)
    parser.add_argument("--labels-only", action="store_true")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        memory(options.memory[0], int(options.memory[1]), Path(options.memory[2]))
    elif options.train:
        train_epochs(options.train[0], int(options.train[1]), options.train[2])
    elif options.measure:
        results = {**measure_labels(options.rounds), **measure_losses(options.rounds)}
        Path(options.measure).write_text(json.dumps(results))
    else:
        everything(options)


def everything(options: Any) -> None:
    print_machine()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "results.json")
        command = [sys.executable, __file__, "--rounds", str(options.rounds), "--measure", str(out)]
        get_print(command)
        results = json.loads(out.read_text())
    if not options.labels_only:
        measure_memory(SIZES[-1])
        results.update(measure_epochs(options.epoch_rounds))
    print_result(results)


def get_print(command: list[str]) -> None:
    """Run a part that needs the tuned environment; it prints its own tables."""
    import subprocess

    if subprocess.run(command, env=children.tuned_environment(1), timeout=1800).returncode:
        raise SystemExit(f"{' '.join(command)} failed")


if __name__ == "__main__":
    main()
