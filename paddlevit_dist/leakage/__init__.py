"""Samples of validation that stand in the training set: found, shown, left out of a score. An extension: it can be
deleted (see ``extensions``).

- ``perceptual``: a hash of images, and a second look at two of them; ``comparing``: many hashes with many
- ``fingerprints``: what is kept of each sample of a data set, also of scenes and volumes
- ``search``: the pairs of two data sets
- ``telling``: the command ``inspect leaks``, and what ``inspect data`` says
- ``evaluation``: for ``evaluate -without_leaks``; ``settings``: keys
"""

COMMANDS = {
    "inspect leaks": (".leakage.telling:run", "samples of validation that stand in training; takes the main flags")
}
ABOUT = {
    "inspect leaks": (
        "Find samples of validation that stand in training, too: leaks.json, leaks.png.",
        (
            "-cfg=finetune_pictures -data_path=my_data",
            "-cfg=vit_tiny_patch16_224 -data_path=/imagenet",
            "-cfg=detr_shapes -output=output/look",
        ),
    )
}
FLAGS = {
    "without_leaks": (None, "WITHOUT_LEAKS", "data", "evaluate also without samples seen in training"),
}
KEYS = ".leakage.settings:TABLE"
EVALUATION_CALLBACKS = {"WITHOUT_LEAKS": ".leakage.evaluation:WithoutLeaks"}
HOOKS = {
    "data_inspected": ".leakage.telling:show",
    "evaluation_prepared": ".leakage.evaluation:find_in_training",
}
