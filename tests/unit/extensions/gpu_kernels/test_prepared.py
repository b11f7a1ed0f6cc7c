"""A launch lets Triton compile once, and then starts what it has compiled, with aligned addresses alone."""

from types import SimpleNamespace

import pytest
import triton

from paddlevit_dist.extensions.gpu_kernels import prepared
from paddlevit_dist.extensions.gpu_kernels.prepared import PreparedLaunch, TypedAddress


class Kernel(triton.JITFunction):
    """Notes what Triton would compile and start."""

    def __init__(self):
        self.calls = []

    def __getitem__(self, grid):
        def start(*arguments, **options):
            pointers = [(one.data_ptr(), one.dtype) for one in arguments if isinstance(one, TypedAddress)]
            self.calls.append((grid, pointers, arguments[len(pointers) :], options))
            return SimpleNamespace(run=lambda *all: self.calls.append(all), function="f", packed_metadata="m")

        return start


class Interpreted:
    """The same as what Triton's interpreter makes of a function."""

    __init__, __getitem__ = Kernel.__init__, Kernel.__getitem__


def make_tensors(*addresses):
    return [SimpleNamespace(data_ptr=lambda address=address: address) for address in addresses]


@pytest.fixture(autouse=True)
def devices(monkeypatch):
    active = SimpleNamespace(get_current_device=lambda: 3, get_current_stream=lambda device: 1000 + device)
    monkeypatch.setattr(prepared, "driver", SimpleNamespace(active=active))


@pytest.mark.parametrize("kind", [Kernel, Interpreted])
def test_what_is_compiled_for_aligned_tensors_is_started_again_by_its_address(kind):
    kernel = kind()
    launch = PreparedLaunch(kernel, (5, 2), ("float32", "int32"), (7, 0.5), (64, True), 4)
    given = [(32, 48), (32, 40), (64, 16), (4, 16)]
    for addresses in given:
        launch(*make_tensors(*addresses))
    options = {"num_warps": 4, "num_stages": 3, "enable_fp_fusion": True}
    asked = [
        ((5, 2, 1), [(first, "float32"), (second, "int32")], (7, 0.5, 64, True), options) for first, second in given
    ]
    started = (5, 2, 1, 1003, "f", "m", None, None, None, 64, 16, 7, 0.5, 64, True)
    assert kernel.calls == (asked if kind is Interpreted else [*asked[:2], started, asked[3]])


def test_nothing_is_kept_of_what_was_compiled_for_other_addresses():
    kernel = Kernel()
    launch = PreparedLaunch(kernel, (1, 1), ("float32",), (), (), 2)
    for address in (8, 16, 32):
        launch(*make_tensors(address))
    assert [call[0] for call in kernel.calls] == [(1, 1, 1), (1, 1, 1), 1]


def test_an_interpreter_copies_an_address_and_no_memory():
    tensor = TypedAddress(160, "float16")
    copy = tensor.new_empty(0, device="cpu")
    assert (copy.address, copy.dtype) == (0, "float16")
    copy.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
    copy.copy_(tensor.cpu())
    assert (copy.data_ptr(), tensor.data_ptr(), tensor.storage_offset()) == (160, 160, 0)
    assert (tensor.size(), tensor.stride()) == ((), ())
