"""Train, or evaluate with ``-eval``: read options, configuration and datasets, start one worker per device."""

import contextlib
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import settings as configuration
from ..registry.extension_points import FIND_IN_TRAINING, WRITE_LAST_PAGE
from ..registry.lookup import find_job
from ..registry.names import REGISTRY
from ..registry.register import register_callback
from ..runtime import signals
from ..runtime.environment import restart
from ..runtime.errors import UserError
from ..runtime.help_pages import COLUMNS
from ..runtime.lazy_names import import_object
from ..runtime.metrics_file import METRICS
from ..runtime.printing import one_line
from ..settings.every_run import RunSettings
from ..settings.names import suggest_without_weights
from ..settings.table import COMMAND_LINE
from .run_folder import expand_run

if TYPE_CHECKING:
    from ..launch.devices import ProcessPlan
    from ..tasks.dataset import TransformedDataset
    from ..tasks.task import Task


def run(arguments: list[str]) -> None:
    """Run the command; Paddle is imported after its environment variables are set."""
    from ..launch import devices, tuning

    devices.refuse_to_start_in_a_worker()
    arguments, lines, stored, is_trusted = expand_run(arguments)
    try:
        run = configuration.load(arguments, configuration.DEFAULT_RECIPE, is_trusted, stored=stored)
    except configuration.RecipeMissing as error:
        if error.reason and signals.looks_like_training(arguments) and sys.stdin.isatty() and sys.stdout.isatty():
            offer(error)
        raise

    job = find_job(run.values)
    is_training = not run.values.EVAL and job in (None, "SEEDS")
    signals.set_mode(training=is_training and not run.show)
    devices.check_launcher_variables(run.values.NGPUS)
    tuning.restart_with_environment(run.values.NGPUS, run.values.CPU_TUNING, run.values.DEVICE, computes=not run.show)
    stale = devices.drop_stale_variables()
    if job is not None and not run.show:
        import_object(REGISTRY.jobs[job])(run)
        return
    carry_out(run, stale, lines)


def carry_out(run: configuration.Configuration, stale: Sequence[str] = (), lines: Sequence[str] = ()) -> Path | None:
    """Train or evaluate, and return the output folder; None if the configuration was only shown.

    The environment variables of Paddle have to be set; ``stale`` has lines on variables left by other runs, ``lines``
    what is printed first.
    """
    from ..launch import plan_processes
    from ..logging.progress import write_line

    plan = plan_processes(run.values.NGPUS, device=run.values.DEVICE)
    plan.notices.extend(stale)
    for line in lines if plan.is_main else ():
        write_line(f"# {line}" if run.show else line)
    run, is_numbered = with_output(run, plan.by_paddle_launcher)
    if run.show:
        show_plan(run, plan)
        return None
    if not plan.by_paddle_launcher:
        return run_in_folder(run, plan, is_numbered)

    from ..launch.rendezvous import broadcast_startup_failure

    with broadcast_startup_failure(run.values.WATCHDOG_SECONDS):
        return run_in_folder(run, plan, is_numbered)


def run_in_folder(run: configuration.Configuration, plan: "ProcessPlan", is_numbered: bool) -> Path:
    """Create and lock the output folder, and train or evaluate; return the folder."""
    from ..launch.lock import lock_output_dir
    from ..logging.progress import write_line
    from ..logging.record import output_folder

    with output_folder(run.values.SAVE, is_numbered=is_numbered) as folder:
        if is_numbered:
            run = run.changed("SAVE", str(folder), f"output folder: {folder} (add -output=FOLDER for another)")
        with lock_output_dir(folder, write_line, run.values.EVAL, should_lock=plan.is_main):
            _carry_out(run, plan, folder)
    return folder


def offer(missing: configuration.RecipeMissing) -> None:
    """Offer the recipe that fits the data, and restart with it if the user presses Enter."""
    name = missing.recipe
    print(one_line(f"{missing.reason}. The recipe for this data is {name}: {configuration.recipe_title(name)}"))
    with contextlib.suppress(EOFError):
        if not input(f"Press Enter to start it (-cfg={name}); type anything else to stop: ").strip():
            restart(sys.executable, f"-cfg={name}")


def with_output(run: configuration.Configuration, is_launched: bool) -> tuple[configuration.Configuration, bool]:
    """Return the configuration with an output folder, and whether an existing folder gets a number.

    Without -output the folder is named after the recipe. Processes of a launcher have to agree on a name before they
    are connected, so they use no numbers. An evaluation with a run's ``config.yaml`` writes to ``FOLDER_eval``.
    """
    from ..checkpoint.finding import holds_any
    from ..logging.record import find_numbered

    resumes, source, save = run.values.MODEL.RESUME == "auto", run.sources["SAVE"], Path(run.values.SAVE)
    is_apart = run.values.EVAL and not resumes
    if source == "default":
        path = save / (run.recipe + ("_eval" if is_apart else ""))
    elif is_apart and source != COMMAND_LINE and (save / "run.json").exists():
        path = Path(f"{save}_eval")
    else:
        return run, False
    if resumes and not is_launched:
        candidates = [*find_numbered(path), path]
        path = next((folder for folder in candidates if holds_any(folder / "checkpoints")), path)
    return run.changed("SAVE", str(path), None), not (resumes or is_launched)


def _carry_out(run: configuration.Configuration, plan: "ProcessPlan", folder: Path) -> None:
    """Read the datasets and start the workers; this process has locked the folder."""
    from ..checkpoint.finding import existing_run_error, holds_any
    from ..checkpoint.store import remove_leftovers
    from ..launch import launch_workers
    from ..logging.callbacks import find_callbacks
    from ..logging.progress import Heartbeat, write_line
    from ..logging.record import SEEDS, cache_folder, find_stamp, note_end, require_writable
    from ..tasks.listed_samples import open_samples
    from ..tasks.task_factory import make_task

    if plan.is_main:
        require_writable(folder, run.values.EVAL)
    if plan.is_main and not run.values.EVAL:
        remove_leftovers(folder / "checkpoints")
    callbacks = {} if run.values.EVAL else find_callbacks(run.values.LOG_TO)
    if not run.values.EVAL and not run.values.MODEL.RESUME and holds_any(folder / "checkpoints"):
        raise existing_run_error(run.values.SAVE)
    if not run.values.EVAL and (folder / SEEDS).exists():
        raise UserError(
            f"-output={run.values.SAVE} contains training runs with several seeds ({SEEDS}): add -seeds=N with their "
            "N, or choose another -output"
        )
    task = make_task(run.values)
    splits = (run.values.DATA.SPLIT,) if run.values.EVAL else ("train", "val")
    heartbeat = Heartbeat(write_line, shown=plan.is_main)
    find_weights(run.values, folder / "checkpoints", write_line, fetches=False)
    with heartbeat.at("reading the datasets"):
        datasets = {split: open_samples(task, split, cache_folder(run.values)) for split in splits}
    if not run.values.EVAL:
        require_labeled(task, datasets)
    with heartbeat.at("fetching the weights"):
        try:
            find_weights(run.values, folder / "checkpoints", write_line, fetches=True)
        except UserError as error:
            other = suggest_without_weights(run.values)
            if not other or run.sources["MODEL.PRETRAINED"] == COMMAND_LINE:
                raise
            raise UserError(f"{error}; or start from random weights with -cfg={other}") from error
    if plan.is_main and run.values.get("EXCLUDE_LEAKED"):
        FIND_IN_TRAINING.require()(run.values, datasets, folder)
    if not run.values.EVAL:
        run = _with_fitting_course(run, plan.total_processes, task, datasets)
        if run.values.DATA.FIND_BATCH_SIZE:
            from ..engine.batch_size import resolve_found_batch

            with heartbeat.at("trying batch sizes"):
                run = resolve_found_batch(run, plan, task, datasets)
    of_run, of_metrics = (find_stamp(folder / name) for name in ("run.json", METRICS))

    def note(error: BaseException) -> None:
        with contextlib.suppress(UserError):  # an unwritable log must not hide why the run ended
            note_end(folder, of_run, error, is_training=not run.values.EVAL)

    try:
        arguments = (run.values, task, datasets, [*run.notices, *plan.notices], callbacks)
        launch_workers(worker, arguments, plan, watchdog_seconds=run.values.WATCHDOG_SECONDS, note_end=note)
    except BaseException as error:
        if plan.is_main:
            note(error)
            with contextlib.suppress(UserError):
                if run.values.get("REPORT"):
                    WRITE_LAST_PAGE.require()(folder, of_metrics)
        raise


def require_labeled(task: "Task", datasets: "dict[str, TransformedDataset]") -> None:
    """Raise UserError if no sample of a split has labels: it would be known after the first epoch, or never."""
    for split, samples in datasets.items():
        if not samples.labeled:
            purpose = "to learn from" if split == "train" else "for the score that chooses the best checkpoint"
            name = samples.sample_name or task.traits.sample_name
            raise UserError(
                f"none of the {len(samples):,} {name} of {split} has labels {purpose}: add labels to the data"
            )


def _with_fitting_course(
    run: configuration.Configuration, processes: int, task: "Task", datasets: "dict[str, TransformedDataset]"
) -> configuration.Configuration:
    """Adjust batch, epochs and warm-up to the size of the training set."""
    from ..engine.resume import epochs_by_size, read_resumed_section
    from ..engine.settings import resolve_epochs, resolve_process_batch, shorten_warmups

    samples = len(datasets["train"])
    run = resolve_process_batch(run, processes, samples)
    run = resolve_epochs(run, processes, samples, task.traits.sample_name, epochs_by_size(run.values))
    return shorten_warmups(run, processes, datasets, read_resumed_section(run.values, "TRAIN"))


def find_weights(config: RunSettings, checkpoints: Path, log: Callable[[str], None], fetches: bool) -> None:
    """Check that local weights exist, or download weights named by a URL or a published name.

    Local weights are checked before data are read. Downloads start after the data were read, and before the worker
    processes start, which would all wait for them. Raises UserError: the weights do not exist or cannot be downloaded,
    or the recipe requires weights and none are named.
    """
    from ..checkpoint.finding import find_existing, holds_any
    from ..checkpoint.published import is_fetched
    from ..checkpoint.weight_files import local_file

    def find(source: str) -> None:
        if fetches == is_fetched(source):
            local_file(source, log=log)

    model, train = config.MODEL, config.TRAIN
    if not config.EVAL and train.get("DISTILLATION_TYPE", "none") != "none" and train.get("TEACHER_WEIGHTS"):
        find(train["TEACHER_WEIGHTS"])
    weights = model.PRETRAINED or (None if config.EVAL else model.get("BACKBONE_PRETRAINED"))
    if model.RESUME and model.RESUME != "auto":
        find_existing(model.RESUME)
    elif model.RESUME and holds_any(checkpoints):
        return
    elif weights:
        find(weights)
    elif model.PRETRAINED_REQUIRED and not config.EVAL:
        raise UserError(
            "this recipe starts from trained weights and none are named (MODEL.PRETRAINED_REQUIRED): add "
            "-pretrained=PATH, or -pretrained=NAME with a name of `paddlevit-dist inspect --list`, or start from "
            "random weights with MODEL.PRETRAINED_REQUIRED false"
        )


def worker(
    config: RunSettings,
    task: "Task",
    datasets: "dict[str, TransformedDataset]",
    notices: list[str],
    callbacks: dict[str, Any] | None = None,
) -> None:
    """Train or evaluate in each process of the group; ``callbacks`` are those that the parent has registered."""
    from ..engine import gpu_memory
    from ..engine.trainer import Trainer

    for name, target in (callbacks or {}).items():
        register_callback(name, target)

    with gpu_memory.explain_memory(
        gpu_memory.advise_evaluation(config) if config.EVAL else gpu_memory.advise_training(config)
    ):
        run = Trainer(config, task, datasets, notices)
        if config.EVAL:
            from ..inference.evaluation import evaluate_only

            evaluate_only(run)
        else:
            run.train()


def show_plan(run: configuration.Configuration, plan: "ProcessPlan") -> None:
    """Print the merged configuration as YAML, and values derived from it as comments, for -show_config."""
    from ..engine.schedule import describe_rates
    from ..engine.settings import resolve_process_batch
    from ..tasks.aspects import get_aspect
    from ..tasks.protocols import ModelChecking
    from ..tasks.task_factory import make_task

    run = resolve_process_batch(run, plan.total_processes)
    task = make_task(run.values)
    checking = get_aspect(task, ModelChecking)
    problems = checking.check_model() if checking else []
    print(run.describe())
    rates = describe_rates(run.values, plan.total_processes)
    print(textwrap.fill(rates, COLUMNS, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False))
    train = run.values.TRAIN
    if train.NUM_SAMPLES is not None and not run.values.EVAL:
        least, most = train.EPOCH_LIMITS
        print(
            f"# epochs: {least} to {most}, to read {train.NUM_SAMPLES:,} {task.traits.sample_name} (TRAIN.NUM_SAMPLES)"
        )
    for notice in [*run.notices, *plan.notices, *task.notices, *problems]:
        print(f"# {one_line(notice)}")
