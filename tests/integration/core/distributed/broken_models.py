"""``main_multi_gpu.py`` with models and a task of a user that depend on the number of processes, for -selftest."""

import sys
from typing import Any

from paddlevit_dist import rank, register_model, register_task  # before Paddle, for 2.6's sake
from paddlevit_dist.core.commands import train
from paddlevit_dist.core.runtime.errors import run_and_report
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.images.classification.task import Classification

# isort: split
import paddle


class Linear(Model):
    def __init__(self, num_classes: int = 10, image_size: int = 8, in_channels: int = 1) -> None:
        super().__init__()
        self.dropout = paddle.nn.Dropout(0.5)
        self.head = paddle.nn.Linear(image_size * image_size, num_classes)

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.dropout(images.flatten(1)))


class WithNoise(Linear):
    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return super().forward(images + 0.1 * paddle.randn(images.shape))


class WithBuffer(Linear):
    """Keeps the mean of what it has seen, each rank its own."""

    def __init__(self, num_classes: int = 10, image_size: int = 8, in_channels: int = 1) -> None:
        super().__init__(num_classes, image_size)
        self.register_buffer("seen", paddle.zeros([1]))

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        self.seen.set_value(images.mean().reshape([1]))
        return super().forward(images)


class WithLeftOutRank(Linear):
    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        logits = super().forward(images)
        return logits.detach() + 0.0 * logits if rank() == 1 else logits


class WithBatchNorm(Linear):
    def __init__(self, num_classes: int = 10, image_size: int = 8, in_channels: int = 1) -> None:
        super().__init__(num_classes, image_size)
        self.norm = paddle.nn.BatchNorm1D(image_size * image_size)

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.norm(images.flatten(1)))


class OfBrightImages(Classification):
    """The loss is the mean over the images of a rank whose label is below 5, however many these are."""

    def train_step(self, model: Any, batch: Any, step: Any) -> dict[str, Any]:
        terms = super().train_step(model, batch, step)
        chosen = (batch["labels"] < 5).astype("float32")
        logits = model(self.normalize(batch["images"]))
        losses = paddle.nn.functional.cross_entropy(logits, batch["labels"], reduction="none")
        mean = (losses.flatten() * chosen).sum() / chosen.sum()
        return {"loss": terms["loss"]._replace(sum=mean * len(chosen))}


for kind in (Linear, WithNoise, WithBuffer, WithLeftOutRank, WithBatchNorm):
    register_model(kind.__name__, kind)
register_task("of_bright_images", OfBrightImages)

if __name__ == "__main__":
    sys.exit(run_and_report(lambda: train.run(sys.argv[1:])))
