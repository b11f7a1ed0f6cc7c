"""What finds out why a training does not do what it should. A wing: it can be deleted (see ``wings``).

- ``doctor``: checks of machine, data and first steps, with ``doctor_checks``, ``doctor_machine``, ``doctor_data``,
  ``doctor_training``, ``trial``
- ``selftest``: the same updates with other numbers of processes
- ``first_layer``: which layer makes an update that ends the run not finite, with ``layer_watch``
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
        "Looks at versions, devices, memory, the output folder and an exchange of processes. With -cfg, "
        "-dataset or -data_path also at the data (100 random samples, labels), the model, its loss at the start, "
        "whether it learns one batch, and a step on each device. Nothing stays in the output folder. "
        "Exit code: 0, or 1 if a check has failed; 2 for a mistake in the command line.",
        ("", "-cfg=finetune_pictures -data_path=my_data", "-cfg=vit_digits -ngpus=2 -json"),
        (("-json", "print one JSON document instead of lines"),),
    ),
}
FLAGS = {
    "selftest": (None, "SELFTEST", "run", "train a few updates with one device and with all, and compare"),
    "profile": ("N", "PROFILE", "training", "record N updates with Paddle's profiler"),
}
KEYS = ".diagnosis.settings:TABLE"
JOBS = {"SELFTEST": ".diagnosis.selftest:run"}
TRAINING_WATCHERS = {
    "PROFILE": ".diagnosis.profile:Profile",
}
HOOKS = {
    "not_finite": ".diagnosis.first_layer:FirstLayer",
}
