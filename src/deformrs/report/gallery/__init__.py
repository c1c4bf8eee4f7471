"""Galleries: images under deformations, and the vector fields that deform them."""

from deformrs.report.gallery.exhibits import (
    Exhibit,
    ExhibitSamples,
    Sample,
    Verdict,
    certified_shifts,
    draw_gallery,
    draw_samples,
    one_per_class,
    sample_exhibit,
)
from deformrs.report.gallery.families import (
    default_families,
    default_noise,
    draw_fields,
    draw_growth,
    family_title,
)
from deformrs.report.gallery.tiles import check_figure_path

__all__ = [
    "Exhibit",
    "ExhibitSamples",
    "Sample",
    "Verdict",
    "certified_shifts",
    "check_figure_path",
    "default_families",
    "default_noise",
    "draw_fields",
    "draw_gallery",
    "draw_growth",
    "draw_samples",
    "family_title",
    "one_per_class",
    "sample_exhibit",
]
