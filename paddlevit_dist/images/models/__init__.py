"""Image models: one file per family, each with a table of its variants, and the parts that families share."""
