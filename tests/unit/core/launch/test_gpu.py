"""What a process on a GPU is told, seen on a CPU: precision, algorithms, and which product is right."""

import ctypes
import os

import numpy as np
import paddle
import pytest
from support.forced_device import forced_device

from paddlevit_dist.core import settings
from paddlevit_dist.core.engine.device_check import prepare_device
from paddlevit_dist.core.launch import devices, gpu, spawn, tuning


def rounded(tensor: paddle.Tensor, kept_bits: int) -> paddle.Tensor:
    """The float32 with this many of its 23 stored bits of mantissa, to the nearest."""
    bits = tensor.numpy().view(np.uint32).astype(np.uint64)
    dropped = 23 - kept_bits
    bits = (bits + (1 << (dropped - 1))) >> dropped << dropped
    return paddle.to_tensor(bits.astype(np.uint32).view(np.float32))


@pytest.fixture()
def product_of(other_paddle):
    """Lets ``paddle.matmul`` round its factors to so many bits of mantissa."""
    exact = paddle.matmul
    return lambda kept: other_paddle({"matmul": lambda a, b: exact(rounded(a, kept), rounded(b, kept))})


def test_a_product_in_tf32_is_right_for_a_gpu_and_wrong_for_a_cpu(as_before, product_of):
    product_of(10)
    with pytest.raises(RuntimeError, match=r"off by [23]\.\de-04 on cpu .*CPU_TUNING"):
        tuning.check_product()
    gpu.prepare(False, deterministic=False, fixed_shapes=False)
    with pytest.raises(RuntimeError, match="off by"):
        gpu.check_product()
    del os.environ["NVIDIA_TF32_OVERRIDE"]
    gpu.prepare(True, deterministic=False, fixed_shapes=False)
    assert gpu.check_product()["relative_error"] == pytest.approx(2.9e-4, rel=0.2)
    product_of(7)  # of bfloat16
    with pytest.raises(RuntimeError, match="off by"):
        gpu.check_product()


def test_products_are_timed_together_and_without_the_first_round(simulated_time):
    durations = iter([1e-6, 4e-3, 2e-3, 3e-3])
    simulated_time.take(durations)
    assert gpu.time_product(size=100, repeats=4) == 4.0  # 8e6 operations in 2e-3 s


def test_the_product_of_the_cpu_is_computed_there_wherever_a_run_computes(other_paddle):
    places = []
    exact = paddle.matmul

    def noted(a, b):
        places.extend([a.place, b.place])
        return exact(a, b)

    other_paddle({"matmul": noted, "get_device": "gpu:0"})
    tuning.check_product(size=64)
    assert places and all(place.is_cpu_place() for place in places)


SEARCH = "FLAGS_cudnn_exhaustive_search"
PRODUCTS = "FLAGS_cublas_allow_tf32"  # since 3.4
LEGACY_LINEAR = "FLAGS_use_legacy_linear"  # since 3.3; without it products with a bias do without TF32
FLAGS = (SEARCH, "FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic", LEGACY_LINEAR)


@pytest.fixture()
def as_before(monkeypatch):
    """As on a GPU; afterwards the process has the flags, switches and variables that it has now."""
    core = paddle.base.core
    flags = paddle.get_flags([name for name in FLAGS if name in core.globals()])
    switches = core.get_cublas_switch(), core.get_cudnn_switch()
    for name in ("NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", SEARCH):
        monkeypatch.setenv(name, "")  # so that it is put back
        del os.environ[name]
    with forced_device(capability=(9, 0)):
        yield
    paddle.set_flags(flags)
    core.set_cublas_switch(switches[0])
    core.set_cudnn_switch(switches[1])


def in_force() -> dict:
    """Of the flags, those that this build of Paddle has."""
    return paddle.get_flags([name for name in FLAGS if name in paddle.base.core.globals()])


def expected(*values) -> dict:
    return {name: value for name, value in zip(FLAGS, values) if name in paddle.base.core.globals()}


def test_tf32_is_set_either_way_and_a_cpu_is_left_alone(as_before):
    core = paddle.base.core
    for allowed in (True, False, True):
        gpu.prepare(allowed, deterministic=False, fixed_shapes=False)
        assert (core.get_cublas_switch(), core.get_cudnn_switch()) == (allowed, allowed)
        assert os.environ.pop("NVIDIA_TF32_OVERRIDE", None) == (None if allowed else "0")
        assert in_force().get(LEGACY_LINEAR, allowed) == allowed
    with forced_device("cpu"):
        gpu.prepare(False, deterministic=True, fixed_shapes=True)
    assert core.get_cublas_switch() and "NVIDIA_TF32_OVERRIDE" not in os.environ
    assert in_force() == expected(False, False, 0, True)


@pytest.mark.parametrize(
    "capability, override, rounds", [((9, 0), None, True), ((7, 5), None, False), ((9, 0), "0", False)]
)
def test_tf32_needs_a_gpu_that_has_it_and_nobody_who_forbids_it(as_before, monkeypatch, capability, override, rounds):
    gpu.prepare(True, deterministic=False, fixed_shapes=False)
    if override:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", override)
    with forced_device(capability=capability):
        assert gpu.rounds_to_tf32() is rounds


@pytest.mark.parametrize("flag", [True, False])
def test_the_flag_of_paddle_3_4_decides_whatever_the_switch_says(as_before, other_paddle, flag):
    gpu.prepare(not flag, deterministic=False, fixed_shapes=False)
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    other_paddle({"base.core.globals": {PRODUCTS: None}, "get_flags": lambda names: dict.fromkeys(names, flag)})
    assert gpu.rounds_to_tf32() is flag and gpu.settings()[PRODUCTS] is flag


@pytest.mark.parametrize("version, is_kept", [("3.3.0", False), ("3.3.1", True), ("2.6.2", True)])
def test_paddles_own_override_at_import_is_not_taken_for_the_users(
    as_before, monkeypatch, other_paddle, version, is_kept
):
    other_paddle({"__version__": version})
    for allowed, left in ((True, is_kept), (False, True)):
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
        gpu.prepare(allowed, deterministic=False, fixed_shapes=False)
        assert ("NVIDIA_TF32_OVERRIDE" in os.environ) is left


def test_half_precision_multiplies_by_the_newer_kernel(as_before):
    for half in (False, True, False):
        gpu.prepare(True, deterministic=False, fixed_shapes=False, half=half)
        assert in_force().get(LEGACY_LINEAR, not half) is not half


@pytest.mark.parametrize(
    "words, half",
    [
        ([], False),
        (["AMP", "True"], True),
        (["EVAL_AMP", "True"], True),
        (["AMP", "True", "-eval", "-pretrained=x"], False),
        (["AMP", "True", "EVAL_AMP", "True", "-eval", "-pretrained=x"], True),
    ],
)
def test_a_process_is_set_up_for_the_precision_that_it_computes_in(as_before, words, half):
    """A training's AMP means nothing to an evaluation, which has EVAL_AMP."""
    config = settings.load(["-dataset=synthetic", "TRAIN.TF32", "True", "DETERMINISTIC", "True", *words]).values
    prepare_device(config, fixed_shapes=True)
    assert in_force() == expected(False, True, 1, not half)


def test_algorithms_are_looked_for_where_shapes_are_few_unless_runs_are_to_repeat(as_before, monkeypatch):
    gpu.prepare(True, deterministic=False, fixed_shapes=True)
    assert in_force() == expected(True, False, 0, True) and "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    gpu.prepare(True, deterministic=False, fixed_shapes=False)
    assert in_force() == expected(False, False, 0, True)
    monkeypatch.setenv(SEARCH, "0")
    gpu.prepare(True, deterministic=False, fixed_shapes=True)
    assert in_force() == expected(False, False, 0, True)
    gpu.prepare(True, deterministic=True, fixed_shapes=True)
    assert in_force() == expected(False, True, 1, True) and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_what_is_in_force_is_recorded(as_before, monkeypatch):
    gpu.prepare(True, deterministic=True, fixed_shapes=True)
    recorded = gpu.settings()
    with forced_device("cpu"):
        assert gpu.settings() is None
    assert recorded["tf32"] is True and recorded["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert {name: recorded[name] for name in in_force()} == expected(False, True, 1, True)
    monkeypatch.setattr(gpu, "read_flags", lambda names: dict.fromkeys(names, 3))
    flags = "cudnn_deterministic embedding_deterministic cudnn_exhaustive_search use_legacy_linear cublas_allow_tf32"
    flags += " conv_workspace_size_limit cudnn_batchnorm_spatial_persistent"
    assert {f"FLAGS_{name}" for name in flags.split()} == gpu.settings().keys() - {"tf32", "CUBLAS_WORKSPACE_CONFIG"}


@pytest.mark.parametrize(
    "visible, number",
    [
        (None, 4),
        ("", 0),
        ("-1", 0),
        ("2,0", 2),
        ("0,-1,1", 1),
        ("1, 7", 1),
        ("GPU-8932f937,GPU-01fa", 2),
        ("MIG-GPU-8932f937/1/0", 1),
        ("NoDevFiles", 0),
    ],
)
def test_visible_gpus_are_counted_as_cuda_counts_them(machine, monkeypatch, visible, number):
    machine.gpus = 4
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices.expected_gpus() == number


@pytest.mark.parametrize("visible, devices_of_ranks", [("2, 5", [0, 1]), ("GPU-8932f937,GPU-01fa", [0, 1])])
def test_paddle_finds_the_device_of_each_rank(monkeypatch, visible, devices_of_ranks):
    from paddle.distributed.utils.launch_utils import get_gpus  # what ``dist.spawn`` asks

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    spawn.prepare_rendezvous()
    assert get_gpus(os.environ["CUDA_VISIBLE_DEVICES"]) == devices_of_ranks


class Driver:
    """CUDA's, of version 12.4, with an A100 and an H100; anything else that is asked of it fails."""

    def __init__(self, result: int) -> None:
        self.result = result

    def cuInit(self, flags):  # noqa: N802
        return self.result

    @staticmethod
    def _write(number, value):
        ctypes.cast(number, ctypes.POINTER(ctypes.c_int))[0] = value
        return 0

    def cuDeviceGetCount(self, number):  # noqa: N802
        return self._write(number, 2)

    def cuDriverGetVersion(self, number):  # noqa: N802
        return self._write(number, 12040)

    def cuDeviceGet(self, device, ordinal):  # noqa: N802
        return self._write(device, 70 + ordinal)

    def cuDeviceGetAttribute(self, number, attribute, device):  # noqa: N802
        return self._write(number, {(75, 70): 8, (76, 70): 0, (75, 71): 9, (76, 71): 0}[attribute, device])


def test_the_newest_card_and_its_driver_are_known_without_paddle(libraries):
    libraries["libcuda.so.1"] = Driver(0)
    assert devices.find_newest_card() == ((9, 0), (12, 4))
    for driver in (Driver(100), Driver(0)):
        driver.cuDeviceGetCount = lambda number: 1  # none is there
        libraries["libcuda.so.1"] = driver
        assert devices.find_newest_card() is None


@pytest.mark.parametrize("has_device, driver, number", [(True, 0, 2), (True, 100, 0), (True, None, 0), (False, 0, 0)])
def test_gpus_of_windows_subsystem_are_counted_by_their_driver(machine, libraries, has_device, driver, number):
    machine.gpus, machine.has_dxg = 0, has_device
    libraries["libcuda.so.1"] = OSError("no such library") if driver is None else Driver(driver)
    assert devices.expected_gpus() == number


def test_flags_that_a_cpu_lacks_are_set_on_a_gpu(as_before, monkeypatch, other_paddle):
    flags = []
    other_paddle({"set_flags": flags.append, "base.core.globals": [*FLAGS, PRODUCTS]})
    repeated = {"FLAGS_cudnn_deterministic": True, "FLAGS_embedding_deterministic": 1, SEARCH: False}
    for deterministic, fixed_shapes in ((True, True), (False, True), (False, False)):
        gpu.prepare(True, deterministic, fixed_shapes)
    monkeypatch.setenv(SEARCH, "0")
    gpu.prepare(False, False, True)
    assert flags[::2] == [{LEGACY_LINEAR: tf32, PRODUCTS: tf32} for tf32 in (True, True, True, False)]
    assert flags[1::2] == [repeated, {SEARCH: True}, {SEARCH: False}, {}]


def test_of_other_accelerators_nothing_is_known():
    with forced_device("npu"):
        assert gpu.rounds_to_tf32() is True
