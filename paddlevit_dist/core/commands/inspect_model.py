"""``python -m paddlevit_dist inspect NAME``: a model's layers and cost; ``--list``: all names."""

import argparse
import os
from collections.abc import Sequence
from typing import Any

from ..checkpoint.published import PUBLISHED, list_author_weights
from ..launch.tuning import import_paddle
from ..registry import plugins
from ..registry.lookup import annotation_type, find_name, find_package, list_models
from ..registry.names import REGISTRY
from ..runtime.errors import UserError
from ..runtime.printing import one_line
from ..settings.every_run import DEFAULT_TASK
from ..settings.key import show
from ..settings.key_tables import common_tables
from ..settings.table import find_keys, index_keys
from ..tasks.model_factory import build_network, create_model, explain_options
from .parser import CommandParser, at_least, image_size


def run(words: list[str]) -> None:
    """Run the command."""
    options = parse_words(words)
    if options.list and options.settings:
        raise UserError(f"inspect: {options.settings[0]}: --list takes no keys: remove one of both")
    if options.list:
        print(listing(options.name or ""))
    elif options.name is None:
        raise UserError("inspect: name a model or add --list; 'inspect data' shows training samples")
    else:
        import_paddle()
        print(report(options.name, options.image_size, options.num_classes, options.depth, options.settings))


def parse_words(words: list[str]) -> argparse.Namespace:
    """Parse the words of the command."""
    parser = CommandParser(
        "inspect",
        "Show the layers, parameters, multiply-accumulates and activation memory of a model. "
        "'inspect data' shows training samples instead, 'inspect recipes' lists the recipes that -cfg=NAME finds.",
        (
            "vit_tiny_patch16_224",
            "swin_tiny_patch4_window7_224 -image_size=448 -depth=3",
            "vit MODEL.DEPTH 6",
            "output/mine",
            "-list resnet",
        ),
        imports=True,
        keys=(),
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="a registered model, or a run's folder; with --list: part of a name"
    )
    parser.add_argument("--list", "-list", action="store_true", help="print the names of all models")
    pixels = "pixels: one number or HEIGHTxWIDTH (default: the variant's)"
    parser.option("image_size", None, pixels, image_size)
    parser.option("num_classes", 1000, "number of classifier outputs", at_least(0))
    parser.option("depth", 2, "levels of nested layers that get a line each", at_least(0))
    return parser.parse_args(words)


def listing(part: str = "") -> str:
    """Return a line for each model whose name contains ``part``: its module and its published weights with license.

    No model is imported. A part such as ``paddle:*`` lists the names of another package. UserError: no name matches.
    """
    plugins.load_installed()
    if ":" in part:
        names = list_models(part if "*" in part else f"{part}*")
        if names:
            return "\n".join(names)
    names = [model_name for model_name in list_models() if part in model_name]
    if not names:
        raise UserError(f"inspect --list: no model's name contains '{part}'")
    width = max(len(model_name) for model_name in names)
    lines = []
    for name in names:
        target = REGISTRY.models[name]
        place = target.split(":")[0] if isinstance(target, str) else target.__module__
        weights = [f"{row.name} ({row.license})" for row in PUBLISHED.values() if row.model == name]
        weights += list_author_weights(name)
        place = "= " + REGISTRY.aliases[name] if name in REGISTRY.aliases else place
        lines.append("  ".join([f"{name:{width}}", place, ", ".join(weights)]).rstrip())
    return "\n".join(lines)


def report(
    name: str,
    image_size: int | tuple[int, int] | None = None,
    num_classes: int = 1000,
    depth: int = 2,
    words: Sequence[str] = (),
) -> str:
    """Return a table of the layers down to ``depth``, and the totals, as text.

    Args:
        name: of the model, or the path of a run or of weights with their settings.
        image_size: pixels, or (height, width); None: the variant's.
        num_classes: outputs of the classifier.
        depth: levels of nested layers that get a line each.
        words: flags and keys of a command line, with the options of the model.

    Raises:
        UserError: unknown name, an image size that does not fit, or a key that is wrong.
    """
    import paddle

    from ..tasks.model import as_model, input_size
    from ..tasks.model_cost import compute_cost, count_parameters, list_layers

    if name not in REGISTRY.models and os.path.exists(os.path.expanduser(name)):
        name, model, num_classes = _build_trained(name, image_size, words)
    else:
        name = find_name("model", name)
        if words:
            model = _build_configured(name, image_size, num_classes, words)
        else:
            model = create_model(name, num_classes=num_classes, image_size=image_size)
    model.eval()
    if as_model(model).image_size is None:
        total = count_parameters(model)
        return "\n".join(
            [
                f"{name}: {type(model).__name__}, {num_classes} classes",
                *format_table(list_layers(model), depth),
                f"parameters: {total:,} ({format_megabytes(4 * total)} as float32)",
                "multiply-accumulates and activations are counted for image models only",
            ]
        )
    shape = (model.in_channels, *input_size(model))
    cost = compute_cost(model, paddle.zeros([1, *shape]))
    return "\n".join(
        [
            f"{name}: {type(model).__name__}, images {' x '.join(map(str, shape))}, {num_classes} classes",
            *format_table(cost.layers, depth),
            f"parameters: {cost.parameters:,} ({format_megabytes(4 * cost.parameters)} as float32)",
            f"multiply-accumulates: {cost.multiply_accumulates / 1e9:.2f} G for one image",
            "activations kept for the backward pass: about "
            f"{format_megabytes(cost.activation_bytes)} for one float32 image",
        ]
    )


def _build_trained(run: str, image_size: int | tuple[int, int] | None, words: Sequence[str]) -> tuple[str, Any, int]:
    """Build the network that a run or weights are of; return its name, the network, and its number of classes."""
    from ..inference.trained import open_source
    from ..tasks.protocols import load_meta
    from ..tasks.task_factory import make_task, name_network

    if image_size is not None:
        raise UserError(f"inspect {run}: -image_size: the size is stored with a run: remove it")
    source = open_source(run, "inspect", words=words, log=lambda line: print(one_line(line)))
    task = make_task(source.config)
    load_meta(task, source.learned)
    num_classes = source.learned.num_classes or 1
    return f"{run}: {name_network(source.config, task)}", task.build_model(num_classes), num_classes


def _build_configured(
    name: str, image_size: int | tuple[int, int] | None, num_classes: int, words: Sequence[str]
) -> Any:
    """Build a model as a training run with these keys would, and print notices about them."""
    from .. import settings
    from ..settings.table import COMMAND_LINE
    from ..tasks.task_factory import make_task

    configuration = settings.load([f"TASK={find_task(name)}", f"MODEL.NAME={name}", *words])
    given = {each: setting for each, setting in configuration.settings.items() if setting.source == COMMAND_LINE}
    for key, found in given.items():
        if not changes_layers(key):
            print(one_line(f"{key} {show(found.value)} ({found.origin}): no effect: inspect does not read it"))
    config: Any = configuration.values
    if config.MODEL.NAME != name:
        raise UserError(f"inspect: MODEL.NAME {config.MODEL.NAME}: the model is {name}; name one")
    task = make_task(config)
    print("".join(f"{one_line(notice)}\n" for notice in task.notices), end="")
    with explain_options(name, config.MODEL.OPTIONS):
        if not hasattr(task, "model_options"):
            return task.build_model(num_classes)
        options = dict(task.model_options)
        if "DATA.IMAGE_CHANNELS" in given:
            options["in_channels"] = config.DATA.IMAGE_CHANNELS
        if "DATA.IMAGE_SIZE" in given:
            image_size = config.DATA.IMAGE_SIZE
        return build_network(name, num_classes, image_size, options)


def changes_layers(name: str) -> bool:
    """Return whether a key may change the layers of a model: not one of all runs, of training or of data."""
    if name.startswith("MODEL.") or name in ("TASK", "DATA.IMAGE_SIZE", "DATA.IMAGE_CHANNELS"):
        return True
    of_all_runs = index_keys(common_tables())
    return name not in of_all_runs and not name.startswith(("DATA.", "TRAIN.")) and not find_keys()[name].training_only


def find_task(name: str) -> str:
    """Return the first task that trains a model; the default one for a model of a user."""
    package, labels = find_package("model", name), annotation_type("model", name)
    tasks = (
        task
        for task in REGISTRY.tasks
        if find_package("task", task) == package and annotation_type("task", task) == labels
    )
    return DEFAULT_TASK if package is None else next(tasks, DEFAULT_TASK)


def format_table(layers: list[Any], depth: int) -> list[str]:
    """Format name, class, output, parameters and multiply-accumulates; deeper layers are added to their parents."""
    rows: dict[str, tuple[str, tuple[int, ...], list[int]]] = {}
    for layer in layers:
        name = ".".join(layer.name.split(".")[:depth]) if depth else ""
        is_itself = layer.name == name
        kind, shape, sums = rows.get(name, ("", (), [0, 0]))
        sums[0] += layer.parameters
        sums[1] += layer.multiply_accumulates
        rows[name] = (layer.kind if is_itself else kind, (layer.output_shape or ()) if is_itself else shape, sums)
    cells = [("layer", "", "output", "parameters", "multiply-accumulates")]
    for name, (kind, shape, (parameters, products)) in rows.items():
        if parameters or products:
            cells.append((name or "(model)", kind, "x".join(map(str, shape)), f"{parameters:,}", f"{products:,}"))
    widths = [max(len(row[column]) for row in cells) for column in range(5)]
    return [
        "  ".join(
            text.ljust(width) if column < 3 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths))
        )
        for row in cells
    ]


def format_megabytes(num_bytes: int) -> str:
    """Format a number of bytes in megabytes."""
    return f"{num_bytes / 1e6:,.1f} MB"
