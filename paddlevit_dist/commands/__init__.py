"""The command line, one command per file.

- ``train``, ``evaluate``: the main job
- ``evaluate_results``, ``evaluate_detections``: of anybody's files; ``scored``: what they share
- ``predict``: what trained weights say of data without labels
- ``prepare``: one-time processing of data; ``convert``: processing of weights
- ``inspect_data``, ``inspect_model``, ``inspect_recipes``, ``version``: look at samples, models, recipes
- ``schema``: for editors
- ``parser``: how all but the main job parse their arguments
"""

from collections.abc import Callable

from ..extension import is_missing
from ..runtime.lazy_names import import_object

# Name -> the function that carries it out, given the words after the name; and what it does. The last rows are of
# optional folders (see ``extension``).
_ROWS = {
    "train": (".commands.train:run", "train, and evaluate, on all devices of this machine; takes the main flags"),
    "evaluate": (".commands.evaluate:run", "evaluate trained weights on all devices; takes the main flags"),
    "evaluate detections": (".commands.evaluate_detections:run", "COCO's scores of anybody's boxes; needs no Paddle"),
    "evaluate classes": (".commands.evaluate_results:run_classes", "scores of a table of classes; needs no Paddle"),
    "evaluate masks": (".commands.evaluate_results:run_masks", "IoU of label maps; needs no Paddle"),
    "evaluate scenes": (".commands.evaluate_results:run_scenes", "ScanNet's scores of predictions in its format"),
    "evaluate landmarks": (".commands.evaluate_results:run_landmarks", "errors in mm of a folder of landmark files"),
    "predict": (".commands.predict:run", "what trained weights say of new data without labels"),
    "convert": (".commands.convert:run", "weights of any origin as .pdparams or .safetensors"),
    "inspect": (".commands.inspect_model:run", "a model's layers and cost by its name; --list: all names"),
    "inspect data": (".commands.inspect_data:run", "an image of augmented training samples; takes the main flags"),
    "inspect recipes": (".commands.inspect_recipes:run", "the recipes that -cfg=NAME finds, one line each"),
    "prepare images": (".commands.prepare:run_images", "check images, or pack them as tar files of smaller ones"),
    "prepare scannet": (".commands.prepare:run_scannet", "write raw ScanNet v2 as memory-mapped scenes"),
    "prepare scenes": (".commands.prepare:run_scenes", "write LAS, PCD, text, S3DIS, ... as memory-mapped scenes"),
    "prepare ply": (".commands.prepare:run_ply", "write PLY files as memory-mapped scenes"),
    "prepare pth": (".commands.prepare:run_pth", "the same for PointGroup's _inst_nostuff.pth"),
    "schema": (".commands.schema:run", "the keys as a JSON schema, for editors of YAML files"),
    "version": (".commands.version:run", "versions of this package, Paddle and Python"),
    "doctor": (
        ".debug.doctor:run",
        "check machine, data and the first steps of a training run; takes the main flags",
    ),
    "report": (
        ".report.command:run",
        "write one HTML file about one or several runs: curves, settings, wrong predictions",
    ),
    "export": (".export.command:run", "a trained model for Paddle Inference, PaddleX or ONNX"),
    "inspect leaks": (
        ".leakage.formatting:run",
        "find validation samples that are also in the training set; takes the main flags",
    ),
    "compare": (
        ".compare.command:run",
        "test whether runs differ by more than chance, and list the samples on which they differ",
    ),
}
COMMANDS = {name: row for name, row in _ROWS.items() if not is_missing(row[0])}


def import_command(command: str) -> Callable[[list[str]], None]:
    """Import what carries a command out, given the words that follow its name."""
    return import_object(COMMANDS[command][0])


__all__ = ["COMMANDS", "import_command"]
