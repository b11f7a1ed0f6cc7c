"""Configuration key of the report."""

from ...core.settings.every_run import RunSettings
from ...core.settings.key import key, rows
from ...core.settings.table import KeyTable


class ReportSettings(RunSettings):
    """Key of the report."""

    REPORT: bool = key(
        True,
        "write SAVE/report.html at the end, with figures of the best weights; they are evaluated again unless the last "
        "evaluation was the best",
        effect="neutral",
    )


TABLE = KeyTable(rows(ReportSettings))
