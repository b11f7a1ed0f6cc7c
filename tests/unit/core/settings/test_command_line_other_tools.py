"""Flags and keys of other tools are named as what they are here."""

import pytest

from paddlevit_dist.core.settings import command_line

OTHERS = {  # what other tools call our flags and keys: timm, detectron2, mmengine, Lightning, Ultralytics, PyTorch
    "cfg": "config config_file c",
    "data_path": "data data_dir data_root dataset_path",
    "output": "output_dir out save_dir work_dir log_dir",
    "batch_size": "b bs batch",
    "num_workers": "j workers",
    "image_size": "img_size imgsz input_size",
    "num_classes": "nb_classes classes",
    "pretrained": "checkpoint weights finetune initial_checkpoint",
    "ngpus": "gpus nproc_per_node devices num_gpus",
    "epochs": "epoch num_epochs max_epochs",
    "eval": "evaluate test val",
    "seeds": "num_seeds n_seeds",
    "max_detections": "max_det max_dets maxdets",
    "TRAIN.BASE_LR": "lr lr0 learning_rate base_lr",
    "TRAIN.WEIGHT_DECAY": "wd weight_decay",
    "TRAIN.OPTIMIZER.NAME": "opt optimizer",
    "MODEL.NAME": "model arch a",
    "TRAIN.WARMUP_EPOCHS": "warmup_epochs warmup",
    "TRAIN.GRAD_CLIP": "clip_grad grad_clip",
    "TRAIN.PATIENCE": "patience early_stopping early_stopping_patience",
    "TRAIN.MIN_IMPROVEMENT": "min_delta",
    "TRAIN.SMOOTHING": "smoothing",
    "TRAIN.MIXUP_ALPHA": "mixup",
    "TRAIN.CUTMIX_ALPHA": "cutmix",
    "MODEL.DROPPATH": "drop_path",
    "TASK": "task",
}


@pytest.mark.parametrize("ours", OTHERS)
def test_names_of_other_tools_are_spelled_as_here(ours):
    flag = command_line.find_any_flag(ours)
    for name in OTHERS[ours].split():
        for written in (name, name.upper(), name.replace("_", "-")):
            expected = f"{ours} 3" if flag is None else f"-{ours}=3" if flag.argument else f"-{ours}"
            assert command_line.spell_here(written, "3") == expected
        assert command_line.translate_to_key(name.title()) == (ours if flag is None else flag.key or "")
        expected = f"{ours} VALUE" if flag is None else f"-{ours}={flag.argument}" if flag.argument else f"-{ours}"
        assert command_line.spell_here(name) == expected
    assert command_line.spell_here("nobody_calls_it_so") == command_line.translate_to_key("nobody_calls_it_so") == ""
