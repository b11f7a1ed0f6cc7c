"""The command line, one command per file.

- ``train``, ``evaluate``: the main job
- ``evaluate_results``, ``evaluate_detections``: score result files of any program; ``scored``: their common functions
- ``predict``: apply trained weights to data without labels
- ``prepare``: one-time processing of data; ``convert``: conversion of weights
- ``inspect_data``, ``inspect_model``, ``inspect_recipes``, ``version``: show samples, models, recipes, versions
- ``schema``: JSON schema of the keys, for editors
- ``parser``: argument parser of all commands except train and evaluate
"""

from collections.abc import Callable

from ..registry.extension import is_missing
from ..runtime.lazy_names import import_object

# Name -> ("module:function", help text). The last rows are of optional folders (see ``extension``).
_ROWS = {
    "train": (".commands.train:run", "train and evaluate on all devices of this machine; takes the main flags"),
    "evaluate": (".commands.evaluate:run", "evaluate trained weights on all devices; takes the main flags"),
    "evaluate detections": (
        ".commands.evaluate_detections:run",
        "COCO scores of boxes from any program; runs without Paddle",
    ),
    "evaluate classes": (
        ".commands.evaluate_results:run_classes",
        "accuracy of a table of predicted classes; runs without Paddle",
    ),
    "evaluate masks": (".commands.evaluate_results:run_masks", "IoU of label maps; runs without Paddle"),
    "evaluate components": (
        ".commands.evaluate_results:run_components",
        "decide where label maps of volumes keep only the largest component",
    ),
    "evaluate scenes": (
        ".commands.evaluate_results:run_scenes",
        "ScanNet scores of predictions in its benchmark format",
    ),
    "evaluate landmarks": (
        ".commands.evaluate_results:run_landmarks",
        "landmark errors in mm, from a folder of landmark files",
    ),
    "predict": (".commands.predict:run", "predict new data without labels, with trained weights"),
    "convert": (".commands.convert:run", "convert weights of any origin to .pdparams or .safetensors"),
    "inspect": (".commands.inspect_model:run", "show a model's layers and cost; --list: the names of all models"),
    "inspect data": (
        ".commands.inspect_data:run",
        "draw augmented training samples as one image; takes the main flags",
    ),
    "inspect recipes": (".commands.inspect_recipes:run", "list the recipes that -cfg=NAME finds, one line each"),
    "prepare images": (".commands.prepare:run_images", "check images, or pack them as tar files of smaller ones"),
    "prepare index": (
        ".commands.prepare:run_index",
        "write the index of tar files that are read from s3:// or https://",
    ),
    "prepare plan": (".commands.prepare:run_plan", "plan a run on volumes with label maps by nnU-Net's rules"),
    "prepare scannet": (".commands.prepare:run_scannet", "write raw ScanNet v2 as memory-mapped scenes"),
    "prepare scenes": (".commands.prepare:run_scenes", "write LAS, PCD, text, S3DIS, ... as memory-mapped scenes"),
    "prepare ply": (".commands.prepare:run_ply", "write PLY files as memory-mapped scenes"),
    "prepare pth": (".commands.prepare:run_pth", "write PointGroup's _inst_nostuff.pth as memory-mapped scenes"),
    "schema": (".commands.schema:run", "print the keys as a JSON schema, for editors of YAML files"),
    "version": (".commands.version:run", "print the versions of this package, Paddle and Python"),
    "doctor": (
        ".debug.doctor:run",
        "check machine, data and the first steps of a training run; takes the main flags",
    ),
    "report": (
        ".report.command:run",
        "write one HTML file about one or several runs: curves, settings, wrong predictions",
    ),
    "export": (".export.command:run", "export a trained model to Paddle Inference, PaddleX or ONNX"),
    "inspect leaks": (
        ".leakage.formatting:run",
        "find validation samples that are also in the training set; takes the main flags",
    ),
    "search": (".compare.search:run", "train with other values of some keys, and rank the runs by paired intervals"),
    "compare": (
        ".compare.command:run",
        "test whether runs differ by more than chance, and list the samples on which they differ",
    ),
}
COMMANDS = {name: row for name, row in _ROWS.items() if not is_missing(row[0])}


def import_command(command: str) -> Callable[[list[str]], None]:
    """Import the function that runs a command; its argument is the list of words after the command's name."""
    return import_object(COMMANDS[command][0])


__all__ = ["COMMANDS", "import_command"]
