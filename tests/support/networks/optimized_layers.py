"""Small networks whose updates tests compute themselves, and how their optimizers are built."""

import numpy as np
import paddle
from yacs.config import CfgNode

from paddlevit_dist.core.engine.optimizer import build_optimizer
from paddlevit_dist.core.tasks.model import Model
from support.trainings.updates import update_one_by_one

RATE, DECAY, EPSILON, BETAS, MOMENTUM = 0.1, 0.5, 1e-8, (0.9, 0.99), 0.8
ONE_BY_ONE = {"one_by_one": True}  # Paddle's own update


class SmallModel(Model):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(3, 2)
        self.norm = paddle.nn.LayerNorm(2)
        self.token = self.create_parameter([1, 1, 2])

    def no_weight_decay(self):
        return {"token"}

    def forward(self, x):
        return self.norm(self.linear(x)) + self.token[0]


def settings(name: str) -> CfgNode:
    return CfgNode({"NAME": name, "EPS": EPSILON, "BETAS": BETAS, "MOMENTUM": MOMENTUM})


def build(chosen: dict, model, options: dict, *arguments, **more):
    values = CfgNode({**chosen, **{key: value for key, value in options.items() if key not in ONE_BY_ONE}})
    optimizer = build_optimizer(values, model, None, DECAY, *arguments, **more)
    return update_one_by_one(optimizer) if set(ONE_BY_ONE) & set(options) else optimizer


def make_gradients(model, step: int) -> dict:
    paddle.seed(step)
    (model(paddle.randn([4, 3])) ** 2).sum().backward()
    return {name: p.grad.numpy().astype(np.float64) for name, p in model.named_parameters()}


class NamedBlocks(Model):
    """Named as ViTs are: an embedding, two blocks, a head."""

    layer_names, classifier_layers = r"blocks\.\d+", ("head",)

    def __init__(self):
        super().__init__()
        self.embed = paddle.nn.Linear(3, 3)
        self.blocks = paddle.nn.LayerList([paddle.nn.Linear(3, 3) for _ in range(2)])
        self.head = paddle.nn.Linear(3, 2)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = paddle.tanh(block(x))
        return self.head(x)


class MixedBlocks(NamedBlocks):
    """Blocks with a wide, a tall and a square matrix, and a table among them."""

    def __init__(self):
        super().__init__()
        self.blocks.append(paddle.nn.Linear(3, 5))
        self.blocks.append(paddle.nn.Linear(5, 3))
        self.blocks[0].table = self.create_parameter([4, 2], default_initializer=paddle.nn.initializer.Normal())

    def no_weight_decay(self):
        return ("blocks.0.table",)
