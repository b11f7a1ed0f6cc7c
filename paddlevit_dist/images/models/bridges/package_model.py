"""Classifiers of PaddleClas and of paddle.vision, built by the files of those packages."""

import functools
import importlib
import itertools
import os
import sys
from types import ModuleType
from typing import ClassVar

import paddle
from paddle import nn

from .examined_model import ExaminedModel
from .package_files import get_expected_input, paddleclas_folder, require_name

_builds = itertools.count()


class PaddleVisionModel(ExaminedModel):
    """A network of ``paddle.vision.models``, such as ``paddle:resnet50``."""

    def __init__(
        self, name: str, num_classes: int = 1000, image_size: int | tuple[int, int] | None = None, in_channels: int = 3
    ) -> None:
        require_name(name)
        size, builder_name = image_size or get_expected_input(name)["image_size"], name.partition(":")[2]
        sides = (size, size) if isinstance(size, int) else tuple(size)
        super().__init__(
            name, lambda classes, _: self.build_network(builder_name, classes), num_classes, sides, in_channels
        )

    @classmethod
    def build_network(cls, name: str, num_classes: int) -> nn.Layer:
        """Build the network with fresh weights."""
        return getattr(paddle.vision.models, name)(pretrained=False, num_classes=num_classes)


class PaddleClasModel(PaddleVisionModel):
    """A network of PaddleClas, such as ``paddleclas:PPLCNet_x1_0``, of an installed package or a clone."""

    #: whose ``__init__`` imports datasets, metrics and exports
    parents: ClassVar[tuple[str, ...]] = ("ppcls", "ppcls.arch", "ppcls.utils")
    #: what modules of PaddleClas import that no network calls
    not_needed: ClassVar[tuple[str, ...]] = ("six", "requests", "sklearn")

    @classmethod
    def build_network(cls, name: str, num_classes: int) -> nn.Layer:
        # Files fix names of some parameters by Paddle's counters: each build gets its own counters and names.
        """Build the network for ``num_classes``, separately from other models: it has its own parameter names."""
        with paddle.utils.unique_name.guard(f"paddleclas_{next(_builds)}_"):
            builder = getattr(cls.import_backbones(paddleclas_folder()), name)
            return builder(pretrained=False, class_num=num_classes)  # UniFormer's default is True

    @classmethod
    @functools.cache
    def import_backbones(cls, folder: str) -> ModuleType:
        """Import ``ppcls.arch.backbone`` alone, without what the packages around it import and pin."""
        for name in cls.parents:
            package = sys.modules.setdefault(name, ModuleType(name))
            package.__path__ = [os.path.join(folder, *name.split("."))]
        missing = [module for module in cls.not_needed if importlib.util.find_spec(module) is None]
        sys.modules.update({module: ModuleType(module) for module in missing})
        try:
            backbones = importlib.import_module("ppcls.arch.backbone")
            importlib.import_module("ppcls.utils.logger").init_logger()  # else its first warning raises
        finally:
            for name in missing:
                del sys.modules[name]
        return backbones
