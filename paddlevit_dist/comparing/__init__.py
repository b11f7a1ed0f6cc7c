"""Two runs, or several, compared sample by sample. A wing: it can be deleted (see ``wings``).

- ``tables``: what an evaluation leaves of its samples in the run's folder, written and read
- ``scores``: the scores of such tables, of each sort of task
- ``significance``: whether a difference may be chance
- ``pairs``: one table against another: difference, classes, samples that changed
- ``per_sample``: the table of samples of ``evaluate -per_sample``; ``settings``: its key
- ``command``: the command ``compare``; ``telling``: its lines; ``page``: its page; ``pictures``: of
  samples on it
"""

FLAGS = {
    "per_sample": ("FILE", "PER_SAMPLE", "run", "with -eval: a row for each sample, as .csv or .parquet"),
}
KEYS = ".comparing.settings:TABLE"
EVALUATION_WATCHERS = {"PER_SAMPLE": ".comparing.per_sample:PerSample"}
COMMANDS = {"compare": (".comparing.command:run", "whether runs differ by more than chance, and on which samples")}
HOOKS = {"intervals_written": ".comparing.tables:write_beside"}
