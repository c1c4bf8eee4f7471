"""The page deforms images as the library does, and says of a shift what its certificate says."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deformrs import (
    DCT,
    Affine,
    Compose,
    Gaussian,
    Independent,
    Rotation,
    Scaling,
    Shear,
    Translation,
    Uniform,
    VectorField,
)
from deformrs.certificate import Counts
from deformrs.deformations import Deformation
from deformrs.geometry import Padding
from deformrs.noise import NoiseLaw
from deformrs.report.page import SCRIPTS

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node to run scripts with")
TIMES = 50

FAMILIES = [
    Rotation(),
    Translation(),
    Scaling(),
    Shear(),
    Affine(),
    DCT(2),
    DCT(3, basis="cosine"),
    VectorField(),
    Compose(Rotation(), Scaling(), Translation()),
    Compose(VectorField(), Rotation()),
    Compose(Scaling(), Compose(Translation(), DCT(2))),
]


def run(code: str, inputs: object, folder: Path) -> Any:
    """Run code with the functions of the page as `page` and the inputs as `given`."""
    assert NODE is not None
    scripts = files("deformrs.report") / "assets"
    text = "\n".join((scripts / name).read_text(encoding="utf-8") for name in SCRIPTS)
    (folder / "page.js").write_text(text, encoding="utf-8")
    (folder / "given.json").write_text(json.dumps(inputs), encoding="utf-8")
    start = "const page = require('./page.js'), given = require('./given.json');"
    done = subprocess.run(
        [NODE, "-e", f"{start} console.log(JSON.stringify({code}))"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


OTHER_PADDINGS = [(Affine(), "border"), (Affine(), "reflection"), (VectorField(), "reflection")]


@pytest.mark.parametrize(
    ("family", "padding"), [*((family, "zeros") for family in FAMILIES), *OTHER_PADDINGS], ids=repr
)
def test_images_are_deformed_as_here(family: Deformation, padding: Padding, tmp_path: Path) -> None:
    size = (9, 13) if family.dim((9, 13)) < 100 else (6, 9)
    generator = torch.Generator().manual_seed(3)
    grey = torch.randint(0, 256, (3, *size), generator=generator)
    strength = 1.0 if padding == "reflection" else 0.4
    params = strength * torch.randn(TIMES, family.dim(size), generator=generator).double()
    rgba = torch.cat([grey, torch.full((1, *size), 255)]).permute(1, 2, 0).flatten().tolist()
    given = {
        "image": {"width": size[1], "height": size[0], "data": rgba},
        "deformation": family.to_config(),
        "params": params.tolist(),
    }
    code = (
        "given.params.map((each) => "
        f"[...page.warped(given.image, given.deformation, each, '{padding}')])"
    )
    found = torch.tensor(run(code, given, tmp_path)).view(TIMES, *size, 4)[..., :3]
    for here, there in zip(params, found, strict=True):
        expected = 255 * family.apply(grey.double() / 255, here[None], padding)[0]
        assert (there.permute(2, 0, 1) - expected).abs().max() <= 1
    assert run("page.dimOf(given, [13, 9])", family.to_config(), tmp_path) == family.dim((9, 13))


LAWS: list[tuple[Deformation, NoiseLaw]] = [
    (Rotation(), Uniform(1.0)),
    (Rotation(), Uniform(math.pi)),
    (Translation(), Gaussian(0.3)),
    (Translation(), Uniform(0.3)),
    (Affine(), Gaussian((0.1, 0.2, 0.1, 0.3, 0.1, 0.1))),
    (Compose(Translation(), Rotation()), Independent(Gaussian(0.3), Gaussian(0.2))),
    (Compose(Scaling(), Rotation()), Independent(Uniform(0.3), Uniform(0.5))),
    (Compose(Scaling(), Rotation()), Independent(Gaussian(0.3), Uniform(0.5))),
]


@pytest.mark.parametrize(("family", "law"), LAWS, ids=repr)
def test_guarantee_no_shift_is_called_certified_that_is_not(
    family: Deformation, law: NoiseLaw, tmp_path: Path
) -> None:
    """The page is told radii; what it concludes is compared with the certificate.

    It is a guarantee of `cover_data`.
    """
    from deformrs.report.turning import joint_of

    space = family.space((12, 12))
    certificate = law.certify(Counts((0, 100), (40, 960)), space, 0.001)
    generator = np.random.default_rng(5)
    shifts = generator.normal(size=(300, space.dim))
    for part, radius in zip(space.slices, certificate.radii, strict=True):
        lengths = np.linalg.norm(shifts[:, part], axis=1, keepdims=True)
        shifts[:, part] *= min(radius, 3.0) * generator.uniform(0, 1.3, (300, 1)) / lengths
    given = {
        "shifts": [[row[part].tolist() for part in space.slices] for row in shifts],
        "radii": list(certificate.radii),
        "norms": [law.norm(k) for k in range(len(space.blocks))],
        "joint": joint_of(law),
    }
    code = "given.shifts.map((each) => page.shareOf(each, given.radii, given.norms, given.joint))"
    shares = run(code, given, tmp_path)
    covered = [certificate.covers(row.tolist()) for row in shifts]
    claimed = [share is not None and share <= 1 for share in shares]
    assert not [k for k in range(300) if claimed[k] and not covered[k]]
    mixed = joint_of(law) is None
    assert any(claimed) != mixed
    assert mixed or any(not claim for claim in claimed) or max(certificate.radii) >= math.pi


def test_directions_have_length_one_and_differ(tmp_path: Path) -> None:
    code = "[1, 2].map((norm) => [1, 2].map((seed) => page.direction(8, norm, seed)))"
    ones, twos = run(code, None, tmp_path)
    assert [sum(map(abs, each)) for each in ones] == pytest.approx([1, 1])
    assert [math.hypot(*each) for each in twos] == pytest.approx([1, 1])
    assert ones[0] != ones[1]
    assert run("page.direction(8, 2, 1)", None, tmp_path) == twos[0]


def test_what_the_page_cannot_draw_is_left_alone(tmp_path: Path) -> None:
    def can(name: str, small: bool, thumb: bool = True) -> bool:
        data = {"turning": {"deformation": {"name": "compose", "parts": [{"name": name}]}}}
        own = {"thumbs": {"0": "data:,"} if thumb else {}, "small": small}
        found = run("page.canTurn(given.data, given.run, 0)", {"data": data, "run": own}, tmp_path)
        assert isinstance(found, bool)
        return found

    assert can("rotation", small=False)
    assert not can("rotation", small=False, thumb=False)
    assert not can("lens", small=True), "a user's own deformation is Python code"
    assert can("vector_field", small=True)
    assert not can("vector_field", small=False), "a copy has other pixels than the parameters"
