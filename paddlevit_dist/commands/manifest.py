"""The commands that need no data modality and no optional folder."""

from ..registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    commands={
        "train": (".train:run", "train and evaluate on all devices of this machine; takes the main flags"),
        "evaluate": (".evaluate:run", "evaluate trained weights on all devices; takes the main flags"),
        "predict": (".predict:run", "predict new data without labels, with trained weights"),
        "convert": (".convert:run", "convert weights of any origin to .pdparams or .safetensors"),
        "inspect": (".inspect_model:run", "show a model's layers and cost; --list: the names of all models"),
        "inspect data": (".inspect_data:run", "draw augmented training samples as one image; takes the main flags"),
        "inspect recipes": (".inspect_recipes:run", "list the recipes that -cfg=NAME finds, one line each"),
        "schema": (".schema:run", "print the keys as a JSON schema, for editors of YAML files"),
        "version": (".version:run", "print the versions of this package, Paddle and Python"),
    },
)
