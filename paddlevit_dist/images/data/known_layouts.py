"""Layouts of published data that are not read: files that show them, and what to convert these to."""

import glob
import itertools
import os

from ...core.runtime.errors import UserError

_BOXES = "COCO or to YOLO's labels, or to a table with image, class, xmin, ymin, xmax, ymax"
# Name, patterns of files below the folder, and what to do.
LAYOUTS = (
    ("WIDER FACE", ("wider_face_split/wider_face_*_bbx_gt.txt",), f"convert these lists to {_BOXES}"),
    ("KITTI", ("label_2/*.txt", "training/label_2/*.txt"), f"convert these labels to {_BOXES} (its columns 5 to 8)"),
    (
        "DOTA",
        ("labelTxt*/*.txt", "*/labelTxt*/*.txt"),
        f"its boxes are rotated: convert the boxes around them to {_BOXES}",
    ),
    ("VisDrone", ("annotations/*_d_*.txt", "*/annotations/*_d_*.txt"), f"convert these labels to {_BOXES}"),
    ("MOT", ("*/gt/gt.txt", "*/*/gt/gt.txt"), f"convert these tracks to {_BOXES}"),
    ("CrowdHuman", ("annotation_*.odgt",), f"convert these lines to {_BOXES}"),
    ("Caltech Pedestrians", ("annotations/*/*.vbb", "*/*.vbb"), f"convert these files to {_BOXES}"),
    ("BDD100K", ("bdd100k_labels_*.json", "*/bdd100k_labels_*.json", "labels/det_20/*.json"), f"convert to {_BOXES}"),
    (
        "Cityscapes",
        ("gtFine/*/*/*_polygons.json",),
        "convert the instances to COCO, or choose a recipe of segmentation",
    ),
    ("SVHN", ("digitStruct.mat", "*/digitStruct.mat"), f"convert the MATLAB file to {_BOXES}"),
    ("ICDAR", ("gt_img_*.txt", "*/gt_img_*.txt"), f"convert these outlines to {_BOXES}"),
    (
        "Market-1501",
        ("bounding_box_train/*.jpg", "bounding_box_train/*.png"),
        "no task compares persons; to classify them, move the images of each number to a folder",
    ),
    (
        "CelebA",
        ("list_attr_celeba.txt", "Anno*/list_attr_celeba.txt"),
        "write the list as CSV with the headings image_id and the attributes, for TASK multi_label",
    ),
    ("MPII", ("mpii_human_pose_*.mat", "*/mpii_human_pose_*.mat"), "convert the MATLAB file to COCO's keypoints"),
    ("300-W", ("*/trainset/*.pts", "0?_*/*.pts"), "convert the points to a table with image, x1, y1, x2, y2 and so on"),
    (
        "Stanford Cars",
        ("cars_annos.mat", "*/cars_annos.mat", "cars_*_annos.mat", "devkit/cars_*_annos.mat"),
        "write a table image,label from the MATLAB file, for example with scipy.io.loadmat",
    ),
    (
        "Oxford Flowers",
        ("imagelabels.mat",),
        "write a table image,label,split from imagelabels.mat and setid.mat, for example with scipy.io.loadmat",
    ),
    ("AffectNet", ("*/annotations/*_exp.npy", "annotations/*_exp.npy"), "write a table image,label from these files"),
    ("MVTec AD", ("ground_truth/*/*_mask.png", "*/ground_truth/*/*_mask.png"), "no task finds anomalies"),
    ("NYU Depth", ("nyu_depth_v2_labeled.mat",), "write its images and label maps as PNG files"),
    ("LMDB", ("data.mdb", "*_lmdb/data.mdb", "*/data.mdb"), "write its images to files, in a folder for each class"),
    (
        "TFRecord",
        ("*.tfrecord*", "*/*.tfrecord*", "*.tfrec", "*/*.tfrec"),
        "write its images and labels to files with TensorFlow",
    ),
    ("HDF5", ("*.h5", "*.hdf5", "*/*.h5"), "write its images to files, in a folder for each class or with a table"),
)


def refuse_known(root: str, inner: str = "") -> None:
    """Raise a UserError if a folder, or a folder inside, has files of a layout that is not read; it names one."""
    for folder in dict.fromkeys((root, os.path.join(root, inner))):
        for name, patterns, advice in LAYOUTS:
            found = (glob.iglob(os.path.join(glob.escape(folder), pattern)) for pattern in patterns)
            if file := next(itertools.chain.from_iterable(found), None):
                seen = os.path.relpath(file, root)
                raise UserError(f"{root} has {seen}: the layout of {name}, which is not read: {advice}")
