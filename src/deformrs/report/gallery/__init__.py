"""Galleries: images under deformations, and the vector fields that deform them."""

from deformrs.report.gallery.animation import check_animation_path, draw_turning
from deformrs.report.gallery.exhibits import (
    MOST_ROWS,
    Exhibit,
    ExhibitSamples,
    Sample,
    Verdict,
    certified_shifts,
    changed_image,
    deform_exhibit,
    draw_samples,
    gallery,
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
    "MOST_ROWS",
    "Exhibit",
    "ExhibitSamples",
    "Sample",
    "Verdict",
    "certified_shifts",
    "changed_image",
    "check_animation_path",
    "check_figure_path",
    "default_families",
    "default_noise",
    "deform_exhibit",
    "draw_fields",
    "draw_growth",
    "draw_samples",
    "draw_turning",
    "family_title",
    "gallery",
    "one_per_class",
    "sample_exhibit",
]
