"""What the tuned environment does to a process that starts with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import ROOT

from paddlevit_dist.core.launch import devices, tuning

MKL_SCRIPT = """
import ctypes, os, threading
import paddle
from pathlib import Path
from paddlevit_dist.core.launch import tuning
mkl = ctypes.CDLL(str(Path(paddle.__file__).parent / "libs" / "libmklml_intel.so"))
other, used = [], mkl.MKL_Get_Max_Threads
before, tasks = used(), len(os.listdir("/proc/self/task"))
with tuning.one_thread_here():
    with tuning.one_thread_here():
        inner = used()
    inside = used()
    paddle.matmul(paddle.ones([512, 512]), paddle.ones([512, 512]))
    more = len(os.listdir("/proc/self/task")) - tasks
    thread = threading.Thread(target=lambda: other.append(used()))
    thread.start()
    thread.join()
print(before, inner, inside, *other, used(), more)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_one_thread_is_one_of_mkl_too_whatever_its_variable_says():
    environment = {**os.environ, "MKL_NUM_THREADS": "8", "MKL_DYNAMIC": "FALSE", "OMP_NUM_THREADS": "2"}
    environment |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", MKL_SCRIPT]
    end = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert end.returncode == 0, end.stderr[-3000:]
    before, inner, inside, other, after, more = map(int, end.stdout.split())
    assert (inner, inside) == (1, 1) and before == other == after == 8
    assert more == 0  # a product started no thread


SCRIPT = """
import os, sys
if "imports" in sys.argv: import numpy
from paddlevit_dist.core.launch import tuning
print("paddle" in sys.modules, os.getpid(), sys.argv[1:])
tuning.restart_with_environment(1, True)
print(os.environ["FLAGS_paddle_num_threads"], os.environ.get("MALLOC_MMAP_MAX_"), tuning.settings()["set_by_us"])
"""


@pytest.mark.parametrize("words, starts", [(["-a=b c"], 1), (["-a=b c", "imports"], 2)])
def test_a_process_that_has_read_its_environment_restarts_once_with_its_own_arguments(tmp_path, words, starts):
    (tmp_path / "script.py").write_text(SCRIPT)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("FLAGS", "OMP", "MALLOC", "PADDLEVIT"))}
    ended = subprocess.run(
        [sys.executable, "-X", "utf8", "script.py", *words],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr
    *began, last = ended.stdout.splitlines()
    assert len(began) == starts
    assert len(set(began)) == 1  # same process number: the process replaced itself
    assert str(words) in began[0] and began[0].startswith("False")
    assert last.startswith(str(devices.cpu_cores())) and "FLAGS_paddle_num_threads" in last


@pytest.mark.parametrize("inherited", [True, False])
def test_unused_memory_is_kept_by_malloc_until_it_is_given_back(inherited):
    script = (
        "from paddlevit_dist.core.launch import tuning; tuning.restart_with_environment(1, True); import numpy\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096 / 2**20\n"
        "before = resident(); arrays = [numpy.ones(2**17) for _ in range(100)]; del arrays[::2]; kept = arrays[-1]\n"
        "del arrays; held = resident() - before; tuning.release_memory()\n"
        "print(held, resident() - before, kept.sum())"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC", "PADDLEVIT"))}
    environment = {**clean, "PYTHONPATH": os.pathsep.join(sys.path)}
    if inherited:
        environment.update(tuning.environment(1, True, {}), PADDLEVIT_DIST_ENVIRONMENT="test")
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=600)
    held, left, total = map(float, done.stdout.split())
    assert held > 70 and left < 10 and total == 2**17  # some of the 100 MiB were free already since an import


THREADS_SCRIPT = """
import hashlib, os
from paddlevit_dist.core.launch import tuning
import paddle
tuning.use_threads()
from paddlevit_dist import create_model

def threads():
    return len(os.listdir("/proc/self/task"))

before = threads()
with tuning.one_thread_here():
    paddle.matmul(paddle.ones([256, 256]), paddle.ones([256, 256]))
alone = threads()

def digest():
    paddle.seed(1)
    model = create_model("vit_tiny_patch16_224", num_classes=7, image_size=64, depth=2)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    for _ in range(3):
        paddle.nn.functional.cross_entropy(model(paddle.randn([16, 3, 64, 64])), paddle.arange(16) % 7).backward()
        optimizer.step()
        optimizer.clear_grad(False)
    return hashlib.sha256(b"".join(p.numpy().tobytes() for p in model.parameters())).hexdigest()

digests = {digest() for _ in range(3)}
print(os.environ["OMP_NUM_THREADS"], alone - before, threads() - before, len(digests))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_two_threads_are_used_in_silence_and_repeat_bit_for_bit():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "FLAGS_"))}
    environment.update(
        PADDLEVIT_DIST_THREADS="2", CUDA_VISIBLE_DEVICES="", PYTHONPATH=str(ROOT), PYTHONWARNINGS="ignore"
    )
    command = [sys.executable, "-c", THREADS_SCRIPT]
    end = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert end.returncode == 0 and "OMP_NUM_THREADS" not in end.stderr, end.stderr[-3000:]
    threads, of_one, of_two, digests = end.stdout.split()
    assert (threads, of_one, digests) == ("2", "0", "1") and int(of_two) >= 1
