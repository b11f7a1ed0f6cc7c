"""A run's folder on a command line stands for its configuration, its weights and its output folder.

In an evaluation, weights or an exported model without their run stand for the settings that they have with them.
"""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..logging.record import SEEDS
from ..registry.extension_points import PARSE_EVALUATED_ARGUMENT, READ_EXPORTED_ABOUT
from ..registry.model_sources import refuse_clone_model
from ..runtime.errors import UserError
from ..runtime.help_pages import HELP
from ..runtime.run_folders import CHECKPOINTS, CONFIG, find_run, suggest_runs
from ..settings import files
from ..settings.command_line import format_words, iterate_options, read_words, takes_next_word
from ..settings.table import find_key, split_paths

_EVALUATES = {"-eval", "--eval"}
# What ended one part of a training run, or allowed it, does not hold for what is done with the run next.
# What a run started from, and where it wrote, is not of what it made.
_OF_RUN = ("SAVE", "EVAL", "MODEL.PRETRAINED", "MODEL.PRETRAINED_PART", "MODEL.RESUME", "DATA.CACHE_FOLDER")
_STOPS = {"TRAIN.STOP_AFTER_EPOCH": None, "STOP_AFTER_SECONDS": None}


class ExpandedWords(NamedTuple):
    """A command line without the word that names what is evaluated."""

    words: list[str]
    lines: list[str]  # which say what is evaluated
    stored: files.StoredSettings | None = None  # settings of this, in place of a file
    is_trusted: bool = True  # False: a run's or a file's settings, without -cfg: code that they name is not run


def find_output_keys(config: Path) -> dict[str, Any]:
    """Return keys that make a moved or copied run write to the current folder of its ``config.yaml`` only."""
    values = {setting.name: setting.value for setting in files.read_file(str(config))}
    is_in_place = os.path.abspath(str(values.get("SAVE", ""))) == os.path.abspath(config.parent)
    return {} if is_in_place else {"DATA.CACHE_FOLDER": "None"}


def expand_run(words: Sequence[str]) -> ExpandedWords:
    """Replace a run's folder on the command line of the main job by flags and keys.

    An evaluation (``-eval``) takes a run, weights, or an exported model, as a word that is neither a flag, nor a key,
    nor the value of a key. ``-resume=RUN`` takes the run's settings where no ``-cfg`` is given. Other flags replace the
    run's. Either may be a stranger's, so that the modules that it names are not imported.

    Raises:
        UserError: the folder has runs of several seeds, the words name other settings or weights, too, or nothing says
            how the weights or the exported model are used.
    """
    if set(HELP) & set(words):
        return ExpandedWords(list(words), [])
    expanded = _expand_evaluated(words) if _EVALUATES & set(words) else ExpandedWords(list(words), [])
    return _expand_resumed(expanded)


def _expand_evaluated(words: Sequence[str]) -> ExpandedWords:
    is_value = False
    expanded: list[str] = []
    lines: list[str] = []
    stored: files.StoredSettings | None = None
    is_trusted = True
    for place, word in enumerate(words):
        others = [*words[:place], *words[place + 1 :]]
        is_free = not is_value and not word.startswith("-") and "=" not in word
        if is_free and (run := _find_named(word)) is not None:
            expanded += [*_expand(run, others, "pretrained"), f"-pretrained={word}"]
            is_trusted = False
            weights = "its best weights" if Path(os.path.expanduser(word)) == run else f"weights {word}"
            lines.append(f"evaluating the run {run}: settings of {run / CONFIG}, {weights}")
        elif is_free and (alone := _expand_alone(word, others)) is not None:
            expanded += alone.words
            lines += alone.lines
            stored, is_trusted = alone.stored, alone.is_trusted
        elif is_free and not find_key(word) and (near := suggest_runs(word)):
            raise UserError(f"{word} is not a run's folder{near}")
        else:
            is_value = not is_value and takes_next_word(word)
            expanded.append(word)
    return ExpandedWords(expanded, lines, stored, is_trusted)


def _expand_alone(word: str, others: Sequence[str]) -> ExpandedWords | None:
    """Expand a word that names weights or an exported model; None if it names neither.

    ``others`` are the other words of the command line.
    """
    parse_exported = PARSE_EVALUATED_ARGUMENT.find()
    exported = parse_exported(word) if parse_exported is not None else None
    if exported is None or exported[2]:
        weights = None if find_key(word) else _expand_weights(word, others)
        if weights is not None:
            return weights
    if exported is None:
        return None
    setting, exported_weights, problem = exported
    given = _read_names(others)
    if problem:
        raise UserError(problem)
    line = f"evaluating the exported model {word}"
    if "cfg" in given:
        return ExpandedWords([setting], [line])
    of_run = _find_exported_settings(exported_weights, given)
    described_by, about = READ_EXPORTED_ABOUT.require()(word)
    if of_run:
        file = of_run[0].partition("=")[2]
        lines, changed = [f"{line}: data and settings of {file}, which it was exported from"], []
        if isinstance(about.get("settings"), dict):
            changed = format_words(_list_changes(_store(about["settings"], described_by), file, others))
            lines += [f"settings of {described_by} that differ: {' '.join(changed)}"] if changed else []
        return ExpandedWords([*of_run, *changed, setting], lines, is_trusted=False)
    if isinstance(about.get("settings"), dict):
        stored = _store(about["settings"], described_by)
        return ExpandedWords([setting], [f"{line}: settings of {described_by}"], stored, is_trusted=False)
    if exported_weights is not None and {"dataset", "DATA.DATASET"}.isdisjoint(given):
        raise UserError(
            f"{word} was exported from {exported_weights}, which is not in the folder of a run here: name recipe and "
            "data, as in -cfg=RECIPE -data_path=FOLDER"
        )
    return ExpandedWords([setting], [line])


def _expand_weights(word: str, others: Sequence[str]) -> ExpandedWords | None:
    """Expand a word that names weights outside of a run; None if it does not name any."""
    from ..checkpoint.file_formats import may_be_weights  # imports NumPy
    from ..checkpoint.finding import find_run_settings
    from ..checkpoint.model_record import read_facts
    from ..checkpoint.published import is_fetched
    from ..checkpoint.weight_files import find_weights_file

    file = Path(word)
    if not is_fetched(word):
        try:
            file = find_weights_file(word)
        except UserError:  # there is none
            return None
        if not may_be_weights(file):
            return None
    given = _read_names(others)
    if "pretrained" in given:
        raise UserError(f"{word} and -pretrained both name weights: remove one")
    words, line = [f"-pretrained={word}"], f"evaluating the weights {word}"
    if "cfg" in given:
        return ExpandedWords(words, [line])
    settings = find_run_settings(read_facts(word) or {}, file)
    if settings is None:
        raise UserError(
            f"evaluate: the model of {word} is unknown: its folder contains neither an about.yaml with settings nor a "
            "run's config.yaml; name the recipe that it was trained with: -cfg=FILE"
        )
    return ExpandedWords(words, [f"{line}: settings that are stored with them"], _store(settings, word), False)


def _store(settings: dict[str, Any], source: str) -> files.StoredSettings:
    """Return a run's settings for an evaluation of what it made."""
    content = {name: dict(value) if isinstance(value, dict) else value for name, value in settings.items()}
    for name in (*_OF_RUN, "ALLOW_CHANGES"):
        section, _, last = name.rpartition(".")
        values = content.get(section) if section else content
        if isinstance(values, dict):
            values.pop(last, None)
    return files.StoredSettings(content, f"settings of {source}")


def _read_names(words: Sequence[str]) -> set[str]:
    """Return the flags and keys of these words; a ``UserError`` says that one is neither."""
    given, overrides = read_words(words)
    return {*given, *(name for name, _ in overrides)}


def _find_exported_settings(weights: str | None, named: Collection[str]) -> list[str]:
    """Return flags and keys for the settings of the run that a model was exported from; empty if it is not here."""
    run = None if weights is None or not {"dataset", "DATA.DATASET"}.isdisjoint(named) else find_run(weights)
    if run is None:
        return []
    config = run / CONFIG
    keys = {name: value for name, value in find_output_keys(config).items() if name not in named}
    return [f"-cfg={config}", *(f"{name}={value}" for name, value in keys.items())]


def _list_changes(stored: files.StoredSettings, config: str, words: Sequence[str]) -> dict[str, Any]:
    """Return the keys whose values an export changed in the settings of its run, without those that ``words`` set.

    The file may come from a stranger: it names no code to run and no path. Raises UserError for a model that would.
    """
    of_run = {setting.name: setting.value for setting in files.read_file(config)}
    left_out = {option.key for option in iterate_options(words)} | {"IMPORTS", "MODEL.NUM_CLASSES"}
    changed = {
        setting.name: setting.value
        for setting in files.read_stored(stored._replace(content=split_paths(stored.content)[0]))
        if setting.name in of_run.keys() - left_out and setting.value != of_run[setting.name]
    }
    refuse_clone_model(changed.get("MODEL.NAME"), stored.label)
    return changed


def _expand_resumed(expanded: ExpandedWords) -> ExpandedWords:
    """Add a run's own settings and output folder to a command line that resumes it and names no file of settings."""
    words = expanded.words
    if not any(word.lstrip("-").startswith("resume") for word in words):
        return expanded
    given, _ = read_words(words)
    source = given["resume"].values[-1] if "resume" in given else ""
    if "cfg" in given or source in ("", "auto") or (run := _find_named(source)) is None:
        return expanded
    return expanded._replace(words=[*_expand(run, words), *words], is_trusted=False)


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
