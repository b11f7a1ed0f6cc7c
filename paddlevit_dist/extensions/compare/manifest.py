"""What comparison brings: tables of samples, tests between runs, search, and runs with several seeds."""

from ...core.registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    key_tables=(".settings:TABLE",),
    commands={
        "search": (".search:run", "train with other values of keys, and rank the runs"),
        "compare": (
            ".command:run",
            "test whether runs differ by more than chance, list where",
        ),
    },
    jobs={"SEEDS": ".seeds:run"},
    observers={"PER_SAMPLE": ".per_sample:PerSampleWriter"},
    functions={
        "write_evaluated": ".tables:write_evaluated",
        "write_scored": ".tables:write_scored",
        "compare_runs": ".command:compare_runs",
    },
)
