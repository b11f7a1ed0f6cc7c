"""What PyTorch's names mean while timm is imported, and afterwards."""

import sys
from types import ModuleType

import paddle
import pytest
from support.networks.timm_zoo import needs_compat


@needs_compat
def test_a_programs_own_pytorch_is_hidden_for_a_while(tmp_path, monkeypatch):
    from paddlevit_dist.images.models.bridges.torch_names import torch_on_paddle  # Paddle 2.6 cannot import it

    mine = {name: ModuleType(name) for name in ("torch", "torch.mine", "torchvision", "torchmetrics")}
    for name, module in mine.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("timm.data", "timm.data.constants"):  # these stay, and are not here after the test
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    functional = sys.modules.get("torch.nn.functional")
    (tmp_path / "constants.py").write_text("MEAN = 0.25\nname = 'data'\n", encoding="utf-8")
    with pytest.raises(KeyError), torch_on_paddle(str(tmp_path / "constants.py")):
        import torch
        import torchvision
        from torchvision.transforms import Resize

        assert torch is not mine["torch"] and torch.zeros([2]).shape == [2] and torch.Tensor is paddle.Tensor
        assert isinstance(Resize, type) and not hasattr(torchvision, "__wrapped__")
        assert sys.modules["torchmetrics"] is mine["torchmetrics"] and "torch.mine" not in sys.modules
        raise KeyError
    assert {name: sys.modules[name] for name in mine} == mine
    assert sys.modules.get("torch.nn.functional") is functional
    assert sys.modules["timm.data"].MEAN == 0.25 and not hasattr(sys.modules["timm.data"], "name")
