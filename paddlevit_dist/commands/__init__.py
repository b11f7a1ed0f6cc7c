"""The command line, one command per file. Extensions bring more (see ``extension``).

- ``train``, ``evaluate``: the main job
- ``evaluate_results``, ``evaluate_detections``: of anybody's files; ``scored``: what they share
- ``predict``: what trained weights say of data without labels
- ``prepare``: one-time processing of data; ``convert``: processing of weights
- ``inspect_data``, ``inspect_model``, ``inspect_recipes``, ``version``: look at samples, models, recipes
- ``schema``: for editors
- ``parser``: how all but the main job parse their arguments
"""

import functools
from collections.abc import Callable

from ..extension import Extension, extensions
from ..runtime.lazy_names import import_object

# Name -> where the function is that carries it out, or the extension that does; and what it does.
COMMANDS: dict[str, tuple[str | Extension, str]] = {
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
    **{name: (one, meaning) for one in extensions() for name, meaning in one.commands.items()},
}


def import_command(command: str) -> Callable[[list[str]], None]:
    """Import what carries a command out, given the words that follow its name."""
    place = COMMANDS[command][0]
    return import_object(place) if isinstance(place, str) else functools.partial(place.run_command, command)


__all__ = ["COMMANDS", "import_command"]
