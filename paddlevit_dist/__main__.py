"""``paddlevit-dist COMMAND``, also ``python -m paddlevit_dist COMMAND``: the main job and its companion tools.

``main_multi_gpu.py`` and the run scripts are other names of its ``train``. What handles signals is here, once.
"""

from __future__ import annotations

import sys
from typing import List, Optional, Sequence

from . import signals

COMMANDS = {  # name -> function under ``commands`` that implements it, and what it does
    "train": ("train:run", "train, and evaluate, on all devices of this machine; takes the main flags"),
    "evaluate": ("evaluate:run", "evaluate trained weights on all devices; takes the main flags"),
    "evaluate detections": ("evaluate_detections:run", "COCO's scores of a file of results; needs no Paddle"),
    "predict": ("predict:run", "what trained weights say of new data without labels"),
    "export": ("export:run", "a trained model for Paddle Inference, PaddleX or ONNX"),
    "convert": ("convert:run", "weights of any origin as .pdparams or .safetensors"),
    "report": ("report:run", "one HTML file about one or several runs: curves, settings, mistakes"),
    "inspect": ("inspect_model:run", "a model's layers and cost by its name; --list: all names"),
    "inspect data": ("inspect_data:run", "a picture of augmented training samples; takes the main flags"),
    "inspect recipes": ("inspect_recipes:run", "the recipes that -cfg=NAME finds, one line each"),
    "inspect submission": ("inspect_submission:run", "predictions against the rules of ScanNet's benchmark"),
    "prepare images": ("prepare:run_images", "check pictures, or pack them as tar files of smaller ones"),
    "prepare scannet": ("prepare:run_scannet", "write raw ScanNet v2 as memory-mapped scenes"),
    "prepare ply": ("prepare:run_ply", "write PLY files as memory-mapped scenes"),
    "prepare pth": ("prepare:run_pth", "the same for PointGroup's _inst_nostuff.pth"),
    "doctor": ("doctor:run", "whether machine, data and first steps of a training are in order; takes the main flags"),
    "version": ("version:run", "versions of this package, Paddle and Python"),
}
# What other tools call ours.
_OTHER_NAMES = {
    **dict.fromkeys(("val", "valid", "validate", "eval", "test"), "evaluate"),
    **dict.fromkeys(("detect", "infer", "inference", "classify", "segment", "track", "demo"), "predict"),
    **dict.fromkeys(("fit", "finetune", "resume"), "train"),
    **dict.fromkeys(("summary", "info"), "inspect"),
    **dict.fromkeys(("checks", "check"), "doctor"),
}


def main(words: Optional[Sequence[str]] = None) -> int:
    """Carry out a command line, report what goes wrong, and return the exit code of the process.

    Args:
        words: what follows the program's name; None: of this process.
    """
    words = sys.argv[1:] if words is None else list(words)
    trains = words[:1] == ["train"] and signals.looks_like_training(words[1:])
    try:
        signals.hold()
        from .errors import run_and_report  # only now: until signals wait, they end Python with a traceback
    except KeyboardInterrupt:  # in the very first moment
        print("interrupted", file=sys.stderr)
        return signals.STOPPED if trains else 130
    return run_and_report(lambda: _carry_out(words), trains)


def _carry_out(words: List[str]) -> None:
    import importlib
    import os
    import warnings

    from .environment import program
    from .errors import UserError
    from .help_pages import HELP
    from .registry import closest

    os.environ.setdefault("GLOG_minloglevel", "2")  # Paddle's own log and warnings, useless to users of the tools
    warnings.filterwarnings("ignore", message="You are using GPU version Paddle")
    if not words or words[0] in (*HELP, "help"):
        _show(list(COMMANDS))
        return
    group = [name for name in COMMANDS if name.startswith(words[0] + " ")]
    if group and words[0] not in COMMANDS and (not words[1:] or words[1] in (*HELP, "help")):  # prepare, prepare -h
        _show(group)
        return
    if words[0] in ("-version", "--version"):
        words = ["version"]
    length = 2 if " ".join(words[:2]) in COMMANDS else 1
    command = " ".join(words[:length])
    if command not in COMMANDS:
        meant = _OTHER_NAMES.get(words[0].lower())
        hint = f"did you mean '{program(meant)}'? " if meant else ""
        hint = hint or closest(" ".join(words[:2]), list(COMMANDS)) or closest(command, list(COMMANDS))
        raise UserError(f"no command '{command}': {hint}valid ones: {', '.join(COMMANDS)}")
    module, _, function = COMMANDS[command][0].partition(":")
    vars(importlib.import_module(f"{__package__}.commands.{module}"))[function](words[length:])


def _show(names: List[str]) -> None:
    """Print one line for each of these commands."""
    from .environment import program
    from .help_pages import page

    further = "COMMAND -h shows its options. Own code joins with -import=MODULE or -import=FILE.py."
    print(page(program("COMMAND ..."), "", (), [(name, COMMANDS[name][1]) for name in names], further))


if __name__ == "__main__":
    sys.exit(main())
