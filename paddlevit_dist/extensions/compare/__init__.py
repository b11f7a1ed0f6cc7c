"""Compare runs sample by sample, and compare groups of runs that differ by their seed.

This is an extension: the folder can be deleted (see ``registry.features``).

- ``tables``: writes and reads per-sample results of an evaluation in the run's folder
- ``significance``: the level of intervals, what is called a difference, gaps between curves
- ``pairs``: compares two tables: difference, classes, changed samples
- ``per_sample``: the table of samples of ``evaluate -per_sample``
- ``seeds``: the training runs of ``-seeds``; ``groups``: statistics of their scores; ``group_pairs``: compares groups
  and single runs
- ``search``: the command ``search``; ``search_space``: its ranges; ``search_storage``: errors of its file;
  ``trial_tables``: tables of samples of its trials; ``trial_schedules``: which trials are compared
- ``plan``: how many samples or seeds tell a difference from noise
- ``command``: the command ``compare``; ``formatting``: its lines; ``page`` and ``page.html.j2``: its page, with
  ``images`` of samples; ``settings``: keys
"""
