"""Memory and speed of four ways to feed PointGroup's training with scenes of ScanNet's size.

    python benchmarks/scene_memory.py                    # needs about 14 GB of free memory and SciPy

Scenes are embedded rooms with sizes as ScanNet's (mean about 150,000 points, some above 400,000). A store has 32
different ones under as many names as are asked for; those of the same content share a file, so that no way waits for a
disk. The ways, each feeding batches of 4 training scenes to one process, with 2 loader processes but for the second:

- eager: all scenes in lists of arrays in memory, the plain pipeline of ``plain_scenes.py``
- lazy in main: a scene's pickled arrays are read when it is due, all in the training process
- lazy in workers: the same in the loader processes
- ours: memory-mapped scenes and our pipeline, with the fields of the plain ways
- ours with plan: the batches that our training takes, with fewer fields and the coordinate plan of the network, which
  the original makes on the GPU
- ours, 2 ranks: two training processes of that kind that share the scenes of an epoch

Memory is the sum over all processes of PSS (what several processes share counts in parts) plus what lies in /dev/shm
for them, at its highest while batches are taken, and the same above the same processes fed one repeated scene of mean
size; USS is what no two share. Every way runs with a store and with a quarter of it, in rounds. Then batches per second
of the loader alone, in interleaved rounds, and a short training beside the loader; ``scene_stages.py`` is run first.
Ours runs in the environment that a run of ours gives itself, the plain ways in one without variables of ours.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import children
import numpy as np
import sized_scenes
from process_memory import Memory, get_files, get_members, get_memory
from rounds import Spread, interleave, print_machine, print_result, print_table, ratios
from smallest import need, sized

SCENES = sized(1800, 8)
BATCH, WORKERS, MAX_POINTS = sized(4, 1), 2, 250_000
SPEED_BATCHES, MEMORY_BATCHES, TRAINING_BATCHES = sized((8, 16, 3), (1, 1, 1))
SCANNET_SCENES = 1201
WAYS = ("eager", "lazy in main", "lazy in workers", "ours", "ours with plan")
RANKS = "ours, 2 ranks"
SPED, WATCHED = sized((WAYS, (*WAYS, RANKS)), (("ours",), ("ours",)))  # of speed, and of memory
GB = 2.0**30


# ---- the ways, each in a process of its own --------------------------------------------------------------------------


class Numbers:
    """A dataset of scene numbers, with the scene read beside them if ``reads``."""

    def __init__(self, numbers: Sequence[int], reads: Callable[[int], Any]) -> None:
        self.numbers, self.reads = numbers, reads

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Any:
        return self.reads(self.numbers[index])


def plain_batches(way: str, folder: Path, numbers: Sequence[int]) -> Iterator[Any]:
    """Batches without end of the three plain ways."""
    import paddle
    import plain_scenes

    if way == "eager":
        held = {number: sized_scenes.read_plain(folder, number) for number in sorted(set(numbers))}
        reads = held.__getitem__
    else:

        def reads(number: int) -> Any:
            return sized_scenes.read_plain(folder, number)

    def collate(scenes: list[Any]) -> dict[str, np.ndarray]:
        generator = np.random.default_rng()
        return plain_scenes.merge([plain_scenes.prepare(scene, MAX_POINTS, generator) for scene in scenes])

    class Scenes(Numbers, paddle.io.Dataset):
        pass

    loader = paddle.io.DataLoader(
        Scenes(numbers, reads),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        num_workers=0 if way == "lazy in main" else WORKERS,
        use_buffer_reader=way != "lazy in main",
        return_list=True,
    )
    while True:
        yield from loader


class Repeated:
    """Our dataset of which only some numbers are read, so that one scene can take the place of all."""

    def __init__(self, dataset: Any, numbers: Sequence[int]) -> None:
        self.dataset, self.numbers = dataset, np.asarray(numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def read(self, index: int) -> Any:
        return self.dataset.read(int(self.numbers[index]))

    def describe(self, index: int) -> str:
        return self.dataset.describe(int(self.numbers[index]))


def our_batches(folder: Path, numbers: Sequence[int], spec: Any, rank: int = 0, ranks: int = 1) -> Iterator[Any]:
    """Batches without end of our loader: with the original's fields, or what a network of this ``PlanSpec`` reads."""
    import plain_scenes

    from paddlevit_dist.core import settings
    from paddlevit_dist.core.data.loader import DeviceLoader
    from paddlevit_dist.core.data.sampler import TrainingSampler
    from paddlevit_dist.points.data.samples import collate_samples, compile_loops
    from paddlevit_dist.points.data.scenes import ScanNet
    from paddlevit_dist.points.instances.batches import instance_fields
    from paddlevit_dist.points.instances.input import InstanceSamples, build_steps, compile_loop
    from paddlevit_dist.points.sparse import build_plan

    compile_loops()  # as the task does
    compile_loop()
    cache = folder / f"cache{rank}"
    cache.mkdir(exist_ok=True)
    scenes = Repeated(ScanNet(str(folder), "train", cache), numbers)
    words = ["TASK", "pointgroup", "MODEL.NAME", "pointgroup", "-dataset=scannet", f"-data_path={folder}"]
    points = settings.load([*words, "POINTS.MAX_POINTS", str(MAX_POINTS)]).values.POINTS
    samples = InstanceSamples(scenes, build_steps(points, 50.0, is_training=True), "mean")
    sampler = TrainingSampler(samples, BATCH, rank=rank, world_size=ranks, accumulation_steps=1, seed=0, repeats=1)

    def collate(scenes: list[Any]) -> dict[str, Any]:
        if not spec:
            return plain_scenes.merge_ours(scenes)
        fields = {**collate_samples(scenes), **instance_fields(scenes)}
        return {**fields, **build_plan(fields.pop("coordinates"), spec, len(scenes))}

    loader = DeviceLoader(samples, sampler, collate, num_workers=max(1, WORKERS // ranks), prefetch=1, seed=0)
    yield from loader.epochs(1, 1_000_000)


def feed(way: str, folder: Path, scenes: int, repeated: bool, rank: int, ranks: int) -> None:
    """What a process does: take batches, say how fast, go on until its standard input is closed."""
    from paddlevit_dist.core.tasks.model_factory import create_model

    model = create_model("pointgroup", num_classes=20)  # what is fed is a training, and has one
    numbers = [0] * max(BATCH * ranks * 4, 64) if repeated else list(range(scenes))
    if way.startswith("ours"):
        batches = our_batches(folder, numbers, model.plan_spec() if way != "ours" else None, rank, ranks)
    else:
        batches = plain_batches(way, folder, numbers)
    for _ in range(WORKERS + 1):
        next(batches)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        number = int(line)
        started = time.perf_counter()
        for _ in range(number):
            next(batches)
        print(json.dumps({"seconds": time.perf_counter() - started}), flush=True)
    os._exit(0)  # the loader's processes end with this one


# ---- measuring ------------------------------------------------------------------------------------------------------


class Feeder:
    """A way in its own processes, one for each rank."""

    def __init__(self, way: str, folder: Path, scenes: int, repeated: bool = False) -> None:
        ranks = 2 if way == RANKS else 1
        command = [sys.executable, __file__, "--feed", way, "--folder", str(folder), "--scenes", str(scenes)]
        command += ["--repeated"] if repeated else []
        environment = children.tuned_environment(2, tuned=way.startswith("ours"))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        words = [["--rank", str(rank), "--ranks", str(ranks)] for rank in range(ranks)]
        self.processes = [children.start([*command, *of_rank], environment, **pipes) for of_rank in words]
        for process in self.processes:
            self._answer(process)

    def _answer(self, process: Any) -> dict[str, Any]:
        for line in process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit("a feeding process ended before its time")

    def seconds(self, batches: int) -> float:
        """How long a number of batches takes."""
        self._ask(batches)
        return max(self._answer(process)["seconds"] for process in self.processes)

    def seconds_alone(self, batches: int) -> float:
        """The same in a process that otherwise stands still: it first uses up what its loader had made before."""
        self.send(signal.SIGCONT)
        self.seconds(2 * WORKERS + 1)
        result = self.seconds(batches)
        self.send(signal.SIGSTOP)
        return result

    def send(self, number: int) -> None:
        """A signal to all its processes."""
        for process in self.processes:
            os.killpg(process.pid, number)

    def _ask(self, batches: int) -> None:
        for process in self.processes:
            process.stdin.write(f"{batches}\n")
            process.stdin.flush()

    def peak(self, batches: int) -> Memory:
        """The highest memory while that many batches are taken."""
        import select

        self._ask(batches)
        pss, uss, waiting = [], [], {process.stdout: process for process in self.processes}
        while waiting:
            now = get_memory([process.pid for process in self.processes])
            pss.append(now.pss)
            uss.append(now.uss)
            for stream in select.select(list(waiting), [], [], 0.05)[0]:
                self._answer(waiting.pop(stream))
        return Memory(max(pss), max(uss))

    def __enter__(self) -> "Feeder":
        return self

    def __exit__(self, *_: Any) -> None:
        members = get_members([process.pid for process in self.processes])
        for process in self.processes:
            children.end(process)
        for file in get_files(members):  # killed processes leave them behind
            file.unlink(missing_ok=True)


def measure_memory(folder: Path, scenes: int, number: int, rounds: int) -> dict[str, dict[int, Memory]]:
    """Peak of each way at three sizes: one repeated scene (size 0), a quarter of the scenes, all of them."""
    ways = WATCHED
    sizes = (0, scenes // 4, scenes)
    peaks: dict[str, dict[int, list[Memory]]] = {way: {size: [] for size in sizes} for way in ways}
    for turn in range(rounds):
        for way in ways:
            for size in sizes:
                with Feeder(way, folder, size or scenes, repeated=not size) as feeder:
                    peaks[way][size].append(feeder.peak(number))
            texts = (f"{peaks[way][size][-1].pss / GB:.2f}" for size in sizes)
            print(f"  round {turn + 1}, {way}: {', '.join(texts)} GB", flush=True)
    found = {way: {size: Memory(*map(statistics.median, zip(*peaks[way][size]))) for size in sizes} for way in ways}
    rows = []
    for way in ways:
        base, small, large = (found[way][size] for size in sizes)
        per_scene = (large.pss - small.pss) / (scenes - scenes // 4)
        above = [value.above(base).pss for value in (small, large)]
        at_scannet = above[1] + per_scene * (SCANNET_SCENES - scenes)
        spread = Spread.of([memory.pss / GB for memory in peaks[way][scenes]]).text()
        rows.append([way, *(f"{value / GB:.2f}" for value in (*above, at_scannet, base.pss)), spread])
        rows[-1].append(f"{large.uss / GB:.2f}")
    header = [str(scenes // 4), str(scenes), f"{SCANNET_SCENES}*", "repeated scene", "all together", "USS"]
    print_table("peak GB by number of scenes, above one repeated scene; and all of it", ["way", *header], rows)
    print("  * calculated from the two sizes")
    return found


def measure_speed(folder: Path, scenes: int, rounds: int) -> dict[str, list[float]]:
    """Seconds per batch of each way, in interleaved rounds."""
    feeders = {}
    try:
        for way in SPED:
            feeders[way] = Feeder(way, folder, scenes if way != "eager" else scenes // 4)
            feeders[way].send(signal.SIGSTOP)
        contenders = {
            way: lambda f=feeder: f.seconds_alone(SPEED_BATCHES) / SPEED_BATCHES for way, feeder in feeders.items()
        }
        times = interleave(contenders, rounds)
    finally:
        for feeder in feeders.values():
            feeder.__exit__()
    rows = []
    for way in SPED:
        rate = Spread.of([1 / seconds for seconds in times[way]])
        rows.append([way, rate.text(), ratios(times[SPED[0]], times[way]).text()])
    print_table(f"batches of {BATCH} scenes per second, loader alone", ["way", "batches/s", f"to {SPED[0]}"], rows)
    return times


def measure_training(folder: Path, scenes: int) -> float:
    """Share of a short training's time that it waits for our loader."""
    import paddle

    from paddlevit_dist.core import settings
    from paddlevit_dist.core.tasks.step_types import StepPosition
    from paddlevit_dist.points.instances.task import InstanceSegmentation

    words = ["TASK", "pointgroup", "MODEL.NAME", "pointgroup", "-dataset=scannet", f"-data_path={folder}"]
    task = InstanceSegmentation(settings.load([*words, "DATA.VOXEL_SIZE_M", "0.02"]).values)
    (folder / "cache0").mkdir(exist_ok=True)
    task.build_dataset("train", folder / "cache0")
    model = task.build_model()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    batches = our_batches(folder, range(scenes), model.plan_spec())
    next(batches)
    waited = trained = 0.0
    for update in range(TRAINING_BATCHES):
        started = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - started
        started = time.perf_counter()
        terms = task.train_step(model, batch, StepPosition(1, update, TRAINING_BATCHES))
        paddle.add_n(
            [term.sum / max(float(term.count.item()), 1.0) for term in terms.values() if term.weight]
        ).backward()
        optimizer.step()
        optimizer.clear_grad()
        trained += time.perf_counter() - started
    batches.close()
    share = waited / (waited + trained)
    print(f"\n  training beside our loader: {trained / TRAINING_BATCHES:.1f} s a step, waits for data {share:.1%}")
    return share


def main(arguments: list[str]) -> None:
    need("scipy")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=SCENES)
    parser.add_argument("--rounds", type=int, default=sized(5, 1))
    parser.add_argument("--memory-rounds", type=int, default=sized(3, 1))
    parser.add_argument("--batches", type=int, default=MEMORY_BATCHES, help="taken while memory is watched")
    for hidden in ("--feed", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--repeated", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.feed:
        feed(given.feed, Path(given.folder), given.scenes, given.repeated, given.rank, given.ranks)
        return
    if given.scenes < 8 * BATCH:
        parser.error(f"--scenes {given.scenes}: at least {8 * BATCH}, two batches of each rank in a quarter of them")
    print_machine()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "store")
        sized_scenes.make_store(folder, given.scenes)
        drawn = sized_scenes.sizes()
        print(
            f"{given.scenes:,} scenes, mean {drawn.mean():,.0f} points, {np.sum(drawn > 400_000)} in 32 above 400,000"
        )
        subprocess.run([sys.executable, str(Path(__file__).with_name("scene_stages.py")), str(folder)], check=True)
        found = measure_memory(folder, given.scenes, given.batches, given.memory_rounds)
        times = measure_speed(folder, given.scenes, given.rounds)
        waiting = measure_training(folder, given.scenes)
    sizes = {way: [found[way][size].pss / GB for size in (0, given.scenes // 4, given.scenes)] for way in found}
    above = {way: of_sizes[2] - of_sizes[0] for way, of_sizes in sizes.items()}
    ours = [way for way in ("ours", "ours with plan") if way in sizes]
    peers = [way for way in ("eager", "lazy in main") if way in sizes]
    largest = max(sizes[way][2] for way in ours)
    print_result(
        {
            **{f"gb_above_{way.replace(', ', '_').replace(' ', '_')}": value for way, value in above.items()},
            **{f"gb_{way.replace(', ', '_').replace(' ', '_')}": values[2] for way, values in sizes.items()},
            **{f"gb_growth_of_{way.replace(' ', '_')}": sizes[way][2] - sizes[way][1] for way in ours},
            **{f"memory_share_of_{peer.replace(' ', '_')}": largest / sizes[peer][2] for peer in peers},
            **{
                f"speed{way.removeprefix('ours').replace(' ', '_')}_to_{peer.replace(' ', '_')}": ratios(
                    times[peer], times[way]
                ).median
                for way in ours
                for peer in peers
            },
            "training_data_wait": waiting,
        }
    )


if __name__ == "__main__":
    main(sys.argv[1:])
