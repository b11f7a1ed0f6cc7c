"""Check that a commit message states one change and its reason.

python tools/commit_message.py FILE    as a commit-msg hook calls it; exit code 1 with a line for each fault
git log -1 --format=%B | python tools/commit_message.py -

The subject is an imperative: a reader can put "If applied, this commit will" before it. The check
guesses from spelling, so a noun may pass; add a verb that it refuses to ``VERBS``.
"""

import re
import sys
from pathlib import Path

MOST_CHARACTERS = 72
# Verbs that end like a past form, a participle, a third person or a plural.
VERBS = {"bias", "bring", "embed", "exceed", "feed", "focus", "need", "proceed", "seed", "shed", "speed"}
NO_VERBS = {"whoever"}.union(
    "a all an and another any as at both by each every few for from he her his how i if in it its my no nothing of on "
    "one other our several she some that the their there these they this those to two we what when where whether which "
    "while who why with without you your".split()
)
EXEMPT = re.compile(r'Merge |Revert "|(fixup|squash|amend)! ')  # git writes these
TRAILER = re.compile(r"[A-Z][\w-]+-by: |Fixes #|Closes #")
SCISSORS = re.compile(r"^# -+ >8 -+$", re.MULTILINE)  # git commit --verbose adds the diff below


def is_imperative(word: str) -> bool:
    """Guess whether a subject's first word is a verb in the imperative, such as "Add"."""
    lower = word.lower()
    if not re.fullmatch("[A-Z][a-z]+", word) or lower in NO_VERBS:
        return False
    return lower in VERBS or lower.endswith("ss") or not lower.endswith(("ed", "ing", "s"))


def find_faults(message: str) -> list[str]:
    """Return one line for each fault of a commit message."""
    lines = [line.rstrip() for line in SCISSORS.split(message)[0].splitlines() if not line.startswith("#")]
    subject, *rest = "\n".join(lines).strip().splitlines() or [""]
    if EXEMPT.match(subject):
        return []
    first = subject.partition(" ")[0]
    checks = [
        (
            is_imperative(first),
            f'begin the subject with a capitalized verb, such as "Add": {first!r} does not look like one',
        ),
        (len(subject) <= MOST_CHARACTERS, f"cut the subject to {MOST_CHARACTERS} characters: it has {len(subject)}"),
        (";" not in subject, 'describe one change: the subject has a ";"'),
        (not subject.endswith("."), "end the subject without a period"),
        (not rest or not rest[0], "leave the second line blank"),
        (any(line and not TRAILER.match(line) for line in rest), "say in a body why the change is made"),
    ]
    return [fault for holds, fault in checks if not holds]


def main(path: str) -> int:
    """Print the faults of the message in a file, or on stdin for "-", and return the exit code."""
    faults = find_faults(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8"))
    for fault in faults:
        print(f"commit message: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else __doc__)
