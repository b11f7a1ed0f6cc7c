"""The key of the report."""

from ..settings.key import Key, Table

TABLE = Table(
    (
        Key(
            "REPORT",
            True,
            "bool",
            "write SAVE/report.html at the end, with figures of the best weights' evaluation; if that is not the last "
            "one, it is done once more",
        ),
    ),
    effects={"neutral": ("REPORT",)},
)
