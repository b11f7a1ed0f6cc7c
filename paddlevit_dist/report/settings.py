"""The key of the report."""

from ..settings.every_run import RunSettings
from ..settings.key import KeyTable
from ..settings.section import key, rows


class ReportSettings(RunSettings):
    REPORT: bool = key(
        True,
        "write SAVE/report.html at the end, with figures of the best weights' evaluation; if that is not the last one, "
        "it is done once more",
    )


TABLE = KeyTable(rows(ReportSettings), effects={"neutral": ("REPORT",)})
