"""Export to int8: calibration on training samples, and what it costs on the samples that are scored."""

import math
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import paddle

from ...core.engine.evaluation import Evaluator
from ...core.engine.precision import EvaluationPrecision
from ...core.logging.progress import Heartbeat
from ...core.logging.record import cache_folder
from ...core.metrics.confidence import IntervalConfig
from ...core.runtime.errors import UserError
from ...core.runtime.printing import shorten
from ...core.runtime.transfers import batch_to_device, read
from ...core.settings.every_run import RunSettings
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.listed_samples import open_samples
from ...core.tasks.protocols import count_samples, load_meta
from ...core.tasks.step_types import EvaluationStep
from ...core.tasks.task import Task
from ...core.tasks.task_factory import build_metrics, make_task
from . import functions, onnx_files
from .descriptions import require_exportable
from .differences import OutputDifference
from .files import ONNX_WEIGHTS, find_exported
from .quantization import WHOLE, QuantizedGraph, StoredInputs
from .scoring import ComparedModels, ExportedLayer, OutputComparison, match_names

if TYPE_CHECKING:
    from ...core.inference.trained import TrainedWeights

CLOSE = 0.001  # a loss of this share of the score is accepted: MLPerf's stricter goal, 99.9 % of float32
_TURNS, _SECONDS = 7, 0.2  # of the measured speed
_CPU_FLAGS = Path("/proc/cpuinfo")
_CALIBRATED_ON = "train"
_PERCENT = 95  # of intervals


class QuantizationCost(NamedTuple):
    """What a model in int8 loses and gains, each pair in float32 and in int8."""

    score: str  # name of the task's score
    scores: tuple[float, float]
    compared: ComparedModels  # with float32; its interval is paired by sample
    percent: int  # of the interval
    milliseconds: tuple[float, float]  # for one sample alone
    size: tuple[int, int]  # bytes
    kept: tuple[str, ...]  # layers in float32
    layers: int  # of both kinds
    calibration: str  # samples
    of: str  # the scored samples

    def describe(self) -> list[str]:
        """Format a table with three rows, and lines on the layers and the processor."""
        (before, after), (slow, fast), (large, small) = self.scores, self.milliseconds, self.size
        cost, interval, changed = f"{after - before:+.4g}", self.compared.interval, self.compared.changed
        if interval is not None and interval.has_width():
            cost += f" [{interval.low:+.4g}, {interval.high:+.4g}]"
        rows = [
            (f"on {self.of}", "float32", "int8", "int8 against float32"),
            (self.score, f"{before:.4f}", f"{after:.4f}", cost),
            ("ms of one sample", f"{slow:.2f}", f"{fast:.2f}", f"{slow / fast:.2f} times as fast"),
            ("MB", f"{large / 1e6:.2f}", f"{small / 1e6:.2f}", f"{small / large:.2f} of the size"),
        ]
        widths = [max(map(len, column)) for column in zip(*rows)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        names = f" ({shorten(', '.join(self.kept), 200)})" if self.kept else ""
        return [
            *table,
            *([] if changed is None else [f"{changed:,} of {self.of} have another answer"]),
            f"{self.layers - len(self.kept)} of {self.layers} layers are in int8, calibrated on {self.calibration}; "
            f"in float32: {len(self.kept)}{names}",
            describe_saturation(),
        ]

    def plain(self) -> dict[str, Any]:
        """Return the facts for the description of the export."""
        interval, changed = self.compared.interval, self.compared.changed
        ends = {} if interval is None else {f"interval_{self.percent}": [float(f"{end:.6g}") for end in interval[1:]]}
        return {
            "calibrated_on": self.calibration,
            "layers_in_int8": self.layers - len(self.kept),
            "layers_in_float32": list(self.kept),
            "score": {"name": self.score, "of": self.of, "float32": self.scores[0], "int8": self.scores[1], **ends},
            **({} if changed is None else {"changed": changed}),
        }


def describe_saturation(file: Path = _CPU_FLAGS) -> str:
    """Say whether this processor adds products of int8 exactly, by the flags that Linux lists in ``file``."""
    try:
        has_vnni = "vnni" in file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        has_vnni = None
    here = {True: "has VNNI", False: "has none", None: "does not say if it has VNNI"}[has_vnni]
    return (
        "note: x86 processors without VNNI saturate sums of int8 products, which changes outputs (reduce_range of "
        f"onnxruntime avoids it); this one {here}: score the file with evaluate where it will run"
    )


class Quantizer:
    """Makes a model in int8 of an exported one in float32.

    Args:
        source: the run, with its data.
        num_samples: training samples to calibrate with.
        log: called with each line on what is tried.
    """

    def __init__(self, source: "TrainedWeights | None", num_samples: int, log: Callable[[str], None]) -> None:
        if source is None:
            raise UserError(
                "export: -precision=int8 is calibrated on the training samples of a run, and weights alone have none: "
                "export a run's folder"
            )
        self._source, self._number, self._log = source, num_samples, log
        self.cost: QuantizationCost | None = None  # set by the call
        self._calibration, self._training = self._open(_CALIBRATED_ON)
        self._task, self._samples = self._open(source.config.DATA.SPLIT)
        if not self._samples.labeled:
            split = source.config.DATA.SPLIT
            raise UserError(f"export: -precision=int8 is judged by the score, and {split} has no labels")

    def _open(self, split: str) -> tuple[Task, TransformedDataset]:
        config = self._source.config
        task = make_task(config)
        load_meta(task, self._source.learned)
        samples = open_samples(task, split, cache_folder(config))
        return task, samples

    def __call__(self, file: Path, about: dict[str, Any]) -> OutputDifference:
        """Replace an ONNX file in float32 by one in int8, and add what it costs to ``about``, its description.

        Returns the difference of the outputs for the scored samples.
        """
        import onnx

        if file.with_name(f"{file.stem}{ONNX_WEIGHTS}").exists():
            raise UserError("export: -precision=int8 is for models of less than 2 GB: remove it")
        with onnx_files.temporary_folder() as folder:
            shutil.copyfile(file, folder / WHOLE)
            best, self.cost = self._quantize(folder)
            graph = onnx.load(str(best))
        about["quantization"] = self.cost.plain()
        onnx_files.describe(graph, about)
        onnx_files.write(graph, file)
        return self.cost.compared.outputs

    def _quantize(self, folder: Path) -> tuple[Path, QuantizationCost]:
        """Quantize the file ``WHOLE`` of a folder, and return the file in int8 with its cost.

        All layers are in int8. Only if that costs more than ``CLOSE`` of the score, and not by chance, a second file
        has those in float32 that int8 rounds most, and the better one of both is taken.
        """
        whole, config, task = folder / WHOLE, self._source.config, self._task
        of = f"{count_samples(task, self._samples)} of {config.DATA.SPLIT}"
        inputs, calibration = self._calibrate(whole, folder / "inputs")
        graph, (score, more_is_better) = QuantizedGraph(folder, inputs), task.best_metric
        network, single = _build(whole, config, task, self._samples)
        evaluator = Evaluator(config, task, network, self._samples, EvaluationPrecision(config), Heartbeat(self._log))
        confidence = evaluator.confidence or IntervalConfig(_PERCENT, config.EVALUATION.RESAMPLES)
        evaluator.confidence, evaluator.keeps_table = confidence, True  # chance is judged also where intervals are off

        def attempt(kept: Sequence[str]) -> tuple[Path, QuantizationCost]:
            file, layers = folder / f"{len(kept)}.onnx", f"{len(kept)} of {len(graph.layers)} layers in float32"
            graph.quantize(file, kept)
            evaluator.model, layer = _build(file, config, task, self._samples)
            layer.compared_with = single
            comparison = OutputComparison(layer, task, evaluator)
            values, _ = evaluator("evaluation in int8", observers=[comparison])
            found = comparison.finish()
            before, after = (each.get(score, math.nan) for each in (found.values, values))
            if not math.isfinite(before - after):
                raise UserError(f"export: -precision=int8 is judged by {score}, which these samples do not define")
            self._log(f"int8, {layers}: {score} {after:.4f}, in float32 {before:.4f}")
            speed, size = measure_speed(whole, file, inputs.read(0)), (whole.stat().st_size, file.stat().st_size)
            scores, (percent, _), number = (before, after), confidence, len(graph.layers)
            return file, QuantizationCost(
                score, scores, found, percent, speed, size, tuple(kept), number, calibration, of
            )

        def measure_loss(tried: tuple[Path, QuantizationCost]) -> float:
            before, after = tried[1].scores
            return before - after if more_is_better else after - before

        file, cost = best = attempt(())
        interval = cost.compared.interval
        if measure_loss(best) > CLOSE * abs(cost.scores[0]) and not (interval and interval.low <= 0 <= interval.high):
            kept = graph.find_rough_layers(file)
            if 0 < len(kept) < len(graph.layers):
                best = min(best, attempt(kept), key=measure_loss)  # the first of equals
        return best

    def _calibrate(self, whole: Path, folder: Path) -> tuple[StoredInputs, str]:
        """Store what an evaluation of evenly spread training samples feeds to the model; return it in words, too."""
        task, samples, inputs = self._calibration, self._training, StoredInputs(folder)
        network, layer = _build(whole, self._source.config, task, samples)

        def run(tensors: Sequence[paddle.Tensor], numbers: Sequence[int]) -> list[paddle.Tensor]:
            feeds = zip(whole_function.inputs, read(*tensors))
            inputs.add({slot.name: np.asarray(array, slot.dtype) for slot, array in feeds})
            return whole_function.run(tensors, numbers)

        whole_function = layer.function
        layer.function = whole_function._replace(run=run)
        number, generator = min(self._number, len(samples)), np.random.default_rng(0)
        chosen = np.linspace(0, len(samples) - 1, number).round().astype(int).tolist()
        size = self._source.config.DATA.BATCH_SIZE_EVAL or self._source.config.DATA.BATCH_SIZE
        step = EvaluationStep(build_metrics(task))
        with paddle.no_grad(), Heartbeat(self._log).at("calibrating"):
            for start in range(0, number, size):
                batch = task.collate([samples.sample(index, generator) for index in chosen[start : start + size]])
                task.eval_step(network, batch_to_device(batch), step)
        return inputs, f"{number:,} of {count_samples(task, samples)} of {_CALIBRATED_ON}"


def _build(
    file: Path, config: RunSettings, task: Task, samples: TransformedDataset
) -> tuple[paddle.nn.Layer, ExportedLayer]:
    """Load an exported file as the network of a task's ``eval_step``; return the layer inside of it, too."""
    exportable = require_exportable(task)
    parts = exportable.export_parts()
    function = functions.load(find_exported(str(file)))
    shape = tuple(function.about["input_shape"][1:])
    if parts.size is not None:
        shape = (parts.channels, *parts.size)
    elif function.about.get("input_type") == "uint8":
        shape = (shape[-1], *shape[:-1])
    layer = ExportedLayer(str(file), function, parts, shape, None)
    match_names(layer, function.about.get("landmarks") or task.signature(samples).get("classes"), config, task)
    network = exportable.evaluated_model(layer)
    network.eval()
    return network, layer


def measure_speed(first: Path, second: Path, inputs: dict[str, np.ndarray]) -> tuple[float, float]:
    """Return the median milliseconds of two files for the first of ``inputs`` alone; the files take turns."""
    loaded = [functions.load(find_exported(str(file))) for file in (first, second)]
    feeds = [paddle.to_tensor(inputs[slot.name][:1]) for slot in loaded[0].inputs]
    numbers = list(range(len(loaded[0].outputs)))
    found: list[list[float]] = [[] for _ in loaded]
    for _ in range(_TURNS):
        for function, seconds in zip(loaded, found):
            started, count = time.perf_counter(), 0
            while (passed := time.perf_counter() - started) < _SECONDS or not count:
                function.run(feeds, numbers)
                count += 1
            seconds.append(passed / count)
    before, after = (1000 * float(np.median(seconds[1:])) for seconds in found)
    return before, after
