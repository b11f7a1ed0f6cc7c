"""The table of all readers of files that strangers may have written: how to make one, and how it is read."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from paddlevit_dist import UserError

from . import boxes, hub, images, keypoints, label_maps, other_files, results, scenes, segments, volumes
from .mutations import GZIP, PNG, SCENE, TAR, ZIP, Packing


class Reader(NamedTuple):
    """A row of the table.

    Attributes:
        make: writes the files into a folder and returns those to damage, one of them in each case.
        read: reads all there is to read of them in such a folder.
        is_text: whether lines, digits and brackets mean something in it.
        packing: how to damage what is inside a file.
        least_refused: share of the damaged files that are refused; lower where the format has no redundancy.
        refusals: what is raised for a file that is refused.
    """

    name: str
    make: Callable[[Path], list[Path]]
    read: Callable[[Path], object]
    is_text: bool = False
    packing: Packing | None = None
    least_refused: float = 0.2
    refusals: tuple[type, ...] = (UserError,)


def _cache_of(name: str, make: Callable[[Path], list[Path]], read: Callable[[Path], object]) -> Reader:
    """The row of what is cached of ``make``'s files: it is never refused, for what is damaged is made again."""

    def made(folder: Path) -> list[Path]:
        make(folder)
        read(folder)
        return [path for path in sorted((folder / "cache").rglob("*")) if path.is_file()]

    return Reader(f"cache of {name}", made, read, least_refused=0.0)


_TABLE = [
    Reader("configuration", other_files.make_configuration, other_files.read_configuration, is_text=True),
    Reader("settings of a run", other_files.make_settings, other_files.read_settings, True, least_refused=0.0),
    Reader("events of a run", other_files.make_events, other_files.read_events, True, least_refused=0.0),
    Reader("checkpoint", other_files.make_checkpoint, other_files.read_checkpoint),
    Reader("checkpoint's texts", other_files.make_checkpoint_texts, other_files.read_described_checkpoint, True),
    Reader("description in an ONNX file", other_files.make_onnx, other_files.read_onnx, least_refused=0.0),
    Reader("weights", other_files.make_weights, other_files.read_all_weights, packing=None),
    Reader("weights in archives", other_files.make_archived_weights, other_files.read_all_weights, packing=ZIP),
    Reader("samples of an evaluation", other_files.make_samples, other_files.compare_samples, packing=ZIP),
    Reader("weights of Hugging Face", other_files.make_shards, other_files.read_shards, is_text=True),
    Reader("class names", images.make_class_names, images.read_class_names, True, least_refused=0.1),
    Reader("labels in a list", images.make_labels, images.read_labels, True, least_refused=0.1),
    Reader("images in a list", images.make_list, images.read_list, True),
    Reader("table of labels", images.make_label_table, images.read_label_table, True),
    Reader("table of labels, any byte", images.make_label_table, images.read_label_table),
    Reader("lists of images", images.make_lists, images.read_lists, True),
    Reader("table of labels in Parquet", images.make_parquet_table, images.read_label_table),
    Reader("images in Parquet", hub.make_parquet, hub.read_images),
    Reader("boxes in Parquet", hub.make_objects, hub.read_boxes, least_refused=0.1),
    Reader("images in Arrow", hub.make_arrow, hub.read_images, least_refused=0.1),
    Reader("texts next to Arrow", hub.make_lists, hub.read_images, True, least_refused=0.1),
    Reader("card of Parquet", hub.make_card, hub.read_images, True, least_refused=0.05),
    Reader("IDX", images.make_idx, images.read_idx),
    Reader("IDX compressed", images.make_idx_gz, images.read_idx, packing=GZIP),
    Reader("CIFAR batches", images.make_cifar, images.read_cifar),
    Reader("CIFAR archive", images.make_cifar_archive, images.read_cifar, packing=TAR),
    Reader("index of tar files", images.make_tar_index, images.read_tar_index),
    Reader("tar", images.make_tar, images.read_tar, packing=TAR, least_refused=0.1),
    Reader("development kit", images.make_kit, images.read_kit, packing=TAR, least_refused=0.0),
    Reader("record of prepared images", images.make_record, images.read_record, True),
    Reader("pictures", images.make_images, images.read_images, packing=PNG),
    Reader("images by OpenCV", images.make_jpegs, images.read_jpegs, least_refused=0.1),
    Reader("COCO's annotations", boxes.make_coco, boxes.read_coco, is_text=True),
    Reader("COCO's annotations, any byte", boxes.make_coco, boxes.read_coco),
    Reader("Pascal VOC's annotations", boxes.make_voc, boxes.read_voc, is_text=True),
    Reader("table of boxes", boxes.make_table, boxes.read_table, is_text=True),
    Reader("YOLO's labels", boxes.make_yolo, boxes.read_yolo, is_text=True),
    Reader("YOLO's labels of darknet", boxes.make_darknet, boxes.read_yolo, is_text=True, least_refused=0.1),
    Reader("COCO's keypoints", keypoints.make_coco, keypoints.read_coco, is_text=True),
    Reader("COCO's keypoints, any byte", keypoints.make_coco, keypoints.read_coco),
    Reader("YOLO's keypoints", keypoints.make_yolo, keypoints.read_yolo, is_text=True),
    Reader("table of keypoints", keypoints.make_wide, keypoints.read_table, True),
    Reader("table of points", keypoints.make_long, keypoints.read_table, is_text=True),
    Reader("label maps", label_maps.make_maps, label_maps.read, packing=PNG),
    Reader("label maps with colors", label_maps.make_colors, label_maps.read),
    Reader("COCO's panoptic annotations", label_maps.make_panoptic, label_maps.read, is_text=True),
    Reader("COCO's segments", segments.make_coco, segments.read, is_text=True),
    Reader("maps of segments", segments.make_ids, segments.read, packing=PNG),
    Reader("ADE20K's instances", segments.make_ade20k, segments.read, packing=PNG),
    Reader("panoptic results", segments.make_results, segments.read_results, is_text=True),
    Reader("Labelme's outlines", label_maps.make_labelme, label_maps.read, True, least_refused=0.1),
    Reader("YOLO's outlines", label_maps.make_yolo, label_maps.read, is_text=True),
    Reader("lists of classes", label_maps.make_lists, label_maps.read_lists, True, least_refused=0.1),
    Reader("JSON by its elements", boxes.make_json, boxes.read_json, True, refusals=(ValueError,)),
    Reader("PLY", scenes.make_ply, scenes.read_ply),
    Reader("PLY in text", scenes.make_text_ply, scenes.read_ply, is_text=True),
    Reader("scenes of torch", scenes.make_pth, scenes.read_pth, packing=ZIP),
    Reader("ScanNet", scenes.make_scannet, scenes.read_scannet),
    Reader("ScanNet's objects", scenes.make_scannet_objects, scenes.read_scannet, is_text=True),
    Reader("laser scans", scenes.make_las, scenes.read_scenes, least_refused=0.1),
    Reader("PCD", scenes.make_pcd, scenes.read_scenes, least_refused=0.1),
    Reader("PCD in text", scenes.make_text_pcd, scenes.read_scenes, is_text=True),
    Reader("points as text", scenes.make_text, scenes.read_scenes, is_text=True),
    Reader("points as arrays", scenes.make_named_arrays, scenes.read_scenes, least_refused=0.1),
    Reader("points as arrays in archives", scenes.make_arrays, scenes.read_scenes, packing=ZIP),
    Reader("S3DIS", scenes.make_s3dis, scenes.read_scenes, is_text=True),
    Reader("SemanticKITTI", scenes.make_kitti, scenes.read_scenes, least_refused=0.1),
    Reader("nuScenes", scenes.make_nuscenes, scenes.read_scenes, least_refused=0.1),
    Reader("nuScenes's tables", scenes.make_nuscenes_tables, scenes.read_scenes, True, least_refused=0.1),
    Reader("Pointcept", scenes.make_pointcept, scenes.read_scenes, least_refused=0.1),
    Reader("meshes of shapes", scenes.make_meshes, scenes.read_shapes, is_text=True),
    Reader("shapes as text", scenes.make_resampled, scenes.read_shapes, is_text=True),
    Reader("prepared scenes", scenes.make_store, scenes.read_store, packing=SCENE),
    Reader("record of prepared scenes", scenes.make_store_texts, scenes.read_store, True, least_refused=0.05),
    Reader("NIfTI", volumes.make(".nii"), volumes.read),
    Reader("NIfTI compressed", volumes.make(".nii.gz"), volumes.read, packing=GZIP),
    Reader("NumPy's volume", volumes.make(".npy"), volumes.read),
    Reader("NumPy's archive", volumes.make(".npz"), volumes.read, packing=ZIP),
    Reader("DICOM", volumes.make_series, volumes.read),
    Reader("volumes with landmarks", volumes.make_data, volumes.read_data),
    Reader("landmarks", volumes.make_landmarks, volumes.read_landmarks, is_text=True),
    Reader("labels and regions of nnU-Net", volumes.make_descriptions, volumes.read_descriptions, is_text=True),
    Reader("scores of classes", results.make_scores, results.read_table, is_text=True),
    Reader("best classes", results.make_classes, results.read_table),
    Reader("YOLO's results", results.make_yolo, results.read_yolo_results, is_text=True),
    Reader("keypoints in COCO's results", results.make_keypoints, results.read_keypoints, is_text=True),
    Reader("predicted label maps", results.make_maps, results.read_maps, packing=PNG),
    Reader("classes of a scene's points", results.make_labels, results.read_scene, True, least_refused=0.1),
    Reader("instances of a scene", results.make_instances, results.read_scene, is_text=True),
    Reader("landmarks in a table", results.make_landmarks, results.read_landmarks, is_text=True),
    _cache_of("Parquet", hub.make_parquet, hub.read_images),
    _cache_of("tar", images.make_tar, images.read_tar),
    _cache_of("IDX", images.make_idx_gz, images.read_idx),
    _cache_of("CIFAR", images.make_cifar_archive, images.read_cifar),
    _cache_of("annotations", boxes.make_coco, boxes.read_coco),
    _cache_of("keypoints", keypoints.make_coco, keypoints.read_coco),
    _cache_of("volumes", volumes.make_data, volumes.read_data),
]
READERS: dict[str, Reader] = {reader.name: reader for reader in _TABLE}
assert len(READERS) == len(_TABLE), "two readers have the same name"
