"""What finds out why a training does not do what it should. An extension: it can be deleted (see ``extensions``).

- ``doctor``: checks of machine, data and first steps, with ``doctor_machine`` and ``doctor_data``
- ``selftest``: the same updates with other numbers of processes
- ``first_layer``: which layer makes an update that ends the run not finite, with ``layer_watch``
- ``profile``: where the time of some updates goes; ``settings``: keys
"""

COMMANDS = {
    "doctor": (
        ".debug.doctor:run",
        "whether machine, data and first steps of a training are in order; takes the main flags",
    ),
}
ABOUT = {
    "doctor": (
        "Checks versions, devices and memory; with -cfg or -data_path also data and some updates. "
        "Exit code: 0, 1 if a check fails, 2 for a mistake.",
        ("", "-cfg=finetune_pictures -data_path=my_data", "-cfg=vit_digits -ngpus=2 -json"),
        (("-json", "print one JSON document instead of lines"),),
    ),
}
FLAGS = {
    "selftest": (None, "SELFTEST", "run", "compare updates with one device and with all"),
    "profile": ("N", "PROFILE", "training", "record N updates with Paddle's profiler"),
}
KEYS = ".debug.settings:TABLE"
JOBS = {"SELFTEST": ".debug.selftest:run"}
TRAINING_CALLBACKS = {
    "PROFILE": ".debug.profile:Profile",
}
HOOKS = {
    "not_finite": ".debug.first_layer:FirstLayer",
}
