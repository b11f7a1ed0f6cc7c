"""``python -m paddlevit_dist predict SOURCE INPUT…``: predict data without labels, with trained weights."""

import contextlib
import os
import re
from argparse import Namespace
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime import signals
from ..runtime.errors import UserError
from ..runtime.files import readable
from ..runtime.printing import cell, one_line, without_credentials
from ..settings.table import find_keys
from .parser import CommandParser, at_least, path

if TYPE_CHECKING:
    import numpy as np

    from ..inference.rows import PredictionCounts
    from ..inference.trained import TrainedWeights
    from ..launch.devices import ProcessPlan
    from ..tasks.prediction import InputSamples
    from ..tasks.task import Task

_FOLDER = "./predictions"
_INPUTS = "files and folders; images also in tar files, and videos if OpenCV is installed"
_POSITIONAL = "write the weights and then the inputs, without flags, as in 'predict output/mine new_images'"
_OTHER_NAMES = {
    **dict.fromkeys(("conf", "conf_thres", "confidence", "threshold", "score_thr"), "write -least_score=SHARE"),
    **dict.fromkeys(("source", "input", "inputs", "images", "img"), _POSITIONAL),
    **dict.fromkeys(("weights", "model", "checkpoint", "ckpt", "pretrained"), _POSITIONAL),
    **dict.fromkeys(("imgsz", "img_size"), "the image size is stored with the weights: remove this option"),
    **dict.fromkeys(("project", "name"), "write -output=FOLDER"),
}


def run(words: list[str]) -> None:
    """Run the command; Paddle is imported after its environment variables are set."""
    options = parse_words(words)
    if not options.output.strip():
        raise UserError(
            "predict: -output is empty: is a shell variable not set? Remove -output to write to ./predictions"
        )
    require_inputs(options.inputs)
    signals.set_mode(training=False)

    from ..launch import devices, tuning

    requested = -1 if options.ngpus is None else options.ngpus
    devices.check_launcher_variables(requested)
    tuning.restart_with_environment(requested, True, options.device)
    stale = devices.drop_stale_variables()

    from ..inference.ensemble import split_runs
    from ..inference.trained import open_source
    from ..launch import plan_processes
    from ..logging.progress import write_line

    names = read_class_names(options.class_names)
    runs, options.inputs = split_runs(options.inputs)
    if not options.inputs:
        raise UserError(_explain_missing_input(options.source, runs))
    sources = [
        open_source(run, "predict", recipe=options.cfg, class_names=names, words=options.settings, log=write_line)
        for run in [options.source, *runs]
    ]
    options.source = " ".join([options.source, *runs])
    plan = plan_processes(requested, device=options.device)
    for line in [*plan.notices, *stale] if plan.is_main else ():
        write_line(line)
    _predict(options, sources, plan)


def _explain_missing_input(source: str, runs: Sequence[str]) -> str:
    """Return what to do if only ``source``, and ``runs`` where inputs are expected, are named."""
    from ..inference.ensemble import split_runs

    if (
        runs
        and not split_runs([source])[0]
        and (os.path.isfile(source) or not glob(os.path.join(source, "*.pdparams")))
    ):
        first = runs[0]
        return f"predict: {source} is not a run, but {first} is: the run comes first, as in 'predict {first} {source}'"
    return f"predict: {', '.join([source, *runs])}: runs without an input; add files or folders"


def parse_words(words: list[str]) -> Any:
    """Parse the words of the command."""
    parser = CommandParser(
        "predict",
        "Predict data without labels: images, point clouds, volumes. The preprocessing is stored with the weights. "
        "Writes predictions.csv, predictions.jsonl, unreadable.tsv, and files of the task. Run the same command again "
        "to continue after an interruption; other inputs or settings get a folder with the next number.",
        ("output/mine new_images", "output/things street.jpg -output=found -least_score=0.3 DETECTION.FLIP true"),
        imports=True,
        other_names=_OTHER_NAMES,
        keys=("least_score", "max_detections", "window", "largest_component", "detector", "runtime"),
    )
    parser.add_argument(
        "source",
        metavar="SOURCE",
        type=path,
        help="a run's folder (its best checkpoint, else its last), a checkpoint, weights with an about.yaml in the "
        "same folder, an exported model, or a published classifier: its name, hf:OWNER/NAME or a folder with timm's "
        "config.json; classification and volume segmentation: also several runs, whose "
        "probabilities are averaged",
    )
    parser.add_argument("inputs", metavar="INPUT", nargs="+", type=path, help=_INPUTS)
    parser.option("output", _FOLDER, "folder to write to", path)
    parser.add_argument("--restart", "-restart", action="store_true", help="replace earlier predictions in the folder")
    parser.option("device", "auto", "gpu, cpu or another device type of Paddle; auto: an accelerator, if any")
    parser.option("ngpus", None, "devices, or processes without a GPU (default: all GPUs, or one process)", at_least(1))
    parser.option("batch_size", None, "inputs per device and step (default: the run's)", at_least(1))
    parser.option("num_workers", None, "loader processes per device (default: by the number of cores)", at_least(0))
    parser.option("cfg", None, "recipe for weights without stored training settings", path)
    parser.option("class_names", None, "text file with one class name per line", path)
    ids = "boxes and keypoints: COCO file whose ids of images and categories results.json uses, matched by name"
    parser.option("annotations", None, ids, path)
    layouts = "boxes and keypoints (coco, yolo): also write them and their images as a data set, to OUTPUT/dataset"
    parser.option("save_as", None, layouts, choices=("coco", "yolo", "voc"))
    return parser.parse_args(words)


def require_inputs(inputs: list[str]) -> None:
    """Raise a UserError for inputs that are not files or folders (mistyped paths, URLs), before any work."""
    for text in inputs:
        if os.path.exists(text):
            continue
        name = text.partition("=")[0]
        if name.upper() in find_keys() and not name.isupper():
            reason = f"keys are in capitals: {name.upper()}"
        elif "://" in text:
            reason = "URLs are not fetched: download it and give the file"
        elif re.search(r"[*?\[]", text):
            reason = "no file matches: write patterns without quotes, for the shell to expand"
        elif os.path.lexists(text):
            reason = "it is a link to a file that does not exist"
        else:
            reason = "no such file or folder"
        raise UserError(f"predict: input {one_line(without_credentials(text))}: {reason}")


def read_class_names(file: str | None) -> list[str] | None:
    """Read the class names of a text file, one per line; raises a UserError if it cannot be read or is empty."""
    if file is None:
        return None
    from ..runtime.text_files import read_text, split_lines

    with readable(f"-class_names={file}", "; expected one class name per line"):
        names = split_lines(read_text(file).rstrip())
    if not names:
        raise UserError(f"-class_names={file} is empty: expected one class name per line")
    return [name.strip() for name in names]


def _predict(options: Namespace, sources: "Sequence[TrainedWeights]", plan: "ProcessPlan") -> None:
    """Find the inputs and the output folder, which is locked, start the workers, and write the tables."""
    from ..inference import rows
    from ..inference.ensemble import join_digests, require_ensemble
    from ..inference.trained import prepare_task, require_predictable
    from ..launch.lock import lock_output_dir
    from ..launch.stale_resources import working_folder
    from ..logging.progress import Heartbeat, write_line
    from ..logging.record import output_folder

    task = prepare_task(sources[0])
    require_ensemble(task, sources)
    with working_folder("predict") as cache:
        with Heartbeat(write_line, shown=plan.is_main).at("listing the inputs"):
            samples = require_predictable(task).open_inputs(options.inputs, cache)
            annotations = compute_digest(options.annotations)
            digests: dict[str, Any] = {**join_digests(sources), "annotations_sha256": annotations}
            if options.save_as is not None:
                digests["settings_sha256"] += f", saved as {options.save_as}"  # another layout is not continued
            notices = _prepare_outputs(task, samples, options)
            inputs = {"inputs": len(samples), "inputs_sha256": samples.fingerprint()}
        identity = {"source": without_credentials(options.source), **digests, **inputs}
        path = Path(options.output)
        # Processes of a launcher have to agree on a folder before they are connected.
        if not options.restart and not plan.by_paddle_launcher:
            path, moved = rows.choose_folder(path, identity)
            notices += [moved] if moved else []
        with (
            output_folder(str(path), (rows.ABOUT, rows.UNREADABLE)) as folder,
            lock_output_dir(folder, write_line, True, should_lock=plan.is_main),
        ):
            for line in [*task.notices, *samples.notices, *notices] if plan.is_main else ():
                write_line(line)
            _predict_into(folder, options, task, sources, samples, identity, plan)


def _predict_into(
    folder: Path,
    options: Namespace,
    task: "Task",
    sources: "Sequence[TrainedWeights]",
    samples: "InputSamples",
    identity: dict[str, Any],
    plan: "ProcessPlan",
) -> None:
    """Predict the inputs that the locked folder lacks, and write its tables."""
    import numpy as np

    from ..inference import rows
    from ..inference.rank_prediction import finish_prediction
    from ..launch import launch_workers
    from ..logging.progress import write_line

    remaining: Any = np.arange(0)
    if plan.is_main:
        require_no_dataset(options, folder, rows.ABOUT)
        remaining = rows.begin(folder, identity, options.restart)
        if remaining is None:
            write_line(f"{folder}: all inputs are already predicted; add -restart to predict them again")
        elif 0 < len(remaining) < len(samples):
            write_line(f"continuing: {len(samples) - len(remaining):,} of {len(samples):,} inputs are done")
    share = np.arange(0) if remaining is None else remaining
    arguments = (task, sources, samples, share, folder, options.batch_size, options.num_workers)
    try:
        if len(share) or plan.by_paddle_launcher:
            launch_workers(worker, arguments, plan, sources[0].config.WATCHDOG_SECONDS)
    except BaseException as error:
        if plan.is_main and remaining is not None and not getattr(error, "again", False):
            _write_partial_tables(folder, samples)
        raise
    if plan.is_main and remaining is not None:
        counts, lines = finish_prediction(folder, task, samples)
        for line in lines:
            write_line(line)
        report_outcome(counts, folder, options.inputs)


def _prepare_outputs(task: "Task", samples: "InputSamples", options: Namespace) -> list[str]:
    """Tell the task what else it writes, by -save_as and -annotations; return notices.

    Raises UserError if its models find nothing in images.
    """
    from ..tasks.aspects import get_aspect
    from ..tasks.protocols import AnnotationMatching, DatasetSaving

    if options.save_as is not None:
        saving = get_aspect(task, DatasetSaving)
        if saving is None:
            raise UserError("predict: -save_as is for models that find boxes or keypoints; remove it")
        saving.save_predictions_as(options.save_as)
    if options.annotations is None:
        return []
    matching = get_aspect(task, AnnotationMatching)
    if matching is None:
        raise UserError("predict: -annotations is for models that find boxes or keypoints; remove it")
    return list(matching.load_annotation_ids(options.annotations, samples))


def require_no_dataset(options: Namespace, folder: Path, about: str) -> None:
    """Raise a UserError if a new prediction would add images to the data set of an earlier one."""
    is_new = options.restart or not (folder / about).exists()
    if options.save_as is not None and is_new and (folder / "dataset").exists():
        raise UserError(f"-save_as: {folder / 'dataset'} exists: remove it, or choose another -output")


def compute_digest(file: str | None) -> str | None:
    """Compute the SHA-256 of a file's content; None without a file."""
    from ..checkpoint.integrity import fingerprint

    with readable(f"-annotations={file}"):
        return None if file is None else str(fingerprint(Path(file))["sha256"])


def _write_partial_tables(folder: Path, dataset: "InputSamples") -> None:
    """Write the tables of the finished predictions after an interruption or failure."""
    from ..inference import rows
    from ..logging.progress import write_line

    with contextlib.suppress(UserError, OSError):  # the original error is reported, and the rows are safe
        if next(rows.read_entries(folder), None) is None:
            rows.discard_output(folder)
            return
        counts = rows.write_tables(folder, dataset)
        write_line(
            f"{counts.predicted:,} of {len(dataset):,} predicted so far, in {folder}; run the same command to continue"
        )


def report_outcome(counts: "PredictionCounts", folder: Path, inputs: list[str]) -> None:
    """Report the numbers of predicted and unreadable inputs; a UserError if an input that was named is unreadable."""
    from ..inference.rows import ROWS_CSV, UNREADABLE, read_unreadable
    from ..logging.progress import write_line

    listed = f"listed in {folder / UNREADABLE}"
    bad = f"{counts.unreadable:,} could not be read, {listed}"
    first = next(read_unreadable(folder), ("", ""))
    if not counts.predicted:
        raise UserError(f"predict: nothing was predicted: {bad}; the first: {': '.join(first)}")
    more = f"; {bad}" if counts.unreadable else ""
    write_line(f"{counts.predicted:,} predicted, in {folder / ROWS_CSV} and .jsonl{more}")
    arguments = {cell(text) for text in inputs}
    named = [line for line in read_unreadable(folder) if line[0] in arguments]
    if named:
        others = f" ({len(named)} unreadable inputs on the command line, {listed})" if len(named) > 1 else ""
        raise UserError(f"predict: {': '.join(named[0])}{others}")
    if counts.unreadable:
        write_line(f"note: the first unreadable input: {': '.join(first)}")


def worker(
    task: "Task",
    sources: "Sequence[TrainedWeights]",
    dataset: "InputSamples",
    remaining: "np.ndarray",
    folder: Path,
    batch_size: int | None,
    num_workers: int | None,
) -> None:
    """Run in each process after it has joined the process group."""
    from ..distributed import barrier, broadcast_object
    from ..engine.gpu_memory import explain_memory
    from ..inference.rank_prediction import predict_share
    from ..inference.trained import default_batch_size

    remaining = broadcast_object(remaining)  # known to the main process of several machines only
    with explain_memory(f"lower -batch_size ({batch_size or default_batch_size(sources[0].config)})"):
        predict_share(task, sources, dataset, remaining, folder, batch_size=batch_size, num_workers=num_workers)
    barrier()
