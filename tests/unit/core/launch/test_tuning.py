"""The environment of a tuned process, and the check that it changes no results."""

import contextlib
import os
import re
import resource
import signal
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import paddle
import pytest

from paddlevit_dist.core.launch import devices, tuning
from paddlevit_dist.core.runtime import signals

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


def test_views_are_switched_off_on_cpus_only(machine):
    machine.gpus = 0
    assert tuning.environment(1, True, {})["FLAGS_use_stride_kernel"] == "0"
    assert "FLAGS_use_stride_kernel" not in tuning.environment(1, True, {"FLAGS_use_stride_kernel": "1"})
    machine.gpus = 1
    assert "FLAGS_use_stride_kernel" not in tuning.environment(1, True, {})


@pytest.mark.parametrize(
    "version, is_known",
    [("2.5.2", False), ("2.6.2", True), ("3.3.1", True), ("0.0.0", True), ("4.0.0", False), (None, False)],
)
def test_views_are_switched_off_in_the_versions_that_are_known(tmp_path, module_specs, machine, version, is_known):
    machine.gpus = 0
    (tmp_path / "version").mkdir()
    (tmp_path / "version" / "__init__.py").write_text(f"full_version = '{version}'")
    module_specs["paddle"] = version and ModuleSpec("paddle", None, origin=str(tmp_path / "__init__.py"))
    assert tuning.has_slow_views() is is_known


def test_a_wrong_copy_stops_the_run(other_paddle):
    right = paddle.Tensor.transpose
    other_paddle({"Tensor.transpose": lambda tensor, axes: right(tensor, axes) + 1})
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


def test_a_wrong_product_stops_the_run(other_paddle):
    right = paddle.matmul
    other_paddle({"matmul": lambda a, b: right(a, b) * 1.01})
    with pytest.raises(RuntimeError, match="off by .*CPU_TUNING"):
        tuning.check_product(size=64)


@pytest.mark.parametrize(
    "name, message", [("paddle.nn.layer.norm", "any"), ("other", "You are using GPU version Paddle!")]
)
def test_warnings_that_a_new_process_would_not_show_are_not_shown_in_this_one(name, message):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert tuning.take_effect({"PYTHONWARNINGS": "x"}) is False  # this process has imported Paddle
        assert tuning.take_effect({"PYTHONWARNINGS": tuning.environment(1, True, {})["PYTHONWARNINGS"]}, readers=())
        warnings.warn_explicit(message, UserWarning, "norm.py", 1, module=name)
        assert not shown
        warnings.warn_explicit("something else", UserWarning, "norm.py", 1, module=f"{name}_2")
        assert len(shown) == 1


def test_a_single_process_asks_other_systems_for_nothing_that_only_linux_has(monkeypatch, machine, libraries):
    monkeypatch.delattr(os, "sched_getaffinity")
    machine.libc, libraries[None] = "", object()
    assert devices.cpu_cores() == os.cpu_count()
    assert not [name for name in tuning.environment(1, True, {}) if name.startswith("MALLOC_")]
    tuning.release_memory()


def test_a_process_with_several_cores_to_itself_uses_them(machine):
    machine.cores = 4
    machine.gpus = 0
    alone = tuning.environment(1, True, {})
    assert alone["PADDLEVIT_DIST_THREADS"] == "4"
    assert alone["KMP_BLOCKTIME"] == "1" and alone["OPENBLAS_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in alone  # Paddle's import would complain
    assert tuning.environment(2, True, {})["PADDLEVIT_DIST_THREADS"] == "2"
    assert tuning.environment(4, True, {})["OMP_NUM_THREADS"] == "1"
    for others in (tuning.environment(4, True, {}), tuning.environment(1, False, {})):
        assert "PADDLEVIT_DIST_THREADS" not in others
    assert "PADDLEVIT_DIST_THREADS" not in tuning.environment(1, True, {"OMP_NUM_THREADS": "3"})
    machine.gpus = 1
    assert "PADDLEVIT_DIST_THREADS" not in tuning.environment(1, True, {})


def test_copies_are_right_here_and_views_where_they_are_off_stop_the_run(monkeypatch):
    monkeypatch.delenv("FLAGS_use_stride_kernel", raising=False)
    tuning.check_copies()
    monkeypatch.setenv("FLAGS_use_stride_kernel", "0")
    before = paddle.get_flags(["FLAGS_use_stride_kernel"])
    try:
        for has_views in (False, True):
            paddle.set_flags({"FLAGS_use_stride_kernel": has_views})
            with pytest.raises(RuntimeError, match="wrong transpose") if has_views else contextlib.nullcontext():
                tuning.check_copies()
    finally:
        paddle.set_flags(before)


@pytest.mark.parametrize("name", ["transpose", "split", "slice"])
def test_each_kind_of_copy_is_checked(other_paddle, name):
    method = {"slice": "__getitem__"}.get(name, name)
    right = getattr(paddle.Tensor, method)

    def wrong(tensor, *words, **named):
        result = right(tensor, *words, **named)
        return [part + 1 for part in result] if name == "split" else result + 1

    other_paddle({f"Tensor.{method}": wrong})
    with pytest.raises(RuntimeError, match=rf"^Paddle {paddle.__version__} returns a wrong {name} with "):
        tuning.check_copies()


def test_the_fastest_product_but_the_first_is_told(simulated_time):
    durations = iter([1e-6, 3e-4, 4e-4, 5e-4, 6e-4, 2e-4])
    simulated_time.take(durations)
    assert tuning.check_product(size=100)["gigaflops"] == 10.0  # 2e6 operations in 2e-4 s


def test_the_error_of_a_product_is_a_share_of_its_largest_entry(other_paddle):
    exact, products = paddle.matmul, []
    other_paddle({"matmul": lambda a, b: exact(a, b) * (1 - 2e-5)})
    assert tuning.check_product(size=14)["relative_error"] == pytest.approx(2e-5, rel=0.02)  # a negative entry

    def product(a, b):
        products.append(exact(a, b))
        return products[-1] + (len(products) == 3)

    other_paddle({"matmul": product})
    with pytest.raises(RuntimeError, match=r"^a 14x14 float32 product differs between repetitions with "):
        tuning.check_product(size=14)


def test_limits_of_errors_are_between_those_of_precisions():
    assert (tuning.TF32_LIMIT, tuning.FLOAT32_LIMIT) == (1 / 1024, 0.0001)


def test_loaded_libraries_are_found_by_name():
    (library,) = tuning.find_loaded(re.compile(r"/libc\.so[^/]*$|/libc-[^/]*$"))
    assert "/libc" in library._name and tuning.find_loaded(re.compile("/no such library")) == []


def test_unused_memory_is_returned(libraries):
    calls = []
    libraries[None] = SimpleNamespace(malloc_trim=calls.append)
    tuning.release_memory()
    assert calls == [0]


def test_a_command_whose_environment_comes_too_late_is_replaced_once(replacements, machine):
    machine.gpus, machine.cores, machine.cpu = 3, 6, {"vendor": "GenuineIntel", "flags": []}
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.environ.update({"MKL_DEBUG_CPU_TYPE": "5", "PADDLEVIT_DIST_KERNELS": "5"})  # by ``create_model``
    for name in ("PADDLEVIT_DIST_ENVIRONMENT", "OMP_NUM_THREADS"):
        os.environ.pop(name, None)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, limits[1]))
    try:
        tuning.restart_with_environment(-1, True, "cpu")
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 1000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    added = os.environ["PADDLEVIT_DIST_ENVIRONMENT"].split(",")
    assert added == sorted(added) and "PADDLEVIT_DIST_THREADS" in added and "MKL_DEBUG_CPU_TYPE" not in os.environ
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "" and os.environ["PADDLEVIT_DIST_THREADS"] == "6"  # one process
    assert [program for program, _ in replacements] == [sys.executable]
    tuning.restart_with_environment(-1, True, "cpu")
    assert len(replacements) == 1 and os.environ["PADDLEVIT_DIST_ENVIRONMENT"].split(",") == added


PADDLE = """
import signal
MASK = signal.pthread_sigmask(signal.SIG_BLOCK, [])
signal.signal(signal.SIGTERM, signal.SIG_DFL)
"""


def test_signals_wait_while_paddle_is_imported_and_are_handled_again(monkeypatch, tmp_path, own_handlers):
    handler = signal.getsignal(signal.SIGTERM)
    (tmp_path / "paddle.py").write_text(PADDLE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "paddle")
    signals.install()
    tuning.import_paddle()
    assert signal.SIGTERM in sys.modules["paddle"].MASK
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.getsignal(signal.SIGTERM) == handler != signal.SIG_DFL
