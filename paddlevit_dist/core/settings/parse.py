"""Step 1 of 3: the command line and the files that it names become typed settings, in order, each with its origin.

``read_given`` returns the settings in the given words, ``parse`` translates and types them. ``command_line.py`` says
what a flag looks like, ``files.py`` how a file is read.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

from ..registry import model_sources
from ..registry.names import REGISTRY
from ..runtime.environment import program
from ..runtime.errors import UserError
from ..runtime.hints import find_similar, suggest
from . import command_line, files, names, recipes, user_modules
from .command_line import GivenSettings
from .every_run import DEFAULT_TASK
from .key import Key, show
from .key_tables import key_tables
from .model_options import split_option
from .table import COMMAND_LINE, KeySetting, find_keys, index_former, index_keys, known_names, resolve_flag, tables_with
from .values import InvalidValue, OutOfRange, read_word


class ParsedSettings(NamedTuple):
    """The given settings in the words and types of this package, in order."""

    settings: list[KeySetting]
    given: list[KeySetting]  # as written
    renamed: list[str]  # notices of names and values that PaddleViT spells differently
    ignored: list[str]  # notices of keys that only PaddleViT has


def read_given(argv: Sequence[str], stored: files.StoredSettings | None = None) -> GivenSettings:
    """Read the command line and its files, or ``stored`` settings in place of a file.

    Raises:
        UserError: a flag, a file or its form is wrong.
        SystemExit: the version was requested and is printed.
    """
    given = command_line.parse_command_line(argv)
    if given.cfg is not None and not recipes.is_known(given.cfg):
        user_modules.load(given.settings, given.shows)  # of -import: they may have recipes
    of_files: list[KeySetting] = []
    if stored is not None:
        of_files = files.read_stored(stored, given.task)
    elif given.cfg is not None:
        of_files = files.read_file(given.cfg, given.task)
    task = dataclasses.replace(given, settings=[*of_files, *given.settings]).task or DEFAULT_TASK
    settings = [*of_files, *(_resolve_word(setting, task) for setting in given.settings)]
    notices = list(given.notices)
    if given.cfg is not None and (ambiguity := recipes.find_ambiguity(given.cfg)):
        notices.append(ambiguity)
    given = dataclasses.replace(given, settings=settings)
    if (given.cfg or stored) and _may_be_of_clone(given.find_last("MODEL.NAME")):
        settings, adapted = model_sources.adapt_clone(settings, known_names(tuple(key_tables())))
        notices += adapted
    return dataclasses.replace(given, settings=settings, notices=notices)


def _resolve_word(setting: KeySetting, task: str) -> KeySetting:
    """Return a setting of the command line for the task's key, its text as a value of YAML if the key is not a text."""
    setting = resolve_flag(setting, task)
    if not isinstance(setting.value, str):  # of a flag without a value
        return setting
    return dataclasses.replace(setting, value=command_line.parse_value(setting.name, setting.value, task))


def _may_be_of_clone(model: KeySetting | None) -> bool:
    """Return whether a file may come from a clone of PaddleViT.

    Then a user's file names the model, or the command line one that is not known here.
    """
    if model is None:
        return False
    return not (
        model.value in REGISTRY.models if model.source == COMMAND_LINE else recipes.is_recipe_file(model.source)
    )


def import_modules(given: GivenSettings, stored: files.StoredSettings | None = None) -> GivenSettings:
    """Import the modules that the settings name in IMPORTS, and read all again: the modules may register keys."""
    if given.find_last("IMPORTS") is None:
        return given
    imported = user_modules.load(given.settings, should_print=given.shows)
    given = read_given(given.argv, stored)
    return dataclasses.replace(given, settings=user_modules.merge_imports(given.settings, imported))


def refuse_code(given: GivenSettings) -> list[str]:
    """Raise ``UserError`` if settings of a run or weights need code, which is not run for them; return notices."""
    model = given.find_last("MODEL.NAME")
    if model is not None and model.source != COMMAND_LINE:
        model_sources.refuse_clone_model(model.value, model.origin)
    return user_modules.explain_missing(given.settings)


def add_default_recipe(given: GivenSettings, recipe: str) -> GivenSettings:
    """Read the default recipe before all settings if the command line names neither a file nor data."""
    if given.cfg is not None:
        return given
    cfg = names.choose_recipe([setting for setting in given.settings if setting.source == COMMAND_LINE], recipe)
    before = files.read_file(cfg, given.task) if cfg else []
    return dataclasses.replace(given, cfg=cfg, settings=[*before, *given.settings])


def parse(given: GivenSettings) -> ParsedSettings:
    """Translate PaddleViT's names and values to the ones here, and parse each value as its key says.

    Raises:
        UserError: a key is not known or was removed, or does not allow its value.
    """
    tables = tables_with([setting.name for setting in given.settings], given.task or DEFAULT_TASK)
    vocabulary = _Vocabulary(
        index_keys(tables),
        index_former(tables),
        {theirs: why for table in tables for theirs, why in table.ignored_keys.items()},
        {theirs: ours for table in tables for theirs, ours in table.renamed.items()},
        {theirs: ours for table in tables for theirs, ours in table.renamed_values.items()},
    )
    parsed: list[KeySetting] = []
    renamed: list[str] = []
    ignored: dict[str, str] = {}  # by name: one line for each key
    for setting in given.settings:
        if _repeats_default(setting, vocabulary, parsed):
            continue
        translated = _translate(setting, vocabulary, given, renamed, ignored)
        if translated is not None:
            value = _parse_value(translated, vocabulary.known[translated.name], given)
            parsed.append(dataclasses.replace(translated, value=value))
    return ParsedSettings(parsed, given.settings, renamed, list(ignored.values()))


class _Vocabulary(NamedTuple):
    """The keys here, and what became of the names and values that older versions and PaddleViT have."""

    known: dict[str, Key]
    former: dict[str, Key]  # removed
    needless: dict[str, str]  # name -> why it is not needed
    names: dict[str, str]  # theirs -> ours
    values: dict[tuple[str, str], Any]  # name, and their value in lower case -> ours


def _translate(
    setting: KeySetting, vocabulary: _Vocabulary, given: GivenSettings, renamed: list[str], ignored: dict[str, str]
) -> KeySetting | None:
    """Return a setting with its name and value here, not parsed; None if the key has no effect here.

    Adds notices to ``renamed`` and ``ignored``. UserError: the key is not known or was removed.
    """
    (name, value), origin = split_option(setting.name, setting.value), setting.origin
    # Names without effect come first, as users may have them. A removed key with the value that is used today is one of
    # them: no notice is needed.
    if name in vocabulary.needless:
        if value is not None:
            ignored[name] = f"{origin}: {name} does not exist here and is not needed: {vocabulary.needless[name]}"
        return None
    if name in vocabulary.former and name not in vocabulary.names:
        if _changes_nothing(value, vocabulary.former[name], given):
            return None
        instead = vocabulary.former[name].meaning
        raise UserError(f"{origin}: {name} is {show(value)}, but this key was removed: {instead}")
    # A file of another task of PaddleViT also has names that are translated: it is refused before they are.
    is_ours = name in vocabulary.known and name not in vocabulary.names
    if not is_ours and (refusal := model_sources.explain_other_task(setting.source)):
        raise UserError(refusal)
    if name in vocabulary.names:
        renamed.append(f"{origin}: {name} is called {vocabulary.names[name]} here")
        name, value = split_option(vocabulary.names[name], value)
    setting = dataclasses.replace(setting, name=name, value=value)
    if name not in vocabulary.known:
        raise UserError(_explain_unknown_key(setting) + _explain_unknown_model(setting, given))
    if name == "BASE":
        raise UserError(f"{origin}: BASE belongs in a YAML file: name the file with -cfg=FILE")
    if (name, str(value).lower()) in vocabulary.values:  # listed with our name of the key
        ours = vocabulary.values[name, str(value).lower()]
        renamed.append(f"{origin}: {name} {show(value)} is called '{ours}' here")
        setting = dataclasses.replace(setting, value=ours)
    return setting


def _repeats_default(setting: KeySetting, vocabulary: _Vocabulary, earlier: Sequence[KeySetting]) -> bool:
    """Return whether a removed key that another one replaces has its default, and there is no other value to replace.

    Older runs store all keys, so that such a default was not chosen, unless an earlier file sets the other key. Neither
    was None, which means "not set".
    """
    former, other = vocabulary.former.get(setting.name), vocabulary.names.get(setting.name)
    if former is None or other is None or not _is_default(setting.value, former):
        return False
    name, option = split_option(other, None)
    return former.default is None or not any(
        each.name == name
        and (option is None or _has_option(each.value, option))
        and (each.source != setting.source or each.source == COMMAND_LINE)
        for each in earlier
    )


def _has_option(options: object, other: object) -> bool:
    """Return whether ``options`` has all names of ``other``, nested names in their mappings."""
    if not isinstance(other, Mapping):
        return True
    return isinstance(options, Mapping) and all(
        name in options and _has_option(options[name], inner) for name, inner in other.items()
    )


def _is_default(value: object, key: Key) -> bool:
    try:
        return bool(key.parse(value) == key.default)
    except InvalidValue:
        return False


def _changes_nothing(value: object, key: Key, given: GivenSettings) -> bool:
    """Return whether a removed key has the value that is used today, or is for training, and this is an evaluation."""
    evaluates = given.find_last("EVAL")
    try:
        is_used = key.parse(value) == key.default
    except InvalidValue:
        return False
    return is_used or (key.training_only and evaluates is not None and read_word(evaluates.value) is True)


def _parse_value(setting: KeySetting, key: Key, given: GivenSettings) -> Any:
    """Parse a value as its key says; UserError: the key does not allow it."""
    value = setting.value
    try:
        return key.parse(value)
    except InvalidValue as mismatch:
        message = f"{setting.origin}: {setting.name} is {show(value)}: expected {key.expected()}"
        message += f"; {mismatch}" if isinstance(mismatch, OutOfRange) else ""
        if key.kind in ("text", "path") and not key.choices and not isinstance(value, (str, dict, NoneType)):
            message += "; write it in quotes, as YAML has other values for words like no, on, 007, 1.50 and null"
        raise UserError(message + _explain_unknown_model(setting, given)) from None


def _explain_unknown_key(setting: KeySetting) -> str:
    """Format the error for a key that does not exist, with what the user may have meant."""
    name = setting.name if setting.name.isprintable() else show(setting.name)
    is_section, is_typed = isinstance(setting.value, Mapping), setting.source == COMMAND_LINE
    if is_section and any(key.startswith(f"{name.upper()}.") for key in find_keys()):
        return f"{setting.origin}: {name} is not a known section: sections and keys are in capitals: {name.upper()}"
    advice = ""
    if is_typed and recipes.names_recipe(setting.name):
        advice = f"write -cfg={name}"
    elif is_typed and name.islower() and "." not in name:
        advice = command_line.advise(name, str(setting.value))
    if is_section and not advice:
        advice = _list_translated(setting.value)
    advice = advice or advise_key(setting.name)
    return (
        f"{setting.origin}: {name} ({'a section' if is_section else show(setting.value)}) is not a known key: {advice}"
    )


def advise_key(name: str) -> str:
    """Return the key that is meant by one that does not exist, or where all are listed.

    In a section that exists, letters are compared with its own keys only: another section's is about something else.
    Elsewhere the same name counts, and another tool's name.
    """
    section, _, end = name.upper().rpartition(".")
    translated = command_line.translate_to_key(end)
    own = {key[len(section) + 1 :]: key for key in find_keys() if section and key.startswith(f"{section}.")}
    if not own:
        closest, elsewhere = _find_closest_key(name, end, translated), ""
    elif translated in own.values():
        closest, elsewhere = translated, ""
    else:
        theirs = [] if translated else find_similar(end, command_line.OTHER_NAMES)
        is_same = any(
            each.replace("_", "") == end.lower().replace("_", "") for each in theirs
        )  # DROPRATE is drop_rate, not DROPPATH
        parts = [each for each in own if set(each.split("_")) < set(end.split("_"))]
        close = [own[each] for each in (*find_similar(end, own), *parts)]
        translations = list(map(command_line.translate_to_key, theirs))
        ordered = [*translations, *close] if is_same else [*close, *translations]
        closest = next((key for key in ordered if key in own.values()), "")
        same = find_similar(name, [key for key in find_keys() if key.endswith(f".{end}")])
        elsewhere = translated or ("" if closest else next(iter(same), ""))
    advice = [f"the closest is {closest}"] if closest else []
    advice += [f"here, {end} is {elsewhere}"] if elsewhere else []
    return "; ".join(advice) or f"'{program('train')} -cfg=RECIPE -h keys' lists all"


def _find_closest_key(name: str, end: str, translated: str) -> str:
    """Return the key that a name without a section of ours means, by the same or a known word, or by letters; or ""."""
    by_end: dict[str, list[str]] = {}
    for key in find_keys():
        by_end.setdefault(key.rpartition(".")[2], []).append(key)
    if translated and ("." not in name or end not in by_end):
        return translated
    ends = [end] if end in by_end else find_similar(end, by_end, 3)
    others = [] if end in by_end else find_similar(end, command_line.OTHER_NAMES, 3)
    close = [key for each in ends for key in by_end[each]]
    close += filter(None, map(command_line.translate_to_key, others))
    whole = find_similar(name, close) if end in by_end else []
    return next(iter([*whole, *close, *find_similar(name, find_keys())]), "")


def _list_translated(values: Mapping[str, Any]) -> str:
    """Return what up to three keys are called here of a section that another tool's file has, nested ones included."""
    pairs: list[str] = []
    rest = list(values.items())
    while rest:
        name, value = rest.pop(0)
        if isinstance(value, Mapping):
            rest[:0] = value.items()
        elif key := command_line.translate_to_key(str(name)):
            pairs.append(f"{name} is {key}")
    return f"here, {', '.join(pairs[:3])}" if pairs else ""


def _explain_unknown_model(setting: KeySetting, given: GivenSettings) -> str:
    """Return a hint for a MODEL key or value of a family of models that does not exist here, or an empty text."""
    model = given.find_last("MODEL.NAME")
    is_of_file = setting.name.startswith("MODEL.") and setting.source != COMMAND_LINE
    if not is_of_file or model is None or str(model.value) in REGISTRY.models:
        return ""
    near = suggest(str(model.value), REGISTRY.models).strip()
    return f"; MODEL.NAME {show(str(model.value))} is not a known model{': ' + near if near else ''}"
