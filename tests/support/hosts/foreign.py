"""Names from files and errors of libraries are shown so that they cannot pass for anything else."""

EVIL = "cat\x1b[2K\r\u202egnp\nerror: all is well\t\x9b1A"
SHOWN = "cat\\x1b[2K\\r\\u202egnp\\nerror: all is well\\t\\x9b1A"
