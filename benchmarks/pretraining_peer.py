"""Updates of torch for ``pretraining.py``: transformers' masked autoencoder, lightly's self-distillation, a ViT.

All have clipping and torch's fused AdamW. Images are float32 and normalized already.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from pretraining_sizes import CLIP, DECODERS, DINO, MODEL, OUTPUTS, SIDE, SMALL_SIDE, SMALL_VIEWS, SUPERVISED, get_batch
from smallest import SHALLOW
from torch import nn
from training_updates import get_torch_update

LARGE_VIEWS, MOMENTUM, DROP_PATH = 2, 0.996, 0.1


def draw(views: int, side: int, batch: int) -> Any:
    """Images (views * batch, 3, side, side), view by view."""
    values = np.random.default_rng(0).standard_normal((views * batch, 3, side, side))
    return torch.from_numpy(values.astype(np.float32))


def get_step(name: str) -> Callable[[], Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if name == DINO:
        return get_distillation(get_batch(name))
    return (get_supervised if name == SUPERVISED else get_masked)(name, get_batch(name))


def get_supervised(name: str, batch: int) -> Callable[[], Any]:
    import timm

    model = timm.create_model(MODEL, img_size=SIDE, **SHALLOW)
    images, labels = draw(1, SIDE, batch), torch.randint(0, 1000, (batch,))
    loss = lambda: nn.functional.cross_entropy(model(images), labels)  # noqa: E731
    return get_torch_update(model.parameters(), loss, clip=CLIP, weight_decay=0.05)


def get_masked(name: str, batch: int) -> Callable[[], Any]:
    import transformers

    width, depth, heads = DECODERS[name]
    config = transformers.ViTMAEConfig(
        hidden_size=192,
        num_hidden_layers=SHALLOW.get("depth", 12),
        num_attention_heads=3,
        intermediate_size=768,
        image_size=SIDE,
        decoder_hidden_size=width,
        decoder_num_hidden_layers=depth,
        decoder_num_attention_heads=heads,
        decoder_intermediate_size=4 * width,
        mask_ratio=0.75,
        norm_pix_loss=True,
    )
    model: Any = transformers.ViTMAEForPreTraining(config)
    images = draw(1, SIDE, batch)
    options = {"clip": CLIP, "weight_decay": 0.05, "betas": (0.9, 0.95)}
    return get_torch_update(model.parameters(), lambda: model(pixel_values=images).loss, **options)


class Network(nn.Module):
    """A ViT with lightly's head, for views of any size."""

    def __init__(self) -> None:
        super().__init__()
        import timm
        from lightly.models.modules import DINOProjectionHead

        options = {"num_classes": 0, "dynamic_img_size": True, "drop_path_rate": DROP_PATH}
        self.backbone = timm.create_model(MODEL, img_size=SIDE, **options, **SHALLOW)
        self.head = DINOProjectionHead(self.backbone.num_features, 2048, 256, OUTPUTS, norm_last_layer=True)

    def forward(self, views: Sequence[Any]) -> Any:
        """Outputs of all views; each of ``views`` has the images of one size, which are computed at once."""
        return self.head(torch.cat([self.backbone(each) for each in views]))


def get_distillation(batch: int) -> Callable[[], Any]:
    """The loop that lightly documents; views of a size are joined and each gradient is clipped, as by the authors."""
    from lightly.loss import DINOLoss
    from lightly.models.utils import deactivate_requires_grad, update_momentum

    student, teacher = Network(), Network()
    teacher.load_state_dict(student.state_dict())
    deactivate_requires_grad(teacher)
    for module in teacher.modules():  # the teacher drops no paths
        if hasattr(module, "drop_prob"):
            module.drop_prob = 0.0
    criterion = DINOLoss(OUTPUTS)
    learning = [parameter for parameter in student.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, 1e-4, weight_decay=0.04, fused=True)
    large, small = draw(LARGE_VIEWS, SIDE, batch), draw(SMALL_VIEWS, SMALL_SIDE, batch)

    def step() -> None:
        with torch.no_grad():
            taught = teacher([large])
        outputs = student([large, small])
        loss = criterion([*taught.split(batch)], [*outputs.split(batch)], teacher_temp=0.04)
        loss.backward()
        gradients = [parameter.grad for parameter in learning]
        factors = [(CLIP / (norm + 1e-6)).clamp(max=1.0) for norm in torch._foreach_norm(gradients)]
        torch._foreach_mul_(gradients, factors)
        optimizer.step()
        optimizer.zero_grad()
        update_momentum(student.backbone, teacher.backbone, MOMENTUM)
        update_momentum(student.head, teacher.head, MOMENTUM)

    return step
