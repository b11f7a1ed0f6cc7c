"""What medical volumes bring: a network, datasets with landmarks and label maps, and their tasks."""

from ..core.registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    models={"unet3d": ".unet3d:UNet3D"},
    datasets={
        "landmarks": ".landmarks.dataset:LandmarkDataset",
        "synthetic_landmarks": ".phantoms:SyntheticLandmarks",
        "nnunet": ".segmentation.nnunet:NnUNet",
        "synthetic_organs": ".segmentation.phantoms:SyntheticOrgans",
    },
    bundled=("synthetic_landmarks", "synthetic_organs"),
    tasks={
        "landmarks": ".landmarks.task:LandmarkDetection",
        "volume_segmentation": ".segmentation.task:VolumeSegmentation",
    },
    task_tables={
        "landmarks": (".settings:VOLUMES", ".settings:LANDMARKS"),
        "volume_segmentation": (".settings:VOLUMES", ".segmentation.settings:TABLE"),
    },
    recipes={
        "nnunet": "volume_unet3d_phantoms",
        "synthetic_organs": "volume_unet3d_phantoms",
        "volumes": "landmark_unet3d",
        "volume_segmentation": "volume_unet3d_phantoms",
    },
    score_kinds={
        "landmarks": ".landmarks.metrics:LandmarkScores",
        "volume classes": ".segmentation.metrics:VolumeScores",
    },
    functions={"guess volumes": ".guessing:guess"},
    commands={
        "evaluate components": (
            ".commands:run_components",
            "decide where label maps of volumes keep only the largest component",
        ),
        "evaluate landmarks": (
            ".commands:run_landmarks",
            "landmark errors in mm, from a folder of landmark files",
        ),
        "prepare plan": (
            ".commands:run_plan",
            "plan a run on volumes with label maps by nnU-Net's rules",
        ),
    },
)
