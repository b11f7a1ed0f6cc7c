"""Classifiers of PaddleViT's that the files of a user's clone build."""

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType

from paddle import nn

from ....core.runtime.errors import UserError
from .examined_model import ExaminedModel, one_line_for
from .paddlevit_files import ClonedFamily, choose_build, locate, require_family


class PaddleVitModel(ExaminedModel):
    """The network of a YAML file in a clone of PaddleViT, ``paddlevit:PATH.yaml``, built by the clone's own files.

    The file says its dimensions; the rates are MODEL.DROPOUT, .ATTENTION_DROPOUT and .DROPPATH. Its family's folder is
    the only one that code is imported from.
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
        module, function = choose_build(family, str(config.MODEL.TYPE))
        rates = {"DROPOUT": dropout, "ATTENTION_DROPOUT": attention_dropout, "DROPPATH": drop_path}
        config.MODEL.update({key: value for key, value in rates.items() if key in config.MODEL})
        own_classes, own_size = config.MODEL.get("NUM_CLASSES", 1000), config.DATA.IMAGE_SIZE
        sides = image_size if isinstance(image_size, (tuple, list)) else (image_size or own_size,) * 2
        if sides[0] != sides[1]:
            raise UserError(f"model '{name}' takes square images, not {sides[0]} x {sides[1]} pixels")
        if "IMG_SIZE" in config.MODEL and sides[0] != own_size:  # CrossViT resizes all others to it, without a word
            source = f"MODEL.IMG_SIZE {config.MODEL.IMG_SIZE}, for images of {own_size} pixels"
            raise UserError(
                f"model '{name}' reads its sizes from {source}, not {sides[0]}: set DATA.IMAGE_SIZE {own_size}"
            )
        config.DATA.IMAGE_SIZE = sides[0]

        def build(classes: int, channels: int) -> nn.Layer:
            config.MODEL.NUM_CLASSES = classes
            config.DATA.IMAGE_CHANNELS = channels
            if "IN_CHANNELS" in config.MODEL:
                config.MODEL.IN_CHANNELS = channels
            with _imports_from(family.folder, modules):
                return getattr(modules[module], function)(config.clone())

        super().__init__(name, build, num_classes, (sides[0], sides[1]), in_channels, own_classes)


@functools.cache
def _import_family(family: ClonedFamily) -> dict[str, ModuleType]:
    """Import the config.py and the networks of a family; a ``UserError`` if they raise an exception."""
    modules: dict[str, ModuleType] = {}
    with _imports_from(family.folder, modules):
        for name in ("config", *dict(family.builds)):
            with one_line_for(f"{family.folder}/{name}.py cannot be imported"):
                importlib.import_module(name)
        inside = os.path.join(family.folder, "")
        modules.update(
            {
                module_name: module
                for module_name, module in sys.modules.items()
                if str(getattr(module, "__file__", "")).startswith(inside)
            }
        )
    return modules


@contextlib.contextmanager
def _imports_from(folder: str, modules: dict[str, ModuleType]) -> Iterator[None]:
    """Let ``import NAME`` find a family's modules, and leave nothing behind: neither modules nor compiled files.

    Modules in use with the names of a family's files, such as config.py, are hidden meanwhile.
    """
    names = {file.removesuffix(".py") for file in os.listdir(folder) if file.endswith(".py")}
    hidden = {key: sys.modules.pop(key) for key in names if key in sys.modules}
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
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)
