"""Classifiers of PaddleViT's that the files of a user's clone build."""

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from paddle import nn

from ....runtime.errors import UserError
from .examined_model import ExaminedModel, one_line_for
from .paddlevit_files import ClonedFamily, choose_build, locate, require_family


class PaddleVitModel(ExaminedModel):
    """The network of a YAML file in a clone of PaddleViT, ``paddlevit:PATH.yaml``, built by the clone's own files.

    The file says its dimensions. Its family's folder is the only one that code is imported from.

    Args:
        dropout, attention_dropout, drop_path: MODEL.DROPOUT, .ATTENTION_DROPOUT and .DROPPATH of the clone's
            configuration.
    """

    def __init__(
        self,
        name: str,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] | None = None,
        in_channels: int = 3,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.0,
    ) -> None:
        family, (file, _) = require_family(name), locate(name)
        modules = _import_family(family)
        with one_line_for(f"model '{name}' cannot be configured"):
            config = modules["config"].get_config(file)
        config.defrost()
        module, function = choose_build(family, {"MODEL.TYPE": config.MODEL.TYPE})
        rates = {"DROPOUT": dropout, "ATTENTION_DROPOUT": attention_dropout, "DROPPATH": drop_path}
        config.MODEL.update({key: value for key, value in rates.items() if key in config.MODEL})
        own_classes, own_size = config.MODEL.get("NUM_CLASSES", 1000), config.DATA.IMAGE_SIZE
        sides = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size or (own_size, own_size))
        config.DATA.IMAGE_SIZE = _one_side(name, config, sides)

        def build(classes: int, channels: int) -> nn.Layer:
            config.MODEL.NUM_CLASSES = classes
            config.DATA.IMAGE_CHANNELS = channels
            if "IN_CHANNELS" in config.MODEL:
                config.MODEL.IN_CHANNELS = channels
            with _imports_from(family.folder, modules):
                return getattr(modules[module], function)(config.clone())

        super().__init__(name, build, num_classes, sides, in_channels, own_classes)

    @classmethod
    def build(cls, name: str, num_classes: int, image_size: Any | None = None, **options: Any) -> "PaddleVitModel":
        cls.require_options(name, options)
        return cls(name, num_classes, image_size, **options)

    @classmethod
    def options(cls) -> dict[str, Any]:
        return {name: default for name, default in super().options().items() if name != "name"}


def _one_side(name: str, config: Any, sides: tuple[int, int]) -> int:
    """Return the side of square images.

    Raises:
        UserError: they are not square; or the family reads its sizes from MODEL.IMG_SIZE, as CrossViT does, and resizes
            every other image to them without a word.
    """
    if sides[0] != sides[1]:
        raise UserError(f"model '{name}' takes square images, not {sides[0]} x {sides[1]} pixels")
    own = config.MODEL.get("IMG_SIZE")
    if own is not None and sides[0] != config.DATA.IMAGE_SIZE:
        raise UserError(
            f"model '{name}' reads its sizes from MODEL.IMG_SIZE {own}, for images of {config.DATA.IMAGE_SIZE} pixels, "
            f"not {sides[0]}: set DATA.IMAGE_SIZE {config.DATA.IMAGE_SIZE}, or give a YAML file with another IMG_SIZE"
        )
    return sides[0]


@functools.cache
def _import_family(family: ClonedFamily) -> dict[str, ModuleType]:
    """Import the config.py and the networks of a family.

    Every family has a config.py, droppath.py and utils.py of its own: modules of these names that are in use stay
    hidden meanwhile, and are back afterwards.

    Raises:
        UserError: a file raises an exception.
    """
    modules: dict[str, ModuleType] = {}
    with _imports_from(family.folder, modules):
        for name in ("config", *dict(family.builds)):
            with one_line_for(f"{family.folder}/{name}.py cannot be imported"):
                modules[name] = importlib.import_module(name)
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(os.path.join(family.folder, "")):
                modules[name] = module
    return modules


@contextlib.contextmanager
def _imports_from(folder: str, modules: dict[str, ModuleType]) -> Iterator[None]:
    """Let ``import NAME`` find a family's modules, and leave nothing behind: neither modules nor compiled files."""
    own = {file.removesuffix(".py") for file in os.listdir(folder) if file.endswith(".py")}
    hidden = {name: sys.modules.pop(name) for name in own if name in sys.modules}
    writes = sys.dont_write_bytecode
    sys.modules.update(modules)
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        sys.path.remove(folder)
        for name in own:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)
