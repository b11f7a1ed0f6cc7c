"""What point clouds bring: sparse networks, datasets of scenes and shapes, and their tasks."""

from ..registry.manifest import Manifest

_PREPARE = "paddlevit_dist.commands.prepare"

MANIFEST = Manifest(
    __package__,
    families=(
        ".sparse.minkunet:MinkUNet",
        ".sparse.minkunet:MinkClassifier",
        ".sparse.minkunet:TutorialNetwork",
    ),
    models={"pointgroup": ".instances.pointgroup:PointGroup"},
    datasets={
        "synthetic_rooms": ".data.rooms:SyntheticRooms",
        "scenes": ".data.scenes:PreparedScenes",
        "scannet": ".data.scenes:ScanNet",
        "synthetic_solids": ".shapes.solids:SyntheticSolids",
        "modelnet10": ".shapes.data:ModelNet10",
        "modelnet40": ".shapes.data:ModelNet40",
    },
    bundled=("synthetic_rooms", "synthetic_solids"),
    tasks={
        "semantic_segmentation": ".segmentation.task:SemanticSegmentation",
        "pointgroup": ".instances.task:InstanceSegmentation",
        "shape_classification": ".shapes.task:ShapeClassification",
    },
    task_tables={
        "semantic_segmentation": (".settings:TABLE", ".segmentation.settings:TABLE"),
        "pointgroup": (".settings:TABLE", ".instances.settings:TABLE"),
        "shape_classification": (".shapes.settings:TABLE",),
    },
    recipes={
        "synthetic_solids": "mink_classifier_solids",
        "modelnet10": "mink_classifier_solids",
        "modelnet40": "mink_classifier_solids",
        "points": "minkunet34c_scannet",
    },
    score_kinds={"instances": ".instances.score_kind:InstanceScores"},
    spellings={"task": {"semantic": "semantic_segmentation", "instance_segmentation": "pointgroup"}},
    commands={
        "evaluate scenes": (
            "paddlevit_dist.commands.evaluate_results:run_scenes",
            "ScanNet scores of predictions in its benchmark format",
        ),
        "prepare scannet": (f"{_PREPARE}:run_scannet", "write raw ScanNet v2 as memory-mapped scenes"),
        "prepare scenes": (f"{_PREPARE}:run_scenes", "write LAS, PCD, text, S3DIS, ... as memory-mapped scenes"),
        "prepare ply": (f"{_PREPARE}:run_ply", "write PLY files as memory-mapped scenes"),
        "prepare pth": (f"{_PREPARE}:run_pth", "write PointGroup's _inst_nostuff.pth as memory-mapped scenes"),
    },
)
