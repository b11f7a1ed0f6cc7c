"""Values that are valid on their own but contradict one another."""

import shlex

import pytest

from paddlevit_dist.core.settings import DEFAULT_RECIPE, load


@pytest.mark.parametrize(
    "words, message",
    [
        (
            "TRAIN.WARMUP_STEPS 50 TRAIN.WARMUP_EPOCHS 2",
            (
                "TRAIN.WARMUP_STEPS 50 (word) and TRAIN.WARMUP_EPOCHS 2 (word): keep one: "
                "set WARMUP_STEPS to None or WARMUP_EPOCHS to 0"
            ),
        ),
        (
            "-epochs=5 TRAIN.WARMUP_EPOCHS 5",
            "TRAIN.WARMUP_EPOCHS 5 (word): expected fewer than TRAIN.NUM_EPOCHS 5 (-epochs)",
        ),
        (
            "TO_STATIC True -recompute",
            (
                "TO_STATIC True (word) and TRAIN.RECOMPUTE True (-recompute): a compiled model stores all activations "
                "for its backward pass; set one of them to False"
            ),
        ),
        (
            "-last_epoch=300",
            (
                "TRAIN.LAST_EPOCH 300 (-last_epoch): expected fewer than TRAIN.NUM_EPOCHS 300 (default), "
                "or nothing is left to train"
            ),
        ),
        (
            "-stop_after_epoch=301",
            "TRAIN.STOP_AFTER_EPOCH 301 (-stop_after_epoch): expected at most TRAIN.NUM_EPOCHS 300 (default)",
        ),
        (
            "DATA.CROP_SCALE [1.0,0.5]",
            "DATA.CROP_SCALE [1.0, 0.5] (word): expected the smaller number first",
        ),
        (
            "DATA.CROP_RATIO '(2, 1)'",
            "DATA.CROP_RATIO [2.0, 1.0] (word): expected the smaller number first",
        ),
        (
            "TRAIN.END_LR 1",
            "TRAIN.END_LR 1.0 (word): expected at most TRAIN.BASE_LR 0.001 (default): cosine falls from it",
        ),
        (
            "TRAIN.WARMUP_STEPS 5 TRAIN.WARMUP_START_LR 1",
            "TRAIN.WARMUP_START_LR 1.0 (word): expected at most TRAIN.BASE_LR 0.001 (default): a warm-up rises to it",
        ),
        (
            "DATA.IMAGENET_MEAN 0.5,0.5,0.5 DATA.IMAGE_CHANNELS 1",
            "DATA.IMAGENET_MEAN [0.5, 0.5, 0.5] (word): expected 1 number, as many as DATA.IMAGE_CHANNELS 1 (word)",
        ),
        (
            "DATA.IMAGENET_STD 0.5",
            "DATA.IMAGENET_STD [0.5] (word): expected 3 numbers, as many as DATA.IMAGE_CHANNELS 3 (default)",
        ),
        (
            "TRAIN.LR_SCHEDULER.NAME step",
            "TRAIN.LR_SCHEDULER.MILESTONES [] (default): expected rising epochs for step, such as [30, 60]",
        ),
        (
            "TRAIN.LR_SCHEDULER.NAME=step TRAIN.LR_SCHEDULER.MILESTONES=30,30",
            "TRAIN.LR_SCHEDULER.MILESTONES [30, 30] (word): expected rising epochs for step, such as [30, 60]",
        ),
        (
            "-eval",
            "EVAL True (-eval) and MODEL.PRETRAINED None (default): random weights are never evaluated; name a "
            "checkpoint with -pretrained=PATH",
        ),
        (
            "-cfg=probe_knn EVAL True MODEL.PRETRAINED None",
            "EVAL True (word) and MODEL.PRETRAINED None (word): random weights are never evaluated; name a checkpoint "
            "with -pretrained=PATH",
        ),
        (
            "-eval -pretrained=a -resume=b",
            "MODEL.PRETRAINED a (-pretrained) and MODEL.RESUME b (-resume): an evaluation takes one checkpoint",
        ),
        ("DATA.SPLIT test", "DATA.SPLIT test (word): training evaluates on val; add -eval or remove -split"),
        ("-eval -pretrained=a DATA.SPLIT=a/b", "DATA.SPLIT a/b (word): expected the name of a split, such as test"),
        (
            "SAVE_PREDICTIONS True",
            "SAVE_PREDICTIONS True (word): only an evaluation writes predictions; add -eval or remove SAVE_PREDICTIONS",
        ),
        (
            "TRAIN.NUM_SAMPLES 90 TRAIN.EPOCH_LIMITS 5,9 TRAIN.WARMUP_EPOCHS 5",
            "TRAIN.WARMUP_EPOCHS 5 (word): expected fewer than TRAIN.EPOCH_LIMITS (5, 9) (word)",
        ),
        ("TRAIN.EPOCH_LIMITS [9,8]", "TRAIN.EPOCH_LIMITS (9, 8) (word): expected the smaller number first"),
        (
            "TRAIN.OPTIMIZER.NAME SGD TRAIN.OPTIMIZER.WARMUP_MOMENTUM 0.95",
            "TRAIN.OPTIMIZER.WARMUP_MOMENTUM 0.95 (word): expected at most TRAIN.OPTIMIZER.MOMENTUM 0.9 (default): "
            "the momentum rises to it",
        ),
        (
            "TRAIN.LR_SCHEDULER.NAME poly TRAIN.END_LR 0.5",
            "TRAIN.END_LR 0.5 (word): expected at most TRAIN.BASE_LR 0.001 (default): poly falls from it",
        ),
        (
            "TRAIN.WARMUP_EPOCHS 5 TRAIN.WARMUP_START_LR 1",
            "TRAIN.WARMUP_START_LR 1.0 (word): expected at most TRAIN.BASE_LR 0.001 (default): a warm-up rises to it",
        ),
        (
            "TRAIN.WEIGHT_DECAY 0 TRAIN.WEIGHT_DECAY_END 0.1",
            "TRAIN.WEIGHT_DECAY_END 0.1 (word) and TRAIN.WEIGHT_DECAY 0.0 (word): a factor of 0 never grows; set "
            "TRAIN.WEIGHT_DECAY to a number above 0",
        ),
        (
            "TRAIN.LORA.RANK 2",
            "TRAIN.LORA.RANK 2 (word): it trains a few values for frozen weights; name these with -pretrained=WEIGHTS",
        ),
        (
            "-pretrained=w TRAIN.LORA.RANK 2 TO_STATIC True",
            "TRAIN.LORA.RANK 2 (word) and TO_STATIC True (word): compiled models take no such matrices; set one of "
            "them to 0 or False",
        ),
    ],
)
def test_contradictions_name_both_sides(refuse, words, message):
    assert refuse(load, shlex.split(words)) == message.replace("(word)", "(command line)")


@pytest.mark.parametrize(
    "words, parts",
    [
        (
            "-cfg=vit_digits -dataset=coco -data_path=x",
            (
                "coco (-dataset) contains images with boxes, but TASK classification ",
                "=finetune_detector, or one of cifar10, ",
            ),
        ),
        (
            "-cfg=detr_shapes -dataset=folder -data_path=x",
            ("folder (-dataset) contains images, but TASK detection ", "=finetune_folder, or one of box_table, coco, "),
        ),
        (
            "-cfg=vit_digits MODEL.NAME detr_resnet50",
            (
                "MODEL.NAME detr_resnet50 (command line) is for images with boxes, but TASK classification ",
                "=detr_r50_coco",
            ),
        ),
        (
            "-cfg=detr_shapes MODEL.NAME segformer_b0",
            ("segformer_b0 (command line) is for images with label maps, but TASK detection ", "=segformer_b0_shapes"),
        ),
        (
            "-cfg=segformer_b0_shapes -dataset=synthetic_shapes",
            (
                "contains images with boxes, but TASK image_segmentation ",
                "=detr_shapes, or one of ",
                "segmentation_shapes",
            ),
        ),
    ],
)
def test_boxes_and_label_maps_are_for_their_tasks_and_whole_images_are_not(refuse, words, parts):
    message = refuse(load, shlex.split(words), DEFAULT_RECIPE)
    assert all(part in message for part in parts), message


def test_places_in_files_have_their_line(refuse, load_text):
    message = refuse(load_text, "TRAIN:\n  WARMUP_EPOCHS: 32\n  NUM_EPOCHS: 10")

    assert message == "TRAIN.WARMUP_EPOCHS 32 (x.yaml:2): expected fewer than TRAIN.NUM_EPOCHS 10 (x.yaml:3)"


@pytest.mark.parametrize(
    "words",
    [
        "TRAIN.WARMUP_STEPS 50",
        "TRAIN.LR_SCHEDULER.NAME step TRAIN.LR_SCHEDULER.MILESTONES [30,60]",
        "-stop_after_epoch=300",
        "-epochs=2 TRAIN.WARMUP_EPOCHS 1",
        "-eval -pretrained=x",
        "-eval -resume=x",
        "-eval -pretrained=x MODEL.RESUME auto",  # config.yaml of a run that was resumed
        "-pretrained=x",
        "-last_epoch=299",
        "-eval -pretrained=x DATA.SPLIT test",
        "TRAIN.NUM_SAMPLES 90 TRAIN.EPOCH_LIMITS [5,5] TRAIN.WARMUP_EPOCHS 4",
        "TRAIN.OPTIMIZER.NAME SGD TRAIN.OPTIMIZER.WARMUP_MOMENTUM 0.9 TRAIN.WARMUP_EPOCHS 5",
        "TRAIN.LR_SCHEDULER.NAME poly TRAIN.END_LR 0.001",
        "TRAIN.WARMUP_EPOCHS 5 TRAIN.WARMUP_START_LR 0.001",
        "TRAIN.LORA.RANK 2 -resume=x",
        "TRAIN.BATCH_NORM_MOMENTUM 0.5",
    ],
)
def test_what_fits_together_is_silent(words):
    assert load(shlex.split(words)).notices == []


@pytest.mark.parametrize(
    "words, unused",
    [
        ("TRAIN.END_LR 1 TRAIN.LR_SCHEDULER.NAME constant", ["TRAIN.END_LR"]),
        ("TRAIN.WARMUP_START_LR 1", ["TRAIN.WARMUP_START_LR"]),
        ("-eval -resume=auto -amp", ["AMP"]),
        ("-cfg=segformer_b0_shapes SEGMENTATION.OHEM_THRESHOLD 0.7", ["SEGMENTATION.OHEM_THRESHOLD"]),
        ("-eval -pretrained=x -epochs=2 TRAIN.WARMUP_EPOCHS 5", ["TRAIN.NUM_EPOCHS", "TRAIN.WARMUP_EPOCHS"]),
    ],
)
def test_values_that_nothing_reads_contradict_nothing(words, unused):
    notices = load(shlex.split(words)).notices

    assert [notice.split()[0] for notice in notices] == unused
    assert all(": no effect: " in notice for notice in notices)


@pytest.mark.parametrize("recipe", ["detr_shapes", "mask_rcnn_shapes", "segformer_b0_shapes", "dfine_shapes"])
@pytest.mark.parametrize("key", ["DATA.IMAGENET_MEAN", "DATA.IMAGENET_STD"])
def test_another_number_of_channels_is_refused_where_all_images_have_three(refuse, recipe, key):
    message = refuse(lambda: load([f"-cfg={recipe}", key, "[0.5]"]))
    assert message == f"{key} [0.5] (command line): expected 3 numbers, as many as images have channels"


@pytest.mark.parametrize("value", ["[no, yes]", "[007]", "[1.50]", "[null]", "2001-12-14", "[~, 'a']"])
def test_text_that_yaml_reads_as_something_else_is_asked_for_in_quotes(load_text, refuse, value):
    message = refuse(load_text, f"VOLUMES: {{LARGEST_COMPONENT: {value}}}\nTASK: volume_segmentation")
    assert message.startswith("x.yaml:1: VOLUMES.LARGEST_COMPONENT is ") and "; write it in quotes, as " in message
    quoted = "VOLUMES: {LARGEST_COMPONENT: ['no', \"007\", '~']}\nTASK: volume_segmentation"
    assert load_text(quoted).values.VOLUMES.LARGEST_COMPONENT == ["no", "007", "~"]


def test_a_choice_is_not_asked_for_in_quotes(load_text, refuse):
    message = refuse(load_text, "DATA: {CROP_MODE: no}")
    assert message == "x.yaml:1: DATA.CROP_MODE is False: expected one of center, squash, border"


def test_means_and_deviations_left_alone_follow_the_channels(load_text):
    configuration = load_text("DATA: {IMAGE_CHANNELS: 1, IMAGENET_MEAN: [0.13]}")

    assert configuration.values.DATA.IMAGENET_MEAN == [0.13] and configuration.values.DATA.IMAGENET_STD == [0.5]
    sources = [configuration.sources[f"DATA.IMAGENET_{name}"] for name in ("MEAN", "STD")]
    assert sources == ["x.yaml", "follows from other keys"]


def test_resume_beside_pretrained_is_a_notice_in_training():
    assert load(["-pretrained=a", "-resume=auto"]).notices == [
        "MODEL.RESUME auto (-resume) wins over MODEL.PRETRAINED a (-pretrained) if it finds a checkpoint"
    ]
