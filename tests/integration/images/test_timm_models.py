"""Models of timm in training runs: PyTorch's losses; with two processes at night."""

import numpy as np
import paddle
import paddle.nn.functional as F
from support.networks import golden, timm_zoo
from support.processes import run_together

from paddlevit_dist.core.distributed import all_gather, rank, world_size
from paddlevit_dist.core.distributed.wrapping import data_parallel
from paddlevit_dist.core.tasks.model_factory import create_model

pytestmark = timm_zoo.needs_compat
TRAINED = ("test_efficientnet", "test_vit", "test_nfnet")


def test_ten_updates_give_the_losses_of_pytorch():
    require_losses_of_pytorch(1)


def require_losses_of_pytorch(processes):
    """A model with batch norms, one with attention, one with standardized weights; PyTorch computed in float64."""
    target = "integration.images.test_timm_models:train"
    found = run_together({name: (target, (name,)) for name in TRAINED}, processes=processes)
    for name in TRAINED:
        for losses in found[name]:
            np.testing.assert_allclose(losses, golden.description("timm_training")[name]["losses"], rtol=1e-4)


def train(name: str) -> list[float]:
    """The mean loss of all ranks for each of ten updates on the ranks' shares of the golden images."""
    fact = golden.description("timm_training")[name]
    model = create_model(f"timm:{name}", 10)
    timm_zoo.fill(model, 11)
    model.train()
    parallel = data_parallel(model, batch_norm="sync")
    if fact["optimizer"] == "sgd":
        optimizer = paddle.optimizer.Momentum(0.01, 0.9, parameters=model.parameters())
    else:
        optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters(), weight_decay=0.05)
    share = slice(rank(), None, world_size())
    losses = []
    for update in range(10):
        images = golden.recipe().golden_image(100 + update, fact["batch"], fact["image_size"])[share]
        labels = [(3 * update + image) % 10 for image in range(fact["batch"])][share]
        loss = F.cross_entropy(parallel(paddle.to_tensor(images)), paddle.to_tensor(labels))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(sum(all_gather(float(loss))) / world_size())
    return losses
