"""What the search for leakage brings: validation samples that are also in the training set."""

from ...core.registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    key_tables=(".settings:TABLE",),
    commands={
        "inspect leaks": (
            ".formatting:run",
            "find validation samples that are also in training",
        ),
    },
    observers={"EXCLUDE_LEAKED": ".evaluation:WithoutLeaks"},
    functions={
        "find_in_training": ".evaluation:find_in_training",
        "show_leaks": ".formatting:show_leaks",
    },
)
