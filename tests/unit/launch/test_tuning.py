"""The environment of a tuned process, and the check that it changes no results."""

import os
import warnings

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
