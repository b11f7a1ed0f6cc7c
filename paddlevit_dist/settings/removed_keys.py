"""Keys of earlier versions, which files and checkpoints of earlier runs still set."""

from collections.abc import Sequence

from ..runtime.errors import UserError
from .key import show
from .table import KeySetting, index_removed_keys, is_as_removed, tables_with


def check_removed_keys(settings: Sequence[KeySetting], task: str) -> None:
    """Check that keys of earlier versions have values that mean what the code does now.

    Raises:
        UserError: one has another value, unless only training read it and this run evaluates.
    """
    removed = index_removed_keys(tables_with([other.name for other in settings], task))
    evaluates = next((other.value for other in reversed(settings) if other.name == "EVAL"), False) is True
    for setting in settings:
        row = removed.get(setting.name)
        if row is None or is_as_removed(row, setting.value) or (evaluates and row.effect == "training"):
            continue
        raise UserError(
            f"{setting.origin}: {setting.name} {show(setting.value)} is not supported any more: the value is always "
            f"{show(row.values[0])}: remove this key, or {row.instead}"
        )
