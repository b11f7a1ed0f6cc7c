"""Two runs, or several, compared sample by sample, and groups of runs that differ by their seed. A wing: it can be
deleted (see ``wings``).

- ``tables``: what an evaluation leaves of its samples in the run's folder, written and read
- ``scores``: the scores of such tables, of each sort of task
- ``significance``: whether a difference may be chance
- ``pairs``: one table against another: difference, classes, samples that changed
- ``seeds``: the trainings of a group, for ``-seeds``; ``groups``: what they have reached, and how far two groups differ
- ``command``: the command ``compare``; ``telling``: its lines; ``page``: its page; ``settings``: keys
"""

COMMANDS = {"compare": (".comparing.command:run", "whether runs differ by more than chance, and on which samples")}
FLAGS = {"seeds": ("N", "SEEDS", "training", "train with N seeds, each in its own folder; says mean and deviation")}
KEYS = ".comparing.settings:TABLE"
JOBS = {"SEEDS": ".comparing.seeds:run"}
HOOKS = {"intervals_written": ".comparing.tables:write_beside"}
