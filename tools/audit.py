"""Look up known vulnerabilities of the installed packages with pip-audit, and list what could not be looked up.

Usage: python tools/audit.py [FOLDER ...]

FOLDER is a site-packages folder; without one, what is installed for the Python that runs this. That Python needs
pip-audit; ``make audit`` sees to it.

pip-audit calls a package that its source does not know "no known vulnerabilities". Here that is a line, and counts. So
does a source that answers, but does not know of vulnerabilities: it is asked for one that has been public since 2020.

Exit codes: 0, all were looked up and none is known to be vulnerable; 1, some are; 3, some could not be looked up.
"""

import argparse
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CLEAN, VULNERABLE, UNKNOWN = 0, 1, 3
KNOWN = ("pyyaml", "5.3")  # CVE-2020-1747: its full loader executes code
OURS = "paddlevit-dist"
TIMEOUT_SECONDS = 600


def main():
    """Audit the installed packages, print what is known, and exit with a code that says how it went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    options = parser.parse_args()
    packages = installed(options.folders or None)
    # One answer for the one that is known first: it decides what the others are worth.
    answers, trouble = looked_up([KNOWN])
    if not (answers.get(KNOWN) or {}).get("vulns"):
        answers, trouble = {}, trouble or "the source of pip-audit knows of no vulnerabilities, even of old ones"
    else:
        answers, trouble = looked_up(packages)
    lines, code = judged(packages, answers, trouble)
    print("\n".join(lines))
    sys.exit(code)


def normal(name):
    """Spell a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(folders):
    """List (name, version) of each installed package but this one."""
    places = {} if folders is None else {"path": folders}
    found = {(normal(d.metadata["Name"]), d.version) for d in importlib.metadata.distributions(**places)}
    return sorted(package for package in found if package[0] != OURS)


def looked_up(packages):
    """Ask pip-audit about packages.

    Returns:
        What it says of each package that it says something of, and why it says nothing, or None.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "requirements.txt")
        wanted.write_text("".join(f"{name}=={version}\n" for name, version in packages), encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off"]
        try:
            ended = subprocess.run(
                [*command, "--format", "json", "--requirement", str(wanted)],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {}, f"pip-audit took longer than {TIMEOUT_SECONDS} s"
    try:
        answers = {(normal(a["name"]), a.get("version")): a for a in json.loads(ended.stdout)["dependencies"]}
    except ValueError:
        return {}, (ended.stderr.strip().splitlines() or [f"pip-audit ended with {ended.returncode}"])[-1]
    # An answer that skips a package names no version.
    return {package: answers.get(package) or answers.get((package[0], None)) for package in packages}, None


def judged(packages, answers, trouble):
    """Judge the answers: the lines to print, and the exit code.

    Args:
        packages: (name, version) of all.
        answers: package -> pip-audit's entry: ``vulns``, or ``skip_reason``; None or missing if it has none.
        trouble: why there are none at all, or None.
    """
    vulnerable, unknown = [], []
    for package in packages:
        name, answer = "==".join(package), answers.get(package) or {}
        if answer.get("vulns"):
            for found in answer["vulns"]:
                fixed = ", ".join(found.get("fix_versions") or []) or "nothing yet"
                vulnerable.append(f"vulnerable: {name}: {found['id']}; fixed by {fixed}")
        elif "vulns" not in answer:
            unknown.append(f"not looked up: {name}: {trouble or answer.get('skip_reason') or 'no answer'}")
    clean = len(packages) - len(unknown) - len({line.split(": ")[1] for line in vulnerable})
    said = f"{clean} of {len(packages)} packages have no known vulnerability"
    summary = f"{said}; {len(vulnerable)} known vulnerabilities; {len(unknown)} packages could not be looked up"
    return [*vulnerable, *unknown, summary], VULNERABLE if vulnerable else UNKNOWN if unknown else CLEAN


if __name__ == "__main__":
    main()
