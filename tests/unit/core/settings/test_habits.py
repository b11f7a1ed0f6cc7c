"""Flags and keys of other tools, as their users type them."""

import re

import pytest
from support.refusals import refusal_of

from paddlevit_dist.core.settings import load
from paddlevit_dist.core.settings.command_line import advise, find_any_flag
from paddlevit_dist.core.settings.habits import OTHER_NAMES
from paddlevit_dist.core.settings.table import find_key, find_keys

TYPED = {  # from the tools' documentation
    "ultralytics": "data epochs time patience batch imgsz save_period cache device workers project name exist_ok "
    "pretrained optimizer seed deterministic cos_lr close_mosaic resume amp freeze lr0 lrf momentum weight_decay "
    "warmup_epochs dropout val plots fliplr mosaic mixup copy_paste erasing conf iou max_det half",
    "timm": "data_dir model initial_checkpoint num_classes img_size in_chans input_size crop_pct mean std "
    "interpolation b validation_batch_size grad_accum_steps grad_checkpointing opt opt_eps momentum clip_grad "
    "clip_mode layer_decay sched lr warmup_lr min_lr scale ratio hflip color_jitter aa aug_repeats reprob remode "
    "recount cutmix mixup_prob "
    "mixup_switch_prob smoothing drop drop_path model_ema model_ema_decay log_interval checkpoint_hist amp_dtype "
    "experiment log_wandb sync_bn torchcompile local_rank channels_last pin_mem",
    "lightning": "max_epochs accelerator devices strategy precision num_nodes logger fast_dev_run max_steps max_time "
    "limit_train_batches check_val_every_n_epoch log_every_n_steps accumulate_grad_batches gradient_clip_val "
    "profiler default_root_dir sync_batchnorm ckpt_path overfit_batches benchmark",
    "torchrun": "nproc_per_node nnodes node_rank master_addr master_port rdzv_backend rdzv_endpoint rdzv_id standalone",
    "paddlex": "c o dataset_dir output epochs_iters batch_size learning_rate pretrain_weight_path resume_path "
    "warmup_steps class_num use_vdl fleet eval",
    "mmengine": "work_dir resume cfg_options auto_scale_lr launcher load_from val_interval randomness",
}
UNKNOWN = {"randomness"}  # a dictionary there


@pytest.mark.parametrize("tool", TYPED)
def test_what_users_of_six_tools_type_is_told_as_what_it_is_here(tool):
    without = [name for name in TYPED[tool].split() if not find_any_flag(name) and not advise(name)]
    assert set(without) <= UNKNOWN


def test_every_name_is_of_a_flag_or_key_that_exists():
    assert [name for name in OTHER_NAMES.values() if not find_any_flag(name) and not find_key(name)] == []
    said = " ".join(advise(name) for tool in TYPED.values() for name in tool.split())
    keys = set(re.findall(r"\b[A-Z]+\.[A-Z_.]+[A-Z]\b", said))
    assert len(keys) > 20 and keys <= {*find_keys(), "TRAIN.BASE_LR"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--freeze 10", "--freeze is not a known flag: write TRAIN.FREEZE"),
        ("-TRAIN.BASE_LR 0.1", "keys are written without a dash: TRAIN.BASE_LR=VALUE"),
        ("--horizontal-flip 0.1", "write DATA.HORIZONTAL_FLIP VALUE"),
        ("--xyzzy 1", "--xyzzy is not a known flag: valid flags: -cfg"),
        ("optim_wrapper.optimizer.lr=0.1", "the closest is TRAIN.BASE_LR"),
        ("train_cfg.max_epochs=3", "the closest is TRAIN.NUM_EPOCHS"),
        ("zzz.yyy=3", "-h keys' lists all"),
        ("MODEL.NAME output/gone", "there is no file or folder output/gone;"),
    ],
)
def test_what_is_unknown_gets_our_way_or_the_page_of_the_list(words, said):
    assert said in refusal_of(load, ["-cfg=vit_digits", *words.split()], default_recipe="vit_digits")


def test_sections_in_other_tools_words_name_their_keys(tmp_path):
    file = tmp_path / "mm.yaml"
    file.write_text("optim_wrapper: {optimizer: {type: AdamW, lr: 0.1}, clip_grad: {max_norm: 1}}\n")
    line = refusal_of(load, [f"-cfg={file}"])
    assert "optim_wrapper (a section) is not a known key: here, lr is TRAIN.BASE_LR" in line
