"""Unreadable images in loader processes."""

from integration.commands.test_data_options import images, require_the_same_replaced_images  # noqa: F401


def test_unreadable_images_are_replaced_and_listed_the_same_by_loader_processes(images, tmp_path):  # noqa: F811
    require_the_same_replaced_images(images, tmp_path, ((1, 0), (1, 2)))
