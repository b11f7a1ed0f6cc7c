"""Checks of ``doctor`` that need no data: versions, devices, memory, disk, processes."""

import importlib
import os
import re
import shutil
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from ..parallel import devices, gpu, tuning
from ..runtime import limits
from ..runtime.errors import UserError
from ..runtime.files import why_not_written
from .doctor_checks import FAILURE, OK, WARNING, Check, Checkup, Finding, seconds_since

GIB, MIB = 1 << 30, 1 << 20
_PROBE_BYTES = 64 * MIB
_SLOW_DISK = 50.0  # MiB/s: a checkpoint of ViT-B with its optimizer (1 GiB) takes 20 s
_OLDEST_DRIVER = {"11": 450, "12": 525, "13": 580}  # NVIDIA's table of CUDA's minor version compatibility


def versions(checkup: Checkup) -> Finding:
    """Whether Paddle, NumPy, Numba, CUDA and the driver fit together."""
    import numpy
    import paddle

    from ..observe.record import versions as recorded

    facts: dict[str, Any] = {**recorded()}
    wheels = [name for name in ("paddlepaddle", "paddlepaddle-gpu") if any(metadata.distributions(name=name))]
    if len(wheels) > 1:
        mend = "python -m pip uninstall paddlepaddle paddlepaddle-gpu, then install the one that you want"
        return Finding(FAILURE, f"{' and '.join(wheels)} are both installed, one over the other", mend, facts)
    if paddle.__version__.startswith("2.") and int(numpy.__version__.split(".")[0]) > 1:
        return Finding(
            FAILURE,
            f"Paddle {paddle.__version__} was built for NumPy 1, and this is {numpy.__version__}",
            "python -m pip install 'numpy<2'",
            facts,
        )
    try:
        facts["numba"] = importlib.import_module("numba").__version__
    except Exception as error:  # whatever it does not like about the others
        return Finding(FAILURE, f"numba cannot be imported: {error}", "python -m pip install -U numba", facts)
    problem = None
    if paddle.is_compiled_with_cuda():
        facts.update(cuda=paddle.version.cuda(), cudnn=paddle.version.cudnn(), driver=_driver())
        problem = driver_problem(str(facts["cuda"]), facts["driver"])
    text = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
    if problem is not None:
        return Finding(FAILURE, f"{problem} ({text})", "install a newer driver, or a Paddle for an older CUDA", facts)
    return Finding(OK, text, facts=facts)


def _driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"\b(\d{3}\.\d+(\.\d+)?)\b", text)
    return found[1] if found else None


def driver_problem(cuda: str, driver: str | None) -> str | None:
    """Why a driver cannot serve a Paddle built for this CUDA; None if it can, or nobody knows."""
    oldest = _OLDEST_DRIVER.get(cuda.split(".")[0])
    if driver is None or oldest is None or int(driver.split(".")[0]) >= oldest:
        return None
    return f"CUDA {cuda} needs a driver from {oldest} on, and this is {driver}"


def processor(checkup: Checkup) -> Finding:
    """The processor, its tuning, and a product of matrices that is right and the same each time."""
    tuning.use_threads()
    cpu = tuning.processor()
    tuning.check_copies()
    product = tuning.check_product()
    settings = tuning.settings()
    text = (
        f"{cpu['model'] or 'unknown'}, {devices.cpu_cores()} core(s) usable; product "
        f"{product['gigaflops']} GFLOP/s, relative error {product['relative_error']:.1e} against float64"
    )
    return Finding(OK, text, facts={**product, "cores": devices.cpu_cores(), "tuning": settings})


def gpus(checkup: Checkup) -> Finding:
    """Each GPU: its name and memory, and the same product in the precision of TRAIN.TF32."""
    import paddle

    driver, usable = devices.expected_gpus(), devices.count_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
    if not usable:
        others = devices.other_accelerators()
        if others:
            text = f"none of CUDA's; Paddle reports {others}, which is not used: training on the CPU"
            return Finding(WARNING, text, "train on NVIDIA's GPUs, or go on with the CPU", {"gpus": []})
        if not driver:
            return Finding(OK, "none: training on the CPU", facts={"gpus": []})
        if not paddle.is_compiled_with_cuda():
            mend = "install Paddle's GPU build (README), or go on with the CPU"
            return Finding(WARNING, f"{driver} GPU(s), but this is Paddle's CPU build", mend, {"gpus": []})
        mend = "look at `nvidia-smi`, at the libraries of CUDA, and at CUDA_VISIBLE_DEVICES"
        text = f"{driver} GPU(s), none usable by Paddle; CUDA_VISIBLE_DEVICES={visible}"
        return Finding(FAILURE, text, mend, {"gpus": []})
    found: list[dict[str, Any]] = []
    try:
        for number in range(usable):
            paddle.set_device(f"gpu:{number}")
            properties = paddle.device.cuda.get_device_properties(number)
            gpu.prepare(checkup.config.TRAIN.TF32, checkup.config.DETERMINISTIC, fixed_shapes=False)
            product = {**gpu.check_product(2048), "tf32": gpu.rounds_to_tf32()}
            memory = round(properties.total_memory / GIB, 1)
            found.append({"name": paddle.device.cuda.get_device_name(number), "memory_gib": memory, **product})
    finally:
        paddle.set_device("cpu")
    told = "; ".join(
        f"{one['name']} {one['memory_gib']} GiB, {one['gigaflops']:.0f} GFLOP/s{' in TF32' if one['tf32'] else ''}"
        for one in found
    )
    return Finding(OK, f"{usable} usable (CUDA_VISIBLE_DEVICES={visible}): {told}", facts={"gpus": found})


def memory(checkup: Checkup) -> Finding:
    """Memory of the machine, or of the container if that is less."""
    total, available = memory_of_machine()
    if total is None or available is None:
        return Finding(OK, "unknown: this system does not tell")
    facts = {"total_gib": round(total / GIB, 1), "available_gib": round(available / GIB, 1)}
    text = f"{facts['available_gib']} of {facts['total_gib']} GiB available"
    needed = checkup.processes * 1.5 * GIB  # as measured: a process of Paddle with a small model
    if available < needed:
        mend = "end other programs, give the container more memory, or lower -ngpus and -num_workers"
        return Finding(WARNING, f"{text}: {checkup.processes} process(es) take 1.5 GiB each and more", mend, facts)
    return Finding(OK, text, facts=facts)


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


def output_folder(checkup: Checkup) -> Finding:
    """Whether SAVE can be written, how much fits, and how fast."""
    save = Path(checkup.config.SAVE).absolute()
    if checkup.unwritable:
        raise UserError(f"-output={save} (SAVE) cannot be written: {checkup.unwritable}")
    free = shutil.disk_usage(checkup.folder).free
    size = min(_PROBE_BYTES, max(free // 4, 1))
    block = os.urandom(MIB)  # a file system that compresses is no faster for this
    started = time.perf_counter()
    probe = checkup.folder / "probe"
    try:
        with open(probe, "wb") as file:
            for _ in range(max(size // MIB, 1)):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        mend = "make room, or choose another -output"
        return Finding(FAILURE, f"{save} cannot be written: {why_not_written(error)}", mend)
    finally:
        probe.unlink(missing_ok=True)
    speed = max(size // MIB, 1) / max(time.perf_counter() - started, 1e-6)
    facts = {"free_gib": round(free / GIB, 2), "write_mib_per_second": round(speed, 1)}
    text = f"{save}: {free / GIB:.1f} GiB free, writes {speed:.0f} MiB/s"
    if free < GIB:
        return Finding(WARNING, f"{text}: little room", "make room, or choose another -output", facts)
    if speed < _SLOW_DISK:
        mend = "a local disk makes saving faster (SAVE_IN_BACKGROUND hides it); choose another -output"
        return Finding(WARNING, f"{text}: slow", mend, facts)
    return Finding(OK, text, facts=facts)


def exchange(checkup: Checkup) -> Finding:
    """Processes that start, add and agree: on all devices, or two on the CPU."""
    from ..parallel.launch import launch_workers

    processes = max(2, checkup.processes)
    uses_gpu = checkup.uses_gpu and checkup.processes > 1
    started = time.perf_counter()
    launch_workers(_exchange, (), devices.ProcessPlan(processes, uses_gpu, False, []), checkup.config.WATCHDOG_SECONDS)
    seconds = seconds_since(started)
    kind = "GPU" if uses_gpu else "CPU"
    text = f"{processes} {kind} processes started, added and agreed in {seconds:.1f} s"
    return Finding(OK, text, facts={"seconds": seconds, "processes": processes})


def _exchange() -> None:
    from ..parallel.collectives import all_gather, reduce_dict
    from ..parallel.world import rank, world_size

    expected = world_size() * (world_size() - 1) // 2
    total = reduce_dict({"rank": rank()}, average=False)["rank"]
    if total != expected or all_gather(rank()) != list(range(world_size())):
        raise RuntimeError(f"the ranks of {world_size()} processes add up to {total}, not to {expected}")


CHECKS = (
    Check("versions", versions),
    Check("processor", processor),
    Check("GPU", gpus),
    Check("memory", memory),
    Check("output", output_folder),
    Check("processes", exchange, starts_processes=True),
)
