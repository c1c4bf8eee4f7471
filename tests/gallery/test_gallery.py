"""`deformrs.gallery`: a figure from a run or from a classifier and images."""

from __future__ import annotations

import types
from pathlib import Path

import numpy as np
import pytest
import torch
from exhibits import photograph, smooth, spot
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver
from matplotlib.text import Text
from PIL import Image

import deformrs
import deformrs.cli.gallery
import deformrs.report.gallery
from deformrs import Rotation, Scaling, Uniform, certify_dataset, gallery
from deformrs.errors import InputError
from deformrs.report.gallery.exhibits import Images
from deformrs.runs import CertifiedRun, read_run

IMAGES = [(spot(), 1), (photograph(1), 0), (spot().flip(-1), 0), (spot(), 1)]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    list(certify_dataset(smooth(Rotation(), Uniform(0.5)), IMAGES, n=200, n0=20, out=folder))
    return folder


def test_the_name_is_the_function_whatever_modules_are_imported() -> None:
    assert isinstance(deformrs.gallery, types.FunctionType)
    assert deformrs.gallery is deformrs.report.gallery.gallery is gallery


def test_a_run_is_drawn_from_its_certificates(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "g.svg"
    figure = gallery(run, IMAGES, columns=2, class_names=["left", "right"], path=str(path))
    assert path.stat().st_size > 1000
    assert len(figure.axes) == 2 * 3, "the first correct image of each class"
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]  # in a notebook
    lines = texts(figure)
    for result in read_run(run).results[:1]:
        assert f"right: holds for {result.certificate.reach}; uniform noise" in " ".join(lines)
    assert not any("✓" in line for line in lines), "nothing was predicted"
    assert len(gallery(read_run(run), IMAGES, indices=[3], columns=1).axes) == 2
    strict, usual = (texts(gallery(run, IMAGES, alpha=a, indices=[0])) for a in (1e-9, None))
    assert strict != usual
    assert texts(gallery(read_run(run), IMAGES, alpha=1e-9, indices=[0])) == strict


def test_images_of_a_classifier_are_certified_and_predicted() -> None:
    classifier = smooth(Scaling(), Uniform(0.5))
    stacked = torch.stack([spot()] * 10)
    drawing = Image.fromarray((255 * spot()[0]).byte().numpy())
    some: list[tuple[Images, int]] = [
        (spot(), 1),
        ([spot(), spot()], 2),
        (stacked, 8),
        (stacked[:2].numpy(), 2),
        ((stacked[:3], torch.zeros(3)), 3),
        (IMAGES, 4),
        (drawing, 1),
        ([drawing, np.asarray(drawing)], 2),
    ]
    for images, rows in some:
        assert len(gallery(classifier, images, columns=1, n=100).axes) == 2 * rows
    lines = "\n".join(texts(gallery(classifier, spot(), columns=2, n=100)))
    assert "✓ class 1\n+" in lines
    assert "shown at" in lines


def test_fields_are_drawn_beside_their_deformations(run: Path) -> None:
    plain, drawn = gallery(run, IMAGES, columns=2), gallery(run, IMAGES, columns=2, fields=True)
    arrows = [axes for axes in drawn.axes if any(isinstance(c, Quiver) for c in axes.collections)]
    rows = len([text for text in texts(plain) if text == "original"])
    assert len(arrows) == 2 * rows
    assert len([axes for axes in drawn.axes if axes.images]) >= len(plain.axes)


def test_mistakes_are_named(run: Path, tmp_path: Path) -> None:
    classifier = smooth(Rotation(), Uniform(0.5))
    with pytest.raises(InputError, match="the image is 9; it is not in the run"):
        gallery(run, IMAGES, indices=[9])
    with pytest.raises(InputError, match="image 0 is not the one certified"):
        gallery(run, [(photograph(1), 1)] * 4, indices=[0])
    with pytest.raises(InputError, match="n is 5; it is that of the run"):
        gallery(run, IMAGES, n=5)
    with pytest.raises(InputError, match="n is 0"):
        gallery(classifier, IMAGES, n=0)
    with pytest.raises(InputError, match="alpha is 0"):
        gallery(classifier, IMAGES, alpha=0)
    with pytest.raises(InputError, match="images is None; it must be given"):
        gallery(classifier)
    with pytest.raises(InputError, match=r"must lie in \[0, 3\]"):
        gallery(classifier, IMAGES, indices=[4])
    with pytest.raises(InputError, match="source is 3; it must be a run or a SmoothedClassifier"):
        gallery(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="source is a run in memory; it must be stored"):
        gallery(CertifiedRun(read_run(run).config, read_run(run).results))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="made in Python from objects as images"):
        gallery(run)
    with pytest.raises(InputError, match="must end in"):
        gallery(classifier, IMAGES, path=tmp_path / "g.gif")
