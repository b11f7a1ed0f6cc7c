"""Models of other packages, built by the files of those packages: a bridge for each source.

A name with a prefix chooses the source, such as ``timm:efficientnet_b0``. No model is written anew here.
"""
