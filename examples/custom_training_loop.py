"""A custom training loop with samplers, model and meter of this package.

python examples/custom_training_loop.py [PROCESSES] prints the same scores for any number of processes.
"""

import sys

import numpy as np
from paddlevit_dist import (
    Accuracy,
    EvaluationSampler,
    TrainingSampler,
    create_model,
    is_main,
    launch_workers,
    open_dataset,
    plan_processes,
    reduce_dict,
    world_size,
)

import paddle
import paddle.nn.functional as F


EPOCHS, GLOBAL_BATCH = 2, 64  # images of one update, of all processes together


class Digits(paddle.io.Dataset):
    """Any dataset: this one returns float images (1, 8, 8) and labels, and does not depend on processes."""

    def __init__(self, split):
        super().__init__()
        samples = list(open_dataset("vit_digits", split).dataset)
        self.images = np.stack([np.asarray(image, np.float32)[None] / 127.5 - 1 for image, _ in samples])
        self.labels = np.array([label for _, label in samples], np.int64)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index], int(index)


def work(train_set, val_set):
    """Train and evaluate in each process, after it has joined the group."""
    paddle.seed(0)  # the same initial weights everywhere
    network = create_model("vit", 10, image_size=8, patch_size=2, in_channels=1, embed_dim=32, depth=2, num_heads=2)
    model = paddle.DataParallel(network) if world_size() > 1 else network
    optimizer = paddle.optimizer.AdamW(2e-3, parameters=network.parameters())
    sampler = TrainingSampler(train_set, GLOBAL_BATCH // world_size())
    loader = paddle.io.DataLoader(train_set, batch_sampler=sampler)
    for epoch in range(1, EPOCHS + 1):
        sampler.set_epoch(epoch)
        sums = {"loss": 0.0, "images": 0}
        for images, labels, _ in loader:
            loss = F.cross_entropy(model(images), labels)
            loss.backward()  # averages the gradients over the processes
            optimizer.step()
            optimizer.clear_grad()
            sums["loss"] += loss.item() * len(labels)
            sums["images"] += len(labels)
        trained = reduce_dict(sums, average=False)  # every process must call it
        if is_main():
            print(f"epoch {epoch} loss {trained['loss'] / trained['images']:.3f}", flush=True)
    meter = Accuracy(10)
    network.eval()
    with paddle.no_grad():
        for images, labels, indices in paddle.io.DataLoader(val_set, batch_sampler=EvaluationSampler(val_set, 50)):
            meter.update(network(images), labels, indices)
    scores = meter.compute()  # over all processes
    if is_main():
        interval = scores.intervals["top-1"]
        ends = f"[{interval.low:.1f}, {interval.high:.1f}]"
        print(f"top-1 {scores.values['top-1']:.2f} {ends} of {scores.values['samples']}")


if __name__ == "__main__":
    launch_workers(work, (Digits("train"), Digits("val")), plan_processes(int((sys.argv[1:] or ["1"])[0])))
