"""How training scales with processes, and loading with loader processes: ours against torch.

    python benchmarks/scaling.py [--peer-python PYTHON] [--part {processes,loaders,core,calculation}]

- core: one process with one thread, ViT-Ti/16 with 8 images of 224 pixels, training and evaluation
- processes: 1, 2, 4, 8, 16 processes with one thread each, as many as there are cores, that train the same model with
  8 images each; images per second, their share of so many times one process, and what the exchange of gradients takes:
  the same steps without it
- loaders: 1, 2, 4, 8, 15 loader processes, as many as leave a core to the training process; JPEGs of 500 x 375, random
  resized crop to 224 and flip with Pillow, normalized in the training process. Ours also without the settings of malloc
- calculation: 8 GPUs and 8 hosts, calculated from assumed step times and bandwidths. Nothing of it is measured

The peer is run by PYTHON, which has torch: timm's models if timm is installed there, else the same ViT of torch's own
layers (``core`` compares both where it can), DistributedDataParallel over gloo, torch's DataLoader with timm's
operations. All have the same variables in their environment: one thread, and our settings of malloc.
"""

import argparse
import functools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import rounds
from contenders import OURS, ProcessGroup, group_environments, started
from PIL import Image
from rounds import Spread
from smallest import sized

from paddlevit_dist.core.launch import devices

WORKER = str(Path(__file__).with_name("scaling_worker.py"))
FEWEST_ROUNDS, MOST_ROUNDS = 3, 15
MODEL, BATCH = "vit_tiny_patch16_224", sized(8, 1)
TORCH, PLAIN = "torch", "torch-plain"
NO_MALLOC = "ours, malloc as it is"
SIZE_PX, FILES, CLASSES = (500, 375), sized(256, 64), 8  # width, height; how many JPEGs in how many folders


def interleave_for(contenders: Mapping[str, Callable[[], float]], seconds: float) -> dict[str, list[float]]:
    """Interleaved rounds for about so many seconds, after one that says how long they take."""
    began = time.perf_counter()
    rounds.interleave(contenders, 0)
    number = int(seconds / (time.perf_counter() - began))
    return rounds.interleave(contenders, min(MOST_ROUNDS, max(FEWEST_ROUNDS, number)), warm_up=0)


# ---- one core ------------------------------------------------------------------------------------------------


def get_seconds(group: ProcessGroup, exchange: bool) -> float:
    """Of one step: of the slowest rank."""
    return max(answer["seconds"] for answer in group.ask(steps=1, exchange=exchange))


def start_workers(
    kind: str, words: list[str], options: argparse.Namespace, environments: list[dict[str, str]]
) -> ProcessGroup:
    python = sys.executable if kind.startswith(OURS) else options.peer_python
    return ProcessGroup([python, WORKER, *words], environments)


def has_timm(python: str) -> bool:
    return subprocess.run([python, "-c", "import timm"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def measure_core(options: argparse.Namespace) -> dict[str, float]:
    """Training and evaluation of one process on one core."""
    kinds = [OURS]
    if options.peer_python:
        kinds += [TORCH, PLAIN] if has_timm(options.peer_python) else [PLAIN]
    rows, result = [], {}
    for mode in ("train", "eval"):
        words = {kind: ["steps", kind, MODEL, str(BATCH), mode] for kind in kinds}
        groups = {kind: start_workers(kind, words[kind], options, group_environments(kind, 1)) for kind in kinds}
        with started(groups):
            contenders = {kind: functools.partial(get_seconds, groups[kind], True) for kind in kinds}
            times = interleave_for(contenders, options.seconds / 2)
        for kind in kinds:
            ratio = rounds.ratios(times[kind], times[OURS])
            rate = Spread.of([BATCH / seconds for seconds in times[kind]])
            rows.append([f"{mode}, {kind}", len(times[kind]), rate.text(), ratio.text()])
            if kind != OURS:
                result[f"core_{mode}_over_{kind}"] = ratio.median
        result[f"core_{mode}_images_per_second"] = BATCH / Spread.of(times[OURS]).median
        if TORCH in kinds:
            result[f"core_{mode}_plain_over_timm"] = rounds.ratios(times[TORCH], times[PLAIN]).median
    header = ["ViT-Ti/16, batch 8, one thread", "rounds", "images/s", "times as fast is ours"]
    rounds.print_table("One core, median of the rounds [lowest, highest]", header, rows)
    return result


# ---- processes -----------------------------------------------------------------------------------------------


def measure_processes(options: argparse.Namespace) -> dict[str, float]:
    """Training of 1, 2, 4, ... processes, with and without the exchange of gradients."""
    counts = [2**power for power in range(8) if 2**power <= (options.most or devices.cpu_cores())]
    kinds = [OURS, *([TORCH] if options.peer_python else [])]
    rows, result, alone = [], {}, {}
    for processes in counts:
        words = {kind: ["steps", kind, MODEL, str(BATCH), "train"] for kind in kinds}
        groups = {
            kind: start_workers(kind, words[kind], options, group_environments(kind, processes)) for kind in kinds
        }
        with started(groups):
            ways = [True, False] if processes > 1 else [True]
            contenders = {
                f"{kind} {way}": functools.partial(get_seconds, groups[kind], way) for kind in kinds for way in ways
            }
            times = interleave_for(contenders, options.seconds / len(counts))
        for kind in kinds:
            took = times[f"{kind} True"]
            rate = Spread.of([processes * BATCH / seconds for seconds in took])
            alone.setdefault(kind, rate.median)
            linear = rate.median / (processes * alone[kind])
            share = Spread.of([1 - b / a for a, b in zip(took, times[f"{kind} False"])]) if processes > 1 else None
            ratio = rounds.ratios(took, times[f"{OURS} True"])
            row = [f"{processes} {kind}", len(took), rate.text(digits=1), f"{linear:.0%}"]
            rows.append([*row, share.text(100, 0) if share else "", ratio.text()])
            name = f"{kind}_{processes}"
            result.update({f"{name}_images_per_second": rate.median, f"{name}_of_linear": linear})
            if share:
                result[f"{name}_exchange_share"] = share.median
            if kind != OURS:
                result[f"{processes}_over_torch"] = ratio.median
        print(f"measured {processes} process(es)", flush=True)
    header = ["processes", "rounds", "images/s", "of linear", "exchange, %", "times as fast is ours"]
    rounds.print_table("ViT-Ti/16, 8 images per process, median of the rounds [lowest, highest]", header, rows)
    return result


# ---- loaders -------------------------------------------------------------------------------------------------


def write_images(folder: Path) -> None:
    """JPEGs (quality 90) that are as rough as photographs: noise whose amplitude falls with its frequency."""
    generator = np.random.default_rng(0)
    width, height = SIZE_PX
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None]
    falling = 1 / np.maximum(np.hypot(rows, columns), 1 / width)
    for number in range(FILES):
        noise = generator.standard_normal((3, height, width))
        field = np.fft.irfft2(np.fft.rfft2(noise) * falling, s=(height, width))  # (3, height, width)
        field = field[0] + 0.4 * field  # mostly gray, as photographs
        pixels = np.clip(128 + 55 * field / field.std(), 0, 255).astype(np.uint8).transpose(1, 2, 0)
        for split in ("train", *(["val"] if number < CLASSES else [])):
            place = folder / split / f"class_{number % CLASSES}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(place / f"{number:04d}.jpg", quality=90)


def measure_loaders(options: argparse.Namespace) -> dict[str, float]:
    """Images per second in the training process, by the number of loader processes."""
    most = options.most or devices.cpu_cores() - 1
    counts = sorted({count for count in (1, 2, 4, 8, 15) if count <= most} | {min(most, 15)})
    kinds = [OURS, NO_MALLOC, *([TORCH] if options.peer_python else [])]
    rows, result = [], {}
    with tempfile.TemporaryDirectory(prefix="benchmark_") as name:
        write_images(Path(name))
        size = sum(file.stat().st_size for file in Path(name).rglob("*.jpg")) / (FILES + CLASSES)
        print(f"{FILES} JPEGs of {SIZE_PX[0]} x {SIZE_PX[1]}, {size / 1000:.0f} kB on average", flush=True)
        for workers in counts:
            groups = {kind: loader_group(kind, name, workers, options) for kind in kinds}
            # Loaders run ahead while others have their turn: each turn begins with what drains that.
            turn = max(1.0, options.seconds / len(counts) / len(kinds) / (FEWEST_ROUNDS + 2))
            with started(groups):
                contenders = {kind: functools.partial(images_per_second, group, turn) for kind, group in groups.items()}
                rates = interleave_for(contenders, options.seconds / len(counts))
            for kind in kinds:
                ratio = rounds.ratios(rates[OURS], rates[kind])
                row = [f"{workers} {kind}", len(rates[kind]), Spread.of(rates[kind]).text(digits=0), ratio.text()]
                rows.append(row)
                if kind != OURS:
                    result[f"loaders_{workers}_over_{'torch' if kind == TORCH else 'malloc_as_it_is'}"] = ratio.median
            result[f"loaders_{workers}_images_per_second"] = Spread.of(rates[OURS]).median
    header = ["loader processes", "rounds", "images/s", "times as fast is ours"]
    rounds.print_table("Loading, median of the rounds [lowest, highest]", header, rows)
    return result


def loader_group(kind: str, folder: str, workers: int, options: argparse.Namespace) -> ProcessGroup:
    (environment,) = group_environments(OURS, 1)
    if kind == NO_MALLOC:
        environment = {name: value for name, value in environment.items() if not name.startswith("MALLOC_")}
    words = ["loads", OURS if kind == NO_MALLOC else kind, folder, str(workers)]
    return start_workers(kind, words, options, [environment])


def images_per_second(group: ProcessGroup, seconds: float) -> float:
    (answer,) = group.ask(warm_up=seconds / 2, seconds=seconds / 2)
    return answer["images"] / answer["seconds"]


# ---- calculation ---------------------------------------------------------------------------------------------


class Network(NamedTuple):
    """What connects processes: how many, and the bytes per second into and out of each."""

    name: str
    processes: int
    bytes_per_second: float


NETWORKS = (
    Network("8 GPUs of a host, NVLink 300 GB/s", 8, 300e9),
    Network("8 GPUs of a host, PCIe 4 20 GB/s", 8, 20e9),
    Network("8 hosts of one GPU, 100 Gbit/s", 8, 12.5e9),
    Network("8 hosts of 8 GPUs, 200 Gbit/s a host", 64, 25e9 / 8),
    Network("8 hosts, 10 Gbit/s", 8, 1.25e9),
)
PARAMETERS = {"ViT-Ti/16": 5.7e6, "ViT-B/16": 86.6e6}
STEP_SECONDS = (0.1, 0.3)
HIDDEN = 2 / 3 * 0.8  # the share of a step beside which gradients travel: its backward pass, but for the last buckets


def of_linear(parameters: float, step_seconds: float, network: Network) -> float:
    """The calculated share of linear scaling: a ring's all-reduce moves ``2 (n - 1) / n`` times the float32 gradients
    through each process, of which the backward pass hides what fits beside it."""
    moved = 2 * (network.processes - 1) / network.processes * 4 * parameters
    exposed = max(moved / network.bytes_per_second - HIDDEN * step_seconds, 0.05 * moved / network.bytes_per_second)
    return step_seconds / (step_seconds + exposed)


def calculate() -> dict[str, float]:
    """Print the table. Every figure of it follows from the assumptions above; none was measured."""
    rows, result = [], {}
    for network in NETWORKS:
        for name, parameters in PARAMETERS.items():
            shares = [of_linear(parameters, seconds, network) for seconds in STEP_SECONDS]
            rows.append([f"{network.name}, {name}", *(f"{share:.0%}" for share in shares)])
        result[f"calculated_{network.name.split(',')[0].replace(' ', '_')}_{network.bytes_per_second / 1e9:g}GB"] = min(
            of_linear(parameters, STEP_SECONDS[0], network) for parameters in PARAMETERS.values()
        )
    header = ["calculated, not measured", *(f"a step of {1e3 * seconds:.0f} ms" for seconds in STEP_SECONDS)]
    rounds.print_table("A calculation: share of linear scaling", header, rows)
    return result


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "core": measure_core,
    "processes": measure_processes,
    "loaders": measure_loaders,
    "calculation": lambda options: calculate(),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", metavar="PYTHON", help="interpreter with torch; without it: ours alone")
    parser.add_argument("--part", choices=PARTS, action="append", help="more than once for several; without it: all")
    parser.add_argument(
        "--seconds", type=float, default=sized(150, 1), help="for the rounds of a part, beside its starts"
    )
    parser.add_argument(
        "--most",
        type=int,
        default=sized(None, 1),
        help="processes or loader processes at most, instead of by the cores",
    )
    options = parser.parse_args(arguments)
    rounds.print_machine()
    if options.peer_python:
        versions = (
            "import torch, platform; print('peer: torch', torch.__version__, 'Python', platform.python_version())"
        )
        subprocess.run([options.peer_python, "-c", versions], check=True)
    else:
        print("no --peer-python: measured without torch")
    result: dict[str, float] = {}
    for part in options.part or sized(list(PARTS), ["core", "loaders", "calculation"]):
        result.update(PARTS[part](options))
    rounds.print_result(result)


if __name__ == "__main__":
    main()
