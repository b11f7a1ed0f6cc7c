"""Small classifiers with random weights, as a training would have left them, without the training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import yaml

from paddlevit_dist.core import settings
from paddlevit_dist.core.engine.compatibility import to_plain_settings
from paddlevit_dist.core.tasks.model_factory import create_model
from support.trainings.runs import PLAIN

SIZES = {"patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
WORDS = ["MODEL.PATCH_SIZE", "8", "MODEL.EMBED_DIM", "16", "MODEL.DEPTH", "1", "MODEL.NUM_HEADS", "2"]


def network(num_classes: int, seed: int = 0, image_size: int = 16, channels: int = 3) -> Any:
    """A vision transformer whose outputs differ clearly between images, in evaluation mode."""
    paddle.seed(seed)
    model = create_model("vit", num_classes=num_classes, image_size=image_size, in_channels=channels, **SIZES)
    generator = np.random.default_rng(seed)
    for name, parameter in model.named_parameters():
        if name.startswith("head") and parameter.ndim == 2:
            parameter.set_value(generator.normal(size=parameter.shape).astype("float32"))
    model.eval()
    return model


def write_weights(
    folder: Path, class_names: Sequence[str] | None, *words: str, seed: int = 0, num_classes: int = 0, **sizes: int
) -> Path:
    """``weights.pdparams`` of such a network, with an ``about.yaml`` beside it.

    Args:
        words: of a command line, for the configuration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = network(num_classes or len(class_names or ()), seed, **sizes)
    paddle.save(model.state_dict(), str(folder / "weights.pdparams"))
    values = settings.load([PLAIN, *WORDS, "-image_size=16", "-dataset=folder", "-data_path=.", *words]).values
    facts: list[str] = list(class_names or ())
    about = {
        "task": "classification",
        "model": "vit",
        "input": {},
        "data": {"val": {"samples": 1, **({"classes": facts} if facts else {})}},
        "settings": to_plain_settings(values),
    }
    (folder / "about.yaml").write_text(yaml.safe_dump(about, allow_unicode=True), encoding="utf-8")
    return folder / "weights.pdparams"
