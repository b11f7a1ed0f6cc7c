"""What the benchmarks share: interleaved rounds, medians with their spread, tables, and processes that end in time."""

import argparse
import contextlib
import functools
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
for _place in (ROOT, ROOT / "benchmarks"):
    if str(_place) not in sys.path:
        sys.path.insert(0, str(_place))

from smallest import IS_SMALLEST  # noqa: E402

from paddlevit_dist.core.launch import devices, tuning  # noqa: E402
from paddlevit_dist.core.runtime.process_exit import die_with_parent  # noqa: E402

# Variables that would let a user's shell change what is measured.
_FOREIGN = ("PADDLE", "MASTER_", "FLAGS_", "OMP_", "MKL_", "MALLOC_", "GLOO_", "GLOG_")


class Spread(NamedTuple):
    """Median and range over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))

    def text(self, scale: float = 1.0, digits: int = 2) -> str:
        """``median [low, high]`` after multiplication with ``scale``."""
        low, median, high = (f"{scale * value:.{digits}f}" for value in (self.low, self.median, self.high))
        return f"{median} [{low}, {high}]"


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Median and range of the ratio within each round: what slows a whole round down cancels."""
    return Spread.of([a / b for a, b in zip(numerators, denominators)])


def interleave(contenders: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Let all contenders measure themselves once per round, each round beginning with the next of them.

    Returns:
        The measured values of each contender, in the order of the rounds, without the first ``warm_up`` rounds; of a
        single round in the smallest form.
    """
    if IS_SMALLEST:
        rounds, warm_up = min(rounds, 1), 0
    names = list(contenders)
    values: dict[str, list[float]] = {name: [] for name in names}
    for number in range(warm_up + rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            value = contenders[name]()
            if number >= warm_up:
                values[name].append(value)
    return values


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under a header, the first column flush left, the others right."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    print(f"\n{title}")
    for row in cells:
        first, *others = (cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
        print("  " + "  ".join([first, *others]))


def print_machine(cpu_only: bool = True) -> None:
    """One line about the processor and the versions.

    Args:
        cpu_only: the figures are a processor's by nature. False: the benchmark names the device that it has measured.
    Raises:
        SystemExit: Paddle would use a GPU for what is meant for processors.
    """
    from importlib import metadata

    if cpu_only and devices.count_gpus():
        program = os.path.relpath(sys.argv[0])
        raise SystemExit(f"this measures processors; hide the GPUs: CUDA_VISIBLE_DEVICES= python {program}")

    installed = {}
    for name in ("paddlepaddle", "paddlepaddle-gpu", "numpy"):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    versions = ", ".join(f"{name} {version}" for name, version in installed.items())
    only = "; CPU only" if cpu_only else ""
    print(f"{os.cpu_count()} x {tuning.processor()['model']}; Python {platform.python_version()}, {versions}{only}")


def print_result(values: Mapping[str, float]) -> None:
    """The last line of a benchmark."""
    print("RESULT " + json.dumps({name: round(value, 4) for name, value in values.items()}), flush=True)


def clean_environment(hides_gpus: bool = True) -> dict[str, str]:
    """This process's environment without anything that changes Paddle's speed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if hides_gpus else {}
    return {**kept, **hidden, "PYTHONPATH": os.pathsep.join([str(ROOT), kept.get("PYTHONPATH", "")])}


def tuned_environment(processes: int, tuned: bool = True, hides_gpus: bool = True) -> dict[str, str]:
    """The environment that a run with ``processes`` processes gives itself; with ``tuned`` False its threads only."""
    clean = clean_environment(hides_gpus)
    # The mark says that the environment is there, so that the entry does not restart itself.
    return {**clean, **tuning.environment(processes, tuned, clean), "PADDLEVIT_DIST_ENVIRONMENT": "benchmark"}


def start(command: Sequence[str], environment: Mapping[str, str], **options: Any) -> subprocess.Popen:
    """Start a command in a session of its own that dies with this process.

    With BENCHMARK_FIRST=1 in the environment, which takes root's rights, it runs before what else is on the machine:
    Linux shares the processors among sessions first (``man 7 sched``, the autogroup feature).

    From then on SIGTERM ends this process as Ctrl-C does: what is under way is ended and temporary folders removed.
    """
    signal.signal(signal.SIGTERM, _leave)
    process = subprocess.Popen(
        command,
        env=dict(environment),
        start_new_session=True,
        preexec_fn=functools.partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - no threads have been started
        text=True,
        **options,
    )
    if os.environ.get("BENCHMARK_FIRST") == "1":
        Path(f"/proc/{process.pid}/autogroup").write_text("-15")
    return process


def run_with_torch_peer(
    file: str, description: str, serves: str, serve: Callable[[], None], measure: Any, timeout: float = 280
) -> None:
    """The command line of a benchmark that measures in a process with one thread and the environment of a run.

    Args:
        file: the benchmark, which starts itself again: for the measurement, and by the peer's interpreter.
        serves: the option of the peer's process, which calls ``serve``.
        measure: a function of the interpreter that has torch; "" where none was given.
        timeout: seconds after which the measurement is ended.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--peer-python", default="", help="an interpreter that has torch")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(serves, action="store_true", help=argparse.SUPPRESS, dest="serves")
    arguments = parser.parse_args()
    if arguments.serves:
        serve()
    elif arguments.measure:
        measure(arguments.peer_python)
    else:
        environment = {**tuned_environment(1), "OMP_NUM_THREADS": "1"}
        process = start([sys.executable, file, "--measure", "--peer-python", arguments.peer_python], environment)
        try:
            raise SystemExit(process.wait(timeout=timeout))
        finally:
            end(process)


def timed_training_step(model: Any, parameters: Sequence[Any], batch_size: int) -> Callable[[], float]:
    """A training step of a classifier on noise of 224 pixels, by Paddle's AdamW, that returns its seconds."""
    import paddle

    optimizer = paddle.optimizer.AdamW(1e-4, parameters=parameters, weight_decay=0.05)
    images, labels = paddle.randn([batch_size, 3, 224, 224]), paddle.randint(0, 1000, [batch_size])

    def step() -> float:
        started = time.perf_counter()
        paddle.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
        return time.perf_counter() - started

    return step


def _leave(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def end(process: subprocess.Popen) -> None:
    """End a command that ``start`` has started, and whatever is left of its session's processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(command: Sequence[str], environment: Mapping[str, str], timeout: float) -> None:
    """Run a command to its end; fail when it fails or overruns. No process of it is left behind."""
    process = start(command, environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise SystemExit(f"{' '.join(command)} took longer than {timeout:g} s") from error
    finally:
        end(process)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}\n{output[-4000:]}")
