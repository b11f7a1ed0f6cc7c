"""``doctor``: what this machine and its Paddle can do, measured on the spot."""

from __future__ import annotations

import os
import platform
import shutil
import time
from typing import Any, List

from ..errors import UserError
from ..parallel import devices, tuning
from ..printing import one_line


def run(arguments: List[str]) -> None:
    """Print versions, devices, tuning, a checked product per device, shared memory and a two-process exchange."""
    if {"-h", "--h", "-help", "--help"} & set(arguments):
        print("usage: python -m paddlevit_dist doctor\n")
        print("Versions, devices, tuning, a checked product on each device, shared memory, an exchange of 2 processes.")
        return
    if arguments:
        raise UserError(f"doctor takes no arguments, not '{arguments[0]}'")
    tuning.restart_with_environment(1, True)
    import numpy
    import paddle

    from .. import __version__

    _line("versions", f"paddlevit_dist {__version__}, paddle {paddle.__version__}, numpy {numpy.__version__}, "
                      f"Python {platform.python_version()}")  # fmt: skip
    cpu = tuning.processor()
    _line("processor", f"{cpu['model'] or 'unknown'}, {devices.cpu_cores()} core(s) usable")
    _line("tuning", " ".join(f"{name}={value}" for name, value in tuning.settings().items()))
    tuning.check_copies()
    check = tuning.check_product()
    _line("product", f"{check['gigaflops']} GFLOP/s, relative error {check['relative_error']:.1e} against float64")
    _describe_gpus(paddle)
    if os.path.isdir("/dev/shm"):
        _line("/dev/shm", f"{shutil.disk_usage('/dev/shm').free / 2**30:.1f} GiB free for batches of loader processes")
    _line("2 processes", _two_processes())


def _describe_gpus(paddle: Any) -> None:
    driver, usable = devices.expected_gpus(), devices.count_gpus()
    if not paddle.is_compiled_with_cuda():
        _line("GPU", f"none usable: this is Paddle's CPU build ({driver} device file(s) of a driver)")
        return
    _line("GPU", f"{usable} usable, {driver} device file(s), CUDA_VISIBLE_DEVICES="
                 f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}")  # fmt: skip
    for number in range(usable):
        paddle.set_device(f"gpu:{number}")
        check = tuning.check_product(2048)
        name = paddle.device.cuda.get_device_name(number)
        _line(f"GPU {number}", f"{name}: {check['gigaflops']} GFLOP/s, relative error {check['relative_error']:.1e}")
    paddle.set_device("cpu")


def _two_processes() -> str:
    from ..parallel.launch import launch_workers

    started = time.perf_counter()
    launch_workers(_exchange, (), devices.ProcessPlan(2, False, False, []))
    return f"two CPU processes started, added and agreed in {time.perf_counter() - started:.1f} s"


def _exchange() -> None:
    from ..parallel.collectives import reduce_dict
    from ..parallel.world import rank

    total = reduce_dict({"rank": rank()}, average=False)["rank"]
    if total != 1:
        raise RuntimeError(f"0 + 1 over two processes gave {total}")


def _line(name: str, text: str) -> None:
    print(one_line(f"{name:12} {text}"), flush=True)
