"""Configuration key of the report."""

from ..settings.every_run import RunSettings
from ..settings.key import KeyTable
from ..settings.section import key, rows


class ReportSettings(RunSettings):
    """Key of the report."""

    REPORT: bool = key(
        True,
        "write SAVE/report.html at the end, with figures of the best weights; they are evaluated again unless the last "
        "evaluation was the best",
    )


TABLE = KeyTable(rows(ReportSettings), effects={"neutral": ("REPORT",)})
