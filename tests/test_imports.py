"""The direction of imports, what needs torch, and the public names."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import deformrs

# Each module may import the ones named here and nothing else of the package.
BASE = {"errors", "checks", "rounding", "units", "space", "config"}
NUMBERS = BASE | {"certificate", "statistics"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "checks": {"errors"},
    "rounding": set(),
    "units": {"errors", "rounding"},
    "space": {"errors", "checks", "units"},
    "config": {"errors"},
    "certificate": BASE,
    "statistics": BASE | {"certificate"},
    "noise": NUMBERS,
    "regions": NUMBERS,
    "plugins": {"errors"},
    "splitting": BASE,
    "preparation": BASE,
    "runs": NUMBERS | {"noise", "regions"},
    "questions": NUMBERS | {"regions", "runs"},
    "geometry": BASE,
    "deformations": BASE | {"geometry"},
    "specs": BASE | {"deformations", "noise", "plugins"},
    "randomness": NUMBERS | {"noise"},
    "scoring": BASE,
    "stopping": NUMBERS | {"noise", "regions"},
    "compiling": {"errors"},
    "sampling": BASE | {"compiling", "geometry", "deformations", "noise", "randomness", "scoring"},
    "protocol": NUMBERS | {"randomness", "sampling", "stopping"},
    "smoothing": NUMBERS
    | {"geometry", "deformations", "noise", "randomness", "scoring"}
    | {"compiling", "sampling", "protocol", "stopping"},
    "models": BASE | {"plugins", "preparation", "runs"},
    "data": BASE | {"preparation", "runs", "splitting"},
    "engines": NUMBERS
    | {"geometry", "preparation", "randomness", "runs", "smoothing"}
    | {"sampling", "protocol", "stopping"},
    "training": BASE
    | {"geometry", "deformations", "noise", "models", "preparation", "runs", "scoring"}
    | {"splitting"},
    "testing": BASE | {"geometry", "deformations"},
    "progress": set(),
    "report": NUMBERS
    | {"noise", "regions", "runs", "geometry", "deformations", "data", "preparation"},
    "tasks": NUMBERS
    | {"deformations", "noise", "regions", "geometry", "scoring", "smoothing", "specs", "questions"}
    | {"models", "data", "preparation", "training", "engines", "runs", "report", "progress"}
    | {"compiling", "splitting", "stopping"},
    "benchmarks": NUMBERS
    | {"deformations", "noise", "geometry", "compiling", "smoothing", "stopping", "questions"}
    | {"randomness", "sampling"}
    | {"models", "data", "preparation", "engines", "runs", "report", "progress", "tasks"},
    "cli": BASE | {"benchmarks", "data", "progress", "questions", "runs", "report", "tasks"},
    "__main__": {"cli"},
}
WITHOUT_TORCH = [
    "splitting",
    "certificate",
    "statistics",
    "noise",
    "regions",
    "stopping",
    "preparation",
    "runs",
    "questions",
    "data",
    "data.stored",
    "report.tables",
    "report.curve",
    "report.writing",
    "report.against.writing",
    "report.frame",
    "report.export",
    "cli",
]


def package_imports(path: Path) -> set[str]:
    """The parts of the package that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "deformrs":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("deformrs."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("deformrs.")}
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path} imports relatively")
    return found - {"__version__"}


def modules() -> list[tuple[str, Path]]:
    package = Path(deformrs.__file__).parent
    return [
        (path.relative_to(package).parts[0].removesuffix(".py"), path)
        for path in sorted(package.rglob("*.py"))
        if path != package / "__init__.py"
    ]


@pytest.mark.parametrize(("name", "path"), modules(), ids=lambda v: str(v).rsplit("/src/")[-1])
def test_imports_point_one_way(name: str, path: Path) -> None:
    assert name in ALLOWED, f"say in ALLOWED what {name} may import"
    assert package_imports(path) <= ALLOWED[name] | {name}


def test_the_directions_have_no_circle() -> None:
    settled: set[str] = set()
    while len(settled) < len(ALLOWED):
        ready = {name for name, needs in ALLOWED.items() if needs <= settled} - settled
        assert ready, f"circle among {set(ALLOWED) - settled}"
        settled |= ready


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_needs_no_torch(module: str) -> None:
    code = f"import sys, deformrs.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there() -> None:
    for name in deformrs.__all__:
        assert getattr(deformrs, name).__name__ == name
    assert set(deformrs.__all__) == set(deformrs._HOME_OF)
    assert set(deformrs.__all__) < set(dir(deformrs))
    with pytest.raises(AttributeError, match="Rotatoin"):
        _ = deformrs.Rotatoin


def test_no_global_random_state_in_the_source(root: Path) -> None:
    banned = ("torch.manual_seed", "np.random.seed", "random.seed", "torch.seed", "fork_rng")
    for path in (root / "src").rglob("*.py"):
        assert not [word for word in banned if word in path.read_text()], path
