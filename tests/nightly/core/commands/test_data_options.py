"""Unreadable images in loader processes, and weights of classes."""

from integration.core.commands.test_data_options import (
    images,  # noqa: F401
    require_the_same_of_rare_classes,
    require_the_same_replaced_images,
)


def test_unreadable_images_are_replaced_and_listed_the_same_by_loader_processes(images, tmp_path):  # noqa: F811
    require_the_same_replaced_images(images, tmp_path, ((1, 0), (1, 2)))


def test_given_weights_of_classes_give_the_same_for_any_processes(images, tmp_path):  # noqa: F811
    require_the_same_of_rare_classes(["TRAIN.CLASS_WEIGHTS", "[1, 4, 2]"], images, tmp_path)
