"""Two runs, or several, compared sample by sample. A wing: it can be deleted (see ``wings``).

- ``tables``: what an evaluation leaves of its samples in the run's folder, written and read
- ``scores``: the scores of such tables, of each sort of task
- ``significance``: whether a difference may be chance
- ``pairs``: one table against another: difference, classes, samples that changed
- ``command``: the command ``compare``; ``telling``: its lines; ``page``: its page
"""

COMMANDS = {"compare": (".comparing.command:run", "whether runs differ by more than chance, and on which samples")}
HOOKS = {"intervals_written": ".comparing.tables:write_beside", "results_scored": ".comparing.tables:write_scored"}
