"""``python -m paddlevit_dist export WEIGHTS OUT``: export a trained model to Paddle Inference, PaddleX or ONNX."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.commands.parser import CommandParser, at_least, choice, image_size
from ...core.launch.tuning import import_paddle
from ...core.runtime import signals
from ...core.runtime.errors import UserError
from ...core.runtime.files import explain_write_error, library_errors_as_os_errors
from ...core.runtime.printing import count, one_line, shorten
from .descriptions import build_paddlex_description, format_about, to_yaml
from .differences import INT8, LARGEST, OutputDifference, compare, require_small
from .files import ONNX, PARAMETERS
from .int8_options import CALIBRATION, require_int8
from .outputs import DESCRIPTION, EXAMPLE, PADDLEX, check_output, require_replaceable, write_together
from .trained_models import TrainedModel, load_trained_model

if TYPE_CHECKING:
    from paddle import nn

    from ...core.tasks.step_types import ExportParts
    from .int8 import Quantizer

FORMATS = ("paddle", "onnx", "onnxruntime")
HUB = "hub"  # a folder with weights and a card, no exported network
_KINDS_BY_SUFFIX = {ONNX: FORMATS[1:], PARAMETERS: FORMATS[:1], ".pdmodel": FORMATS[:1], ".json": FORMATS[:1]}
_KEEPS_EXCEPTIONS = "TRANSLATOR_DISABLE_NEW_ERROR"  # Paddle's switch
_OUTPUTS = ("logits", "probabilities")
_INPUTS = ("float", "uint8")


def run(words: list[str]) -> None:
    """Run the command."""
    options = _parse(words)
    if options.format == HUB:
        from .hub_folder import publish

        publish(options)
        return
    if options.license is not None:
        raise UserError("export: -license is for the card of -format=hub: remove it")
    options.output, options.format = choose_format(options.output, options.format)
    if options.format != "paddle":
        from .onnx_files import require_packages

        require_packages()
    if options.precision == INT8:
        require_int8(options.format, options.outputs)
    elif options.calibration is not None:
        raise UserError("export: -calibration is for -precision=int8: remove it")
    elif options.format == "paddle" and options.precision != "float32":
        raise UserError(
            "export: -precision=float16 is for -format=onnx and onnxruntime. Paddle Inference can convert the float32 "
            "files at loading: config.enable_use_gpu(100, 0, paddle.inference.PrecisionType.Half)"
        )
    path = check_output(options.output)
    if not options.replace:
        require_replaceable(path, options.format)
    import_paddle()
    trained = load_trained_model(
        options.weights,
        options.model,
        options.image_size,
        options.in_channels,
        options.part,
        words=options.settings,
        log=lambda line: print(one_line(line)),
        reads_data=options.precision == INT8,
    )
    if options.input == "uint8":
        from .pixels import convert_to_pixel_input

        trained = convert_to_pixel_input(trained)
    quantize = None
    if options.precision == INT8:
        from .int8 import Quantizer

        quantize = Quantizer(trained.source, options.calibration or CALIBRATION, lambda line: print(one_line(line)))
    difference = export(trained, options.output, options.format, options.precision, options.outputs, quantize)
    for line in describe_export(trained.about, difference, options.output, options.precision):
        print(one_line(line))
    for line in quantize.cost.describe() if quantize is not None and quantize.cost is not None else ():
        print(line)


def describe_export(about: dict[str, Any], difference: OutputDifference, output: str, precision: str) -> list[str]:
    """Format what was exported to ``output``, of a model with these facts, and by how much its outputs differ."""
    outputs = next((name for name in ("landmarks", "points") if name in about), "classes")
    number = f"{about['num_classes']} {outputs} from " if about["num_classes"] > 1 else ""  # a regression has none
    lines = [f"{about['model']} with {number}{about['weights']}: {about['report']}"]
    kind = about.get("input_type", "float32" if precision == INT8 else precision)
    kind = kind if kind == precision else f"{kind}, computed in {precision}"
    lines.append(f"{output}: input {about['input_shape']} {kind}; {difference}")
    if "note" in about:
        lines.append(f"note: {about['note']}")
    if not difference.is_rounding(precision):
        lines.append(
            "note: rounding does not explain this difference. A network that has hardly learned selects objects by "
            f"rounding alone; for any other, run evaluate {output} to get its score"
        )
    return lines


def _parse(words: list[str]) -> Any:
    parser = CommandParser(
        "export",
        "Export a trained model for use without this package, and compare the outputs of both. OUT.about.yaml "
        "describes the preprocessing of its input, OUT.example.npz contains an input and its outputs.",
        ("output/vit_digits exported/digits", "output/vit_digits exported/digits -format=onnx -precision=float16"),
        imports=True,
        keys=(),
    )
    parser.add_argument("weights", metavar="WEIGHTS", help="a run's -output folder, a checkpoint in it, or any weights")
    parser.add_argument(
        "output", metavar="OUT", help="path of the exported files, without extension or with a format's"
    )
    parser.option(
        "format",
        None,
        "paddle: for paddle.jit.load, Paddle Inference and PaddleX; onnx: standard operators for any ONNX runtime; "
        "onnxruntime: fused operators for onnxruntime alone, faster on GPUs; hub: the folder OUT with weights and a "
        "card for Hugging Face (default: by OUT's suffix, else paddle)",
        choice(*FORMATS, HUB),
    )
    parser.option(
        "precision",
        "float32",
        "float32, or for ONNX only: float16 weights, input and computation; int8 weights, calibrated on training data, "
        "scored against float32 with what it costs",
        choice(*LARGEST),
    )
    meaning = f"training samples that -precision=int8 measures ranges of values on (default: {CALIBRATION})"
    parser.option("calibration", None, meaning, at_least(1))
    parser.option(
        "input",
        "float",
        "float: normalized images; uint8: pixels (batch, height, width, channels), which the exported model normalizes",
        choice(*_INPUTS),
    )
    parser.option(
        "outputs", "logits", "logits, or probabilities for PaddleX, which shows outputs unchanged", choice(*_OUTPUTS)
    )
    parser.option(
        "model", None, "registered name of the model; needed if the weights' folder has no config.yaml of a run"
    )
    pixels = "pixels: one number or HEIGHTxWIDTH (default: the run's or the variant's)"
    parser.option("image_size", None, pixels, image_size)
    parser.option("in_channels", None, "channels of the images (default: the run's or 3)", at_least(1))
    parser.option("part", None, "entry to export if the file has several, such as model_ema")
    parser.option("license", None, "license on the card of -format=hub, such as apache-2.0")
    meaning = "delete the files OUT.* even if they are not an earlier export in this format"
    parser.add_argument("--replace", "-replace", action="store_true", help=meaning)
    return parser.parse_args(words)


def choose_format(output: str, kind: str | None) -> tuple[str, str]:
    """Return OUT without the suffix of a format's files, and the format: ``kind`` if it is given, else the suffix's.

    Raises UserError if the suffix is another format's.
    """
    path = check_output(output)
    kinds = _KINDS_BY_SUFFIX.get(path.suffix.lower())
    if kinds is None:
        return output, kind or FORMATS[0]
    if kind is not None and kind not in kinds:
        raise UserError(f"export: {output} ends with {path.suffix}, but -format={kind} writes other files: remove one")
    return output[: -len(path.suffix)], kind or kinds[0]


def export(
    trained: TrainedModel,
    output: str,
    kind: str = "paddle",
    precision: str = "float32",
    outputs: str = "logits",
    quantize: "Quantizer | None" = None,
) -> OutputDifference:
    """Write the files ``output.*`` instead of an earlier export's, and compare outputs of both models on three inputs.

    An input of any size is compared at a second size, too. If that fails, a note says why, and the input has one size.

    Args:
        trained: the model to export; what is found is added to its ``about``.
        output: common path of the files, without extension.
        kind: one of ``FORMATS``.
        precision: "float32", or "float16" or "int8" for ONNX.
        outputs: "logits" or "probabilities", for classifiers.
        quantize: for int8: makes the file.

    Raises:
        UserError: the files cannot be written, or the model cannot be converted.
        RuntimeError: the outputs differ by more than rounding; nothing was written.
    """
    import numpy as np

    from ...core.tasks.step_types import ExportParts

    path = check_output(output)
    parts = trained.parts or ExportParts(trained.about["input_shape"][1], {})
    model, about = trained.model, trained.about
    about.update(format=kind, precision=precision)
    names = parts.output_names or (outputs,)
    about["input_name"], about["outputs"] = parts.input_name, names[0] if len(names) == 1 else list(names)
    example, inputs = {**parts.example}, _inputs(3, about, parts)
    first = {parts.input_name: example.setdefault("input", inputs[parts.input_name][:1])}
    if parts.sizes_name is not None:
        example[parts.sizes_name] = first[parts.sizes_name] = inputs[parts.sizes_name][:1]
    if outputs == "probabilities":
        is_classifier = parts.input_name == "images" and not parts.output_names and parts.is_exclusive
        if not is_classifier or _outputs(model, first)[0].ndim != 2:
            raise UserError("export: -outputs=probabilities is for classifiers of one class: remove it")
        model, about["output"] = _with_softmax(model), "probabilities of the classes"
    # Paddle 2.6 cannot compute with a model once it is traced.
    example_outputs = _compute_declared(model, first, parts)
    checks = [(inputs, _outputs(model, inputs))]
    example.update(zip(names if len(names) > 1 else ["output"], example_outputs))
    try:
        with write_together(path) as folder:

            def write(shape: list[int | None]) -> OutputDifference:
                about["input_shape"] = shape
                with library_errors_as_os_errors(folder):
                    compute = _write_model(model, folder / path.name, kind, precision, parts, names, about, inputs)
                found = [compare(expected, compute(arrays), parts.difference) for arrays, expected in checks]
                largest = max(found, key=lambda one: one.absolute)
                require_small(largest, "float32" if quantize is not None else precision, output)
                return largest

            shape, axes = about["input_shape"], (1, 2) if about.get("input_type") == "uint8" else (2, 3)
            try:
                if parts.is_any_size:
                    other = [length if axis not in axes else length // 2 + 3 for axis, length in enumerate(shape)]
                    arrays = _inputs(1, {**about, "input_shape": other}, parts)
                    checks.append((arrays, _outputs(model, arrays)))
                    difference = write([None if axis in axes else length for axis, length in enumerate(shape)])
            except OSError:
                raise
            except Exception as error:  # a network of a user's may be for one size
                reason = shorten(one_line(error) or type(error).__name__, 200)
                about["note"] = f"the exported model takes one size, as it cannot be converted for any: {reason}"
                parts = parts._replace(is_any_size=False)
                del checks[1:]
            if not parts.is_any_size:
                difference = write(shape)
            if quantize is not None:
                difference = quantize(folder / f"{path.name}{ONNX}", about)
            np.savez_compressed(folder / f"{path.name}{EXAMPLE}", **example)
            about["largest_difference"] = {"absolute": difference.absolute, "of_outputs_up_to": difference.largest}
            # not named .json: Paddle reads every .json in the folder as a program
            (folder / f"{path.name}{DESCRIPTION}").write_text(format_about(about), encoding="utf-8")
            if parts.paddlex is not None and kind == "paddle":
                content = build_paddlex_description(
                    parts.paddlex, about["model"], about["num_classes"], about.get("classes")
                )
                comment = f"# {one_line(about['model'])}, for PaddleX, which reads inference.* of a folder\n"
                text = comment + to_yaml(content)
                (folder / f"{path.name}{PADDLEX}").write_text(text, encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UserError(
            f"export: {error.filename2 or output} cannot be written: {explain_write_error(error)}"
        ) from error
    return difference


def _inputs(batch: int, about: dict[str, Any], parts: "ExportParts") -> dict[str, Any]:
    """Make random inputs of an exported model, by name."""
    import numpy as np

    random, shape = np.random.default_rng(0), (batch, *about["input_shape"][1:])
    if about.get("input_type") == "uint8":
        inputs = {parts.input_name: random.integers(0, 256, shape).astype("uint8")}
    else:
        inputs = {parts.input_name: random.standard_normal(shape).astype("float32")}
    if parts.sizes_name is not None:
        inputs[parts.sizes_name] = random.integers(100, 1000, (batch, 2))
    return inputs


def _write_model(
    model: "nn.Layer",
    path: Path,
    kind: str,
    precision: str,
    parts: "ExportParts",
    names: Sequence[str],
    about: dict[str, Any],
    inputs: dict[str, Any],
) -> Callable[[dict[str, Any]], list[Any]]:
    """Write the model's files; return a function that computes outputs with them."""
    import paddle

    shapes = {
        **{name: [None, *array.shape[1:]] for name, array in inputs.items()},
        parts.input_name: [*about["input_shape"]],
    }
    specification = [paddle.static.InputSpec(shapes[name], str(array.dtype), name) for name, array in inputs.items()]
    if kind == "paddle":
        _trace(model, path, specification)
        loaded = paddle.jit.load(str(path))
        return lambda inputs: _outputs(loaded, inputs)
    from . import onnx_files

    with onnx_files.temporary_folder() as folder:
        traced = folder / "traced"
        _trace(model, traced, specification)
        graph = onnx_files.to_onnx(
            traced,
            lambda batch: _inputs(batch, about, parts),
            is_fused=kind == "onnxruntime",
            is_half=precision == "float16",
            names=names,
            has_one_size=not parts.is_any_size or None not in about["input_shape"][1:],
        )
    onnx_files.describe(graph, about)
    onnx_files.write(graph, path.with_name(f"{path.name}{ONNX}"))
    return lambda inputs: list(onnx_files.run(graph, inputs).values())


@signals.held()  # Paddle crashes if one arrives while it asks for an operation's stack
def _trace(model: "nn.Layer", path: Path, specification: list[Any]) -> None:
    """Write the files of Paddle's program. An exception that leaves the network is kept."""
    import paddle

    # Paddle would build it again from one text, and lose Ctrl-C and classes with other arguments.
    is_set = _KEEPS_EXCEPTIONS in os.environ
    os.environ.setdefault(_KEEPS_EXCEPTIONS, "1")
    try:
        paddle.jit.save(model, str(path), input_spec=specification)
    finally:
        if not is_set:
            del os.environ[_KEEPS_EXCEPTIONS]


def _compute_declared(model: "nn.Layer", inputs: dict[str, Any], parts: "ExportParts") -> list[Any]:
    """Return the outputs for the example; UserError if the network has others, or takes another input, than declared.

    A shape of the input with which the network computes is not known to be another than that of its data.
    """
    shape = inputs[parts.input_name].shape
    try:
        outputs = _outputs(model, inputs)
    except ValueError as error:  # also Paddle's, of a shape that does not fit a layer
        raise UserError(
            f"export: the network does not take the input {shape} of ExportParts, whose channels are {parts.channels} "
            f"and whose size is {parts.size}: {one_line(error)}"
        ) from error
    if parts.output_names and len(outputs) != len(parts.output_names):
        raise UserError(
            f"export: the network returns {count(len(outputs), 'output')}, but output_names of ExportParts are "
            f"{parts.output_names}: expected a name for each"
        )
    declared, found = parts.output_shape, outputs[0].shape[1:]
    if declared is not None and not (
        len(declared) == len(found) and all(length in (None, actual) for length, actual in zip(declared, found))
    ):
        raise UserError(
            f"export: the network's output has the shape {found} without the batch axis, but output_shape of "
            f"ExportParts is {declared}: expected the same, with None for any length"
        )
    return outputs


def _outputs(model: "nn.Layer", inputs: dict[str, Any]) -> list[Any]:
    import paddle

    with paddle.no_grad():
        result = model(*(paddle.to_tensor(array) for array in inputs.values()))
    parts = result if isinstance(result, (list, tuple)) else [result]
    if not all(isinstance(part, paddle.Tensor) for part in parts):
        raise UserError(f"export: the network returns {type(result).__name__}: expected a tensor, or a list of tensors")
    return [part.numpy() for part in parts]


def _with_softmax(model: "nn.Layer") -> Any:
    from paddle import nn

    classifier = nn.Sequential(model, nn.Softmax())
    classifier.eval()
    return classifier
