"""The peer of ``startup.py``: the fewest lines that start the training of ``configs/vit_digits.yaml``.

python benchmarks/startup_by_hand.py PROCESSES FILE

Rank 0 writes the time of its first step to FILE.
"""

import sys
import time
from pathlib import Path

import numpy as np
import paddle
from paddle import distributed as dist

from paddlevit_dist import create_model
from paddlevit_dist.images.data.small_sets import Digits
from paddlevit_dist.images.transforms.crops import GlyphTransform


class Readings(paddle.io.Dataset):
    def __init__(self):
        self.images = Digits(None, "train", None)
        self.transform = GlyphTransform(16, True)
        self.generator = np.random.default_rng(0)

    def __getitem__(self, index):
        image, label = self.images.read(index)
        return self.transform(image, self.generator), label

    def __len__(self):
        return len(self.images)


def train(noted):
    model = create_model("vit", 10, 16, patch_size=4, embed_dim=96, depth=4, num_heads=4, mlp_ratio=2.0, in_channels=1)
    wrapped = model
    if dist.ParallelEnv().nranks > 1:
        dist.init_parallel_env()
        wrapped = paddle.DataParallel(model)
    optimizer = paddle.optimizer.AdamW(2e-3, parameters=model.parameters(), weight_decay=0.05)
    readings = Readings()
    sampler = paddle.io.DistributedBatchSampler(readings, 32, shuffle=True, drop_last=True)
    for images, labels in paddle.io.DataLoader(readings, batch_sampler=sampler, num_workers=0):
        logits = wrapped(images.astype("float32") / 127.5 - 1.0)  # (batch, classes)
        paddle.nn.functional.cross_entropy(logits, labels).backward()
        paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if dist.get_rank() == 0:
            Path(noted).write_text(f"{time.time()}\n", encoding="utf-8")
        return


if __name__ == "__main__":
    processes, file = int(sys.argv[1]), sys.argv[2]
    if processes == 1:
        train(file)
    else:
        dist.spawn(train, args=(file,), nprocs=processes, backend="gloo")
