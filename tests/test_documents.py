"""The code in the documents runs, and their links lead somewhere."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

import deformrs
from conftest import ROOT, python_blocks
from deformrs.cli import commands

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = [
    module.name
    for module in pkgutil.walk_packages(deformrs.__path__, "deformrs.")
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_in_documents_runs(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deformrs.Deformation, "registry", dict(deformrs.Deformation.registry))
    namespace: dict[str, object] = {"__name__": "tutorial"}
    for block in python_blocks(document):
        exec(compile(block, document.name, "exec"), namespace)


def commands_in(document: Path) -> list[list[str]]:
    """Return the command lines of a document, each as words."""
    text = document.read_text().replace("\\\n", " ")
    text = re.sub(r"entrypoint: >-\n((?:    .*\n)+)", lambda m: " ".join(m[1].split()) + "\n", text)
    lines = re.findall(r"^ *(?:\.venv/bin/)?(deformrs [a-z]+ .*)$", text, flags=re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines if "…" not in line]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_documents_have_the_options_they_name(document: Path) -> None:
    for verb, *words in commands_in(document):
        command = commands.get_command(click.Context(commands), verb)
        assert command is not None, verb
        command.make_context(verb, words)  # raises for an option or a value that there is not


def test_the_manifest_for_kubernetes_is_a_job_of_ray() -> None:
    text = (ROOT / "docs/scaling.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    job = yaml.safe_load(block)
    assert job["kind"] == "RayJob"
    assert job["spec"]["entrypoint"].startswith("deformrs certify --model /data/net")
    assert "--address auto" in job["spec"]["entrypoint"]
    groups = [job["spec"]["rayClusterSpec"]["headGroupSpec"]]
    groups += job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    for group in groups:
        pod = group["template"]["spec"]
        mounted = {mount["name"] for each in pod["containers"] for mount in each["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert len([c for c in commands_in(ROOT / "docs/scaling.md") if "--address" in c]) == 2


def test_the_readme_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(python_blocks(ROOT / "README.md")[0], "README.md", "exec"), {})
    assert f"```\n{capsys.readouterr().out}```" in (ROOT / "README.md").read_text()


def test_the_tutorials_class_fits_in_thirty_lines() -> None:
    block = python_blocks(ROOT / "docs/adding_a_deformation.md")[0]
    assert "class Lens(Deformation)" in block
    assert len([line for line in block.splitlines() if line.strip()]) <= 30


@pytest.mark.parametrize("module", ["deformrs", *MODULES])
def test_examples_in_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_the_description_on_pypi_needs_no_file_of_the_repository() -> None:
    text = (ROOT / "docs/pypi.md").read_text()
    assert all("://" in target for target in re.findall(r"\]\(([^)]+)\)", text))
    assert "<img" not in text


def test_what_is_provable_is_said_with_its_confidence(root: Path) -> None:
    """In one sentence: no certificate holds for certain."""
    found = 0
    for path in [
        *root.glob("*.md"),
        *(root / "docs").rglob("*.md"),
        *(root / "src").rglob("*.py"),
        *(root / "results").rglob("*.py"),
        *(root / "results").rglob("*.md"),
    ]:
        # Sentences may be spread over lines, and over several literals.
        text = re.sub(r'"?\n\s*(?:f?")?', " ", path.read_text(encoding="utf-8"))
        text = " ".join(text.split())
        for sentence in re.split(r"[.!?](?=\s)", text):
            if "provabl" in sentence.lower():
                found += 1
                assert re.search("confidence 1 [-−] alpha", sentence), (path, sentence)
    assert found >= 7


def test_sections_of_the_theory_that_docstrings_cite_exist(root: Path) -> None:
    theory = (root / "docs/theory.md").read_text()
    for path in (root / "src").rglob("*.py"):
        for group in re.findall(r"docs/theory\.md,\s+sections? ([\d., and]+\d)", path.read_text()):
            for number in re.findall(r"\d+(?:\.\d+)?", group):
                heading = rf"^#+ {re.escape(number)}\.? "
                assert re.search(heading, theory, re.MULTILINE), (path, number)


def test_every_guarantee_has_a_test_named_after_it(root: Path) -> None:
    """Every function with a "Guarantee:" is named in a test that begins with test_guarantee."""
    promised = {
        node.name
        for path in (root / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and "Guarantee: " in (ast.get_docstring(node) or "")
    }
    tests = " ".join(
        ast.unparse(node)
        for path in (root / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_guarantee")
    )
    assert len(promised) >= 20
    assert {name for name in promised if name not in tests} == set()
