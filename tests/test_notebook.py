"""Certificates as HTML: what is drawn, from which numbers, and that it is well-formed."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from deformrs import (
    Affine,
    Certificate,
    Compose,
    Counts,
    Deformation,
    Gaussian,
    NoiseLaw,
    Rotation,
    Scaling,
    Shear,
    Translation,
    Uniform,
)
from deformrs.space import Block, Space
from deformrs.units import Unit
from examples import IMAGE, smoothed


def certificate(deformation: Deformation, law: NoiseLaw, hits: int = 950) -> Certificate:
    return law.certify(Counts((0, 9), (1000 - hits, hits)), deformation.space((28, 56)), 0.001)


def drawn(c: Certificate) -> ElementTree.Element:
    return ElementTree.fromstring(c._repr_html_().replace("<br>", "<br/>"))


def green(c: Certificate) -> ElementTree.Element:
    """Return the certified set of the drawing."""
    (found,) = [e for e in drawn(c).iter() if e.get("stroke") == "#2a9d55"]
    return found


def numbers(text: str | None) -> list[float]:
    return [float(number) for number in re.findall(r"-?[\d.]+", text or "")]


@pytest.mark.parametrize("degrees", [30, 120])
def test_guarantee_to_html_draws_the_certified_arc(degrees: float) -> None:
    c = certificate(Rotation(), Uniform(math.radians(degrees)))
    x0, y0, r, *_, large, _, x, y = numbers(green(c).get("d"))
    assert (x0, y0) == (-x, y)
    assert math.atan2(x, -y) == pytest.approx(c.radius, abs=1e-5)
    assert math.hypot(x, y) == pytest.approx(r, abs=1e-3)
    assert large == (c.radius > math.pi / 2)
    assert green(certificate(Rotation(), Uniform("180deg"))).tag == "circle"


def test_discs_diamonds_and_ranges_have_the_size_of_the_radius() -> None:
    """The image is 28 x 56 pixels, drawn 58 x 116: half the shorter side, one unit, is 29."""
    disc = certificate(Translation(), Gaussian(0.4))
    assert numbers(green(disc).get("r")) == pytest.approx([29 * disc.radius], abs=2e-3)
    diamond = certificate(Translation(), Uniform(0.4))
    assert max(numbers(green(diamond).get("points"))) <= 29 * diamond.radius
    shear = certificate(Shear(), Uniform(0.4))
    assert numbers(green(shear).get("d"))[::2] == pytest.approx(
        [-90 * shear.radius, 90 * shear.radius], abs=1e-3
    )
    scaling = certificate(Scaling(), Uniform(0.4))
    sizes = [4 ** (x / 90) for x in numbers(green(scaling).get("d"))[::2]]
    assert sizes == pytest.approx([1 / (1 + scaling.radius), 1 / (1 - scaling.radius)], rel=1e-4)
    assert numbers(green(certificate(Scaling(), Gaussian(1.0))).get("d"))[2] == 90


def test_a_notebook_shows_the_image_and_what_is_claimed() -> None:
    c = smoothed().certify(IMAGE, n=100)
    assert c.preview is not None
    assert c.preview.shape == (*IMAGE.shape[1:], 1)
    assert (c.preview[..., 0] == np.round(255 * IMAGE[0].numpy())).all()
    text = "".join(drawn(c).itertext())
    assert c.claim in text
    assert f"alpha = {c.alpha}" in text
    assert "data:image/png;base64," in c._repr_html_()
    plain = replace(c, preview=None)
    assert plain == c
    assert hash(plain) == hash(c)
    assert repr(plain) == repr(c)
    assert c.at(0.01).preview is c.preview
    assert "data:image" not in plain._repr_html_()


def test_other_families_compositions_and_abstention() -> None:
    assert not list(drawn(certificate(Affine(), Gaussian(0.1))).iter("svg"))
    both = certificate(Compose(Rotation(), Scaling()), Gaussian(0.2))
    assert len(list(drawn(both).iter("svg"))) == 2
    unsure = certificate(Rotation(), Uniform(0.5), hits=500)
    assert "abstains" in "".join(drawn(unsure).itertext())
    assert not list(drawn(unsure).iter("svg"))


def test_names_are_escaped() -> None:
    space = Space((Block('<b>&"', 1, Unit.COEFFICIENT),), (8, 8))
    c = Gaussian(0.1).certify(Counts((0, 9), (0, 1000)), space, 0.001)
    c = replace(c, preview=np.zeros((8, 8, 3), dtype=np.uint8))
    assert 'any <b>&" up to' in "".join(drawn(c).itertext())
    assert "<b>" not in c._repr_html_()
