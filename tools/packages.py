"""Which packages an environment has: a software bill of materials (CycloneDX) with their licences,
and whether any has a known vulnerability.

    python -m tools.packages PYTHON [--sbom FILE] [--limit SECONDS] [--note FILE]

The exit status is 1 if one has, or if pip-audit failed. If nobody could be asked, a line says so,
and that is no failure: the network being away says nothing about the packages. With ``--note`` the
exit status is always 0, and the file has what was found: nothing, if all is well.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

# What pip-audit says, on stderr, if it could not ask. Anything else is a fault of its own.
_UNREACHABLE = re.compile(r"requests\.exceptions\.|ServiceError|Could not connect|not redirecting")


def licences(component: dict[str, Any]) -> str:
    """The licences of a component, as it declares them."""
    found = []
    for entry in component.get("licenses", []):
        licence = entry.get("license", {})
        text = entry.get("expression") or licence.get("id") or licence.get("name") or ""
        found.append(text.rpartition(" :: ")[2].splitlines()[0][:60] if text else "")
    return ", ".join(dict.fromkeys(filter(None, found))) or "not declared"


def bill(python: str, sbom: Path) -> None:
    """Write the bill of the environment of ``python``, and print the licences."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
    subprocess.run([*command, "--output-file", str(sbom), python], check=True)
    for component in json.loads(sbom.read_text())["components"]:
        print(f"{component['name']} {component.get('version', '')}: {licences(component)}")


def verdict(report: str, errors: str = "") -> tuple[str, bool]:
    """What pip-audit found: a text, and whether all is well. ``report``: its JSON, or nothing;
    ``errors``: what it wrote to stderr."""
    if not report.strip():
        last = errors.strip().rpartition("\n")[2][:300]
        if _UNREACHABLE.search(errors):
            return f"not audited: nobody answered who knows of vulnerabilities ({last})", True
        return f"not audited: pip-audit failed: {last}", False
    packages = json.loads(report)["dependencies"]
    asked = [package for package in packages if "skip_reason" not in package]
    if packages and not asked:
        return f"not audited: the index knows nothing about any of {len(packages)} packages", True
    bad = [
        f"{package['name']} {package['version']}: {found['id']}, fixed in "
        f"{', '.join(found['fix_versions']) or 'no version'}"
        for package in asked
        for found in package["vulns"]
    ]
    said = f"{len(asked)} of {len(packages)} packages could be looked up"
    return "\n".join([*bad, f"{said}; known vulnerabilities: {len(bad)}"]), not bad


def audit(python: str, limit: float) -> tuple[str, bool]:
    """Ask about the packages in the environment of ``python``, for at most ``limit`` seconds."""
    command = [sys.executable, "-m", "pip_audit", "--skip-editable", "--format", "json"]
    try:
        done = subprocess.run(
            [*command, "--progress-spinner", "off", "--timeout", "10"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PIPAPI_PYTHON_LOCATION": python},
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return f"not audited: no answer in {limit:g} seconds", True
    return verdict(done.stdout, done.stderr)


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.packages")
    parser.add_argument("python")
    parser.add_argument("--sbom", type=Path)
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--note", type=Path)
    options = parser.parse_args(arguments)
    if options.sbom:
        options.sbom.parent.mkdir(parents=True, exist_ok=True)
        bill(options.python, options.sbom)
    text, well = audit(options.python, options.limit)
    print(text)
    if options.note:
        options.note.parent.mkdir(parents=True, exist_ok=True)
        options.note.write_text("" if well else f"make audit fails:\n{text}\n")
        return 0
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
