"""The keys of sections in TRAIN: optimizer, learning rate schedule and LoRA; all others are in ``every_run``."""

from typing import Literal

from .key import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SHARE_ABOVE_0, SHARE_BELOW_1, Section, key


class LrSchedulerSection(Section):
    """Keys of TRAIN.LR_SCHEDULER."""

    NAME: Literal["cosine", "constant", "step", "poly", "onecycle"] = key(
        "cosine", "learning rate schedule after warm-up"
    )
    MILESTONES: list[int] = key(
        [], "step: epochs at which the learning rate is multiplied by GAMMA", AT_LEAST_1, counts="epochs"
    )
    GAMMA: float = key(0.1, "step: factor at each milestone", SHARE_ABOVE_0)
    POWER: float = key(0.9, "poly: exponent", ABOVE_0)
    RISE: float = key(0.3, "onecycle: fraction of the run in which the rate rises", SHARE_BELOW_1)
    DIVISORS: tuple[float, float] = key(
        (25.0, 1e4), "onecycle: TRAIN.BASE_LR divided by the first rate, and the first rate by the last", ABOVE_0
    )


class OptimizerSection(Section):
    """Keys of TRAIN.OPTIMIZER."""

    NAME: Literal["AdamW", "Adam", "SGD", "Lion", "LAMB", "Muon"] = key(
        "AdamW", "optimizer; Muon: for the matrices of blocks, and AdamW for all other parameters"
    )
    EPS: float = key(1e-8, "AdamW, Adam, LAMB, Muon: added to the denominator; LAMB: 1e-6 if not set", ABOVE_0)
    BETAS: tuple[float, float] = key(
        (0.9, 0.999),
        "AdamW, Adam, LAMB, Muon: decay rates of the moments; Lion: of direction and momentum, (0.9, 0.99) if not set",
        SHARE_BELOW_1,
    )
    MOMENTUM: float = key(0.9, "SGD, Muon: momentum; Muon: 0.95 if not set", SHARE_BELOW_1)
    NESTEROV: bool = key(False, "SGD: Nesterov's momentum; Muon always has it")
    WARMUP_MOMENTUM: float | None = key(
        None,
        "SGD, Muon: momentum of the first update, from which it rises linearly to MOMENTUM over the warm-up of the "
        "learning rate; None: constant",
        SHARE_BELOW_1,
    )
    DAMPENING: float = key(
        0.0, "SGD: fraction of each gradient but the first that the momentum ignores, as in PyTorch", SHARE_BELOW_1
    )


class LoraSection(Section):
    """Keys of TRAIN.LORA."""

    RANK: int = key(
        0, "rank of the matrices that are trained for frozen weights, together with the head; 0: none", AT_LEAST_0
    )
    ALPHA: float = key(16.0, "factor of the product of the matrices, times RANK", ABOVE_0)
    TARGETS: list[str] = key(
        ["qkv", "proj", "mlp"], "parts of the names of the linear layers in blocks that get such matrices"
    )
