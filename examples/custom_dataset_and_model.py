"""Train a custom model on a custom dataset. Worker processes (devices=2) and the command import this file:
paddlevit-dist train -import=examples/custom_dataset_and_model.py -cfg=vit_digits -dataset=stripes MODEL.NAME averages
"""

import tempfile

import numpy as np
import paddlevit_dist as pv
from paddlevit_dist.images import ImageDataset
from paddlevit_dist.core.tasks import Model

import paddle
from paddle import nn
from PIL import Image


class Stripes(ImageDataset):
    """Synthetic gray images, 8 x 8 pixels, with horizontal or vertical stripes."""

    kind, image_mode = "glyph", "L"
    class_names, num_classes = ["horizontal", "vertical"], 2

    def __init__(self, data_path, split, cache_folder):
        self.split, self.labels = split, np.arange(256 if split == "train" else 64) % 2

    def __len__(self):
        return len(self.labels)

    def read(self, index):
        generator = np.random.default_rng([index, self.split == "train"])
        pixels = np.tile(np.repeat([0, 150], 2), 2)[:, None] + generator.integers(0, 100, (8, 8))
        return Image.fromarray((pixels if self.labels[index] == 0 else pixels.T).astype(np.uint8)), int(
            self.labels[index]
        )

    def describe(self, index):
        return f"stripes {self.split} {index}"


class Averages(Model):
    """Two convolutions and a mean over the image."""

    classifier_layers = ("head",)

    def __init__(self, num_classes=1000, image_size=16, in_channels=3, width=16):
        super().__init__()
        self.in_channels, self.width = in_channels, width
        self.body = nn.Sequential(
            nn.Conv2D(in_channels, width, 3, padding=1), nn.ReLU(), nn.Conv2D(width, width, 3, padding=1), nn.ReLU()
        )
        self.reset_classifier(num_classes)

    def reset_classifier(self, num_classes):
        self.head = nn.Linear(self.width, num_classes) if num_classes else nn.Identity()

    def forward_features(self, x):
        return self.body(x).mean(axis=[2, 3])  # (batch, width)

    def forward(self, x):
        return self.head(self.forward_features(x))


pv.register_dataset("stripes", Stripes)
pv.register_model("averages", Averages)

if __name__ == "__main__":
    SETTINGS = {"MODEL.NAME": "averages", "TRAIN.WARMUP_EPOCHS": 0, "TRAIN.BASE_LR": 0.02, "DATA.GLYPH_DISTORTION": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        run = pv.train("vit_digits", epochs=4, dataset="stripes", output=f"{folder}/run", batch_size=32, **SETTINGS)
        print(f"stripes: {run.values['top-1']:.1f} %, {sum(p.size for p in run.model.parameters())} parameters")
        images = paddle.to_tensor(np.zeros((1, 1, 16, 16), np.float32))
        print("output shape for black:", run.model(images).shape)
