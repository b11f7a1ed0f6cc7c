"""Models of timm in training runs on two processes: PyTorch's losses."""

from integration.images.test_timm_models import pytestmark, require_losses_of_pytorch  # noqa: F401


def test_ten_updates_on_two_processes_give_the_losses_of_pytorch():
    require_losses_of_pytorch(2)
