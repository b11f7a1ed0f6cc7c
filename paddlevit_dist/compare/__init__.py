"""Two runs, or several, compared sample by sample, and groups of runs that differ by their seed. An extension: it can
be deleted (see ``extensions``).

- ``tables``: what an evaluation leaves of its samples in the run's folder, written and read
- ``scores``: the scores of such tables, of each sort of task
- ``significance``: whether a difference may be chance
- ``pairs``: one table against another: difference, classes, samples that changed
- ``per_sample``: the table of samples of ``evaluate -per_sample``
- ``seeds``: the trainings of ``-seeds``; ``groups``: what they have reached, and how far two groups differ;
  ``group_pairs``: groups and single runs side by side
- ``command``: the command ``compare``; ``telling``: its lines; ``page``: its page, with ``images`` of samples;
  ``settings``: keys
"""

FLAGS = {
    "per_sample": ("FILE", "PER_SAMPLE", "run", "with -eval: a row a sample, .csv or .parquet"),
    "seeds": ("N", "SEEDS", "training", "train with N seeds, a folder each; says the mean"),
}
KEYS = ".compare.settings:TABLE"
EVALUATION_CALLBACKS = {"PER_SAMPLE": ".compare.per_sample:PerSample"}
COMMANDS = {"compare": (".compare.command:run", "whether runs differ by more than chance, and on which samples")}
JOBS = {"SEEDS": ".compare.seeds:run"}
HOOKS = {"intervals_written": ".compare.tables:write_beside", "results_scored": ".compare.tables:write_scored"}
