"""Names, addresses of weights and expected images, read from the files of PaddleClas and of paddle.vision.

The files are parsed, and nothing of them is run.
"""

import ast
import functools
import glob
import importlib.util
import os
import re
from typing import Any

from ....core.runtime.errors import UserError
from ....core.runtime.hints import find_similar
from ....core.runtime.text_files import read_yaml

VARIABLE = "PADDLECLAS"  # names a clone
_ADDRESSES = ("MODEL_URLS", "model_urls")  # tables of the modules


def paddleclas_folder() -> str:
    """Find the folder of ``ppcls``: the clone that PADDLECLAS names, else an installed one, or raise ``UserError``."""
    named = os.environ.get(VARIABLE)
    folders = [named] if named else [each for top in map(_find_folders, ("ppcls", "paddleclas")) for each in top]
    for folder in folders:
        if os.path.isfile(os.path.join(folder, "ppcls", "arch", "backbone", "__init__.py")):
            return os.path.abspath(folder)
    if named:
        raise UserError(f"{VARIABLE}={named}: there is no ppcls/arch/backbone in it: name a clone of PaddleClas")
    raise UserError(f"PaddleClas is not installed: pip install paddleclas --no-deps, or {VARIABLE}=FOLDER of a clone")


def _find_folders(package: str) -> tuple[str, ...]:
    """Return the folder of an installed package and the one above it; nothing without one."""
    spec = importlib.machinery.PathFinder.find_spec(package)
    folder = os.path.dirname(spec.origin) if spec is not None and spec.origin else None
    return () if folder is None else (folder, os.path.dirname(folder))


@functools.cache
def _read(source: str, folder: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Read the names of the functions that take ``pretrained`` below a folder, and the address of weights by name."""
    models: list[str] = []
    addresses: dict[str, str] = {}
    for file in sorted(glob.glob(os.path.join(glob.escape(folder), "**", "*.py"), recursive=True)):
        with open(file, "rb") as opened:
            body = ast.parse(opened.read()).body
        for node in body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                models += [f"{source}:{node.name}"] if any(one.arg == "pretrained" for one in node.args.args) else []
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and target.id in _ADDRESSES:
                    table = ast.literal_eval(node.value)
                    addresses.update({name: one if isinstance(one, str) else one[0] for name, one in table.items()})
    return tuple(sorted(dict.fromkeys(models))), addresses


def _parsed(source: str) -> tuple[tuple[str, ...], dict[str, str]]:
    if source == "paddleclas":
        return _read(source, os.path.join(paddleclas_folder(), "ppcls", "arch", "backbone"))
    return _read(source, os.path.join(_find_folders("paddle")[0], "vision", "models"))


def list_names(source: str) -> list[str]:
    """List the models of "paddleclas" or "paddle", with that prefix; a ``UserError`` without PaddleClas."""
    return list(_parsed(source)[0])


def require_name(name: str) -> None:
    """Refuse a name that its source does not have, with close ones, by a ``UserError``."""
    source = name.partition(":")[0]
    lower_names = {one.lower(): one for one in list_names(source)}
    if name not in lower_names.values():
        near = ", ".join(find_similar(name, lower_names.values(), 3))
        hint = f"did you mean {near}? " if near else ""
        raise UserError(f"model '{name}' is not known: {hint}'inspect --list {source}:' names all")


@functools.cache
def _read_evaluation(name: str) -> dict[str, Any]:
    """Read the steps of PaddleClas's evaluation of ``paddleclas:NAME`` from its YAML file; empty without one."""
    source, _, model = name.partition(":")
    folder = os.path.join(paddleclas_folder(), "ppcls", "configs", "ImageNet") if source == "paddleclas" else os.devnull
    for file in glob.glob(os.path.join(glob.escape(folder), "*", f"{model}.yaml")):
        steps = read_yaml(file)["DataLoader"]["Eval"]["dataset"]["transform_ops"]
        return {step: values or {} for one in steps for step, values in one.items()}
    return {}


def get_expected_input(name: str) -> dict[str, Any]:
    """Return the arguments of ``ExpectedInput`` for ``paddleclas:NAME`` and ``paddle:NAME`` that are not defaults.

    They are what PaddleClas's YAML file says, else 224 of 256 pixels, bilinear.
    """
    config, side = _read_evaluation(name), re.search(r"_(\d{3})$", name)
    resize, crop, norm = (config.get(step, {}) for step in ("ResizeImage", "CropImage", "NormalizeImage"))
    size = crop.get("size") or resize.get("size") or int(side[1] if side else 224)
    spec = {"interpolation": resize.get("interpolation") or "bilinear", "image_size": size, "crop_pct": 0.875}
    if resize:
        mode = "squash" if "size" in resize else "center"
        spec.update(crop_pct=size / resize.get("resize_short", size), crop_mode=mode)
    if norm:
        largest = 255.0 if max(norm["mean"]) > 1 else 1.0
        spec.update({one: tuple(value / largest for value in norm[one]) for one in ("mean", "std")})
    return spec


def find_address(name: str) -> str:
    """Return the address of the weights of ``paddleclas:NAME`` or ``paddle:NAME``.

    A ``UserError`` says that the model is unknown, or that there are no weights for it that can be used here.
    """
    source, _, model = name.partition(":")
    require_name(name)
    if _read_evaluation(name).get("DecodeImage", {}).get("to_rgb") is False:
        raise UserError(f"{name}: its weights take images with blue first, which are not made here: train without them")
    address = _parsed(source)[1].get(model, "")
    if "://" not in address:
        raise UserError(f"{name}: its files have no address of weights for it: give a file (-pretrained=FILE)")
    return address
