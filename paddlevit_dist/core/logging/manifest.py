"""What logging brings: the callbacks of -log_to."""

from ..registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    callbacks={
        "tensorboard": ".event_logs:TensorBoardLog",
        "visualdl": ".event_logs:VisualDlLog",
        "wandb": ".services:WandbLog",
        "mlflow": ".services:MlflowLog",
    },
    spellings={"callback": {"tb": "tensorboard", "vdl": "visualdl"}},
)
