"""``make accept-gpu``: what has to work on GPUs, each row as a user would start it; prints goal and result.

    python tests/acceptance_gpu.py [--on_cpu [--queued]] [ROW ...]      # rows whose names have one of the words in them

Rows run in processes of their own, with a time limit; one that fails does not stop the others. Exits with 1 if any has
failed. What needs more GPUs than are visible says so and is no failure. With ``--on_cpu`` everything is small.
With ``--queued``, too, steps are queued as on a GPU, so that the host knows an update one update late.
"""

import argparse
import contextlib
import importlib
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from acceptance import table_line  # noqa: E402
from support.networks.gpu_jobs import Place, events, job, largest_difference, losses, make_command  # noqa: E402
from support.networks.gpu_networks import (  # noqa: E402
    FIRST,
    TASKS,
    UPDATES,
    WITHOUT_WARM_UP,
    names_of_family,
    on_a_cpu,
    require_equal,
    require_falling,
    smallest,
    train_network,
    wait_for,
)

# Rounding alone, relative: an evaluation adds in another order than that of the training; two devices add their
# gradients in another order, and each multiplies half the batch: 4.5e-6 on CPUs.
EVALUATED, BETWEEN_NUMBERS = 2e-6, 5e-5
FIRST_UPDATES = 20  # from then on AdamW has made more of the rounding
SCORE = 1.0  # in points of 360 images: three of them
HALVES = [dtype for dtype in FIRST if dtype != "float32"]
FALLEN = 0.75  # share of the first ten losses that the last ten are below
RISEN = 1.1  # share of the first third of an epoch's losses that the last third is below
DIGITS = ("-cfg=vit_digits", "-num_workers=2", "REPORT_FREQ", "1", "REPORT", "false")
FAMILIES = (
    "cait",
    "convnext",
    "deim",
    "deit",
    "detr",
    "dfine",
    "eva02",
    "faster_rcnn",
    "hgnetv2",
    "linear",
    "mask_rcnn",
    "minkunet",
    "mixer",
    "pointgroup",
)
FAMILIES += (
    "fcn",
    "mink_classifier",
    "mit",
    "pvt",
    "resnet",
    "rfdetr",
    "rtdetr",
    "segformer",
    "swin",
    "unet3d",
    "upernet",
    "vit",
)
FAMILIES += ("detrpose", "simple_baseline", "vitpose")
FAMILIES += ("eomt_instance", "eomt_panoptic", "eomt_semantic")
FAMILIES += ("concerto", "ptv3", "sonata", "utonia")
FAMILIES += ("timm:tiny_vit_5m_224", "timm:vit_relpos_small_patch16_224")  # their attention adds trained tables


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        run: returns the result in words. Raises AssertionError: what is not as it should be.
        gpus: how many it needs; 0: it makes sense on a CPU, too.
    """

    goal: str
    limit_seconds: float
    run: Callable[[Place], str]
    gpus: int = 0


# ---- rows --------------------------------------------------------------------------------------------------------


def one_device(place: Place) -> str:
    last = job(place, "run", *DIGITS, "-epochs=10", "TRAIN.WARMUP_EPOCHS", "2")
    assert events(place.folder / "run", "evaluation")[-1]["top-1"] >= 85, last
    return last


def many_devices(place: Place) -> str:
    """The losses and scores of one device at the same effective batch."""
    import paddle

    number = 2 if place.on_cpu else paddle.device.cuda.device_count()
    number = 2 ** int(math.log2(number))  # the batch of 32 is dealt evenly
    for devices in (1, number):
        words = [*DIGITS, f"-ngpus={devices}", f"-batch_size={32 // devices}", "-epochs=1", "TRAIN.TF32", "false"]
        job(place, str(devices), *words, *WITHOUT_WARM_UP)
    one, many = (losses(place.folder / str(devices)) for devices in (1, number))
    difference = largest_difference(one, many, sorted(one)[:FIRST_UPDATES])
    scores = [events(place.folder / str(devices), "evaluation")[-1]["top-1"] for devices in (1, number)]
    said = (
        f"losses of {number} differ by {difference:.1e} in {FIRST_UPDATES} updates, top-1 {scores[0]} and {scores[1]}"
    )
    assert difference <= BETWEEN_NUMBERS and abs(scores[0] - scores[1]) <= SCORE, said
    return said


def mixed(level: str, dtype: str) -> Callable[[Place], str]:
    """The loss falls below ``FALLEN`` of what it was: on a CPU, in float32, to 0.54, 0.56 and 0.58 with three seeds."""

    def run(place: Place) -> str:
        words = ["-amp", "AMP_LEVEL", level, "AMP_DTYPE", dtype, "-epochs=6", "TRAIN.WARMUP_EPOCHS", "1"]
        last = job(place, "run", *DIGITS, *words)
        log = (place.folder / "run" / "log.txt").read_text(encoding="utf-8")
        expected = "training continues in float32" if place.on_cpu else f"mixed precision: {dtype}, level {level}"
        assert expected in log, f"the log does not say: {expected}"
        found = list(losses(place.folder / "run").values())
        share = sum(found[-10:]) / sum(found[:10])
        assert share < FALLEN, f"the loss stays: its last ten are {share:.2f} of its first"
        return f"the loss falls to {share:.2f} of what it was; {last}"

    return run


def fused_kernels(place: Place) -> str:
    """The losses of Paddle's operations, in float32 and bfloat16."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install '.[triton]' in a clone)"
    said = []
    for dtype, words in (("float32", []), ("bfloat16", ["-amp", "AMP_DTYPE", "bfloat16"])):
        words = [*DIGITS, *words, "-ngpus=1", "-epochs=1", "TRAIN.TF32", "false", *WITHOUT_WARM_UP]
        for name in ("False", "True"):
            job(place, f"{dtype} {name}", *words, "GPU_KERNELS", name)
        log = (place.folder / f"{dtype} True" / "log.txt").read_text(encoding="utf-8")
        expected = "they need a CUDA GPU" if place.on_cpu else "fused kernels (GPU_KERNELS): "
        lines = [line for line in log.splitlines() if "GPU_KERNELS" in line and "fused kernels" in line]
        assert len(lines) == 1 and expected in lines[0], "\n".join(lines) or "the log does not tell of fused kernels"
        plain, fused = (losses(place.folder / f"{dtype} {name}") for name in ("False", "True"))
        difference = largest_difference(plain, fused, sorted(plain)[:FIRST_UPDATES])
        assert difference <= (BETWEEN_NUMBERS if dtype == "float32" else FIRST[dtype]), f"{dtype}: {difference:.1e}"
        said.append(f"{dtype} losses differ by {difference:.1e} in {FIRST_UPDATES} updates")
    return ", ".join(said)


def captured_passes(place: Place) -> str:
    """The losses of passes without a graph, in float32 and bfloat16."""
    said = []
    for dtype, words in (("float32", []), ("bfloat16", ["-amp", "AMP_DTYPE", "bfloat16"])):
        words = [*DIGITS, *words, "-ngpus=1", "-epochs=1", "TRAIN.TF32", "false", "MODEL.DROPOUT", "0.0"]
        for name in ("False", "True"):
            job(place, f"{dtype} {name}", *words, *WITHOUT_WARM_UP, "TRAIN.CAPTURE", name)
        log = (place.folder / f"{dtype} True" / "log.txt").read_text(encoding="utf-8")
        expected = "only CUDA GPUs have graphs" if place.on_cpu else "passes are captured (TRAIN.CAPTURE)"
        lines = [line for line in log.splitlines() if "(TRAIN.CAPTURE)" in line]
        assert len(lines) == 1 and expected in lines[0], "\n".join(lines) or "the log does not tell of captured passes"
        plain, captured = (losses(place.folder / f"{dtype} {name}") for name in ("False", "True"))
        difference = largest_difference(plain, captured, sorted(plain)[:FIRST_UPDATES])
        assert difference <= (BETWEEN_NUMBERS if dtype == "float32" else FIRST[dtype]), f"{dtype}: {difference:.1e}"
        said.append(f"{dtype} losses differ by {difference:.1e} in {FIRST_UPDATES} updates")
    return ", ".join(said)


READING_NETWORK = '''"""A network that reads from the device in each pass, which no graph can repeat."""

from paddlevit_dist import register_model
from paddlevit_dist.images.models.vit import VisionTransformer


class ReadingTransformer(VisionTransformer):
    is_capturable = True

    def forward(self, images):
        logits = super().forward(images)
        return logits if logits.mean().item() < 1e9 else 0.0 * logits


register_model("reading_transformer", ReadingTransformer)
'''


def failing_capture(place: Place) -> str:
    """A capture that fails in the middle ends, and the run goes on with the losses of plain passes."""
    module = place.folder / "reading_network.py"
    module.write_text(READING_NETWORK, encoding="utf-8")
    words = [*DIGITS, f"-import={module}", "-ngpus=1", "-epochs=1", "TRAIN.TF32", "false", *WITHOUT_WARM_UP]
    for name in ("False", "True"):
        job(place, name, *words, "MODEL.NAME", "reading_transformer", "TRAIN.CAPTURE", name)
    lines = [line for line in (place.folder / "True" / "log.txt").read_text().splitlines() if "(TRAIN.CAPTURE)" in line]
    assert len(lines) == 1 and "passes are not captured" in lines[0], "\n".join(lines) or "the log tells nothing"
    plain, failed = (losses(place.folder / name) for name in ("False", "True"))
    difference = largest_difference(plain, failed, sorted(plain)[:FIRST_UPDATES])
    assert difference <= BETWEEN_NUMBERS, f"losses differ by {difference:.1e}"
    return f"{lines[0]}; losses differ by {difference:.1e} in {FIRST_UPDATES} updates"


def fused_speed(place: Place) -> str:
    """ViT-Ti/16 in bfloat16 with fused kernels is no slower than without; what else was tried is told."""
    from support.networks.fused_speed import Sizes, measure_all

    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install '.[triton]' in a clone)"
    ratio, said = measure_all(Sizes())
    assert ratio <= 1.0, said
    return said


def resumes_after_a_kill(place: Place) -> str:
    """Compare every later loss and the last weights bit for bit, by operations that repeat (DETERMINISTIC)."""
    words = [*DIGITS, "-epochs=2", "SAVE_EVERY_UPDATES", "5", "DETERMINISTIC", "true", *WITHOUT_WARM_UP]
    job(place, "straight", *words)
    output = place.folder / "killed"
    with open(place.folder / "killed.txt", "w", encoding="utf-8") as said:
        process = subprocess.Popen(
            make_command(place, output.name, words), cwd=ROOT, stdout=said, stderr=said, start_new_session=True
        )
    last = output / "checkpoints" / "last"
    while not (last.is_symlink() and os.readlink(last).startswith("update_")):
        assert process.poll() is None, f"it ended with {process.returncode} before its first checkpoint"
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, f"it ended with {process.returncode} before it was killed"
    folders = place.folder / "straight", output
    kind, _, number = os.readlink(last).partition("_")  # an epoch may have ended meanwhile
    at = int(number) * (1 if kind == "update" else max(losses(folders[0])) // 2)
    print(f"  killed, with a checkpoint of update {at}", flush=True)
    job(place, output.name, *words, "-resume=auto")
    straight, resumed = map(losses, folders)
    result = compare_resumed(straight, resumed, at)
    require_equal_weights(*(folder / "checkpoints" / "last" for folder in folders))
    return f"{result}, and all weights"


def require_equal_weights(one: Path, other: Path) -> None:
    """Raise AssertionError if two checkpoints differ in a bit of a weight or a statistic."""
    from paddlevit_dist.core.checkpoint.weights import read_state

    first, second = read_state(one), read_state(other)
    assert first.keys() == second.keys(), f"weights {sorted(first.keys() ^ second.keys())}"
    different = [name for name, values in first.items() if values.tobytes() != second[name].tobytes()]
    assert not different, f"{len(different)} of {len(first)} weights differ, such as {different[0]}"


def compare_resumed(straight: dict[int, float], resumed: dict[int, float], at: int) -> str:
    """Say that the losses behind the update that was resumed from are equal. Raises AssertionError: one differs."""
    assert straight.keys() == resumed.keys(), f"updates {sorted(straight.keys() ^ resumed.keys())}"
    after = [update for update in straight if update > at]
    assert after, f"no update is left after {at}"
    others = [update for update in after if straight[update] != resumed[update]]
    if others:
        difference = largest_difference(straight, resumed, after)
        raise AssertionError(f"resumed from update {at}: losses differ from update {others[0]} on, by {difference:.1e}")
    return f"killed after update {at}: the next {len(after)} losses are equal"


def evaluates_the_same(place: Place) -> str:
    job(place, "run", *DIGITS, "-epochs=1" if place.on_cpu else "-epochs=5", *WITHOUT_WARM_UP)
    job(place, "evaluation", *DIGITS, "-eval", f"-pretrained={place.folder / 'run' / 'checkpoints' / 'last'}")
    trained, evaluated = (events(place.folder / name, "evaluation")[-1] for name in ("run", "evaluation"))
    difference = abs(trained["loss"] - evaluated["loss"]) / trained["loss"]
    said = f"top-1 {trained['top-1']} and {evaluated['top-1']}, losses differ by {difference:.1e}"
    assert trained["top-1"] == evaluated["top-1"] and difference <= EVALUATED, said
    return said


def task(name: str) -> Callable[[Place], str]:
    """A recipe trains for an epoch, of as few as 8 updates, captured if it can be; its loss does not rise."""

    def run(place: Place) -> str:
        words = [*TASKS[name], "-epochs=1", "REPORT_FREQ", "1", "TRAIN.CAPTURE", "True", *WITHOUT_WARM_UP]
        last = job(place, "run", *words)
        log = (place.folder / "run" / "log.txt").read_text(encoding="utf-8")
        captured = next((line for line in log.splitlines() if "(TRAIN.CAPTURE)" in line), "too few updates to capture")
        found = list(losses(place.folder / "run").values())
        third = max(len(found) // 3, 1)
        share = sum(found[-third:]) / sum(found[:third])
        assert share < RISEN, f"the loss rises: its last third is {share:.2f} of its first"
        return f"{len(found)} updates, the last third of the losses is {share:.2f} of the first, {captured}, {last}"

    return run


def family(name: str) -> Callable[[Place], str]:
    """Every network whose name begins so, one after the other in this process."""

    def run(place: Place) -> str:
        names = names_of_family(name, FAMILIES)
        assert names, f"no network is called {name}..."
        names = [smallest(names)] if place.on_cpu else names
        failed, peaks = [], {}
        with on_a_cpu(names, place):
            for model in names:
                try:
                    said = judged_network(model, place)
                    peaks[model] = peak_megabytes()
                    said += f", peak {peaks[model]:,.0f} MB"
                except Exception as error:  # of one network; the others are tried all the same
                    failed.append(model)
                    said = f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error) else ''}"
                print(f"  {model}: {said}", flush=True)
        assert not failed, f"{len(failed)} of {len(names)} fail: {', '.join(failed)}"
        most = max(peaks, key=lambda model: peaks[model])
        return f"{len(peaks)} of {len(names)} networks, most memory {peaks[most]:,.0f} MB ({most})"

    return run


def judged_network(name: str, place: Place) -> str:
    """Train a network in each precision. Raises AssertionError: its losses are not as they should be."""
    found = trained_network(name, place)
    require_falling(found)
    said = f"losses {found[0]:.3f} to {found[-1]:.3f}"
    for dtype in HALVES:
        found = trained_network(name, place, dtype)
        require_falling(found)
        said += f", {dtype} {found[0]:.3f} to {found[-1]:.3f}"
    (place.folder / "on_a_cpu" / f"{name}.npz").unlink(missing_ok=True)  # up to gigabytes
    return said


def trained_network(name: str, place: Place, dtype: str = "float32") -> list[float]:
    """The losses of its updates by the trainer; as large as it is, but small on a CPU.

    Raises AssertionError: the first ones are not those of a CPU.
    """
    if place.queues:
        from support.trainings import queued_steps  # noqa: F401
    expected = wait_for(name, place.folder / "on_a_cpu")  # its weights are complete, too
    reset_peak()
    weights = place.folder / "on_a_cpu" / f"{name}.npz"
    found = train_network(name, place.on_cpu, place.folder / f"{name} {dtype}", UPDATES, weights, dtype)
    difference = require_equal(expected, found, dtype)
    print(f"  {name}: the first update in {dtype} is off by {difference:.1e} of the CPU's loss", flush=True)
    return [update["loss"] for update in found]


def peak_megabytes() -> float:
    """Of the tensors on the GPU since ``reset_peak``, or since the row began where Paddle cannot set it back (2.6); of
    the process on a CPU."""
    import resource

    import paddle

    if paddle.get_device().startswith("gpu"):
        return float(paddle.device.cuda.max_memory_allocated()) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def reset_peak() -> None:
    import gc

    import paddle

    gc.collect()
    if paddle.get_device().startswith("gpu"):
        paddle.device.cuda.empty_cache()
        getattr(paddle.device.cuda, "reset_max_memory_allocated", lambda: None)()


GOAL_OF_NETWORKS = (
    f"first losses of the CPU's within {FIRST['float32']:g} (float16 {FIRST['float16']:g}, bfloat16 "
    f"{FIRST['bfloat16']:g}), falling in {UPDATES} updates"
)
TRAINS = "ends, losses do not rise, tells whether passes are captured"
ROWS: dict[str, Row] = {
    "main job, 1 device": Row("top-1 >= 85 after 10 epochs", 120, one_device),
    "main job, all devices": Row(
        f"losses of one within {BETWEEN_NUMBERS:g}, top-1 within {SCORE:g}", 120, many_devices, gpus=2
    ),
    **{
        f"amp {level} {dtype}": Row(f"loss below {FALLEN:g} of its first", 120, mixed(level, dtype))
        for level in ("O1", "O2")
        for dtype in ("float16", "bfloat16")
    },
    "fused kernels": Row("losses of Paddle's operations to rounding, if Triton is there", 240, fused_kernels),
    "captured passes": Row("losses of passes without a graph to rounding", 240, captured_passes),
    "a capture that fails": Row("goes on with the losses of plain passes to rounding", 240, failing_capture),
    "speed of fused kernels": Row("an update takes no longer than by Paddle's operations", 600, fused_speed, gpus=1),
    "kill -9 and resume": Row("losses and weights bit for bit", 150, resumes_after_a_kill),
    "evaluation": Row(f"top-1 of the training, loss within {EVALUATED:g}", 90, evaluates_the_same),
    **{f"task {name}": Row(TRAINS, 240, task(name)) for name in TASKS},
    **{f"zoo {name}": Row(GOAL_OF_NETWORKS, 1800, family(name)) for name in FAMILIES},
}


# ---- the table ---------------------------------------------------------------------------------------------------


def in_a_process(name: str, limit_seconds: float, on_cpu: bool, queues: bool = False) -> tuple[bool, str]:
    """Whether a row has reached its goal, and its result."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", __file__, "--row", name, "--folder", folder]
        command += [*(["--on_cpu"] if on_cpu else []), *(["--queued"] if queues else [])]
        process = subprocess.Popen(command, start_new_session=True)
        try:
            process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            return False, f"took longer than {limit_seconds:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        result = Path(folder, "result.json")
        if not result.exists():
            return False, f"ended with exit code {process.returncode}"
        reached, said = json.loads(result.read_text(encoding="utf-8"))
        return reached, said


def carry_out(row: Row, place: Place) -> None:
    """Run a row in this process and write its result."""
    try:
        result = True, row.run(place)
    except Exception as error:
        import traceback

        traceback.print_exc()
        result = False, f"{type(error).__name__}: {error}".removeprefix("AssertionError: ")
    Path(place.folder, "result.json").write_text(json.dumps(result), encoding="utf-8")


def require_importable(*modules: str) -> None:
    """End in one line if a module that rows need cannot be imported, such as a SciPy for NumPy 2 next to NumPy 1."""
    import numpy

    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # of a library for another NumPy, several types
            package, said = name.partition(".")[0], str(error).strip().splitlines() or [type(error).__name__]
            raise SystemExit(
                f"{name} cannot be imported next to numpy {numpy.__version__} ({said[-1]}): python -m pip install "
                f"--force-reinstall {package} 'numpy=={numpy.__version__}'"
            ) from None


def outcomes(rows: dict[str, Row], on_cpu: bool, gpus: int, queues: bool = False) -> Iterator[tuple[str, str, str]]:
    """Name, verdict and result of each row, in turn."""
    for name, row in rows.items():
        needed = max(row.gpus, 0 if on_cpu else 1)
        needed = 0 if on_cpu and row.run is many_devices else needed
        if needed > gpus:
            yield name, "not run", "needs a GPU" if needed == 1 else f"needs {needed} GPUs"
            continue
        print(f"== {name}", flush=True)
        began = time.perf_counter()
        reached, said = in_a_process(name, row.limit_seconds, on_cpu, queues)
        yield name, "reached" if reached else "NOT REACHED", f"{said}; {time.perf_counter() - began:.0f} s"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on_cpu", action="store_true", help="what makes sense without a GPU, small")
    parser.add_argument("--queued", action="store_true", help="with --on_cpu: queue optimizer steps as a GPU does")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help="of the rows to run; none: all")
    options = parser.parse_args(arguments)
    if options.row:
        carry_out(ROWS[options.row], Place(options.on_cpu, Path(options.folder), options.queued))
        return 0
    rows = {name: row for name, row in ROWS.items() if not options.words or any(w in name for w in options.words)}
    if not rows:
        raise SystemExit(f"no row is called {options.words}; there are: {', '.join(ROWS)}")
    require_importable("scipy.ndimage", "scipy.optimize", "scipy.spatial")
    from paddlevit_dist.core.launch.devices import count_gpus

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # ends the row at hand, too
    if options.on_cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    lines, failed = [], False
    for name, verdict, said in outcomes(rows, options.on_cpu, count_gpus(), options.queued):
        lines.append(table_line(name, rows[name].goal, verdict, said))
        print(lines[-1], flush=True)
        failed |= verdict == "NOT REACHED"
    print("\n" + "\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
