"""The table of devices: what each kind can do, and what replaces what it cannot."""

import pytest
from support.forced_device import forced_device
from support.refusals import refusal_of

from paddlevit_dist.core.runtime import device_kinds

VARIABLES = {
    "gpu": "CUDA_VISIBLE_DEVICES",
    "xpu": "XPU_VISIBLE_DEVICES",
    "npu": "ASCEND_RT_VISIBLE_DEVICES",
    "mlu": "MLU_VISIBLE_DEVICES",
    "gcu": "TOPS_VISIBLE_DEVICES",
    "iluvatar_gpu": "CUDA_VISIBLE_DEVICES",
    "metax_gpu": "MACA_VISIBLE_DEVICES",
    "cpu": "",
    "new_chip": "NEW_CHIP_VISIBLE_DEVICES",
}


@pytest.mark.parametrize("name", VARIABLES)
def test_only_gpus_and_cpus_claim_what_was_measured(name):
    kind = device_kinds.get_kind(name)
    assert (kind.name, kind.visible, kind.is_other) == (name, VARIABLES[name], name not in ("gpu", "cpu"))
    features = kind.queues, kind.native_batch_norm, kind.exchanges_float64
    assert features == {"gpu": (True, True, True), "cpu": (False, False, True)}.get(name, (False, False, False))
    missing = (
        f"{name}: no SyncBatchNorm (ours, by sums over the devices), no float64 in collectives (exchanged by the host)"
        ", no events (the host waits more often), no fused attention or biases: the same results, slower; see "
        "docs/guides/devices.md"
    )
    assert kind.replaced == (missing if kind.is_other else "")


def test_a_feature_that_another_kind_has_is_not_missing():
    kind = device_kinds.DeviceKind("npu", "NPU", "", queues=True, exchanges_float64=True)
    told = "npu: no SyncBatchNorm (ours, by sums over the devices), no fused attention or biases: the same results"
    assert kind.replaced.startswith(told)


def test_a_choice_among_several_is_told_before_what_is_missing():
    kind, lines = device_kinds.choose("auto", {"npu": 8, "mlu": 2})
    assert kind.name == "npu" and lines == [
        "device: npu, of 8 npu, 2 mlu (DEVICE, or -device=, chooses another)",
        kind.replaced,
    ]
    assert device_kinds.choose("MLU", {"npu": 8, "mlu": 2})[1] == [device_kinds.get_kind("mlu").replaced]
    assert device_kinds.choose("auto", {"gpu": 2}) == (device_kinds.get_kind("gpu"), [])
    assert device_kinds.choose("Auto", {}) == (device_kinds.get_kind("cpu"), [])
    assert device_kinds.choose("cpu", {"gpu": 2}) == (device_kinds.get_kind("cpu"), [])


@pytest.mark.parametrize(
    "requested, visible, told",
    [
        (
            "hygon",
            {},
            "DEVICE hygon (-device): there is none that this Paddle sees: the CPU; use auto or cpu, or install "
            "Paddle's build or plug-in for it (docs/guides/devices.md)",
        ),
        (
            "tpu",
            {"gpu": 2, "npu": 8},
            "DEVICE tpu (-device): tpu is not among the kinds of devices that this Paddle sees: 2 gpu, 8 npu and the "
            "CPU; use auto, gpu, npu or cpu, or install Paddle's build or plug-in for it (docs/guides/devices.md)",
        ),
        (
            "Kunlun:3",
            {"xpu": 4},
            "DEVICE Kunlun:3 (-device): name only the kind, xpu: -ngpus sets the number, and XPU_VISIBLE_DEVICES "
            "chooses the visible ones",
        ),
    ],
)
def test_a_device_that_cannot_be_taken_is_refused(requested, visible, told):
    assert refusal_of(device_kinds.choose, requested, visible) == told


@pytest.mark.parametrize(
    "name, kind",
    [("CUDA", "gpu"), ("nvidia", "gpu"), ("rocm", "gpu"), ("dcu", "gpu"), ("hygon", "gpu"), ("ascend", "npu")]
    + [("huawei", "npu"), ("kunlun", "xpu"), ("cambricon", "mlu"), ("enflame", "gcu")]
    + [("iluvatar", "iluvatar_gpu"), ("metax", "metax_gpu")],
)
def test_makers_names_are_understood(name, kind):
    assert device_kinds.choose(name, {kind: 1})[0].name == kind


def test_a_cpu_counts_neither_memory_nor_accelerators():
    assert device_kinds.current() is device_kinds.get_kind("cpu")
    assert device_kinds.max_allocated_bytes() is device_kinds.reserved_bytes() is None
    assert (
        device_kinds.accelerator_bytes() == 0 and device_kinds.count_gpus() == 0 and device_kinds.count_others() == {}
    )
    assert not device_kinds.computes_in("bfloat16")


# What Paddle is asked for, of builds and devices that are not here


def test_a_place_has_the_number_of_its_device(other_paddle):
    places = ("CPUPlace", "CUDAPlace", "XPUPlace", "CustomPlace")
    other_paddle({name: lambda *words, name=name: (name, *words) for name in places})
    found = [device_kinds.get_place(name) for name in ("cpu", "gpu", "gpu:2", "xpu:3", "npu:4", "npu")]
    custom = [("CustomPlace", "npu", 4), ("CustomPlace", "npu", 0)]
    assert found == [("CPUPlace",), ("CUDAPlace", 0), ("CUDAPlace", 2), ("XPUPlace", 3), *custom]


@pytest.mark.parametrize("is_built, present, number", [(True, 3, 3), (True, 0, 0), (False, 3, 0)])
def test_gpus_are_counted_where_paddle_can_use_them(other_paddle, is_built, present, number):
    other_paddle({"is_compiled_with_cuda": is_built, "device.cuda.device_count": present})
    other_paddle({"static.cuda_places": [None] * 3})
    assert device_kinds.count_gpus() == number and device_kinds.is_built_for_cuda() is is_built


@pytest.mark.parametrize("has_xpu", [True, False])
def test_accelerators_of_plug_ins_are_counted(other_paddle, has_xpu):
    other_paddle({"is_compiled_with_xpu": has_xpu, "base.core.get_xpu_device_count": 4})
    other_paddle({"device.get_available_custom_device": ["npu:0", "npu:1", "mlu"]})
    other_paddle({"device.get_all_custom_device_type": ["npu", "mlu", "new"]})
    assert device_kinds.count_others() == {**({"xpu": 4} if has_xpu else {}), "npu": 2, "mlu": 1, "new": 1}
    other_paddle({"device.get_available_custom_device": None, "device.get_all_custom_device_type": None})
    assert device_kinds.count_others() == ({"xpu": 4} if has_xpu else {})


@pytest.mark.parametrize("name", ["gpu", "npu", "cpu"])
def test_memory_is_counted_by_the_devices_own_functions(other_paddle, monkeypatch, name):
    with forced_device(name, memory=80):
        other_paddle({"device.cuda.max_memory_allocated": 5.0, "device.cuda.memory_reserved": 6.0})
        other_paddle({"device.max_memory_allocated": 15.0, "device.memory_reserved": 16.0})
        found = device_kinds.max_allocated_bytes(), device_kinds.reserved_bytes(), device_kinds.accelerator_bytes()
        assert found == {"gpu": (5, 6, 80), "npu": (15, 16, 0), "cpu": (None, None, 0)}[name]
        monkeypatch.delattr("paddle.device.memory_reserved")
        assert device_kinds.reserved_bytes() == (6 if name == "gpu" else None)


@pytest.mark.parametrize("name, computes", [("gpu", (True, True)), ("cpu", (False, False)), ("npu", (True, False))])
def test_half_precision_is_what_paddle_reports(other_paddle, name, computes):
    other_paddle({"amp.is_float16_supported": 1, "amp.is_bfloat16_supported": 0})
    with forced_device(name):
        found = tuple(device_kinds.computes_in(dtype) for dtype in ("float16", "bfloat16"))
    assert found == computes and set(map(type, found)) == {bool}
