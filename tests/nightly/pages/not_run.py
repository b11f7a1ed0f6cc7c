"""Commands in the pages that no test runs verbatim, each with the reason.

Those of the entry point are still checked: with -show_config, which reads the recipe, checks every flag and key, and
builds the model without allocating memory.
"""

from .reading import PAGES

GPU = "needs GPUs, ImageNet and published weights"
CARD = "needs an accelerator; tests/integration/device/test_made_up_device.py does the same on a made-up one"
DOWNLOAD = "needs a download"
PUBLISHED = "needs a download; tests/unit/core/inference/test_trained.py opens a folder in that form"
MEMORY = "needs a GPU, whose memory is tried; tests/nightly/core/engine/test_batch_size.py makes one up"
HOST = "needs a second host; tests/nightly/core/launch/test_nodes.py runs it on one"
INSTALLED = "tests/nightly/test_wheel.py runs the installed command"
SELFTEST = "tests/nightly/core/distributed/test_selftest.py"
SEEDS = "tests/nightly/extensions/compare/test_groups_of_seeds.py trains smaller groups; test_groups.py compares them"
SLURM = "needs Slurm; tests/integration/core/launch/test_slurm_example.py"
ITSELF = "is the test suite, or part of it"
HOURS = "takes minutes to hours and a quiet machine; its programs are what the page is about"
ONNX = "needs the extra onnx; tests/integration/images/test_onnx_export.py does it"
SERVED = "tests/nightly/core/library/test_serve_example.py serves under 20 clients"
OPENVINO = "needs the extra openvino; tests/integration/test_openvino.py does it"
ONNX_BOXES = "needs the extra onnx; tests/nightly/images/detection/test_exported_detectors.py does it"
FEW_LABELS = "tests/nightly/images/test_few_labels.py runs it with fewer epochs and seeds"
OTHER_IMAGES = "tests/integration/images/test_pretraining.py does it with smaller networks and images that it draws"
RELEASE = "tests/nightly/test_wheel.py builds a release"
OTHER_FILES = "tests/nightly/core/commands/test_predict_scenes.py and test_split.py run it on files that they make"
NUSCENES = "tests/nightly/points/test_nuscenes.py runs it on scans that it draws"
PAGE_OF_ITS_OWN = "tests/nightly/images/test_documented_session.py runs that page, on the digits"
SESSION = "tests/nightly/pages/test_tutorials.py runs that page, as it stands"
CONTAINER = "needs Docker; tests/nightly/test_container.py does the steps of the file"
FORMS = "tells how commands are written, of others and of ours"
SMALL_ENCODER = "tests/nightly/pages/test_sonata_page.py runs that page, with a small encoder"
KEYPOINT_RESULTS = "tests/unit/images/keypoints/test_evaluate_command.py scores files that it writes"
OWN_NETWORK = "tests/nightly/points/test_documented_programs.py trains it as it stands, from weights that it makes"

NOT_RUN = {
    "python -m paddlevit_dist train -import=my_network -cfg=minkunet14_synthetic_rooms MODEL.NAME my_network "
    "-pretrained=theirs.pth -output=./output/mine": OWN_NETWORK,
    "CUDA_VISIBLE_DEVICES=0,1,2,3 python main_multi_gpu.py -cfg='./configs/vit_base_patch16_224.yaml' "
    "-dataset='imagenet2012' -batch_size=16 -data_path='/dataset/imagenet' -eval "
    "-pretrained='./vit_base_patch16_224'": GPU,
    "python main_multi_gpu.py -cfg=./configs/vit_base_patch16_224.yaml -data_path=/dataset/imagenet -batch_size=auto "
    "-output=./output/fitted": MEMORY,
    "python -m paddle.distributed.launch --nnodes 2 --rank 0 --master 10.0.0.1:38700 main_multi_gpu.py "
    "-cfg=./configs/vit_digits.yaml -output=./output/two": HOST,
    "python -m paddle.distributed.launch --nnodes 2 --rank 1 --master 10.0.0.1:38700 main_multi_gpu.py "
    "-cfg=./configs/vit_digits.yaml -output=./output/two": HOST,
    "pip install paddlepaddle-gpu==3.3.1 -i https://www.paddlepaddle.org.cn/packages/stable/cu126/": DOWNLOAD,
    "pip install '.[cpu]'": DOWNLOAD,
    "paddlevit-dist predict hf:timm/vit_small_patch16_224.augreg_in21k_ft_in1k photo.jpg": PUBLISHED,
    "make site": DOWNLOAD,
    "make pairs": ITSELF,
    "make format": "changes files; make lint says whether it would",
    "make reference": "writes files; test_reference.py here and in tests/unit/tools say whether it would",
    "python3 -m venv env && . env/bin/activate": INSTALLED,
    "paddlevit-dist inspect recipes": INSTALLED,
    "python -m paddlevit_dist": "lists the commands; tests/integration/core/commands/test_environment.py",
    "pip install '.[volumes]'": DOWNLOAD,
    "pip install '.[tensorboard]'": DOWNLOAD,
    "pip install '.[fast]'": DOWNLOAD,
    "pip install '.[remote]'": DOWNLOAD,
    "pip install '.[search]'": DOWNLOAD,
    "pip install '.[onnx]'": DOWNLOAD,
    "pip install '.[triton]'": DOWNLOAD,
    "pip install '.[hub]'": DOWNLOAD,
    "paddlevit-dist predict output/heatmaps new -output=skeletons": "needs the images of the program above it; "
    "test_tutorials.py predicts on images of points",
    "python benchmarks/eval_throughput.py --peer-python /path/to/python/with/torch/and/timm --modes 1x1 --rounds 3 "
    "--models ...": HOURS,
    "pip install pillow-heif": DOWNLOAD,
    "pip install '.[openvino]'": DOWNLOAD,
    "python benchmarks/leaks.py --val 50 --train 100 --kinds 10": HOURS,
    "python benchmarks/predictor_calls.py": HOURS,
    "python -m pytest -rP tests/nightly/core/library/test_serve_example.py": ITSELF,
    "pip install pyarrow": DOWNLOAD,
    "pip install paddleclas --no-deps": DOWNLOAD,
    "python -m paddlevit_dist predict hf:OWNER/leaves new_images": DOWNLOAD,
    "python -m paddlevit_dist train -cfg=my_recipe.yaml -pretrained=hf:OWNER/leaves": DOWNLOAD,
    "python -m paddlevit_dist convert vit.npz vit.safetensors": DOWNLOAD,
    "python -m paddlevit_dist convert swin.pth swin.pdparams": DOWNLOAD,
    "python -m paddlevit_dist export deit.pth exported/deit -model=deit_small_patch16_224 -image_size=384": DOWNLOAD,
    "./run_eval_multi.sh -cfg=./configs/minkunet34c_scannet.yaml -data_path=/dataset/scannet_prepared "
    '-pretrained=weights.pth POINTS.COLOR_RANGE "[-0.5, 0.5]" POINTS.VOXEL_FEATURES mean '
    "DATA.VOXEL_SIZE_M 0.02": DOWNLOAD,
    "python -m paddlevit_dist export ./output/mine exported/mine -format=onnx": ONNX,
    "python -m paddlevit_dist predict exported/mine.onnx my_data/val -output=of_onnx": ONNX,
    "python -m paddlevit_dist export ./output/mine exported/fast -format=onnxruntime -precision=float16": ONNX,
    "python -m paddlevit_dist export ./output/shapes exported/shapes -format=onnx -input=uint8": ONNX_BOXES,
    "python -m paddlevit_dist evaluate exported/shapes.onnx -cfg=rtdetr_shapes": ONNX_BOXES,
    "python main_multi_gpu.py -cfg=./configs/finetune_folder.yaml -data_path=./my_images "
    "-pretrained=eva02_small_patch14_336.mim_in22k_ft_in1k -image_size=336": DOWNLOAD,
    "python main_multi_gpu.py -cfg=./configs/linear_dinov3_small_ade20k.yaml -data_path=/dataset/ade20k": DOWNLOAD,
    "python -m paddlevit_dist export ./output/heads exported/heads -format=onnx": ONNX,
    "python -m paddlevit_dist prepare scannet /dataset/scannet /dataset/scannet_prepared": OTHER_FILES,
    "./run_eval_multi.sh -cfg=./configs/minkunet34c_scannet.yaml -data_path=/dataset/scannet_prepared -split=test "
    "-output=./output/test -pretrained=./output/scannet": OTHER_FILES,
    "python -m paddlevit_dist prepare scenes /dataset/scans my_store "
    "--channels=normal,intensity": "needs scans; tests/unit/points/prepare/test_formats_prepared.py has all formats",
    "./run_train_multi.sh -cfg=minkunet34c_scannet -dataset=scenes -data_path=my_store "
    'POINTS.FEATURES "[rgb, normal]"': "needs scans; tests/integration/points/test_scene_formats.py trains on such",
    "python -m paddlevit_dist prepare scenes /dataset/nuscenes /dataset/nuscenes_prepared": NUSCENES,
    "./run_train_multi.sh -cfg=minkunet34c_nuscenes -data_path=/dataset/nuscenes_prepared "
    "-output=./output/nuscenes": NUSCENES,
    "./run_eval_multi.sh -cfg=minkunet34c_nuscenes -data_path=/dataset/nuscenes_prepared -pretrained=./output/nuscenes "
    "-split=test -output=./output/nuscenes_test": NUSCENES,
    "./run_train_multi.sh -cfg=minkunet34c_scannet -dataset=scenes -data_path=/dataset/city DATA.VOXEL_SIZE_M 0.1 "
    "POINTS.CROP block POINTS.CROP_SIZE_M 12 POINTS.MAX_POINTS 300000 POINTS.FRAGMENT_SIZE_M 12 "
    "-output=./output/city": "needs large scenes; tests/unit/points/segmentation/test_fragments.py has its parts",
    "./run_train_multi.sh -cfg=./configs/mink_classifier_solids.yaml -output=./output/solids": "takes minutes; "
    "tests/nightly/points/test_recipes.py trains it smaller",
    "./run_train_multi.sh -cfg=mink_classifier_solids -dataset=modelnet40 "
    "-data_path=/dataset/modelnet40_normal_resampled SHAPES.FEATURES '[xyz,normals]' SHAPES.VOXEL_SIZE 0.05 "
    "SHAPES.UP_AXIS y SHAPES.ROTATION_DEGREES 180 -epochs=100 -output=./output/modelnet40": DOWNLOAD,
    "python -m paddlevit_dist predict output/solids chair.off scanned_shapes --output=shape_predictions": "needs that "
    "run; tests/unit/points/shapes/test_task.py predicts files",
    "python -m paddlevit_dist predict output/rooms my_scan.ply /dataset/scannet/scans_test "
    "--output=predictions": OTHER_FILES,
    "python -m paddlevit_dist predict output/heads scan.nii.gz patients/ --output=predictions": OTHER_FILES,
    "make demo PYTHON=/path/to/python3.11": "names a Python that is not here",
    "sh examples/cluster/two_nodes.sh": "tests/nightly/pages/test_cluster_example.py runs it",
    "make lint": ITSELF,
    "make test": ITSELF,
    "make test-integration": ITSELF,
    "make test-nightly": ITSELF,
    "make coverage": ITSELF,
    "make fuzz": ITSELF,
    "make accept": HOURS,
    "make bench": HOURS,
    "make bench-all": HOURS,
    "make bench-gpu": "needs a GPU; tests/nightly/test_benchmarks.py runs it small on a CPU",
    "make accept-gpu PYTHON=python": "needs a GPU; tests/nightly/test_acceptance_gpu.py runs a row on a CPU",
    "make accept-gpu": "needs a GPU; tests/nightly/test_acceptance_gpu.py runs a row on a CPU",
    "make test-gpu-wheel": DOWNLOAD,
    "make audit": DOWNLOAD,
    "make dist": RELEASE,
    "python tools/try_release.py dist/*": DOWNLOAD,
}

# Commands that stand in a block together with what they print, or of other programs: which test runs them, or why none.
IN_TEXT = {
    "python examples/serve.py 8000 output/fields exported/mine.onnx": SERVED,
    "python -m paddlevit_dist evaluate exported/mine.onnx -runtime=openvino": OPENVINO,
    "python -m paddlevit_dist predict exported/mine.onnx my_data/val -runtime=openvino": OPENVINO,
    "paddlevit-dist evaluate -cfg=vit_base_patch16_224_finetune -data_path=/dataset/imagenet "
    "-pretrained=mae_finetuned_vit_base.pth MODEL.OPTIONS.pool average MODEL.OPTIONS.pool_norm true": GPU,
    "paddlevit-dist train -cfg=finetune_folder -data_path=my_images MODEL.NAME timm:resnet50 "
    "MODEL.OPTIONS.global_pool max": DOWNLOAD,
    "paddlevit-dist train -cfg=mae_vit_base_patch16_224 -data_path=all_images -amp -output=output/mae "
    "PRETRAINING.LABELED_PATH labeled_images": OTHER_IMAGES,
    "paddlevit-dist train -cfg=finetune_folder -data_path=labeled_images -pretrained=output/mae MODEL.NAME "
    "vit_base_patch16_224 TRAIN.LAYER_DECAY 0.75 -output=output/tuned": OTHER_IMAGES,
    "paddlevit-dist train -cfg=finetune_folder -data_path=labeled_images MODEL.PRETRAINED None "
    "MODEL.PRETRAINED_REQUIRED false MODEL.NAME vit_base_patch16_224 -output=output/scratch": OTHER_IMAGES,
    "python examples/few_labels.py output/digits": FEW_LABELS,
    "paddlevit-dist train -cfg=mae_digits -ngpus=1 -batch_size=32 -epochs=30 -output=output/mae": FEW_LABELS,
    "paddlevit-dist train -cfg=examples/few_labels.yaml -data_path=output/digits/labels.csv -ngpus=1 -seeds=5 SEED 1 "
    "-output=output/scratch": FEW_LABELS,
    "paddlevit-dist train -cfg=examples/few_labels.yaml -data_path=output/digits/labels.csv -ngpus=1 -seeds=5 SEED 1 "
    "-pretrained=output/mae -output=output/tuned": FEW_LABELS,
    "paddlevit-dist compare output/scratch output/tuned": FEW_LABELS,
    "./run_train_multi.sh -cfg=./configs/vit_tiny_patch16_224.yaml -dataset=tar -data_path=s3://bucket/small "
    "-output=./output/bucket": "needs a bucket; tests/nightly/images/test_images_in_s3.py makes one",
    "pip install --no-deps 'timm>=1.0.31,<1.1'": DOWNLOAD,
    "paddlevit-dist train -cfg=finetune_folder MODEL.NAME timm:mobilenetv4_conv_small -data_path=my_images "
    "-output=output/mobile": DOWNLOAD,
    "paddlevit-dist train -cfg=finetune_folder MODEL.NAME paddleclas:PPLCNet_x1_0 -data_path=my_images "
    "-output=output/lcnet": DOWNLOAD,
    "paddlevit-dist doctor -device=npu -cfg=vit_digits": CARD,
    "python main_multi_gpu.py -cfg=vit_digits -device=npu -ngpus=1 -output=one": CARD,
    "python main_multi_gpu.py -cfg=vit_digits -device=npu -ngpus=2 -batch_size=16 -output=two": CARD,
    "paddlevit-dist doctor -cfg=./configs/vit_digits.yaml -ngpus=2 "
    "-output=./output/four": "tests/nightly/core/commands/test_doctor.py",
    "python main_multi_gpu.py -cfg=./configs/vit_digits.yaml -log_to=tensorboard,visualdl "
    "-output=./output/logged": "tests/unit/core/logging/test_event_logs.py",
    "tensorboard --logdir ./output/logged/tensorboard": "does not end; tests/unit/core/logging/test_event_logs.py",
    "srun python main_multi_gpu.py -cfg=run.yaml -output=run -resume=auto || { [ $? -eq 75 ] && scontrol requeue "
    "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}; }": SLURM,
    "python main_multi_gpu.py -selftest -cfg=./configs/vit_digits.yaml -ngpus=2": SELFTEST,
    "docker build -f docker/Dockerfile -t paddlevit_dist .": CONTAINER,
    "docker build -f docker/Dockerfile -t paddlevit_dist --build-arg DEVICE=gpu26 .": CONTAINER,
    'docker run --rm --shm-size=8g --user "$(id -u):$(id -g)" -v "$PWD:/work" -v paddlevit_dist:/home/anyone '
    "paddlevit_dist train -cfg=vit_digits -output=run": CONTAINER,
    "pip config set global.index-url https://pypi.tuna.tsinghua.edu.cn/simple": DOWNLOAD,
    "pip wheel -w wheels setuptools '.[cpu]'": DOWNLOAD,
    "pip install --no-index --find-links wheels '.[cpu]'": DOWNLOAD,
    "paddlevit-dist train -cfg=vit_digits -epochs=6 -ngpus=1 -seeds=5 -output=output/usual": SEEDS,
    "paddlevit-dist train -cfg=vit_digits -epochs=6 -ngpus=1 -seeds=5 -output=output/faster TRAIN.BASE_LR 3e-3": SEEDS,
    "paddlevit-dist compare output/usual output/faster": SEEDS,
    "paddlevit-dist report output/usual output/faster -output=output/seeds.html": SEEDS,
    "paddlevit-dist train -cfg=finetune_keypoints -data_path=/dataset/hands -output=output/hands": DOWNLOAD,
    "paddlevit-dist predict output/hands new_images HEATMAPS.DETECTOR output/hand_boxes": "needs runs of both; "
    "tests/integration/images/test_keypoint_heatmaps.py",
    "paddlevit-dist train -cfg=detrpose_hgnetv2_s_coco -data_path=/dataset/hands -pretrained=detrpose_hgnetv2_s.pth "
    "-output=output/hands": DOWNLOAD,
    "paddlevit-dist evaluate keypoints annotations/person_keypoints_val2017.json results.json": KEYPOINT_RESULTS,
    "paddlevit-dist evaluate keypoints hands.json results.json -sigmas=0.05 -output=output/theirs": KEYPOINT_RESULTS,
}

# Pages without any command that a reader types: they name some, as what they explain.
EXPLAINING = {
    "CODE_OF_CONDUCT.md",
    "SECURITY.md",
    "docs/explanation/architecture.md",
    "docs/explanation/failure_modes.md",
    "tests/golden/README.md",
}

_SESSIONS = (
    "docs/tutorials/quickstart_custom_images.md",
    "docs/tutorials/detection.md",
    "docs/tutorials/keypoints.md",
    "docs/tutorials/panoptic.md",
    "docs/guides/detection.md",
    "docs/guides/segmentation.md",
    "docs/guides/custom_training_loop.md",
    "docs/guides/extending.md",
    "docs/guides/own_task.md",
    "docs/guides/own_scores.md",
    "docs/explanation/scoring_and_confidence_intervals.md",
)

# Pages whose commands another test runs, or that are about programs of hours.
NOT_RUN_PAGES = {
    "docs/tutorials/finetuning.md": PAGE_OF_ITS_OWN,
    **{page: HOURS for page in PAGES if "benchmarks" in page},
    **dict.fromkeys(_SESSIONS, SESSION),
    "docs/tutorials/sonata.md": SMALL_ENCODER,
    **dict.fromkeys(("docs/guides/migrating.md", "docs/reference/keys.md", "docs/reference/commands.md"), FORMS),
}
