"""From the command line to one frozen configuration: parse, merge, check."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..registry import plugins
from ..runtime.errors import UserError
from ..runtime.help_pages import HELP
from . import files, names, user_modules
from .check import check
from .command_line import GivenSettings
from .every_run import DEFAULT_TASK, RunSettings
from .merge import merge
from .parse import add_default_recipe, import_modules, parse, read_given, refuse_code
from .table import COMMAND_LINE, DERIVED, ConfigView, KeySetting, default_config, get_value, put
from .yaml_output import describe


@dataclass(frozen=True)
class Configuration:
    """The merged configuration and the source of each value."""

    values: RunSettings  # the frozen tree, for example ``values.DATA.BATCH_SIZE``
    sources: dict[str, str]  # dotted key -> "default", the file, "command line", or what the value is derived from
    notices: list[str]  # lines for the log
    show: bool  # whether -show_config was given
    argv: list[str]  # the command line that was read
    recipe: str  # name of the YAML file without its extension, or of the dataset if there is no file
    recipe_epochs: int  # TRAIN.NUM_EPOCHS of the files, ignoring the command line
    settings: Mapping[str, KeySetting]  # the settings that count, by name

    def check(self) -> None:
        """Check the values again after ``changed``; raises a UserError if two contradict each other."""
        check(ConfigView(self.values, self.settings))

    def changed(self, name: str, value: object, notice: str | None, source: str = DERIVED) -> "Configuration":
        """Return a copy with another value of one key, and a notice that says why, if one is needed."""
        values = self.values.clone()
        values.defrost()
        put(values, name, value)
        values.freeze()
        notices = [*self.notices, *([notice] if notice else [])]
        return dataclasses.replace(self, values=values, sources={**self.sources, name: source}, notices=notices)

    def describe(self) -> str:
        """Format the tree as YAML, with the source of each value in a column of comments."""
        return describe(self.values, self.sources)


def load(
    argv: Sequence[str],
    default_recipe: str | None = None,
    is_trusted: bool = True,
    command: str = "train",
    stored: files.StoredSettings | None = None,
) -> Configuration:
    """Read the command line and the files it names; merge over the defaults, check, freeze.

    Args:
        argv: the command line.
        default_recipe: the YAML file to use where the command line names neither a file nor data, and there are no
            ``stored`` settings. Data without a file is then an error, names have to be registered, and a dataset that
            is not named is guessed from DATA.DATA_PATH. None: only the defaults; the readers look names up.
        is_trusted: import the modules that the files name in IMPORTS. False for a run's file or settings that came
            with weights: only modules that the command line names are imported.
        command: the command whose help is printed.
        stored: settings in place of a file, below the ones of the command line.

    Raises:
        UserError: a flag, a file, a key or a value is wrong, or values do not fit together.
        SystemExit: help was requested and is printed.
    """
    if set(HELP) & set(argv):
        from .help import help_text  # it imports the tables of all tasks

        print(help_text(argv, command))
        raise SystemExit(0)
    given = read_given(argv, stored)
    if is_trusted:
        given = import_modules(given, stored)
    else:
        if user_modules.load([setting for setting in given.settings if setting.source == COMMAND_LINE]):
            given = read_given(argv, stored)  # they may register keys
        given = dataclasses.replace(given, notices=[*given.notices, *refuse_code(given)])
    try:
        if stored is not None:
            return _configure(given, None, default_recipe is not None, stored.is_checked)
        return _configure(given, default_recipe, default_recipe is not None)
    except UserError as error:
        if plugins.load_installed():  # an installed plug-in may have the unknown name: read again with all of them
            return load(argv, default_recipe, is_trusted, command, stored)
        if not is_trusted:
            user_modules.explain_missing(given.settings, error)
        raise


def _configure(
    given: GivenSettings, default_recipe: str | None, is_run: bool, is_checked: bool = True
) -> Configuration:
    if default_recipe is not None:
        given = add_default_recipe(given, default_recipe)
    task = given.task or DEFAULT_TASK
    parsed = parse(given)
    merged = merge(parsed, task, is_run)
    view = ConfigView(merged.values, merged.settings)
    if is_run:
        names.check_task_dataset_model(view)
    notices = [*given.notices, *merged.notices, *(check(view) if is_checked else ())]
    merged.values.freeze()

    epochs = "TRAIN.NUM_EPOCHS"
    of_files = [
        setting.value for setting in parsed.settings if setting.name == epochs and setting.source != COMMAND_LINE
    ]
    recipe_epochs = of_files[-1] if of_files else get_value(default_config(task), epochs)
    recipe = Path(given.cfg).stem if given.cfg else merged.values.DATA.DATASET
    return Configuration(
        merged.values, merged.sources, notices, given.shows, given.argv, recipe, recipe_epochs, merged.settings
    )
