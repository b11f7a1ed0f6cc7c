"""A made-up clone of PaddleClas: packages whose ``__init__`` would import what is not installed, and two networks."""

from pathlib import Path

import paddle

NETWORKS = """
import paddle.nn as nn
from paddle import ParamAttr
from ....utils import logger
from ....utils.save_load import load_dygraph_pretrain

MODEL_URLS = {{
    "Small_x1_0":
    "{address}",
    "Listed": "{address}",
}}
__all__ = list(MODEL_URLS.keys())

class Small(nn.Layer):
    def __init__(self, class_num=1000, lists=False, fixed="conv_fixed"):
        super().__init__()
        logger.warning("built")
        self.conv = nn.Conv2D(3, 8, 4, 4, weight_attr=ParamAttr(name=fixed))
        self.bn = nn.BatchNorm2D(8)
        self.fc = nn.Linear(8, class_num)
        self.lists = lists
        if lists:
            self.aux = nn.Linear(8, class_num)

    def forward(self, x):
        x = nn.functional.relu(self.bn(self.conv(x))).mean([2, 3])
        return [self.fc(x), self.aux(x)] if self.lists else self.fc(x)

def _load_pretrained(pretrained, model, model_url, use_ssld=False):
    load_dygraph_pretrain(model, model_url)

def Small_x1_0(pretrained=False, use_ssld=False, **kwargs):
    return Small(**kwargs)

def Listed(pretrained=True, use_ssld=False, **kwargs):
    model = Small(lists=True, **kwargs)
    if pretrained:  # by default, as UniFormer
        load_dygraph_pretrain(model, MODEL_URLS["Listed"])
    return model

def helper(x):
    return x
"""
LOGGER = """
import logging
_logger = None
def init_logger(name="ppcls"):
    global _logger
    _logger = logging.getLogger(name)
def warning(text):
    _logger.debug(text)
"""
EVALUATION = """
DataLoader:
  Eval:
    dataset:
      transform_ops:
        - DecodeImage: {{to_rgb: {rgb}, channel_first: False}}
        - ResizeImage: {{resize_short: 20}}
        - CropImage: {{size: 16}}
        - NormalizeImage: {{scale: 1.0, mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375], order: ''}}
        - ToCHWImage:
"""
WHOLE = """
DataLoader:
  Eval:
    dataset:
      transform_ops:
        - DecodeImage: {to_rgb: True, channel_first: False}
        - ResizeImage: {size: 24, interpolation: bicubic}
        - NormalizeImage: {mean: [0.5, 0.4, 0.3], std: [0.1, 0.2, 0.3]}
"""


def write_clone(root: Path) -> Path:
    """Write the clone with a file of weights of ``Small_x1_0`` for 1,000 classes, whose address its table has."""
    for package in ("ppcls", "ppcls/arch", "ppcls/utils"):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("raise ImportError('faiss and datasets are pinned here')\n")
    (root / "ppcls/utils/logger.py").write_text(LOGGER)
    loads = "from .download import get\ndef load_dygraph_pretrain(model, path):\n    raise OSError('no network')\n"
    (root / "ppcls/utils/save_load.py").write_text(loads)
    (root / "ppcls/utils/download.py").write_text("import six\nimport requests\ndef get(url): pass\n")
    zoo = root / "ppcls/arch/backbone/model_zoo"
    zoo.mkdir(parents=True)
    (zoo / "__init__.py").touch()
    (zoo.parent / "__init__.py").write_text("from .model_zoo.small import Small_x1_0, Listed, Small\n")
    (zoo / "small.py").write_text(NETWORKS.format(address=(root / "small.pdparams").as_uri()))
    steps = {"Small_x1_0": EVALUATION.format(rgb=True), "Blue": EVALUATION.format(rgb=False), "Listed": WHOLE}
    for name, content in steps.items():
        file = root / "ppcls/configs/ImageNet/Small" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    conv, norm, linear = paddle.nn.Conv2D(3, 8, 4, 4), paddle.nn.BatchNorm2D(8), paddle.nn.Linear(8, 1000)
    parts = {"conv": conv, "bn": norm, "fc": linear}
    state = {f"{part}.{name}": value for part, layer in parts.items() for name, value in layer.state_dict().items()}
    paddle.save(state, str(root / "small.pdparams"))
    return root
