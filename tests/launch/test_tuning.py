"""The environment of a tuned process, and the check that it changes no results."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from paddlevit_dist.launch import devices, tuning

ROOT = Path(__file__).resolve().parents[2]
AVX512 = ["avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl"]


@pytest.mark.parametrize(
    "vendor, flags, expected",
    [
        ("AuthenticAMD", AVX512, "7"),
        ("AuthenticAMD", ["avx2", "avx512f"], "5"),
        ("AuthenticAMD", ["sse4_2"], None),
        ("GenuineIntel", AVX512, None),
    ],
)
def test_kernels_follow_vendor_and_instruction_sets(vendor, flags, expected):
    assert tuning.math_kernels({"vendor": vendor, "flags": flags}) == expected


def test_the_users_own_settings_are_respected():
    assert "MALLOC_MMAP_MAX_" not in tuning.environment(1, True, {"MALLOC_MMAP_MAX_": "9"})
    assert "FLAGS_paddle_num_threads" not in tuning.environment(1, True, {"FLAGS_paddle_num_threads": "3"})


def test_views_are_switched_off_on_cpus_only(monkeypatch):
    monkeypatch.setattr(devices, "expected_gpus", lambda: 0)
    assert tuning.environment(1, True, {})["FLAGS_use_stride_kernel"] == "0"
    assert "FLAGS_use_stride_kernel" not in tuning.environment(1, True, {"FLAGS_use_stride_kernel": "1"})
    monkeypatch.setattr(devices, "expected_gpus", lambda: 1)
    assert "FLAGS_use_stride_kernel" not in tuning.environment(1, True, {})


@pytest.mark.parametrize("version, is_known", [("2.5.2", False), ("2.6.2", True), ("3.3.1", True), ("4.0.0", False)])
def test_views_are_switched_off_in_the_versions_that_are_known(monkeypatch, version, is_known):
    monkeypatch.setattr(devices, "expected_gpus", lambda: 0)
    monkeypatch.setattr(tuning, "paddle_version", lambda: version)
    assert tuning.has_slow_views() is is_known


def test_a_wrong_copy_stops_the_run(monkeypatch):
    import paddle

    right = paddle.Tensor.transpose
    monkeypatch.setattr(paddle.Tensor, "transpose", lambda tensor, axes: right(tensor, axes) + 1)
    with pytest.raises(RuntimeError, match="wrong transpose .*CPU_TUNING"):
        tuning.check_copies()


def test_processes_share_the_cores():
    cores = devices.cpu_cores()
    assert tuning.environment(1, True, {})["FLAGS_paddle_num_threads"] == str(cores)
    assert tuning.environment(10 * cores, True, {})["FLAGS_paddle_num_threads"] == "1"


def test_the_product_agrees_with_float64():
    result = tuning.check_product(size=128)
    assert 0 < result["relative_error"] < 1e-5
    assert result["gigaflops"] > 0


def test_a_wrong_product_stops_the_run(monkeypatch):
    import paddle

    right = paddle.matmul
    monkeypatch.setattr(paddle, "matmul", lambda a, b: right(a, b) * 1.01)
    with pytest.raises(RuntimeError, match="off by .*CPU_TUNING"):
        tuning.check_product(size=64)


MKL_SCRIPT = """
import ctypes, os, threading
import paddle
from pathlib import Path
from paddlevit_dist.launch import tuning
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
    end = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert end.returncode == 0, end.stderr[-3000:]
    before, inner, inside, other, after, more = map(int, end.stdout.split())
    assert (inner, inside) == (1, 1) and before == other == after == 8
    assert more == 0  # a product started no thread


SCRIPT = """
import os, sys
if "imports" in sys.argv: import numpy
from paddlevit_dist.launch import tuning
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
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    *began, last = ended.stdout.splitlines()
    assert len(began) == starts
    assert len(set(began)) == 1  # same process number: the process replaced itself
    assert str(words) in began[0] and began[0].startswith("False")
    assert last.startswith(str(devices.cpu_cores())) and "FLAGS_paddle_num_threads" in last


@pytest.mark.parametrize(
    "name, message", [("paddle.nn.layer.norm", "any"), ("other", "You are using GPU version Paddle!")]
)
def test_warnings_that_a_new_process_would_not_show_are_not_shown_in_this_one(monkeypatch, name, message):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert tuning.take_effect({"PYTHONWARNINGS": "x"}) is False  # this process has imported Paddle
        monkeypatch.setattr(tuning, "_READERS", ())
        assert tuning.take_effect({"PYTHONWARNINGS": tuning.environment(1, True, {})["PYTHONWARNINGS"]})
        warnings.warn_explicit(message, UserWarning, "norm.py", 1, module=name)
        assert not shown
        warnings.warn_explicit("something else", UserWarning, "norm.py", 1, module=f"{name}_2")
        assert len(shown) == 1


def test_a_single_process_asks_other_systems_for_nothing_that_only_linux_has(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(tuning.platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(tuning.ctypes, "CDLL", lambda name: object())
    assert devices.cpu_cores() == os.cpu_count()
    assert not [name for name in tuning.environment(1, True, {}) if name.startswith("MALLOC_")]
    tuning.give_back_memory()


@pytest.mark.parametrize("inherited", [True, False])
def test_unused_memory_is_kept_by_malloc_until_it_is_given_back(inherited):
    script = (
        "from paddlevit_dist.launch import tuning; tuning.restart_with_environment(1, True); import numpy\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096 / 2**20\n"
        "before = resident(); arrays = [numpy.ones(2**17) for _ in range(100)]; del arrays[::2]; kept = arrays[-1]\n"
        "del arrays; held = resident() - before; tuning.give_back_memory()\n"
        "print(held, resident() - before, kept.sum())"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC", "PADDLEVIT"))}
    environment = {**clean, "PYTHONPATH": os.pathsep.join(sys.path)}
    if inherited:
        environment.update(tuning.environment(1, True, {}), PADDLEVIT_DIST_ENVIRONMENT="test")
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    held, left, total = map(float, done.stdout.split())
    assert held > 70 and left < 10 and total == 2**17  # some of the 100 MiB were free already since an import


def test_a_process_with_several_cores_to_itself_uses_them(monkeypatch):
    monkeypatch.setattr(devices, "cpu_cores", lambda: 4)
    monkeypatch.setattr(devices, "expected_gpus", lambda: 0)
    alone = tuning.environment(1, True, {})
    assert alone["PADDLEVIT_DIST_THREADS"] == "4"
    assert alone["KMP_BLOCKTIME"] == "1" and alone["OPENBLAS_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in alone  # Paddle's import would complain
    assert tuning.environment(2, True, {})["PADDLEVIT_DIST_THREADS"] == "2"
    assert tuning.environment(4, True, {})["OMP_NUM_THREADS"] == "1"
    for others in (tuning.environment(4, True, {}), tuning.environment(1, False, {})):
        assert "PADDLEVIT_DIST_THREADS" not in others
    assert "PADDLEVIT_DIST_THREADS" not in tuning.environment(1, True, {"OMP_NUM_THREADS": "3"})
    monkeypatch.setattr(devices, "expected_gpus", lambda: 1)
    assert "PADDLEVIT_DIST_THREADS" not in tuning.environment(1, True, {})


THREADS_SCRIPT = """
import hashlib, os
from paddlevit_dist.launch import tuning
import paddle
tuning.use_threads()
from paddlevit_dist.models import create_model

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
    end = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert end.returncode == 0 and "OMP_NUM_THREADS" not in end.stderr, end.stderr[-3000:]
    threads, of_one, of_two, digests = end.stdout.split()
    assert (threads, of_one, digests) == ("2", "0", "1") and int(of_two) >= 1
