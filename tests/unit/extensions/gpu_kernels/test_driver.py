"""Triton's driver asks another framework than torch."""

import sys

from paddlevit_dist.extensions.gpu_kernels import driver


def test_a_framework_answers_and_torch_is_not_asked(monkeypatch):
    monkeypatch.setattr(driver, "CudaUtils", object)  # which is compiled against CUDA
    monkeypatch.setitem(sys.modules, "torch", None)  # to import it raises
    chosen = []
    answers = driver.DeviceAnswers(lambda: 3, lambda device: 1000 + device, lambda device: (8, device), chosen.append)
    ours = driver.FrameworkDriver(answers)
    target = ours.get_current_target()
    assert (target.backend, target.arch, target.warp_size) == ("cuda", 83, 32)
    assert ours.get_current_stream(ours.get_current_device()) == 1003
    ours.set_current_device(2)
    assert chosen == [2]
