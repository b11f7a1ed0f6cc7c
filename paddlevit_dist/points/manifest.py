"""What point clouds bring: sparse networks, datasets of scenes and shapes, and their tasks."""

from ..core.registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    families=(
        ".sparse.minkunet:MinkUNet",
        ".sparse.minkunet:MinkClassifier",
        ".sparse.minkunet:TutorialNetwork",
        ".ptv3.network:PointTransformer",
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
        "semantic_segmentation": "minkunet14_synthetic_rooms",
        "pointgroup": "pointgroup_synthetic_rooms",
        "shape_classification": "mink_classifier_solids",
    },
    scene_formats={  # a file is of the first that it fits
        "scannet": ".prepare.scannet:ScanNetReader",
        "pth": ".prepare.pointgroup:PthReader",
        "s3dis": ".prepare.s3dis:S3disReader",
        "semantic_kitti": ".prepare.semantic_kitti:SemanticKittiReader",
        "nuscenes": ".prepare.nuscenes:NuScenesReader",
        "pointcept": ".prepare.pointcept:PointceptReader",
        "ply": ".prepare.tables:PlyReader",
        "las": ".prepare.tables:LasReader",
        "pcd": ".prepare.tables:PcdReader",
        "numpy": ".prepare.tables:NumpyReader",
        "text": ".prepare.tables:TextReader",
    },
    namings={"pointcept": (".ptv3.weights:to_pointcept", "of serialized networks on points, Pointcept's")},
    score_kinds={"instances": ".instances.score_kind:InstanceScores"},
    spellings={"task": {"semantic": "semantic_segmentation", "instance_segmentation": "pointgroup"}},
    functions={"guess points": ".guessing:guess", "metrics of points": ".segmentation.metrics:SemanticMetrics"},
    commands={
        "evaluate scenes": (
            ".evaluate_command:run",
            "ScanNet scores of predictions in its benchmark format",
        ),
        "prepare scannet": (".prepare.command:run_scannet", "write raw ScanNet v2 as memory-mapped scenes"),
        "prepare scenes": (".prepare.command:run_scenes", "write LAS, PCD, text, S3DIS, ... as memory-mapped scenes"),
        "prepare ply": (".prepare.command:run_ply", "write PLY files as memory-mapped scenes"),
        "prepare pth": (".prepare.command:run_pth", "write PointGroup's _inst_nostuff.pth as memory-mapped scenes"),
    },
)
