"""Instances in point clouds: PointGroup's grouping, scores, training and evaluation."""
