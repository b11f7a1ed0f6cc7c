"""A training step of each kind of fast layer; prints the names of the models that made one."""

from paddlevit_dist.core.losses import resized_cross_entropy
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.extensions.cpu_kernels.accelerate import (
    accelerate,
    is_available,
)  # before Paddle, for 2.6's sake: see the package's __init__

# isort: split
import paddle

MODELS = {
    "vit_tiny_patch16_224": {"embed_dim": 48, "depth": 2, "num_heads": 3},
    "swin_tiny_patch4_window7_224": {"embed_dim": 48, "depths": [2, 1, 1, 1]},
    "convnext_tiny": {"dims": [16, 32, 64, 64], "depths": [1, 1, 1, 1]},
    "pvt_v2_b0": {"depths": [1, 1, 1, 1]},
    "segformer_b0": {"backbone_options": {"depths": [1, 1, 1, 1]}},
    "unet3d": {"depth": 1},
}

if __name__ == "__main__":
    assert is_available()
    for name, options in MODELS.items():
        model = create_model(name, num_classes=2, **options)
        accelerate(model)
        outputs = model(paddle.ones([1, 1, 8, 16, 16] if name == "unet3d" else [1, 3, 224, 224]))
        labels = paddle.ones([1, 224, 224], "int64")
        (resized_cross_entropy(outputs, labels, 255) if outputs.ndim == 4 else outputs.sum()).backward()
        print(name, flush=True)
