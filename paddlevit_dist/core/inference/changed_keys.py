"""Flags and keys of a command that uses trained weights: what they may change, and what has no effect."""

import os
from typing import Any

from ..engine.compatibility import RunFact, compare, facts_from_settings, judge_changes, show
from ..registry.names import REGISTRY
from ..runtime.errors import UserError
from ..settings import Configuration
from ..settings.every_run import RunSettings
from ..settings.table import COMMAND_LINE, covers, effects, find_tables, leaves
from ..tasks.prediction import CheckpointMeta
from ..tasks.protocols import Restorable
from ..tasks.task_factory import make_task

_USE = "evaluate"
_UNREAD = (
    *("EVALUATION.", "SAVE_PREDICTIONS", "DATA.SPLIT", "DATA.DATA_PATH", "DATA.CACHE_FOLDER", "DATA.NUM_WORKERS"),
    *("SAVE", "IMPORTS", "NGPUS", "DEVICE", "CPU_TUNING"),  # commands that have these options read them before
)
_UNREAD_BY = {
    "export": (
        *("DATA.BATCH_SIZE", "DATA.BATCH_SIZE_EVAL", "DATA.PREFETCH", "DATA.LOADER_TIMEOUT_SECONDS"),
        *("EVAL_AMP", "AMP_DTYPE", "AMP_LEVEL", "DETERMINISTIC", "WATCHDOG_SECONDS"),
    ),
    "export -precision=int8": ("EVAL_AMP", "AMP_DTYPE", "AMP_LEVEL", "DETERMINISTIC", "WATCHDOG_SECONDS"),
}
_READ_BY = {  # it evaluates
    "export -precision=int8": ("EVALUATION.", "DATA.SPLIT", "DATA.DATA_PATH", "DATA.CACHE_FOLDER", "DATA.NUM_WORKERS"),
}


def require_prediction_keys(command: str, weights: str, config: RunSettings, is_exported: bool = False) -> None:
    """Check that the words name no other weights, and start no training run. Raises UserError if they do.

    ``is_exported``: ``weights`` is an exported model.
    """
    model = config.MODEL
    for name, is_wrong in (
        ("MODEL.RESUME (-resume)", model.RESUME is not None),
        ("MODEL.PRETRAINED (-pretrained)", model.PRETRAINED != (None if is_exported else os.path.expanduser(weights))),
        ("EXPORTED", is_exported and config.get("EXPORTED") != weights),
        ("EVAL (-eval)", not config.EVAL),
    ):
        if is_wrong:
            raise UserError(
                f"{command}: {name} cannot change: the command applies the weights that it names; remove it"
            )


def require_same_network(
    weights: str, stored: RunSettings, config: RunSettings, learned: CheckpointMeta, recipe: str | None = None
) -> None:
    """Raise UserError if words, or a ``recipe``, change the network or its input, unless ALLOW_CHANGES is set."""
    remedy = "remove the change" if recipe is None else f"remove -cfg={recipe}, as the settings are known"
    before, now = facts_from_settings(stored), facts_from_settings(config)
    network = [change for change in compare(_USE, before, now) if change.kind == "network"]
    judge_changes(_USE, weights, "is of another network", network, config, remedy, is_of_settings=False)
    if stored.TASK == config.TASK:
        there, here = (list_input_facts(each, learned) for each in (stored, config))
        what = "was trained with different preprocessing"
        judge_changes(_USE, weights, what, compare(_USE, there, here), config, remedy, is_of_settings=False)


def list_input_facts(config: RunSettings, learned: CheckpointMeta) -> dict[str, RunFact]:
    """Return the facts about the input of models that learned from this data."""
    task = make_task(config)
    if not isinstance(task, Restorable):
        return {}
    task.load_meta(learned)
    return {name: RunFact("input", value) for name, value in task.signature().items()}


def find_ignored_words(command: str, configuration: Configuration) -> list[str]:
    """Return a line for each flag and key of the command line that has no effect on the command."""
    given = [
        option
        for option in configuration.settings.values()
        if option.source == COMMAND_LINE and option.name != "IMPORTS"  # read wherever a word may name a user's things
    ]
    for_training = {name for table in find_tables(configuration.values) for name in table.training_names()}
    unread = (*_UNREAD, *REGISTRY.hooks, *REGISTRY.observers, *REGISTRY.jobs, *_UNREAD_BY.get(command, ()))
    lines = []
    for setting in given:
        if covers(unread, setting.name) and not covers(_READ_BY.get(command, ()), setting.name):
            reason = f"{command} does not read it"
        elif setting.name in for_training:
            reason = "it is for training"
        else:
            continue
        lines.append(f"{setting.name} {show(setting.value)} ({setting.origin}): no effect: {reason}")
    others = [setting for setting in given if setting.name not in for_training]
    # A notice of the configuration begins with the key or the flag that it is about.
    starts = tuple(f"{start} " for setting in others for start in (setting.name, setting.origin))
    return [*lines, *(line for line in configuration.notices if line.startswith(starts))]


def find_changed_keys(stored: RunSettings, config: RunSettings) -> dict[str, Any]:
    """Return the keys on which results depend and that differ, with their new values."""
    before, effect_of = leaves(stored), effects(config)
    return {
        name: value
        for name, value in leaves(config).items()
        if value != before.get(name)
        and effect_of.get(name) not in ("machine", "place")
        and not covers((*_UNREAD, *REGISTRY.hooks, *REGISTRY.observers, *REGISTRY.jobs, "ALLOW_CHANGES"), name)
    }
