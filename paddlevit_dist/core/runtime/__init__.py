"""The process, and helpers that every package needs. Imports no other package.

- ``errors``, ``signals``, ``process_exit``: the end of a process: by an error, a signal or by itself
- ``printing``, ``help_pages``, ``text_rendering``: text on terminals and in images
- ``files``, ``ordered_lines``, ``text_files``, ``tables``: atomic writing of files, safe reading of untrusted ones
- ``run_folders``: a run's folder, and those with a name like a missing one's
- ``limits``, ``environment``, ``paddle_versions``, ``version``: the system, the interpreter, Paddle, this package
- ``autocast``, ``transfers``, ``device_graph``: precision, copies to a device, CUDA graphs
- ``compiled``, ``lazy_names``: numba, late imports
"""
