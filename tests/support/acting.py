"""What a rank does to itself at a place of its work."""

import os

from paddlevit_dist.core.launch import status


def at_place(word: str, number: int) -> None:
    """From now on send this process the signal ``number`` once it has noted a place whose text contains ``word``."""

    def acting(note):
        def noted(*arguments, **named):
            note(*arguments, **named)
            if word in status.get_status().text:
                os.kill(os.getpid(), number)

        return noted

    status.note, status.set_detail = acting(status.note), acting(status.set_detail)
