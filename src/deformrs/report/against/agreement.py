"""The same classifier certified twice: on all images, and on some of them in another way."""

from __future__ import annotations

from dataclasses import dataclass

from deformrs.report.against.board import Board
from deformrs.report.against.reading import Reading
from deformrs.report.layout import Cell, Table


@dataclass(frozen=True)
class Agreement:
    """A run beside a fuller one of the same classifier, on the images that both have.

    A question is one image at one of the published radii at which anything is certified.
    """

    few: Reading
    full: Reading
    images: int
    questions: int
    in_few: int
    in_full: int
    only_few: int
    only_full: int


def agreements(board: Board) -> list[Agreement]:
    """One for each run over fewer images that has a fuller twin, the fullest and first."""
    found = []
    for few in board.readings:
        twins = [
            other
            for other in board.readings
            if few.family is not None
            and (other.dataset, other.family, other.classifier, other.alpha)
            == (few.dataset, few.family, few.classifier, few.alpha)
            and other.total > few.total
        ]
        if twins:
            found.append(_agreement(few, max(twins, key=lambda twin: twin.total)))
    return [agreement for agreement in found if agreement.images]


def agreement_table(board: Board) -> Table | None:
    """What both ways certify; None where nothing was certified twice."""
    found = agreements(board)
    if not found:
        return None
    return Table(
        title="The same classifiers certified twice",
        align="llrrrrrr",
        columns=(
            *("run", "beside", "pictures", "questions", "certified", "certified beside"),
            *("only here", "only beside"),
        ),
        rows=tuple(_row(board, agreement) for agreement in found),
        notes=(
            "A question is one image at one of the paper's radii, up to the largest at which "
            "either run certifies any image. Both runs are of the same model, deformation, noise "
            "and alpha, and only images that both have are counted. Where they have the same "
            "seed, the samples of the one that stops early are the first of the other's.",
        ),
    )


def _agreement(few: Reading, full: Reading) -> Agreement:
    both = sorted(few.held.keys() & full.held.keys())
    pairs = [(few.held[key], full.held[key]) for key in both]
    return Agreement(
        few=few,
        full=full,
        images=len(both),
        questions=len(both) * max((max(pair) for pair in pairs), default=0),
        in_few=sum(here for here, _ in pairs),
        in_full=sum(there for _, there in pairs),
        only_few=sum(max(0, here - there) for here, there in pairs),
        only_full=sum(max(0, there - here) for here, there in pairs),
    )


def _row(board: Board, agreement: Agreement) -> tuple[Cell, ...]:
    few, full = agreement.few, agreement.full
    counts = (
        *(agreement.images, agreement.questions, agreement.in_few, agreement.in_full),
        *(agreement.only_few, agreement.only_full),
    )
    names = (Cell(board.name(run), _way(run)) for run in (few, full))
    return (*names, *(Cell(f"{count:,}") for count in counts))


def _way(reading: Reading) -> str:
    facts = reading.facts
    return f"{'up to' if facts.until else 'always'} {facts.n:,} samples"
