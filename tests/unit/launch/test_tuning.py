"""The environment of a tuned process, and the check that it changes no results."""

import contextlib
import itertools
import os
import re
import warnings
from types import SimpleNamespace

import pytest

from paddlevit_dist.launch import devices, tuning

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
def test_views_are_switched_off_in_the_versions_that_are_known(monkeypatch, machine, version, is_known):
    machine.gpus = 0
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
    import paddle

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
def test_each_kind_of_copy_is_checked(monkeypatch, name):
    import paddle

    method = {"slice": "__getitem__"}.get(name, name)
    right = getattr(paddle.Tensor, method)

    def wrong(tensor, *words, **named):
        result = right(tensor, *words, **named)
        return [part + 1 for part in result] if name == "split" else result + 1

    monkeypatch.setattr(paddle.Tensor, method, wrong)
    with pytest.raises(RuntimeError, match=rf"^Paddle {paddle.__version__} returns a wrong {name} with "):
        tuning.check_copies()


def test_the_fastest_product_but_the_first_is_told(monkeypatch):
    durations = iter([1e-6, 2e-4, 4e-4, 3e-4, 5e-4, 6e-4])
    clock = itertools.accumulate(seconds for duration in durations for seconds in (1.0, duration))
    monkeypatch.setattr(tuning.time, "perf_counter", lambda: next(clock))
    assert tuning.check_product(size=100)["gigaflops"] == 10.0  # 2e6 operations in 2e-4 s


def test_the_error_of_a_product_is_a_share_of_its_largest_entry(monkeypatch):
    import paddle

    exact, products = paddle.matmul, []
    monkeypatch.setattr(paddle, "matmul", lambda a, b: exact(a, b) * (1 - 2e-5))
    assert tuning.check_product(size=14)["relative_error"] == pytest.approx(2e-5, rel=0.02)  # a negative entry

    def product(a, b):
        products.append(exact(a, b))
        return products[-1] + (len(products) == 3)

    monkeypatch.setattr(paddle, "matmul", product)
    with pytest.raises(RuntimeError, match=r"^a 14x14 float32 product differs between repetitions with "):
        tuning.check_product(size=14)


def test_limits_of_errors_are_between_those_of_precisions():
    assert (tuning.TF32_LIMIT, tuning.FLOAT32_LIMIT) == (1 / 1024, 0.0001)


def test_loaded_libraries_are_found_by_name():
    (library,) = tuning.find_loaded(re.compile(r"/libc\.so[^/]*$|/libc-[^/]*$"))
    assert "/libc" in library._name and tuning.find_loaded(re.compile("/no such library")) == []


def test_unused_memory_is_returned(monkeypatch):
    calls = []
    monkeypatch.setattr(tuning.ctypes, "CDLL", lambda name: SimpleNamespace(malloc_trim=calls.append))
    tuning.release_memory()
    assert calls == [0]


@pytest.mark.parametrize("is_marked, takes", [(True, True), (False, True), (False, False)])
def test_a_command_is_restarted_once_if_its_environment_comes_too_late(monkeypatch, is_marked, takes):
    calls = []

    def note(name, result=None):
        return lambda *words: calls.append((name, *words)) or result

    monkeypatch.delenv("PADDLEVIT_DIST_ENVIRONMENT", raising=False)
    if is_marked:
        monkeypatch.setenv("PADDLEVIT_DIST_ENVIRONMENT", "A")
    for name in ("A_TEST_2", "A_TEST_1"):
        monkeypatch.delenv(name, raising=False)
    added = {"A_TEST_2": "x", "A_TEST_1": "y"}
    monkeypatch.setattr(tuning.devices, "hide_gpus", note("hide"))
    monkeypatch.setattr(tuning.devices, "expected_processes", note("processes", 3))
    for name, result in (("environment", added), ("take_effect", takes)):
        monkeypatch.setattr(tuning, name, note(name, result))
    for name in ("forget_kernels", "restart", "import_paddle", "raise_open_files"):
        monkeypatch.setattr(tuning, name, note(name))
    tuning.restart_with_environment(-1, True, "cpu")
    middle = [("processes", -1), ("environment", 3, True, os.environ), ("take_effect", added)]
    middle += [] if takes else [("restart",)]
    expected = [("hide", "cpu"), ("forget_kernels",), *([] if is_marked else middle)]
    assert calls == [*expected, ("import_paddle",), ("raise_open_files",)]
    assert os.environ["PADDLEVIT_DIST_ENVIRONMENT"] == ("A" if is_marked else "A_TEST_1,A_TEST_2")
    assert os.environ.get("A_TEST_2") == (None if is_marked else "x")
    for name in added:
        os.environ.pop(name, None)


def test_signals_wait_while_paddle_is_imported_and_are_handled_again(monkeypatch):
    calls = []

    @contextlib.contextmanager
    def blocked():
        calls.append("block")
        yield
        calls.append("unblock")

    monkeypatch.setattr(tuning.signals, "blocked", blocked)
    monkeypatch.setattr(tuning.signals, "install_again", lambda: calls.append("install"))
    tuning.import_paddle()
    assert calls == ["block", "install", "unblock"]
