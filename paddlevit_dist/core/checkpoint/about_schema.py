"""What an ``about.yaml`` may contain: facts that every task writes, and settings that the keys of its task accept."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..runtime.errors import UserError
from ..runtime.printing import shorten
from ..settings.files import StoredSettings, read_stored
from ..settings.key_tables import known_tables
from ..settings.table import index_keys
from ..settings.values import InvalidValue

ABOUT = "about.yaml"
ABOUT_ADVICE = "remove the file to continue without it"
_MOST_CLASSES = 1 << 20
_Names = Annotated[list[str | int | float | bool], Meta(max_length=_MOST_CLASSES)]


class _InputFacts(msgspec.Struct):
    landmarks: _Names | None = None  # outputs that have names but are not classes


class _SplitFacts(msgspec.Struct):
    classes: _Names | None = None
    number_of_classes: Annotated[int, Meta(ge=0, le=_MOST_CLASSES)] | None = msgspec.field(
        name="number of classes", default=None
    )


class _PublishedFacts(msgspec.Struct):
    repository: str | None = None
    revision: str | None = None
    configuration: str | None = None
    split: str | None = None
    share: Annotated[float, Meta(gt=0, lt=1)] | None = None


class _LowRankFacts(msgspec.Struct):
    source: str
    part: str | None
    unused: list[str]
    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    scale: Annotated[float, Meta(gt=0, le=1 << 53)]


class AboutFacts(msgspec.Struct):
    """Facts by name; a task checks what only it writes of its input and of a split by separate types."""

    task: str | None = None
    model: str | None = None
    input: _InputFacts | None = None
    image_size: Annotated[list[Annotated[int, Meta(gt=0, le=1 << 20)]], Meta(min_length=2, max_length=2)] | None = None
    data: dict[str, _SplitFacts | None] | None = None
    published_as: dict[str, _PublishedFacts] | None = None  # by split, as ``Dataset.published_as``
    settings: dict[str, Any] | None = None
    described_by: dict[str, dict[str, Any]] | None = None  # of converted weights without a run, see DESCRIBE_INPUT
    versions: dict[str, Any] | None = None
    low_rank: _LowRankFacts | None = None
    thresholds: dict[str, Annotated[float, Meta(ge=0, le=1)]] | None = (
        None  # of an export or converted weights, by class
    )
    thresholds_settings: dict[str, Any] | None = None  # under which they were chosen


def require_valid_settings(file: str, settings: Mapping[str, Any], advice: str = ABOUT_ADVICE) -> None:
    """Raise UserError unless the keys of their task, as far as it has them, accept the settings that a file stores."""
    task = settings.get("TASK")
    rows = index_keys(known_tables(task if isinstance(task, str) else None))
    for setting in read_stored(StoredSettings(settings, f"settings of {file}")):
        row = rows.get(setting.name)
        try:
            _ = row and row.parse(setting.value)
        except InvalidValue:
            raise UserError(
                f"{file}: settings: {setting.name} is {shorten(setting.value, 60)}: expected {row and row.expected()}; "
                f"{advice}"
            ) from None
