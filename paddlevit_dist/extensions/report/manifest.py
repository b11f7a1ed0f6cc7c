"""What reports bring: an HTML file about a run."""

from ...core.registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    key_tables=(".settings:TABLE",),
    commands={
        "report": (
            ".command:run",
            "write an HTML file about runs: curves, wrong predictions",
        ),
    },
    hooks={"REPORT": ".hook:ReportHook"},
    functions={
        "list_galleries": ".store:list_galleries",
        "write_evaluation_report": ".hook:write_evaluation_report",
        "write_last_page": ".page:write_last_page",
    },
)
