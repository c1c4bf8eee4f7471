"""The direction of imports, what needs torch, and the public names."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import deformrs

# Each ring may import itself and the rings before it. What is not named here is the core.
RINGS: tuple[tuple[str, ...], ...] = (
    (),
    ("models", "data", "training", "job", "art"),
    ("report",),
    ("cli", "__main__"),
)
# Sampling may not know statistics, nor statistics torch: what is left and right of the counts.
WITHOUT_TORCH = (
    *("certificate", "statistics", "noise", "regions", "stopping", "runs"),
    *("data", "report.document", "report.export", "report.model_card"),
    *("cli", "cli.report", "cli.card", "cli.pack"),
)


def ring(module: str) -> int:
    """Return the ring of a module or folder directly below the package."""
    return next((place for place, names in enumerate(RINGS) if module in names), 0)


def package_imports(path: Path) -> set[str]:
    """Return the parts of the package that a file imports, at the top or inside a function."""
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
    outer = {other for other in package_imports(path) if ring(other) > ring(name)}
    assert not outer, f"{name} is in ring {ring(name)} and may not import {sorted(outer)}"


def test_these_modules_need_no_torch() -> None:
    code = (
        "import importlib, sys\n"
        "for module in sys.argv[1:]:\n"
        "    importlib.import_module(f'deformrs.{module}')\n"
        "    assert 'torch' not in sys.modules, module"
    )
    command = [sys.executable, "-c", code, *WITHOUT_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
