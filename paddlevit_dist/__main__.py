"""``python -m paddlevit_dist COMMAND``: the main job and its companion tools."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import List

from . import late_imports, signals

signals.hold()
late_imports.install()

from .errors import UserError, run_and_report  # noqa: E402
from .registry import closest  # noqa: E402
from .version import versions  # noqa: E402

COMMANDS = {  # name -> function under ``commands`` that implements it, and what it does
    "train": ("train:run", "train, and evaluate, on all devices of this machine; takes the main flags"),
    "evaluate": ("evaluate:run", "evaluate trained weights on all devices; takes the main flags"),
    "doctor": (
        "doctor:run",
        "whether this machine, your data and a training's first steps are in order; takes the main flags",
    ),
    "inspect": ("inspect_model:run", "a model's layers and cost by its name; --list: all names"),
    "inspect data": ("inspect_data:run", "a picture of augmented training samples; takes the main flags"),
    "inspect submission": ("inspect_submission:run", "predictions against the rules of ScanNet's benchmark"),
    "convert": ("convert:run", "weights of any origin as .pdparams or .safetensors"),
    "predict": ("predict:run", "what trained weights say of pictures without labels; FOLDER/predictions.csv"),
    "export": ("export:run", "a trained classifier as an inference model of Paddle"),
    "prepare images": ("prepare:run_images", "check pictures, or pack them as tar files of smaller ones"),
    "prepare scannet": ("prepare:run_scannet", "write raw ScanNet v2 as memory-mapped scenes"),
    "prepare ply": ("prepare:run_ply", "write PLY files as memory-mapped scenes"),
    "prepare pth": ("prepare:run_pth", "the same for PointGroup's _inst_nostuff.pth"),
}


_HELP = ("-h", "--h", "-help", "--help", "help")


def show(names: List[str]) -> None:
    """Print one line for each of these commands."""
    print("python -m paddlevit_dist COMMAND, or --version; COMMAND -h shows its options\n")
    for name in names:
        print(f"  {name:15} {COMMANDS[name][1]}")


def main() -> None:
    os.environ.setdefault("GLOG_minloglevel", "2")  # Paddle's own log and warnings, useless to users of the tools
    warnings.filterwarnings("ignore", message="You are using GPU version Paddle")
    words = sys.argv[1:]
    if not words or words[0] in _HELP:
        show(list(COMMANDS))
        return
    group = [name for name in COMMANDS if name.startswith(words[0] + " ")]
    if group and words[0] not in COMMANDS and words[1:2] and words[1] in _HELP:  # prepare -h
        show(group)
        return
    if words[0] in ("-version", "--version", "version"):
        print(versions())
        return
    length = 2 if " ".join(words[:2]) in COMMANDS else 1
    command = " ".join(words[:length])
    if command not in COMMANDS:
        hint = closest(" ".join(words[:2]), list(COMMANDS)) or closest(command, list(COMMANDS))
        raise UserError(f"no command '{command}': {hint}valid ones: {', '.join(COMMANDS)}")
    module, _, function = COMMANDS[command][0].partition(":")
    vars(importlib.import_module(f"{__package__}.commands.{module}"))[function](words[length:])


if __name__ == "__main__":
    is_training = sys.argv[1:2] == ["train"] and signals.looks_like_training(sys.argv[2:])
    sys.exit(run_and_report(main, trains=is_training))
