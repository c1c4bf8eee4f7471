"""Running the command line as people do: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent

# Tests run several processes; one thread each is fastest, and results are compared byte by byte.
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")]),
    "COLUMNS": "100",
}


def command(*arguments: str | Path) -> list[str]:
    """The command line, with torchvision made importable beside a CPU build of torch."""
    code = (
        "import torchvision_ops; torchvision_ops.declare(); from deformrs.cli import main; main()"
    )
    start = ["-c", code] if _needs_torchvision(arguments) else ["-m", "deformrs"]
    return [sys.executable, *start, *map(str, arguments)]


def deformrs(*arguments: str | Path, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run to the end and expect that exit code."""
    done = subprocess.run(
        command(*arguments), cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def fails(*arguments: str | Path, cwd: Path, code: int = 1) -> str:
    """Run what must fail: one line on standard error, no traceback. That line."""
    done = deformrs(*arguments, cwd=cwd, code=code)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    assert "Traceback" not in done.stderr
    return lines[0]


def _needs_torchvision(arguments: tuple[str | Path, ...]) -> bool:
    """Names of those libraries, or a run whose model may be one of theirs."""
    return any(
        str(part).startswith(("timm:", "torchvision:", "hf:", "--run")) for part in arguments
    )
