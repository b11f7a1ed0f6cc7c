"""Classifiers of PaddleClas and of paddle.vision, built by the files of those packages."""

import contextlib
import functools
import importlib
import itertools
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, ClassVar

import paddle
from paddle import nn

from .examined_model import ExaminedModel
from .package_files import input_of, paddleclas_folder, require_name

_builds = itertools.count()
_PARENTS = ("ppcls", "ppcls.arch", "ppcls.utils")  # whose __init__ imports datasets, metrics and exports
_NOT_NEEDED = ("six", "requests", "sklearn")  # what modules of PaddleClas import that no network calls


class PaddleVisionModel(ExaminedModel):
    """A network of ``paddle.vision.models``, such as ``paddle:resnet50``."""

    source: ClassVar[str] = "paddle"
    classes_argument: ClassVar[str] = "num_classes"

    def __init__(
        self,
        name: str,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] | None = None,
        in_channels: int = 3,
    ) -> None:
        own = name.partition(":")[2]
        require_name(self.source, own)
        size = image_size or input_of(name)["image_size"]
        sides = (size, size) if isinstance(size, int) else tuple(size)
        super().__init__(name, lambda classes, _: self.build_network(own, classes), num_classes, sides, in_channels)

    @classmethod
    def build_network(cls, name: str, num_classes: int) -> nn.Layer:
        """Build the network with fresh weights."""
        return getattr(cls.find_builders(), name)(**{cls.classes_argument: num_classes})

    @classmethod
    def find_builders(cls) -> ModuleType:
        """Import the module with a function for each model."""
        return paddle.vision.models

    @classmethod
    def build(cls, name: str, num_classes: int, image_size: Any | None = None, **options: Any) -> "PaddleVisionModel":
        cls.require_options(name, options)
        return cls(name, num_classes, image_size, **options)

    @classmethod
    def options(cls) -> dict[str, Any]:
        return {"in_channels": 3}


class PaddleClasModel(PaddleVisionModel):
    """A network of PaddleClas, such as ``paddleclas:PPLCNet_x1_0``, of an installed package or a clone."""

    source = "paddleclas"
    classes_argument = "class_num"

    @classmethod
    def build_network(cls, name: str, num_classes: int) -> nn.Layer:
        # Files fix names of some parameters by Paddle's counters: each build gets counters, and names, of its own.
        with paddle.utils.unique_name.guard(f"paddleclas_{next(_builds)}_"):
            return super().build_network(name, num_classes)

    @classmethod
    def find_builders(cls) -> ModuleType:
        return _import_backbones(paddleclas_folder())


@functools.cache
def _import_backbones(folder: str) -> ModuleType:
    """Import ``ppcls.arch.backbone`` alone, without what the packages around it import and pin."""
    for name in _PARENTS:
        if name not in sys.modules:
            module = ModuleType(name)
            module.__path__ = [os.path.join(folder, *name.split("."))]
            sys.modules[name] = module
    with _placeholders():
        backbones = importlib.import_module("ppcls.arch.backbone")
        importlib.import_module("ppcls.utils.logger").init_logger()  # else its first warning raises
    return backbones


@contextlib.contextmanager
def _placeholders() -> Iterator[None]:
    """Stand in for packages that are not installed while modules are imported that name them."""
    missing = [name for name in _NOT_NEEDED if name not in sys.modules and importlib.util.find_spec(name) is None]
    sys.modules.update({name: ModuleType(name) for name in missing})
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]
