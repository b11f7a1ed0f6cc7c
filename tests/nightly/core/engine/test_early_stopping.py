"""Every task ends early by its own score, and two processes do so together."""

import pytest
from support.processes import run_main, succeeded
from support.trainings.runs import DIGITS, last_line, well

from paddlevit_dist.core.registry.names import REGISTRY

RUN = ["-batch_size=64", "VALIDATE_FREQ", "1", "TRAIN.WARMUP_EPOCHS", "0", "TRAIN.PATIENCE", "1"]
SMALL = "-batch_size=2 -num_workers=0 TRAIN.WARMUP_STEPS None REPORT False".split()
SHAPES = "DATA.SHAPES.TRAIN 8 DATA.SHAPES.VAL 4".split()
ROOMS = "POINTS.ROOMS.TRAIN 4 POINTS.ROOMS.VAL 2 POINTS.ROOMS.SPACING_M 0.2 DATA.VOXEL_SIZE_M 0.4".split()
SOLIDS = "SHAPES.SOLIDS.TRAIN 4 SHAPES.SOLIDS.VAL 4 SHAPES.VOXEL_SIZE 0.3".split()
CROPS = (
    "VOLUMES.OVERLAP 0.1 VOLUMES.CROP_SIZE [12,20,16] VOLUMES.UNET_DEPTH 2 VOLUMES.UNET_WIDTH 4 -batch_size=8".split()
)
SCORES = {  # task -> its recipe, with settings that make it small, and its score
    "classification": (["-cfg=vit_digits", "-batch_size=64"], "top-1"),
    "multi_label": (["-cfg=multi_digits", "-batch_size=128"], "mAP"),
    "masked_autoencoder": (["-cfg=mae_digits", "-batch_size=256"], "top-1"),
    "self_distillation": (["-cfg=dino_digits", "-batch_size=256"], "top-1"),
    "detection": (["-cfg=detr_shapes", *SHAPES], "AP"),
    "keypoint_detection": (["-cfg=detrpose_figures", *SHAPES], "AP"),
    "keypoint_heatmaps": (["-cfg=heatmap_figures", *SHAPES], "AP"),
    "panoptic_segmentation": (["-cfg=eomt_panoptic_shapes", *SHAPES], "PQ"),
    "image_segmentation": (["-cfg=segformer_b0_shapes", *SHAPES], "mIoU"),
    "semantic_segmentation": (["-cfg=minkunet14_synthetic_rooms", *ROOMS], "mIoU"),
    "pointgroup": (["-cfg=pointgroup_synthetic_rooms", *ROOMS, "POINTS.INSTANCES.PREPARE_EPOCHS", "0"], "AP"),
    "shape_classification": (["-cfg=mink_classifier_solids", *SOLIDS], "top-1"),
    "volume_segmentation": (["-cfg=volume_unet3d_phantoms", *CROPS], "Dice"),
    "landmarks": (["-cfg=landmark_unet3d", "-dataset=synthetic_landmarks", *CROPS], "mre_mm"),
}


def test_two_processes_end_together_and_the_weights_can_be_evaluated(tmp_path):
    words = [*DIGITS, *RUN[1:], "-epochs=9", "-ngpus=2", "TRAIN.MIN_IMPROVEMENT", "100", f"-output={tmp_path}"]
    ended = succeeded(run_main(*words))
    assert "(last" in ended.out and "epoch 2)" in last_line(ended)
    scored = succeeded(run_main("-eval", *DIGITS, f"-pretrained={tmp_path}", f"-output={tmp_path / 'again'}"))
    assert last_line(scored).split(" loss")[0] in ended.out


@pytest.mark.parametrize("task", sorted(REGISTRY.tasks.keys() - {"linear_probe", "knn_probe"}))
def test_each_task_ends_early_by_its_own_score(tmp_path, task):
    recipe, score = SCORES[task]
    words = [*SMALL, *recipe, *RUN[1:], "-epochs=5", "TRAIN.MIN_IMPROVEMENT", "1000", f"-output={tmp_path}"]
    ended = well(run_main(*words))
    assert f"ended early after epoch 2 of 5: {score} has not improved by more than 1000" in ended.out
    assert "epoch 3" not in ended.out
