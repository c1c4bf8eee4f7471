"""What torch's compiler prints while it works, kept from the terminal."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from deformrs.models.optional_dependencies import quiet


@contextmanager
def quietly(*, compiling: bool) -> Iterator[None]:
    """No warnings or notes from the compiler, and none of the tables that tuning prints."""
    if not compiling:  # the compiler is slow to import
        yield
        return
    from torch._inductor import config, select_algorithm

    # Where a version of torch lacks one of them, it prints nothing of that kind.
    with (
        _switched_off(select_algorithm, "PRINT_AUTOTUNE"),
        _switched_off(config, "max_autotune_report_choices_stats"),
        quiet("torch._inductor", "torch._dynamo"),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", module=r"torch\.")
        yield


@contextmanager
def _switched_off(module: ModuleType, name: str) -> Iterator[None]:
    before = getattr(module, name, None)
    if before is None:
        yield
        return
    setattr(module, name, False)
    try:
        yield
    finally:
        setattr(module, name, before)
