"""Look up known vulnerabilities of the installed packages with pip-audit, and list packages without an answer.

Usage: python tools/audit.py [FOLDER ...]

FOLDER is a site-packages folder; without one, the packages of the running Python are audited. That Python needs
pip-audit; ``make audit`` installs it.

pip-audit reports a package that its source does not know as "no known vulnerabilities". Here such a package is listed
and counted. To detect a source without data, it is first asked for a vulnerability that has been public since 2020.

Exit codes: 0: no known vulnerability in any package; 1: some packages are vulnerable; 3: some could not be looked up.
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
    """Audit the installed packages, print the results, and exit with a code that says how it went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    options = parser.parse_args()
    packages = list_installed(options.folders or None)
    # Ask for a known vulnerability first, to check the source.
    answers, trouble = look_up([KNOWN])
    if not (answers.get(KNOWN) or {}).get("vulns"):
        answers, trouble = {}, trouble or "the source of pip-audit knows no vulnerabilities, not even old ones"
    else:
        answers, trouble = look_up(packages)
    lines, code = summarize(packages, answers, trouble)
    print("\n".join(lines))
    sys.exit(code)


def normalize(name):
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def list_installed(folders):
    """Return (name, version) of each installed package except this one."""
    places = {} if folders is None else {"path": folders}
    packages = {(normalize(d.metadata["Name"]), d.version) for d in importlib.metadata.distributions(**places)}
    return sorted(package for package in packages if package[0] != OURS)


def look_up(packages):
    """Ask pip-audit about packages.

    Returns:
        Its answer for each package, and the reason for having no answers, or None.
    """
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder, "requirements.txt")
        requirements.write_text("".join(f"{name}=={version}\n" for name, version in packages), encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off"]
        try:
            result = subprocess.run(
                [*command, "--format", "json", "--requirement", str(requirements)],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {}, f"pip-audit took longer than {TIMEOUT_SECONDS} s"
    try:
        answers = {(normalize(a["name"]), a.get("version")): a for a in json.loads(result.stdout)["dependencies"]}
    except ValueError:
        return {}, (result.stderr.strip().splitlines() or [f"pip-audit result with {result.returncode}"])[-1]
    # An answer that skips a package has no version.
    return {package: answers.get(package) or answers.get((package[0], None)) for package in packages}, None


def summarize(packages, answers, trouble):
    """Return the lines to print, and the exit code.

    Args:
        packages: (name, version) of all.
        answers: package -> pip-audit's entry: ``vulns``, or ``skip_reason``; None or missing if it has none.
        trouble: reason for having no answers, or None.
    """
    vulnerable, unknown = [], []
    for package in packages:
        name, answer = "==".join(package), answers.get(package) or {}
        if answer.get("vulns"):
            for entry in answer["vulns"]:
                fixed = ", ".join(entry.get("fix_versions") or []) or "nothing yet"
                vulnerable.append(f"vulnerable: {name}: {entry['id']}; fixed by {fixed}")
        elif "vulns" not in answer:
            unknown.append(f"not looked up: {name}: {trouble or answer.get('skip_reason') or 'no answer'}")
    clean = len(packages) - len(unknown) - len({line.split(": ")[1] for line in vulnerable})
    count = f"{clean} of {len(packages)} packages have no known vulnerability"
    summary = f"{count}; {len(vulnerable)} known vulnerabilities; {len(unknown)} packages could not be looked up"
    return [*vulnerable, *unknown, summary], VULNERABLE if vulnerable else UNKNOWN if unknown else CLEAN


if __name__ == "__main__":
    main()
