"""A made-up clone of PaddleViT: families of its form that have the traps of its own ones, each in a few lines."""

from pathlib import Path

CONFIG = """
import os
from yacs.config import CfgNode as CN
import yaml

_C = CN()
_C.BASE = ['']
_C.DATA = CN()
_C.DATA.BATCH_SIZE = 256
_C.DATA.DATA_PATH = '/dataset/imagenet/'
_C.DATA.DATASET = 'imagenet2012'
_C.DATA.IMAGE_SIZE = 16
_C.DATA.IMAGE_CHANNELS = 3
_C.DATA.CROP_PCT = 0.875
_C.DATA.IMAGENET_MEAN = [0.485, 0.456, 0.406]
_C.DATA.IMAGENET_STD = [0.229, 0.224, 0.225]
_C.MODEL = CN()
_C.MODEL.TYPE = '{kind}'
_C.MODEL.NAME = '{kind}'
_C.MODEL.NUM_CLASSES = 1000
_C.MODEL.DROPOUT = 0.0
_C.MODEL.ATTENTION_DROPOUT = 0.0
_C.MODEL.DROPPATH = 0.1
_C.MODEL.EMBED_DIM = 8
_C.MODEL.ETA = 1.0
{further}
_C.TRAIN = CN()
_C.TRAIN.LAST_EPOCH = 0
_C.TRAIN.NUM_EPOCHS = 300
_C.TRAIN.WARMUP_EPOCHS = 3
_C.TRAIN.WEIGHT_DECAY = 0.05
_C.TRAIN.BASE_LR = 2e-3
_C.TRAIN.END_LR = 53-4
_C.TRAIN.SMOOTHING = 0.1
_C.TRAIN.OPTIMIZER = CN()
_C.TRAIN.OPTIMIZER.NAME = 'AdamWDL'
_C.TRAIN.TEACHER_MODEL = './regnety_160.pdparams'
_C.SAVE = "./output"

def get_config(cfg_file=None):
    config = _C.clone()
    if cfg_file:
        with open(cfg_file) as infile:
            config.merge_from_other_cfg(CN(yaml.safe_load(infile)))
    config.freeze()
    return config
"""
DROPPATH = """
import paddle
FAMILY = '{kind}'
class DropPath(paddle.nn.Layer):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate
    def forward(self, x):
        if not self.training or self.rate == 0:
            return x
        keep = (paddle.rand([x.shape[0], 1, 1]) > self.rate).astype(x.dtype)
        return x * keep / (1 - self.rate)
"""
NETWORK = """
import paddle
import paddle.nn as nn
from droppath import FAMILY, DropPath
from utils import SIDE

class Block(nn.Layer):
    def __init__(self, dim, rate, eta):
        super().__init__()
        self.norm, self.mlp, self.drop_path = nn.LayerNorm(dim), nn.Linear(dim, dim), DropPath(rate)
        self.gamma = self.create_parameter([dim])
        self.gamma.set_value(paddle.full([dim], eta))  # a value: no lazy mode
    def forward(self, x, times):
        return x + self.drop_path(self.gamma * self.mlp(self.norm(x))) * times

class Network(nn.Layer):
    family = FAMILY
    def __init__(self, image_size=16, in_channels=3, num_classes=1000, dim=8, rate=0.1, eta=1.0, {argument}):
        super().__init__()
        self.patch_embed = nn.Conv2D(in_channels, dim, SIDE, SIDE)
        self.pos_embed = self.create_parameter([1, (image_size // SIDE) ** 2, dim])
        self.blocks = nn.LayerList([Block(dim, rate, eta) for _ in range(2)])
        self.head = nn.Linear(dim, num_classes)
        {init}
    def forward_features(self, x):
        x = self.patch_embed(x).flatten(2).transpose([0, 2, 1]) + self.pos_embed
        for block in self.blocks:
            x = block(x, 1.0)
        return x.mean(1)
    def forward(self, x):
        x = self.forward_features(x)
        {forward}

def build_{kind}(config):
    return Network({passed})
"""
PASSED = (
    "image_size=config.DATA.IMAGE_SIZE, in_channels=config.DATA.IMAGE_CHANNELS, "
    "num_classes=config.MODEL.NUM_CLASSES, dim=config.MODEL.EMBED_DIM, rate=config.MODEL.DROPPATH, eta=config.MODEL.ETA"
)
YAML = """
DATA:
    IMAGE_SIZE: 16
    CROP_PCT: 0.9
MODEL:
    TYPE: {kind}
    NAME: {kind}_tiny
    EMBED_DIM: {dim}
    ETA: 0.5
TRAIN:
    WEIGHT_DECAY: 0.03
"""


def write_family(
    root: Path,
    kind: str,
    forward: str = "return self.head(x)",
    *,
    init: str = "pass",
    argument: str = "unused=None",
    passed: str = PASSED,
    further: str = "",
    dim: int = 8,
) -> Path:
    """Write a family into a clone.

    Args:
        root: of the clone.
        kind: MODEL.TYPE, in small letters.
        forward, init: further statements of the network.
        argument: a further argument of the network.
        passed: what the build function gives to the network.
        further: lines of config.py.
        dim: MODEL.EMBED_DIM of the YAML file.

    Returns:
        The YAML file.
    """
    folder = root / "image_classification" / kind.capitalize()
    (folder / "configs").mkdir(parents=True)
    (folder / "config.py").write_text(CONFIG.format(kind=kind, further=further))
    (folder / "droppath.py").write_text(DROPPATH.format(kind=kind))
    (folder / "utils.py").write_text("SIDE = 4\n")
    network = NETWORK.format(kind=kind, forward=forward, init=init, argument=argument, passed=passed)
    (folder / f"{kind}.py").write_text(network)
    file = folder / "configs" / f"{kind}_tiny.yaml"
    file.write_text(YAML.format(kind=kind, dim=dim))
    return file
