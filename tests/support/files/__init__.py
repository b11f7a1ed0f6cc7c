"""Files in the formats and layouts of data sets and other programs."""
