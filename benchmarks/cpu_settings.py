"""Which settings of a process pay on this processor, each alone against those of a run with one process and thread.

    python benchmarks/cpu_settings.py [--seconds 240] [--only threads,huge]

The variables count only from a process's birth, so each contender is a process of its own. It takes turns with the
default, one training step of ViT-Ti/16 at 224 pixels with 8 images at a time, and ends before the next one starts; the
number of rounds follows from the seconds.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import children
import rounds
import training_updates
from contenders import ProcessGroup, serve
from smallest import SHALLOW, sized

from paddlevit_dist.core.launch import devices

BATCH_SIZE = sized(8, 1)
MOST_ROUNDS, FEWEST_ROUNDS = sized((11, 3), (1, 1))
STATIC = "CPU_SETTINGS_TO_STATIC"  # read by a contender: "1" compiles the model's passes, "cinn" through CINN


class Contender(NamedTuple):
    """A variant of the default: variables that it sets, and those of the default that it lacks."""

    added: Mapping[str, str]
    removed: str = ""  # the beginning of their names


def contenders(default: Mapping[str, str]) -> dict[str, Contender]:
    """All variants by name."""
    cores = devices.cpu_cores()
    counts = sorted({2**power for power in range(1, 8) if 2**power < cores} | ({cores} if cores > 1 else set()))
    threads = {count: {"OMP_NUM_THREADS": str(count), "FLAGS_paddle_num_threads": str(count)} for count in counts}
    found = {f"threads: {count}": Contender(variables) for count, variables in threads.items()}
    if counts:
        most = threads[counts[-1]]
        pinned = {**most, "KMP_AFFINITY": "granularity=fine,compact,1,0"}
        found[f"threads: {counts[-1]}, KMP_BLOCKTIME=0"] = Contender({**most, "KMP_BLOCKTIME": "0"})
        found[f"threads: {counts[-1]}, KMP_BLOCKTIME=1"] = Contender({**most, "KMP_BLOCKTIME": "1"})
        found[f"threads: {counts[-1]}, KMP_AFFINITY compact"] = Contender(pinned)
    huge = "glibc.malloc.hugetlb=1"
    found["huge pages: madvise"] = Contender({"GLIBC_TUNABLES": huge})
    found["oneDNN: FLAGS_use_mkldnn"] = Contender({"FLAGS_use_mkldnn": "1", "FLAGS_use_onednn": "1"})
    found["malloc: glibc's defaults"] = Contender({}, "MALLOC_")
    if any(name.startswith("MKL_") for name in default):
        found["MKL: its own choice of kernels"] = Contender({}, "MKL_")
    found["views: FLAGS_use_stride_kernel=1"] = Contender({"FLAGS_use_stride_kernel": "1"})
    found["TO_STATIC"] = Contender({STATIC: "1"})
    found["TO_STATIC with CINN"] = Contender({STATIC: "cinn"})
    return found


# ---- a contender ---------------------------------------------------------------------------------------------


def make_step(static: str) -> Callable[[], float]:
    """A training step that returns its seconds.

    Raises:
        RuntimeError: this Paddle cannot do what ``static`` asks for.
    """
    import paddle

    from paddlevit_dist import create_model
    from paddlevit_dist.core.engine.precision import compile_passes

    if static == "cinn" and not paddle.is_compiled_with_cinn():
        raise RuntimeError("this Paddle is built without CINN")
    paddle.seed(0)
    model = create_model("vit_tiny_patch16_224", **SHALLOW)
    if static:
        compile_passes(model)
    return training_updates.get_timed_step(model, model.parameters(), BATCH_SIZE)


def answer_requests(static: str) -> None:
    """Make a step for each request, and one before it that is not timed: threads of the contender whose turn it was may
    still spin."""
    try:
        step = make_step(static)
        step()
    except RuntimeError as error:
        serve(float, f"not here: {str(error).strip().splitlines()[0]}")
        return
    serve(lambda: (step(), step())[1])


# ---- the measurement -----------------------------------------------------------------------------------------


def start(variables: Mapping[str, str]) -> ProcessGroup:
    """Start a contender's process."""
    return ProcessGroup([sys.executable, __file__, "--contender", variables.get(STATIC, "")], [variables], 600)


def step(contender: ProcessGroup) -> float:
    """Return the seconds of one step."""
    return contender.ask()[0]


def compare(default: ProcessGroup, name: str, other: ProcessGroup, until: float) -> dict[str, list[float]]:
    """Take turns for about so many seconds; each one's seconds per step, or nothing if the variant is not to be had."""
    try:
        (reply,) = other.wait_until_ready()
    except SystemExit as ended:
        reply = f"not here: {ended}"
    if reply != "ready":
        print(f"  {name}: {reply}", flush=True)
        return {}
    began = time.perf_counter()
    first = step(default) + step(other)
    left = until - (time.perf_counter() - began)
    count = max(FEWEST_ROUNDS, min(MOST_ROUNDS, int(left / (2 * first))))  # a step that is not timed before each
    return rounds.interleave({"default": lambda: step(default), name: lambda: step(other)}, count, warm_up=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=sized(240, 8), help="for all of it, about")
    parser.add_argument("--only", default="", help="beginnings of names, separated by commas")
    arguments = parser.parse_args()
    if arguments.contender is not None:
        answer_requests(arguments.contender)
        return
    rounds.print_machine()
    plain = {**children.tuned_environment(1), "FLAGS_paddle_num_threads": "1", "OMP_NUM_THREADS": "1"}
    names = tuple(arguments.only.split(","))
    chosen = {name: variant for name, variant in contenders(plain).items() if name.startswith(names)}
    rows, result = [], {}
    started = time.perf_counter()
    default = start(plain)
    try:
        default.wait_until_ready()
        start_seconds = time.perf_counter() - started
        each = (arguments.seconds - start_seconds) / max(1, len(chosen)) - 1.5 * start_seconds
        for name, variant in chosen.items():
            if rows and time.perf_counter() - started > arguments.seconds:
                print(f"  {name}: not measured, the time is over", flush=True)
                continue
            kept = {k: v for k, v in plain.items() if not variant.removed or not k.startswith(variant.removed)}
            other = start({**kept, **variant.added})
            try:
                seconds = compare(default, name, other, each)
            finally:
                other.end()
            if seconds:
                ratio = rounds.ratios(seconds["default"], seconds[name])
                milliseconds = rounds.Spread.of(seconds[name]).text(1e3, 0)
                rows.append([name, milliseconds, ratio.text(), len(seconds[name])])
                result[name] = ratio.median
    finally:
        default.end()
    title = f"ViT-Ti/16 training step, {BATCH_SIZE} images, 1 process; default: one thread and the settings of a run"
    rounds.print_table(title, ["alone changed", "ms", "times as fast as the default", "rounds"], rows)
    rounds.print_result(result)


if __name__ == "__main__":
    main()
