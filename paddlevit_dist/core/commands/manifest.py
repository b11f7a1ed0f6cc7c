"""The commands that need no data modality and no optional folder."""

from ..registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    commands={
        "train": (".train:run", "train and evaluate on all devices of this machine"),
        "evaluate": (".evaluate:run", "evaluate a run, other weights, or an exported model"),
        "predict": (".predict:run", "predict new data without labels, with trained weights"),
        "convert": (".convert:run", "convert weights of any origin to .pdparams or .safetensors"),
        "inspect": (".inspect_model:run", "show a model's layers and cost; --list: names of all models"),
        "inspect data": (".inspect_data:run", "draw augmented training samples as one image"),
        "inspect recipes": (".inspect_recipes:run", "list the recipes that -cfg=NAME finds"),
        "schema": (".schema:run", "print the keys as a JSON schema, for editors of YAML files"),
        "version": (".version:run", "print the versions of this package, Paddle and Python"),
    },
)
