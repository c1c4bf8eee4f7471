"""The notebooks in examples/ run as they are."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from conftest import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def test_there_is_one() -> None:
    assert NOTEBOOKS


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_shows_what_it_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    stored = [_texts(cell) for cell in notebook.cells if cell.cell_type == "code"]
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    made = [_texts(cell) for cell in notebook.cells if cell.cell_type == "code"]
    # Figures may move in the last digit from machine to machine; what is printed keeps its shape.
    assert [len(text.splitlines()) for text in made] == [len(text.splitlines()) for text in stored]
    assert any("for any rotation up to" in text for text in made)


def _texts(cell: nbformat.NotebookNode) -> str:
    """Return the text that a cell printed or showed. A kernel may hand a stream over in pieces."""
    return "".join(
        output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
        for output in cell["outputs"]
        if output["output_type"] in ("stream", "execute_result")
    )
