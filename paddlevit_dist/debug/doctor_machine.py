"""Checks of ``doctor``; here those that need no data: versions, devices, memory."""

import importlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from ..launch import devices, gpu, tuning
from ..runtime import limits
from ..settings.every_run import RunSettings

OK, WARNING, FAILURE, SKIPPED = "ok", "warning", "failure", "skipped"
GIB = 1 << 30


class Finding(NamedTuple):
    """What came of a check.

    Attributes:
        status: "ok", "warning", "failure", or "skipped" where something before it failed.
        text: what was seen.
        mend: what to do about it; empty where nothing is to be done.
    """

    status: str
    text: str
    mend: str = ""


@dataclass
class Checkup:
    """What the checks work with.

    Attributes:
        config: the frozen configuration.
        folder: a temporary one.
        plan: the processes that a training with this configuration would have on this machine.
        found: what earlier checks have found, by their names.
        kept: what earlier checks have made.
    """

    config: RunSettings
    folder: Path
    plan: devices.ProcessPlan
    found: dict[str, Finding] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        """What ``make`` returns, made once."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]


class Check(NamedTuple):
    """Something to look at: its name, what does it, and the checks without whose success it cannot be done."""

    name: str
    function: Callable[[Checkup], Finding]
    needs: tuple[str, ...] = ()


def versions(checkup: Checkup) -> Finding:
    """Whether Paddle, NumPy and Numba fit together."""
    import numpy
    import paddle

    from ..logging.record import versions as recorded

    wheels = [name for name in ("paddlepaddle", "paddlepaddle-gpu") if any(metadata.distributions(name=name))]
    if len(wheels) > 1:
        mend = "python -m pip uninstall paddlepaddle paddlepaddle-gpu, then install the one that you want"
        return Finding(FAILURE, f"{' and '.join(wheels)} are both installed, one over the other", mend)
    if paddle.__version__.startswith("2.") and int(numpy.__version__.split(".")[0]) > 1:
        text = f"Paddle {paddle.__version__} was built for NumPy 1, and this is {numpy.__version__}"
        return Finding(FAILURE, text, "python -m pip install 'numpy<2'")
    try:
        found = {**recorded(), "numba": importlib.import_module("numba").__version__}
    except Exception as error:  # whatever it does not like about the others
        return Finding(FAILURE, f"numba cannot be imported: {error}", "python -m pip install -U numba")
    if paddle.is_compiled_with_cuda():
        found.update(cuda=paddle.version.cuda(), cudnn=paddle.version.cudnn())
    return Finding(OK, ", ".join(f"{name} {value}" for name, value in found.items() if value))


def gpus(checkup: Checkup) -> Finding:
    """Whether Paddle can use the GPUs that there are."""
    import paddle

    driver, usable = devices.expected_gpus(), devices.count_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
    if usable:
        return Finding(OK, f"{usable} usable (CUDA_VISIBLE_DEVICES={visible})")
    others = devices.other_accelerators()
    if others:
        text = f"none of CUDA's; Paddle reports {others}, which is not used: training on the CPU"
        return Finding(WARNING, text, "train on NVIDIA's GPUs, or go on with the CPU")
    if not driver:
        return Finding(OK, "none: training on the CPU")
    if not paddle.is_compiled_with_cuda():
        mend = "install Paddle's GPU build (README), or go on with the CPU"
        return Finding(WARNING, f"{driver} GPU(s), but this is Paddle's CPU build", mend)
    mend = "look at `nvidia-smi` (is its CUDA as new as Paddle's?), CUDA's libraries, and CUDA_VISIBLE_DEVICES"
    return Finding(FAILURE, f"{driver} GPU(s), none usable by Paddle; CUDA_VISIBLE_DEVICES={visible}", mend)


def memory(checkup: Checkup) -> Finding:
    """Memory of the machine, or of the container if that is less."""
    total, available = memory_of_machine()
    if total is None or available is None:
        return Finding(OK, "unknown: this system does not tell")
    text = f"{available / GIB:.1f} of {total / GIB:.1f} GiB available"
    needed = checkup.plan.processes * 1.5 * GIB  # as measured: a process of Paddle with a small model
    if available < needed:
        mend = "end other programs, give the container more memory, or lower -ngpus and -num_workers"
        return Finding(WARNING, f"{text}: {checkup.plan.processes} process(es) take 1.5 GiB each and more", mend)
    return Finding(OK, text)


def memory_of_machine() -> tuple[int | None, int | None]:
    """Bytes in all and bytes available: the machine's, or its control group's where that has fewer."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.split()[-1] == "kB"}
        total, available = values["MemTotal"], values["MemAvailable"]
    except (OSError, KeyError, ValueError, IndexError):
        return None, None
    for folder, limit, used in (
        (limits.CONTROL_GROUPS, "memory.max", "memory.current"),
        (limits.CONTROL_GROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            allowed = int((folder / limit).read_text(encoding="ascii"))
            left = allowed - int((folder / used).read_text(encoding="ascii"))
        except (OSError, ValueError):  # no such group, or no limit
            continue
        total, available = min(total, allowed), min(available, max(left, 0))
    return total, available


def each_device(checkup: Checkup) -> Finding:
    """Processes as a training has them: each starts, computes a product of matrices that is right and the same each
    time, and they add and agree."""
    from ..launch.spawn import launch_workers

    plan, target = checkup.plan, checkup.folder / "devices.json"
    arguments = (checkup.config.TRAIN.TF32, checkup.config.DETERMINISTIC, str(target))
    # Children that end: the GPUs are free for those of the step, also where one is one process's alone.
    launch_workers(try_device, arguments, plan, checkup.config.WATCHDOG_SECONDS, apart=True)
    ranks = json.loads(target.read_text(encoding="utf-8"))
    told = "; ".join(f"{one['name']}, {one['gigaflops']:.0f} GFLOP/s" for one in ranks)
    kind = "GPU" if plan.uses_gpu else f"CPU, {devices.cpu_cores()} core(s)"
    return Finding(OK, f"{len(ranks)} process(es) ({kind}) compute right and agree: {told}")


def try_device(tf32: bool, deterministic: bool, target: str) -> None:
    """Every rank must call this; what each has found is written by the main one."""
    import paddle

    from ..distributed import all_gather, is_main, rank, reduce_dict, world_size

    gpu.prepare(tf32, deterministic, fixed_shapes=False)
    if gpu.is_on_gpu():
        properties = paddle.device.cuda.get_device_properties()
        name = f"{properties.name} {properties.total_memory / GIB:.1f} GiB{' in TF32' * gpu.rounds_to_tf32()}"
        product = gpu.check_product(2048)
    else:
        tuning.check_copies()
        name, product = str(tuning.processor()["model"] or "unknown"), tuning.check_product()
    found, ranks = all_gather({"name": name, **product}), list(range(world_size()))
    total = reduce_dict({"rank": rank()}, average=False)["rank"]
    if total != sum(ranks) or all_gather(rank()) != ranks:
        raise RuntimeError(f"the ranks of {world_size()} processes add up to {total}, not to {sum(ranks)}")
    if is_main():
        Path(target).write_text(json.dumps(found), encoding="utf-8")


CHECKS = (
    Check("versions", versions),
    Check("GPU", gpus),
    Check("memory", memory),
    Check("devices", each_device),
)
