"""``python -m paddlevit_dist inspect NAME``: a model's layers and cost; ``--list``: all names."""

import argparse
from typing import Any

from ..checkpoint.published import PUBLISHED, list_author_weights
from ..launch.tuning import import_paddle
from ..registry import plugins
from ..registry.lookup import MODELS, SPELLINGS, find_name, list_models
from ..runtime.errors import UserError
from ..tasks.model_factory import create_model
from .parser import CommandParser, at_least, image_size


def run(words: list[str]) -> None:
    """Run the command."""
    options = _parse(words)
    if options.list:
        print(listing(options.name or ""))
    elif options.name is None:
        raise UserError("inspect: name a model or add --list; 'inspect data' shows training samples")
    else:
        import_paddle()
        print(report(options.name, options.image_size, options.num_classes, options.depth))


def _parse(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "inspect",
        "Show the layers, parameters, multiply-accumulates and activation memory of a model. "
        "'inspect data' shows training samples instead, 'inspect recipes' lists the recipes that -cfg=NAME finds.",
        ("vit_tiny_patch16_224", "swin_tiny_patch4_window7_224 -image_size=448 -depth=3", "-list resnet"),
        imports=True,
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="a registered model; with --list: part of a name")
    parser.add_argument("--list", "-list", action="store_true", help="print the names of all models")
    pixels = "pixels: one number or HEIGHTxWIDTH (default: the variant's)"
    parser.option("image_size", None, pixels, image_size)
    parser.option("num_classes", 1000, "number of classifier outputs", at_least(0))
    parser.option("depth", 2, "levels of nested layers that get a line each", at_least(0))
    return parser.parse_args(words)


def listing(part: str = "") -> str:
    """Return a line for each model whose name contains ``part``: its module and its published weights with license.

    No model is imported. A part such as ``paddle:*`` lists the names of another package.

    Raises:
        UserError: no name matches.
    """
    plugins.load_installed()
    if ":" in part:
        names = list_models(part if "*" in part else f"{part}*")
        if names:
            return "\n".join(names)
    names = [name for name in list_models() if part in name]
    if not names:
        raise UserError(f"inspect --list: no model's name contains '{part}'")
    width = max(len(name) for name in names)
    lines = []
    for name in names:
        target = MODELS[name]
        place = target.split(":")[0] if isinstance(target, str) else target.__module__
        weights = [f"{row.name} ({row.license})" for row in PUBLISHED.values() if row.model == name]
        weights += list_author_weights(name)
        place = "= " + SPELLINGS[name] if name in SPELLINGS else place
        lines.append("  ".join([f"{name:{width}}", place, ", ".join(weights)]).rstrip())
    return "\n".join(lines)


def report(name: str, image_size: Any = None, num_classes: int = 1000, depth: int = 2) -> str:
    """Return a table of the layers down to ``depth``, and the totals, as text.

    Raises:
        UserError: unknown name, or an image size that does not fit.
    """
    import paddle

    from ..tasks.model import as_model
    from ..tasks.model_cost import compute_cost, count_parameters, list_layers

    model = create_model(find_name("model", name), num_classes=num_classes, image_size=image_size)
    model.eval()
    if as_model(model).image_size is None:
        total = count_parameters(model)
        return "\n".join(
            [
                f"{name}: {type(model).__name__}, {num_classes} classes",
                *_table(list_layers(model), depth),
                f"parameters: {total:,} ({_megabytes(4 * total)} as float32)",
                "multiply-accumulates and activations are counted for image models only",
            ]
        )
    shape = (model.in_channels, *model.image_size)
    cost = compute_cost(model, paddle.zeros([1, *shape]))
    return "\n".join(
        [
            f"{name}: {type(model).__name__}, images {' x '.join(map(str, shape))}, {num_classes} classes",
            *_table(cost.layers, depth),
            f"parameters: {cost.parameters:,} ({_megabytes(4 * cost.parameters)} as float32)",
            f"multiply-accumulates: {cost.multiply_accumulates / 1e9:.2f} G for one image",
            f"activations kept for the backward pass: about {_megabytes(cost.activation_bytes)} for one float32 image",
        ]
    )


def _table(layers: list[Any], depth: int) -> list[str]:
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


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"
