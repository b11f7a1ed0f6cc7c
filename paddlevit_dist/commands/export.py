"""``python -m paddlevit_dist export WEIGHTS OUT``: a trained classifier as a Paddle inference model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import yaml

from ..errors import UserError
from ..printing import one_line
from .parser import CommandParser, at_least, image_size

_LARGEST_DIFFERENCE = 1e-4  # of logits, relative to the largest; both are float32, computed in different orders


class Trained(NamedTuple):
    """A model with its weights, and what is needed to use it."""

    model: Any
    about: Dict[str, Any]


def run(words: List[str]) -> None:
    """Carry out the command."""
    parser = CommandParser(
        "export",
        "Write OUT for paddle.jit.load and Paddle Inference, and compare its outputs with the model's. Its "
        "input is a batch of normalised float32 pictures; OUT.about.yaml says how they are normalised.",
        imports=True,
    )
    parser.add_argument("weights", metavar="WEIGHTS", help="a run's -output folder, a checkpoint in it, or any weights")
    parser.add_argument("output", metavar="OUT", help="path of the files without extension")
    parser.option("model", None, "registered name; needed if there is no config.yaml of a run beside the weights")
    pixels = "pixels: one number or HEIGHTxWIDTH (default: the run's or the variant's)"
    parser.option("image_size", None, pixels, image_size)
    parser.option("in_channels", None, "channels of the pictures (default: the run's or 3)", at_least(1))
    parser.option("part", None, "the entry to use if the file has several, such as model_ema")
    options = parser.parse_args(words)
    trained = load_trained(options.weights, options.model, options.image_size, options.in_channels, options.part)
    difference = export(trained, options.output)
    about = trained.about
    weights = f"{about['num_classes']} classes from {about['weights']}: {about['report']}"
    print(one_line(f"{about['model']} with {weights}"))
    shape = about["input_shape"]
    print(one_line(f"{options.output}: input {shape} float32; outputs differ by at most {difference:.1e}"))


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
    builder = _Builder(name, settings, image_size, in_channels)
    num_classes = classes_of(builder.build(1, lazily=True), weights)
    if num_classes is None:
        raise UserError(f"export: {path} has no classifier for {builder.name}; a model without classes is not exported")
    model = builder.build(num_classes)
    report = load_weights(model, weights, strict=True)
    model.eval()
    shape = [None, model.in_channels, *model.image_size]
    about = {
        "model": builder.name,
        "weights": str(weights.name),
        "num_classes": num_classes,
        "input_shape": shape,
        **builder.about,
        "report": report.summary(),
    }
    classes = next((of["classes"] for of in (described.get("data") or {}).values() if of.get("classes")), None)
    if classes is not None and len(classes) == num_classes:
        about["classes"] = classes
    return Trained(model, about)


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
        self, name: Optional[str], settings: Optional[str], image_size: Any, in_channels: Optional[int]
    ) -> None:
        self.image_size, self.in_channels = image_size, in_channels
        self.values: Any = None
        self.about: Dict[str, Any] = {}  # how the run prepared its pictures; unknown for weights from elsewhere
        if name is None:
            from .. import config as configuration

            if isinstance(image_size, tuple):
                raise UserError("export: -image_size of a run's model is one number, its pictures are square")
            words = [f"-image_size={image_size}"] if image_size else []
            words += ["DATA.IMAGE_CHANNELS", str(in_channels)] if in_channels else []
            with tempfile.TemporaryDirectory(prefix="paddlevit_dist_") as folder:
                file = Path(folder, "settings_of_the_run.yaml")
                file.write_text(settings or "", encoding="utf-8")
                self.values = configuration.load([f"-cfg={file}", *words], is_trusted=False).values
        self.name = name if name is not None else self.values.MODEL.NAME
        _require_tensors(self.name)

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
        self.about = task.export_parts().about
        return task.build_model(num_classes)


def _settings(about: Dict[str, Any], path: Path) -> Optional[str]:
    """The configuration of the run that trained the weights at ``path``, as YAML: from their checkpoint, else from the
    ``config.yaml`` of the output folder that ``path`` is or is inside."""
    if isinstance(about.get("settings"), dict):
        return yaml.safe_dump(about["settings"], allow_unicode=True)
    nearest = [path, *path.absolute().parents][:4]  # run / checkpoints / epoch_0004 / model.pdparams
    file = next((folder / "config.yaml" for folder in nearest if (folder / "config.yaml").is_file()), None)
    return None if file is None else file.read_text(encoding="utf-8")


def export(trained: Trained, output: str) -> float:
    """Write ``output.*`` and return the largest difference between its outputs and the model's on three pictures.

    Raises:
        UserError: the files cannot be written.
        RuntimeError: the exported model computes something else.
    """
    import numpy as np
    import paddle

    model, shape = trained.model, trained.about["input_shape"]
    path = Path(output).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        specification = [paddle.static.InputSpec(list(shape), "float32", "images")]
        paddle.jit.save(model, str(path), input_spec=specification)
        about = yaml.safe_dump(
            trained.about, sort_keys=False
        )  # not JSON: Paddle takes every .json next to it for its own
        path.with_name(f"{path.name}.about.yaml").write_text(about, encoding="utf-8")
    except OSError as error:
        raise UserError(f"export: {output} cannot be written: {error.strerror or error}") from error
    pictures = np.random.default_rng(0).standard_normal((3, *shape[1:])).astype("float32")
    expected, exported = _outputs(model, paddle.jit.load(str(path)), paddle.to_tensor(pictures))
    difference = float(np.abs(expected - exported).max())
    if not difference <= _LARGEST_DIFFERENCE * max(1.0, float(np.abs(expected).max())):
        raise RuntimeError(f"{output} gives other outputs than the model it was exported from: {difference:g}")
    return difference


def _outputs(model: Any, exported: Any, pictures: Any) -> Tuple[Any, Any]:
    import paddle

    with paddle.no_grad():
        return model(pictures).numpy(), exported(pictures).numpy()
