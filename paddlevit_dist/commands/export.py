"""``python -m paddlevit_dist export WEIGHTS OUT``: a trained model for Paddle Inference, PaddleX or ONNX."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

import yaml

from ..contracts.prediction import Learned
from ..errors import UserError
from ..exporting.plain_yaml import as_yaml
from ..files import why_not_written
from ..printing import one_line
from .parser import CommandParser, at_least, choice, image_size

# Of outputs, relative to the largest: float32 is computed in different orders, float16 has 11 bits.
_LARGEST_DIFFERENCE = {"float32": 1e-4, "float16": 5e-2}
FORMATS = ("paddle", "onnx", "onnxruntime")
_OUTPUTS = ("logits", "probabilities")
_FOREIGN = {"input_name": "images", "example": {}, "paddlex": None}  # parts of weights that no run of ours trained


class Trained(NamedTuple):
    """A model with its weights, and what is needed to use it.

    Attributes:
        about: as in ``OUT.about.yaml``; "input_shape" is (None, channels, ...).
        parts: the task's ``ExportParts``; None: the weights are from elsewhere.
    """

    model: Any
    about: Dict[str, Any]
    parts: Any = None


def run(words: List[str]) -> None:
    """Carry out the command."""
    options = _parse(words)
    if options.format != "paddle":
        from ..exporting.onnx_files import require_packages

        require_packages()
    elif options.precision != "float32":
        raise UserError(
            "export: -precision=float16 is for -format=onnx and onnxruntime; Paddle Inference converts the float32 "
            "files when it loads them: config.enable_use_gpu(100, 0, paddle.inference.PrecisionType.Half)"
        )
    check_output(options.output)
    trained = load_trained(options.weights, options.model, options.image_size, options.in_channels, options.part)
    difference = export(trained, options.output, options.format, options.precision, options.outputs)
    about = trained.about
    outputs = "landmarks" if "landmarks" in about else "classes"
    weights = f"{about['num_classes']} {outputs} from {about['weights']}: {about['report']}"
    print(one_line(f"{about['model']} with {weights}"))
    shape, told = about["input_shape"], "" if options.format == "paddle" else f" of {difference.largest:.1f} at most"
    print(
        one_line(
            f"{options.output}: input {shape} {options.precision}; outputs differ by at most "
            f"{difference.absolute:.1e}{told}"
        )
    )


def _parse(words: List[str]) -> Any:
    parser = CommandParser(
        "export",
        "Write a trained model for use without this package, and compare its outputs with the model's. "
        "OUT.about.yaml says how its input is prepared, OUT.example.npz has an input with its outputs.",
    )
    parser.add_argument("weights", metavar="WEIGHTS", help="a run's -output folder, a checkpoint in it, or any weights")
    parser.add_argument("output", metavar="OUT", help="path of the files without extension")
    parser.option(
        "format",
        "paddle",
        "paddle: for paddle.jit.load, Paddle Inference and PaddleX; onnx: standard operators for any ONNX runtime; "
        "onnxruntime: the same with onnxruntime's own fused operators, which is faster on GPUs",
        choice(*FORMATS),
    )
    parser.option(
        "precision", "float32", "of weights, input and computation; float16 for ONNX", choice(*_LARGEST_DIFFERENCE)
    )
    parser.option("outputs", "logits", "logits, or probabilities: PaddleX shows them as they are", choice(*_OUTPUTS))
    parser.option("model", None, "registered name; needed if there is no config.yaml of a run beside the weights")
    pixels = "pixels: one number or HEIGHTxWIDTH (default: the run's or the variant's)"
    parser.option("image_size", None, pixels, image_size)
    parser.option("in_channels", None, "channels of the pictures (default: the run's or 3)", at_least(1))
    parser.option("part", None, "the entry to use if the file has several, such as model_ema")
    return parser.parse_args(words)


def load_trained(
    source: str,
    name: Optional[str] = None,
    image_size: Any = None,
    in_channels: Optional[int] = None,
    part: Optional[str] = None,
) -> Trained:
    """Build the model for the weights in ``source``, in evaluation mode.

    Args:
        source: a run's output folder, whose best checkpoint is used, or a checkpoint, or any weights. If the checkpoint
            has averaged weights, those are used, as in an evaluation.
            name: of the model; None uses the run's configuration.
            image_size, in_channels, part: None uses the run's, or the variant's.

    Raises:
        UserError: weights are missing, damaged or from another architecture, or the model is unknown.
    """
    from ..checkpoint.load import classes_of, load_weights
    from ..checkpoint.store import read_about
    from ..checkpoint.weights import evaluated_weights, read_weights

    described = read_about(source) or {}
    settings = None if name is not None else _settings(described, Path(source).expanduser())
    if name is None and settings is None:
        raise UserError(f"export: no config.yaml of a run beside {source}: name the model with -model=NAME")
    path = evaluated_weights(source)
    weights = read_weights(path, part)
    builder = _Builder(name, settings, image_size, in_channels, learned_from(described))
    num_classes = classes_of(builder.build(1, lazily=True), weights) or builder.num_landmarks
    if num_classes is None:
        raise UserError(f"export: {path} has no classifier for {builder.name}; a model without classes is not exported")
    model = builder.build(num_classes)
    report = load_weights(model, weights, strict=True)
    model.eval()
    parts = builder.parts
    size = model.image_size if parts is None or parts.size is None else parts.size
    shape = [None, model.in_channels, *size]
    about = {
        "model": builder.name,
        "weights": str(weights.name),
        "num_classes": num_classes,
        "input_shape": shape,
        **({} if parts is None else parts.about),
        "report": report.summary(),
    }
    names = builder.learned.class_names
    if names is not None and len(names) == num_classes and "landmarks" not in about:
        about["classes"] = list(names)
    return Trained(model, about, parts)


def _require_tensors(name: str) -> None:
    """
    Raises:
        UserError: the model takes more than tensors.
    """
    from ..registry import MODELS

    if str(MODELS.get(name)).startswith("paddlevit_dist.points."):
        raise UserError(
            f"export: {name} is a sparse network: it computes along a plan of its voxels' neighbours that is rebuilt "
            "for every scene, and an inference model of Paddle takes tensors alone; predict with -eval "
            "SAVE_PREDICTIONS true instead"
        )


class _Builder:
    """Builds the model from its name, or from ``settings``, the YAML configuration of the run that trained it."""

    def __init__(
        self,
        name: Optional[str],
        settings: Optional[str],
        image_size: Any,
        in_channels: Optional[int],
        learned: Learned,
    ) -> None:
        self.image_size, self.in_channels, self.learned = image_size, in_channels, learned
        self.values: Any = None
        self.parts: Any = None  # how the run prepared its input; unknown for weights from elsewhere
        if name is None:
            from .. import config as configuration

            if isinstance(image_size, tuple):
                raise UserError("export: -image_size of a run's model is one number, its pictures are square")
            words = [f"-image_size={image_size}"] if image_size else []
            words += ["DATA.IMAGE_CHANNELS", str(in_channels)] if in_channels else []
            with tempfile.TemporaryDirectory(prefix="paddlevit_dist_") as folder:
                file = Path(folder, "settings_of_the_run.yaml")
                file.write_text(settings or "", encoding="utf-8")
                self.values = configuration.load([f"-cfg={file}", *words]).values
        self.name = name if name is not None else self.values.MODEL.NAME
        _require_tensors(self.name)

    @property
    def num_landmarks(self) -> Optional[int]:
        """Outputs of a network of volumes, which are not told by its weights' names."""
        return len(self.learned.input.get("landmarks") or ()) or None

    def build(self, num_classes: int, lazily: bool = False) -> Any:
        import paddle

        if not lazily:
            return self._build(num_classes)
        with paddle.LazyGuard():  # names and shapes only
            return self._build(num_classes)

    def _build(self, num_classes: int) -> Any:
        from ..contracts.task import make_task
        from ..models import create_model

        if self.values is None:
            options = {} if self.in_channels is None else {"in_channels": self.in_channels}
            return create_model(self.name, num_classes=num_classes, image_size=self.image_size, **options)
        task = make_task(self.values)
        task.recall(self.learned._replace(num_classes=num_classes))
        self.parts = task.export_parts()
        return task.build_model(num_classes)


def learned_from(about: Dict[str, Any]) -> Learned:
    """What a checkpoint's ``about`` says of the data it was trained on."""
    splits = (about.get("data") or {}).values()
    said = about.get("input") or {}
    names = said.get("landmarks") or next((of["classes"] for of in splits if of.get("classes")), None)
    return Learned(None, None if names is None else tuple(map(str, names)), said)


def _settings(about: Dict[str, Any], path: Path) -> Optional[str]:
    """The configuration of the run that trained the weights at ``path``, as YAML: from their checkpoint, else from the
    ``config.yaml`` of the output folder that ``path`` is or is inside."""
    if isinstance(about.get("settings"), dict):
        return yaml.safe_dump(about["settings"], allow_unicode=True)
    nearest = [path, *path.absolute().parents][:4]  # run / checkpoints / epoch_0004 / model.pdparams
    file = next((folder / "config.yaml" for folder in nearest if (folder / "config.yaml").is_file()), None)
    return None if file is None else file.read_text(encoding="utf-8")


class Difference(NamedTuple):
    """How far the outputs of two models are apart: the largest difference, and the largest output."""

    absolute: float
    largest: float


def check_output(output: str) -> Path:
    """The path that the exported files share.

    Raises:
        UserError: it is a folder.
    """
    path = Path(output).expanduser()
    if path.is_dir() or not path.name or output.endswith(os.sep):
        raise UserError(f"export: {output} is a folder: name the files in it as well, such as {path / 'model'}")
    return path


def export(
    trained: Trained, output: str, kind: str = "paddle", precision: str = "float32", outputs: str = "logits"
) -> Difference:
    """Write ``output.*``, and compare its outputs with the model's on three inputs.

    Args:
        kind: one of ``FORMATS``.
        precision: "float32", or "float16" for ONNX.
        outputs: of a classifier, "logits" or "probabilities".
    Raises:
        UserError: the files cannot be written, or the model cannot be converted.
        RuntimeError: the exported model computes something else; nothing was written.
    """
    import numpy as np

    path, shape = check_output(output), trained.about["input_shape"]
    parts = _FOREIGN if trained.parts is None else trained.parts._asdict()
    model, about = trained.model, {**trained.about, "format": kind, "precision": precision, "outputs": outputs}
    if outputs == "probabilities":
        if parts["input_name"] != "images":
            raise UserError("export: -outputs=probabilities is for classifiers; leave it out")
        model, about["output"] = _with_softmax(model), "probabilities of the classes"
    about["input_name"] = parts["input_name"]
    inputs = np.random.default_rng(0).standard_normal((3, *shape[1:])).astype("float32")
    try:
        with _written_together(path) as folder:
            compute = _write_model(model, folder / path.name, kind, precision, parts["input_name"], about)
            expected = _outputs(model, inputs)
            difference = _compare(expected, compute(inputs), precision, output)
            example = {**parts["example"]} or {"input": inputs[:1]}
            example["output"] = _outputs(model, example["input"])
            np.savez_compressed(folder / f"{path.name}.example.npz", **example)
            about["largest_difference"] = {"absolute": difference.absolute, "of_outputs_up_to": difference.largest}
            # not JSON: Paddle takes every .json next to it for its own
            _write_yaml(folder / f"{path.name}.about.yaml", about)
            if parts["paddlex"] is not None and kind == "paddle":
                _write_paddlex(folder / f"{path.name}.yml", parts["paddlex"], about)
    except OSError as error:
        raise UserError(f"export: {output} cannot be written: {why_not_written(error)}") from error
    return difference


def _write_model(
    model: Any, path: Path, kind: str, precision: str, input_name: str, about: Dict[str, Any]
) -> Callable[[Any], Any]:
    """Write the files of the model itself; returns what computes its outputs with them."""
    import paddle

    specification = [paddle.static.InputSpec(list(about["input_shape"]), "float32", input_name)]
    if kind == "paddle":
        paddle.jit.save(model, str(path), input_spec=specification)
        loaded = paddle.jit.load(str(path))
        return lambda inputs: _outputs(loaded, inputs)
    from ..exporting import onnx_files

    with tempfile.TemporaryDirectory(prefix="paddlevit_dist_") as folder:
        traced = Path(folder, "traced")
        paddle.jit.save(model, str(traced), input_spec=specification)
        graph = onnx_files.to_onnx(
            traced,
            tuple(about["input_shape"][1:]),
            is_fused=kind == "onnxruntime",
            is_half=precision == "float16",
            name="heatmaps" if "landmarks" in about else about["outputs"],
        )
    onnx_files.describe(graph, about)
    path.with_name(f"{path.name}.onnx").write_bytes(graph.SerializeToString())
    return lambda inputs: next(iter(onnx_files.run(graph, inputs).values()))


def _compare(expected: Any, exported: Any, precision: str, output: str) -> Difference:
    import numpy as np

    difference = Difference(float(np.abs(expected - exported).max()), float(np.abs(expected).max()))
    if not difference.absolute <= _LARGEST_DIFFERENCE[precision] * max(1.0, difference.largest):
        raise RuntimeError(
            f"{output} gives other outputs than the model it was exported from: {difference.absolute:g}; "
            "nothing was written"
        )
    return difference


def _outputs(model: Any, inputs: Any) -> Any:
    import paddle

    with paddle.no_grad():
        return model(paddle.to_tensor(inputs)).numpy()


def _with_softmax(model: Any) -> Any:
    from paddle import nn

    classifier = nn.Sequential(model, nn.Softmax(axis=-1))
    classifier.eval()
    return classifier


def _write_yaml(file: Path, content: Dict[str, Any], comment: str = "") -> None:
    text = as_yaml(content)
    file.write_text(comment + text, encoding="utf-8", errors="surrogateescape")


def _write_paddlex(file: Path, processing: Dict[str, Any], about: Dict[str, Any]) -> None:
    from ..exporting.paddlex import description

    content = description(processing, about["model"], about["num_classes"], about.get("classes"))
    _write_yaml(file, content, f"# {one_line(about['model'])}, for PaddleX, which reads inference.* in a folder\n")


@contextlib.contextmanager
def _written_together(path: Path) -> Iterator[Path]:
    """A folder beside ``path`` whose files get their places there when the block has ended well, else none does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        yield folder
        for file in sorted(folder.iterdir()):
            os.replace(file, path.parent / file.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
