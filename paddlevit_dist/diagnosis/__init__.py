"""What finds out why a training does not do what it should. A wing: it can be deleted (see ``wings``).

- ``doctor``: checks of machine, data and first steps, with ``doctor_checks``, ``doctor_machine``, ``doctor_data``,
  ``doctor_training``, ``trial``
- ``selftest``: the same updates with other numbers of processes
- ``evidence``: what is kept of an update that was not finite; ``replay``: it is run again; ``layer_watch``: which
  layer makes it so
- ``profile``: where the time of some updates goes; ``settings``: keys
"""

COMMANDS = {
    "doctor": (
        ".diagnosis.doctor:run",
        "whether machine, data and first steps of a training are in order; takes the main flags",
    ),
}
ABOUT = {
    "doctor": (
        "Checks versions, devices, memory and limits; with -cfg or -data_path data, model, steps and a "
        "checkpoint. Exit code: 0, 1 if a check fails, 2 for a mistake.",
        ("", "-cfg=finetune_pictures -data_path=my_data", "-cfg=vit_digits -ngpus=2 -json"),
        (("-json", "print one JSON document instead of lines"),),
    ),
}
FLAGS = {
    "selftest": (None, "SELFTEST", "run", "compare updates with one device and with all"),
    "replay": ("FILE", "REPLAY", "run", "of an update that was not finite: which layer"),
    "profile": ("N", "PROFILE", "training", "record N updates with Paddle's profiler"),
}
KEYS = ".diagnosis.settings:TABLE"
JOBS = {"REPLAY": ".diagnosis.replay:run", "SELFTEST": ".diagnosis.selftest:run"}
TRAINING_WATCHERS = {
    "PROFILE": ".diagnosis.profile:Profile",
}
HOOKS = {
    "implied_recipe": ".diagnosis.settings:settings_of_replay",
    "evidence": ".diagnosis.evidence:EvidenceFolder",
}
