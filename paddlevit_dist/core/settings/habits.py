"""How users of other tools write flags and keys, and what to write here.

Source: documented options of Ultralytics, timm's ``train.py``, Lightning's Trainer, torchrun, PaddleX with PaddleClas
and PaddleDetection, and mmengine's ``tools/train.py``.
"""

_SEVERAL_MACHINES = (
    "start 'python -m paddle.distributed.launch --nnodes N --rank I --master ADDRESS:PORT' on each machine"
)
_ALL_DEVICES = "remove it: one command starts a process for each device (-ngpus=N)"
_KEYS = "write keys without a dash: TRAIN.BASE_LR 1e-3 DATA.BATCH_SIZE 16"
_GPUS = "set CUDA_VISIBLE_DEVICES=0,1 before the command; -ngpus=N is their number"
_FREEZE = "write TRAIN.FREEZE '[PATTERN]' with names of parameters, such as blocks.0.*"
_LOG = "write -log_to=tensorboard, visualdl, wandb or mlflow"
_PATHS = "remove it: runs without -output get a folder with the next number"

# Names in other tools -> our flags and keys.
OTHER_NAMES = {
    **dict.fromkeys(("config", "config_file", "c", "cfg_file", "config_path", "config_name"), "cfg"),
    **dict.fromkeys(
        ("data", "data_dir", "data_root", "dataset_path", "dataset_dir", "data_folder", "root"), "data_path"
    ),
    **dict.fromkeys(("train_dir", "train_path", "img_dir", "image_dir", "image_folder", "source"), "data_path"),
    **dict.fromkeys(("output_dir", "out", "out_dir", "save_dir", "work_dir", "log_dir", "logdir", "run_dir"), "output"),
    **dict.fromkeys(("project", "name", "experiment", "exp_name", "exp_dir", "run_name", "default_root_dir"), "output"),
    **dict.fromkeys(("save_path", "output_path", "output_folder", "workdir"), "output"),
    **dict.fromkeys(("b", "bs", "batch", "train_batch_size", "batch_size_per_gpu"), "batch_size"),
    **dict.fromkeys(("batch_size_per_card", "per_device_train_batch_size", "samples_per_gpu"), "batch_size"),
    **dict.fromkeys(
        ("validation_batch_size", "val_batch_size", "test_batch_size", "eval_batch_size"), "batch_size_eval"
    ),
    **dict.fromkeys(("j", "workers", "n_workers", "nw", "dataloader_num_workers", "workers_per_gpu"), "num_workers"),
    **dict.fromkeys(("img_size", "imgsz", "input_size", "img", "size", "resolution", "image_shape"), "image_size"),
    **dict.fromkeys(("nb_classes", "classes", "nc", "n_classes", "class_num", "num_labels"), "num_classes"),
    **dict.fromkeys(("checkpoint", "weights", "finetune", "initial_checkpoint", "load_from", "ckpt"), "pretrained"),
    **dict.fromkeys(("pretrain_weight_path", "pretrained_path", "pretrained_model", "init_from"), "pretrained"),
    **dict.fromkeys(("resume_from", "resume_path", "ckpt_path", "resume_from_checkpoint"), "resume"),
    **dict.fromkeys(("gpus", "nproc_per_node", "devices", "num_gpus", "n_gpus", "num_devices", "world_size"), "ngpus"),
    **dict.fromkeys(("accelerator", "use_gpu"), "device"),
    **dict.fromkeys(("epoch", "num_epochs", "max_epochs", "max_epoch", "n_epochs", "epochs_iters"), "epochs"),
    **dict.fromkeys(("num_train_epochs", "total_epochs", "nb_epochs"), "epochs"),
    **dict.fromkeys(("evaluate", "test", "val", "validate", "eval_only", "test_only", "do_eval"), "eval"),
    **dict.fromkeys(("grad_accum_steps", "accumulate_grad_batches", "gradient_accumulation_steps"), "accum_iter"),
    **dict.fromkeys(("accumulate", "update_freq", "accum_steps", "accumulation_steps"), "accum_iter"),
    **dict.fromkeys(("grad_checkpointing", "gradient_checkpointing", "use_recompute", "with_cp"), "recompute"),
    **dict.fromkeys(("fp16", "half", "mixed_precision", "use_amp"), "amp"),
    **dict.fromkeys(("max_time", "time"), "stop_after_seconds"),
    **dict.fromkeys(("random_seed", "manual_seed"), "seed"),
    **dict.fromkeys(("profiler",), "profile"),
    **dict.fromkeys(("lr", "lr0", "learning_rate", "base_lr", "blr"), "TRAIN.BASE_LR"),
    **dict.fromkeys(("lrf", "min_lr", "end_lr", "eta_min"), "TRAIN.END_LR"),
    **dict.fromkeys(("wd", "weight_decay"), "TRAIN.WEIGHT_DECAY"),
    **dict.fromkeys(("opt", "optimizer", "optim"), "TRAIN.OPTIMIZER.NAME"),
    **dict.fromkeys(("momentum",), "TRAIN.OPTIMIZER.MOMENTUM"),
    **dict.fromkeys(("opt_eps",), "TRAIN.OPTIMIZER.EPS"),
    **dict.fromkeys(("opt_betas",), "TRAIN.OPTIMIZER.BETAS"),
    **dict.fromkeys(("sched", "scheduler", "lr_scheduler", "cos_lr", "lr_schedule"), "TRAIN.LR_SCHEDULER.NAME"),
    **dict.fromkeys(("model", "arch", "a", "model_name", "network"), "MODEL.NAME"),
    **dict.fromkeys(("warmup_epochs", "warmup"), "TRAIN.WARMUP_EPOCHS"),
    **dict.fromkeys(("warmup_steps", "warmup_iters"), "TRAIN.WARMUP_STEPS"),
    **dict.fromkeys(("warmup_lr",), "TRAIN.WARMUP_START_LR"),
    **dict.fromkeys(
        ("clip_grad", "grad_clip", "gradient_clip_val", "max_grad_norm", "clip_grad_norm"), "TRAIN.GRAD_CLIP"
    ),
    **dict.fromkeys(("clip_mode", "gradient_clip_algorithm"), "TRAIN.GRAD_CLIP_MODE"),
    **dict.fromkeys(("patience", "early_stopping", "early_stopping_patience"), "TRAIN.PATIENCE"),
    "min_delta": "TRAIN.MIN_IMPROVEMENT",
    **dict.fromkeys(("num_seeds", "n_seeds"), "seeds"),
    **dict.fromkeys(("smoothing", "label_smoothing"), "TRAIN.SMOOTHING"),
    **dict.fromkeys(("mixup", "mixup_alpha"), "TRAIN.MIXUP_ALPHA"),
    **dict.fromkeys(("cutmix", "cutmix_alpha"), "TRAIN.CUTMIX_ALPHA"),
    "mixup_prob": "TRAIN.MIXUP_PROB",
    "mixup_switch_prob": "TRAIN.MIXUP_SWITCH_PROB",
    "mixup_mode": "TRAIN.MIXUP_MODE",
    **dict.fromkeys(("drop_path", "drop_path_rate"), "MODEL.DROPPATH"),
    **dict.fromkeys(("drop", "drop_rate", "dropout"), "MODEL.DROPOUT"),
    **dict.fromkeys(("attn_drop", "attn_drop_rate"), "MODEL.ATTENTION_DROPOUT"),
    **dict.fromkeys(("in_chans", "in_channels", "channels"), "DATA.IMAGE_CHANNELS"),
    **dict.fromkeys(("aa", "auto_augment", "randaugment", "rand_augment"), "TRAIN.RAND_AUGMENT"),
    **dict.fromkeys(("reprob", "erasing", "random_erasing"), "TRAIN.RANDOM_ERASE_PROB"),
    "remode": "TRAIN.RANDOM_ERASE_MODE",
    "recount": "TRAIN.RANDOM_ERASE_COUNT",
    **dict.fromkeys(("color_jitter", "hsv_h", "hsv_s", "hsv_v"), "TRAIN.COLOR_JITTER"),
    **dict.fromkeys(("aug_repeats", "repeated_aug"), "TRAIN.REPEATED_AUGMENT"),
    **dict.fromkeys(("hflip", "fliplr"), "DATA.HORIZONTAL_FLIP"),
    "scale": "DATA.CROP_SCALE",
    "ratio": "DATA.CROP_RATIO",
    "crop_pct": "DATA.CROP_PCT",
    "interpolation": "DATA.INTERPOLATION",
    "mean": "DATA.IMAGENET_MEAN",
    "std": "DATA.IMAGENET_STD",
    "tta": "DATA.TEST_VIEWS",
    **dict.fromkeys(("val_ratio", "validation_split", "val_size"), "DATA.VAL_FRACTION"),
    "mosaic": "DATA.MOSAIC",
    "copy_paste": "DATA.COPY_PASTE",
    "close_mosaic": "DATA.NO_AUGMENT_EPOCHS",
    "layer_decay": "TRAIN.LAYER_DECAY",
    **dict.fromkeys(("model_ema", "ema", "use_ema"), "TRAIN.MODEL_EMA"),
    **dict.fromkeys(("model_ema_decay", "ema_decay"), "TRAIN.MODEL_EMA_DECAY"),
    **dict.fromkeys(("sync_bn", "sync_batchnorm", "dist_bn"), "TRAIN.BATCH_NORM"),
    **dict.fromkeys(("torchcompile", "compile", "to_static"), "TO_STATIC"),
    "amp_dtype": "AMP_DTYPE",
    "deterministic": "DETERMINISTIC",
    "auto_scale_lr": "TRAIN.LINEAR_SCALED_LR",
    **dict.fromkeys(("check_val_every_n_epoch", "val_interval", "eval_interval", "eval_freq"), "VALIDATE_FREQ"),
    **dict.fromkeys(("log_every_n_steps", "log_interval", "print_freq", "log_freq"), "REPORT_FREQ"),
    **dict.fromkeys(("save_period", "save_interval", "checkpoint_freq", "snapshot_epoch"), "SAVE_FREQ"),
    **dict.fromkeys(("checkpoint_hist", "save_top_k", "save_total_limit"), "KEEP_EPOCHS"),
    **dict.fromkeys(("max_det", "max_dets", "maxdets"), "max_detections"),
    "task": "TASK",
}
# Options of timm's networks -> ours with this meaning; "" if none has it, so that none is guessed by letters.
OTHER_OPTIONS = {
    "img_size": "image_size",
    "in_chans": "in_channels",
    **dict.fromkeys(("drop", "drop_rate"), "dropout"),
    **dict.fromkeys(("attn_drop", "attn_drop_rate"), "attention_dropout"),
    "drop_path_rate": "drop_path",
    "global_pool": "pool",
    **dict.fromkeys(("reg_tokens", "num_reg_tokens"), "registers"),
    "pos_embed": "positions",
    "act_layer": "activation",
    "dynamic_img_size": "any_size",
    **dict.fromkeys(("fc_norm", "use_fc_norm"), "pool_norm"),
    "use_pre_transformer_norm": "pre_norm",
    **dict.fromkeys(("scale_attn_norm", "scale_attn_inner"), "attention_norm"),
    **dict.fromkeys(("scale_mlp_norm", "scale_mlp"), "mlp_norm"),
    **dict.fromkeys(("head_dim", "attn_head_dim"), "attn_head_size"),
    "ls_init_value": "init_values",
    "norm_eps": "norm_epsilon",
    "sr_ratios": "reductions",
    "linear": "is_linear",
    "stem_width": "stem_dim",
    "num_blocks": "depth",
    "depth_token_only": "class_depth",
    **dict.fromkeys(("pos_drop_rate", "patch_drop_rate", "proj_drop", "proj_drop_rate", "drop_block_rate"), ""),
    **dict.fromkeys(("qk_norm", "stem_norm", "proj_bias", "conv_bias", "num_kv_heads", "window_size"), ""),
    **dict.fromkeys(("attn_pool_num_heads", "attn_pool_mlp_ratio", "mlp_ratio_token_only"), ""),
    **dict.fromkeys(("down_kernel_size", "aa_layer"), ""),
}
# Names in other tools that have no single counterpart here -> what to do instead.
_ADVICE = {
    **dict.fromkeys(("precision", "bf16"), "write -amp, and AMP_DTYPE bfloat16 for bfloat16"),
    **dict.fromkeys(("freeze", "freeze_layers", "frozen_stages", "freeze_backbone", "freeze_at"), _FREEZE),
    **dict.fromkeys(
        ("wandb", "log_wandb", "use_wandb", "logger", "tensorboard", "use_vdl", "visualdl", "mlflow"), _LOG
    ),
    **dict.fromkeys(("vdl_log_dir", "use_tensorboard", "plots", "report_to"), _LOG),
    "cache": "remove it: the list of images is kept with the run, or in DATA.CACHE_FOLDER",
    **dict.fromkeys(
        ("nnodes", "num_nodes", "node_rank", "master_addr", "master_port", "standalone"), _SEVERAL_MACHINES
    ),
    **dict.fromkeys(("rdzv_backend", "rdzv_endpoint", "rdzv_id", "max_restarts", "dist_url"), _SEVERAL_MACHINES),
    **dict.fromkeys(("strategy", "launcher", "local_rank", "distributed", "fleet", "dist_backend"), _ALL_DEVICES),
    **dict.fromkeys(("gpu", "gpu_id", "gpu_ids", "cuda"), _GPUS),
    **dict.fromkeys(("cfg_options", "options", "opts", "o", "override", "overrides", "set"), _KEYS),
    **dict.fromkeys(("exist_ok", "overwrite", "force"), _PATHS),
    **dict.fromkeys(
        ("verbose", "benchmark", "pin_mem", "pin_memory", "channels_last"), "remove it: nothing is to be set"
    ),
    **dict.fromkeys(("do_train", "train", "mode"), "the command is the first word: train, evaluate or predict"),
    **dict.fromkeys(
        ("max_steps", "max_iters", "iters", "steps"), "write -epochs=N: the log says how many updates follow"
    ),
    **dict.fromkeys(
        ("fast_dev_run", "overfit_batches", "limit_train_batches"),
        "write -epochs=1; 'doctor' with the same flags tries one batch",
    ),
    **dict.fromkeys(("conf", "iou"), "it is for predictions: write 'predict RUN FILES -least_score=SHARE'"),
}


def find_advice(name: str) -> str:
    """Return what to do here in place of another tool's flag or key without a counterpart, else an empty text."""
    return _ADVICE.get(name.lower().replace("-", "_"), "")
