"""The process, and what every package needs. Knows no other package.

- ``errors``, ``signals``, ``process_exit``: how a process ends, whether by an error, a signal or its own will
- ``printing``, ``help_pages``, ``text_rendering``: words on terminals and in images
- ``files``, ``ordered_lines``, ``text_files``, ``tables``: writing files whole, and reading what strangers wrote
- ``limits``, ``environment``, ``paddle_versions``: what the system, the interpreter and Paddle give
- ``autocast``, ``transfers``, ``compiled``, ``lazy_names``: precision, copies to a device, numba, late imports
"""

__all__: list[str] = []  # UserError and Stopped are exported by the package
