"""Images under deformations, drawn on sheets."""

from deformrs.report.gallery.certified import Exhibit, certified_shifts, draw_gallery

__all__ = ["Exhibit", "certified_shifts", "draw_gallery"]
