"""Ten updates of a model of timm on each rank's share of the golden images."""

import paddle
import paddle.nn.functional as F

from paddlevit_dist.core.distributed import all_gather, rank, world_size
from paddlevit_dist.core.distributed.wrapping import data_parallel
from paddlevit_dist.core.tasks.model_factory import create_model
from support.networks import golden, timm_zoo


def train(name: str) -> list[float]:
    """Return the mean loss of all ranks for each of ten updates, as tests/golden/timm_training.json has them."""
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
