"""A small classifier of each family, with what is random in its training."""

import numpy as np
import paddle

from paddlevit_dist.core.tasks.model_factory import create_model

FAMILIES = {
    "vit_tiny_patch16_224": {"depth": 2, "embed_dim": 24, "dropout": 0.3, "attention_dropout": 0.3},
    "deit_tiny_distilled_patch16_224": {"depth": 2, "embed_dim": 24, "dropout": 0.3},
    "cait_xxs24_224": {"depth": 2, "embed_dim": 32},
    "swin_tiny_patch4_window7_224": {"depths": (2, 1, 1, 1), "embed_dim": 24},
    "pvt_v2_b0": {"depths": (2, 1, 1, 1)},
    "segformer_b0": {"backbone_options": {"depths": (2, 1, 1, 1)}, "channels": 16},
    "mixer_s16_224": {"depth": 2, "embed_dim": 32},
    "convnext_tiny": {"depths": (2, 1, 1, 1), "dims": (8, 16, 24, 32)},
    "resnet18": {"depths": (2, 1, 1, 1), "dims": (8, 16, 24, 32), "frozen_batch_norm": True},
}


SIZE = (64, 96)  # height and width
IMAGES = np.random.default_rng(0).standard_normal((4, 3, *SIZE)).astype("float32")


def build(name, **options):
    paddle.seed(1)
    model = create_model(name, num_classes=5, image_size=SIZE, drop_path=0.5, **{**FAMILIES[name], **options})
    model.train()
    return model


def gradients(model):
    paddle.seed(2)
    outputs = model(paddle.to_tensor(IMAGES))
    (outputs**2).sum().backward()
    return {name: p.grad.numpy().copy() for name, p in model.named_parameters() if p.grad is not None}
