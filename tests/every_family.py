"""An example or more of every registered family, for tests that run over all of them."""

from __future__ import annotations

import pytest

from deformrs import Deformation

EXAMPLES = [
    pytest.param(example, id=repr(example))
    for _, family in sorted(Deformation.registry.items())
    for example in family.examples()  # type: ignore[attr-defined]
]
