"""A run's folder on a command line stands for its configuration, its weights and its output folder."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ..logging.record import SEEDS
from ..registry.extension_points import PARSE_EVALUATED_ARGUMENT
from ..registry.model_sources import refuse_clone_model
from ..runtime.errors import UserError
from ..runtime.help_pages import HELP
from ..runtime.run_folders import CHECKPOINTS, CONFIG, find_run, suggest_runs
from ..settings import files
from ..settings.command_line import iterate_options, read_words, takes_next_word
from ..settings.table import find_key

_EVALUATES = {"-eval", "--eval"}
# What ended one part of a training run, or allowed it, does not hold for what is done with the run next.
_STOPS = {"TRAIN.STOP_AFTER_EPOCH": None, "STOP_AFTER_SECONDS": None}


def find_output_keys(config: Path) -> dict[str, Any]:
    """Return keys that make a moved or copied run write to the current folder of its ``config.yaml`` only."""
    values = {setting.name: setting.value for setting in files.read_file(str(config))}
    is_in_place = os.path.abspath(str(values.get("SAVE", ""))) == os.path.abspath(config.parent)
    return {} if is_in_place else {"DATA.CACHE_FOLDER": "None"}


def expand_run(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Replace a run's folder on the command line of the main job by flags and keys.

    An evaluation (``-eval``) takes a run, or an exported model, as a word that is neither a flag, nor a key, nor the
    value of a key. ``-resume=RUN`` takes the run's settings where no ``-cfg`` is given. Other flags replace the run's.

    Returns:
        The words, and lines that say what is evaluated.

    Raises:
        UserError: the folder has runs of several seeds, or the words name other settings or weights, too.
    """
    if set(HELP) & set(words):
        return list(words), []
    expanded, lines = _expand_evaluated(words) if _EVALUATES & set(words) else (list(words), [])
    return _expand_resumed(expanded), lines


def _expand_evaluated(words: Sequence[str]) -> tuple[list[str], list[str]]:
    parse_exported = PARSE_EVALUATED_ARGUMENT.find()
    is_value = False
    expanded: list[str] = []
    lines: list[str] = []
    for place, word in enumerate(words):
        is_free = not is_value and not word.startswith("-") and "=" not in word
        if is_free and (run := _find_named(word)) is not None:
            expanded += [*_expand(run, [*words[:place], *words[place + 1 :]], "pretrained"), f"-pretrained={word}"]
            weights = "its best weights" if Path(os.path.expanduser(word)) == run else f"weights {word}"
            lines.append(f"evaluating the run {run}: settings of {run / CONFIG}, {weights}")
        elif is_free and parse_exported is not None and (exported := parse_exported(word)) is not None:
            setting, exported_weights, problem = exported
            given = _read_names([*words[:place], *words[place + 1 :]])
            if problem:
                raise UserError(problem)
            of_run = _find_exported_settings(word, exported_weights, given)
            expanded += [*of_run, setting]
            settings = (
                f": data and settings of {of_run[0].partition('=')[2]}, which it was exported from" if of_run else ""
            )
            lines.append(f"evaluating the exported model {word}{settings}")
        elif is_free and not find_key(word) and (near := suggest_runs(word)):
            raise UserError(f"{word} is not a run's folder{near}")
        else:
            is_value = not is_value and takes_next_word(word)
            expanded.append(word)
    return expanded, lines


def _read_names(words: Sequence[str]) -> set[str]:
    """Return the flags and keys of these words; a ``UserError`` says that one is neither."""
    given, overrides = read_words(words)
    return {*given, *(name for name, _ in overrides)}


def _find_exported_settings(model: str, weights: str | None, named: Collection[str]) -> list[str]:
    """Return flags and keys for the settings of the run that a model was exported from; empty if other words name some.

    An exported file may come from a stranger: a ``UserError`` says that these settings run code, or that there is no
    such run.
    """
    if weights is None or not {"cfg", "dataset", "DATA.DATASET"}.isdisjoint(named):
        return []
    run = find_run(weights)
    if run is None:
        raise UserError(
            f"{model} was exported from {weights}, which is not in the folder of a run here: name recipe and data, as "
            "in -cfg=RECIPE -data_path=FOLDER"
        )
    config = run / CONFIG
    settings = {setting.name: setting.value for setting in files.read_file(str(config))}
    if settings.get("IMPORTS"):
        raise UserError(
            f"{model} was exported from the run {run}, whose settings import {settings['IMPORTS']}: if you trust "
            f"these, add -cfg={config}"
        )
    refuse_clone_model(settings.get("MODEL.NAME"), str(config))
    keys = {name: value for name, value in find_output_keys(config).items() if name not in named}
    return [f"-cfg={config}", *(f"{name}={value}" for name, value in keys.items())]


def _expand_resumed(words: list[str]) -> list[str]:
    """Add a run's own settings and output folder to a command line that resumes it and names no file of settings."""
    if not any(word.lstrip("-").startswith("resume") for word in words):
        return words
    given, _ = read_words(words)
    source = given["resume"].values[-1] if "resume" in given else ""
    if "cfg" in given or source in ("", "auto") or (run := _find_named(source)) is None:
        return words
    return [*_expand(run, words), *words]


def _find_named(source: str) -> Path | None:
    """Return the run that a word names; raise UserError for a folder of runs with several seeds."""
    folder = Path(os.path.expanduser(source))
    if os.path.isfile(folder / SEEDS) and not os.path.isdir(folder / CHECKPOINTS):
        runs = sorted(str(run.parent) for run in folder.glob(f"*/{CONFIG}"))
        raise UserError(f"{source} holds the runs of several seeds: name one of them: {', '.join(runs)}")
    return find_run(source)


def _expand(run: Path, words: Sequence[str], *refused: str) -> list[str]:
    """Return flags and keys for a run's settings and folders, without those that ``words`` set."""
    given, _ = read_words(words)
    for name in ("cfg", *refused):
        if name in given:
            raise UserError(
                f"{run} is a run, which has settings and weights: remove -{name}={given[name].values[-1]}, or write "
                f"-cfg={run / CONFIG} and -pretrained=WEIGHTS in place of {run}"
            )
    set_by_words = {option.key for option in iterate_options(words)}
    keys = {"SAVE": str(run), **find_output_keys(run / CONFIG), "ALLOW_CHANGES": False}
    keys |= {} if _EVALUATES & set(words) else _STOPS
    return [f"-cfg={run / CONFIG}", *(f"{name}={value}" for name, value in keys.items() if name not in set_by_words)]
