"""What the files of PaddleClas and of paddle.vision say of their models: names, and addresses of weights.

They are parsed, and nothing of them is run.
"""

import ast
import difflib
import functools
import glob
import importlib.util
import os
import re
import sys
from typing import Any

from ....runtime.errors import UserError
from ....runtime.text_files import read_yaml

VARIABLE = "PADDLECLAS"  # names a clone
_MODES = ("center", "squash")
_ADDRESSES = ("MODEL_URLS", "model_urls")  # tables of the modules


def paddleclas_folder() -> str:
    """Find PaddleClas: the folder that holds ``ppcls``, in the clone that the variable PADDLECLAS names, or installed.

    Raises:
        UserError: there is none.
    """
    named = os.environ.get(VARIABLE)
    installed = [
        found.origin for name in ("ppcls", "paddleclas") if (found := _find(name)) is not None and found.origin
    ]
    beside = [os.path.dirname(file) for file in installed]
    folders = [named] if named else [*beside, *map(os.path.dirname, beside)]
    for folder in folders:
        if os.path.isfile(os.path.join(folder, "ppcls", "arch", "backbone", "__init__.py")):
            return os.path.abspath(folder)
    if named:
        raise UserError(f"{VARIABLE}={named}: there is no ppcls/arch/backbone in it: name a clone of PaddleClas")
    raise UserError(f"PaddleClas is not installed: pip install paddleclas --no-deps, or {VARIABLE}=FOLDER of a clone")


def _find(name: str) -> importlib.machinery.ModuleSpec | None:
    module = sys.modules.get(name)
    return getattr(module, "__spec__", None) if module is not None else importlib.util.find_spec(name)


def _models_folder(source: str) -> str:
    if source == "paddleclas":
        return os.path.join(paddleclas_folder(), "ppcls", "arch", "backbone")
    found = _find("paddle")
    return os.path.join(os.path.dirname(str(found.origin if found else "")), "vision", "models")


@functools.cache
def _read(folder: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Read the functions that take ``pretrained`` below a folder, and name -> address of all tables of weights."""
    models: list[str] = []
    addresses: dict[str, str] = {}
    for above, folders, files in os.walk(folder):
        folders.sort()
        for file in sorted(one for one in files if one.endswith(".py")):
            with open(os.path.join(above, file), encoding="utf-8") as opened:
                body = ast.parse(opened.read()).body
            for node in body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    models += [node.name] if any(one.arg == "pretrained" for one in node.args.args) else []
                if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Dict):
                    continue
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and target.id in _ADDRESSES:
                    table = ast.literal_eval(node.value)
                    addresses.update({name: one if isinstance(one, str) else one[0] for name, one in table.items()})
    return tuple(sorted(dict.fromkeys(models))), {name: one for name, one in addresses.items() if "://" in one}


def names_of(source: str) -> list[str]:
    """List the models of "paddleclas" or "paddle", with that prefix.

    Raises:
        UserError: PaddleClas is not there.
    """
    return [f"{source}:{name}" for name in _read(_models_folder(source))[0]]


def require_name(source: str, name: str) -> None:
    """Refuse a name that the source does not have.

    Raises:
        UserError: it is unknown; the message names close ones.
    """
    known, whole = names_of(source), f"{source}:{name}"
    if whole not in known:
        lower = {one.lower(): one for one in known}
        near = [lower[one] for one in difflib.get_close_matches(whole.lower(), list(lower), n=3, cutoff=0.0)]
        raise UserError(
            f"model '{whole}' is not known: did you mean {', '.join(near)}? 'inspect --list {source}:' names all"
        )


def side_in(name: str) -> int:
    """Return the side in pixels that a model's name ends with, else 224."""
    named = re.search(r"_(\d{3})$", name)
    return int(named[1]) if named else 224


@functools.cache
def _evaluation_of(name: str) -> dict[str, Any]:
    """Read the steps of PaddleClas's evaluation of ``paddleclas:NAME`` from its YAML file; empty without one."""
    source, _, model = name.partition(":")
    folder = os.path.join(paddleclas_folder(), "ppcls", "configs", "ImageNet") if source == "paddleclas" else None
    files = glob.glob(os.path.join(glob.escape(folder), "*", f"{model}.yaml")) if folder else []
    if not files:
        return {}
    steps = read_yaml(files[0])["DataLoader"]["Eval"]["dataset"]["transform_ops"]
    return {step: values or {} for one in steps for step, values in one.items()}


def input_of(name: str) -> dict[str, Any]:
    """Return the arguments of ``ExpectedInput`` for a model of PaddleClas or paddle.vision, where they are not its
    defaults: what PaddleClas's YAML file says, else 224 of 256 pixels, bilinear.

    Raises:
        UserError: PaddleClas is not there.
    """
    said = _evaluation_of(name)
    resize, crop, norm = (said.get(step, {}) for step in ("ResizeImage", "CropImage", "NormalizeImage"))
    size = crop.get("size") or resize.get("size") or side_in(name)
    found = {"interpolation": resize.get("interpolation") or "bilinear", "image_size": size, "crop_pct": 0.875}
    if resize:
        found.update(crop_pct=size / resize.get("resize_short", size), crop_mode=_MODES["size" in resize])
    if norm:
        largest = 255.0 if max(norm["mean"]) > 1 else 1.0
        found.update({one: tuple(value / largest for value in norm[one]) for one in ("mean", "std")})
    return found


def address_of(name: str) -> str | None:
    """Return the address of the weights of ``paddleclas:NAME`` or ``paddle:NAME``; None for any other name.

    Raises:
        UserError: the model is unknown, or its files have no address for it.
    """
    source, colon, model = name.partition(":")
    if not colon or source not in ("paddleclas", "paddle"):
        return None
    require_name(source, model)
    if _evaluation_of(name).get("DecodeImage", {}).get("to_rgb") is False:
        raise UserError(f"{name}: its weights take images with blue first, which are not made here: train without them")
    address = _read(_models_folder(source))[1].get(model)
    if address is None:
        raise UserError(f"{name}: its files have no address of weights for it: give a file (-pretrained=FILE)")
    return address
