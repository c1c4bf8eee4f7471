"""What a run shows, said in plain sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from deformrs.config import Config
from deformrs.report.export import clock
from deformrs.report.groups import Group, Member, lookup
from deformrs.report.people import everywhere, noun
from deformrs.report.radii import Radius
from deformrs.report.summary import Summary
from deformrs.rounding import percent_down
from deformrs.runs import read_times
from deformrs.space import Block

READING = (
    "An image is certified at a radius if the answer for it is right and provably stays the same "
    "under every deformation of at most that size. The share of such images is the certified "
    "accuracy; at radius 0 it is the accuracy of the smoothed classifier, which may abstain. "
    "Counts are exact; every figure, curve and radius is rounded down."
)
BEST = (
    "The best of these runs at each radius is how the paper reports its results. Because the runs "
    "are chosen with the test images themselves, it is optimistic: it is no certificate of any "
    "one classifier."
)


def share(count: int, total: int) -> str:
    """A share in per cent, rounded down."""
    return f"{percent_down(count, total)} %"


def images(count: int) -> str:
    """A number of images."""
    return f"{count:,} image" + ("" if count == 1 else "s")


def reach_words(radius: Radius, member: Member) -> str:
    """Every deformation up to a radius, in words."""
    block, size = radius.block, member.first.space.size
    if everywhere(block, radius.value(size)):
        return f"every {noun(block.family)}"
    norm = "" if block.dim == 1 else f" (l{member.first.law.norm(0)} norm)"
    return f"any {noun(block.family)} up to {radius.shown}{norm}"


def axis_words(group: Group, block: Block) -> str:
    """What is drawn to the right: the radius, its unit, and its norm where there are several."""
    norm = "" if group.norm is None else f", l{group.norm} norm"
    return f"{block.family.replace('_', ' ')} radius ({block.unit.words}{norm})"


def headline(member: Member, summary: Summary, radius: Radius | None, count: int) -> str:
    """The one sentence to remember of a run: `count` images hold at `radius`."""
    of = f"Of {images(summary.total)}"
    if radius is None:
        verb = "is" if summary.right == 1 else "are"
        right = f"{summary.right:,} ({share(summary.right, summary.total)})"
        return (
            f"{of}, {right} {verb} classified right without abstaining. How far that holds is said "
            "by regions and by one radius for each part of the composition, the others at rest."
        )
    within = reach_words(radius, member)
    if count == 0:
        return f"{of}, none is classified right and certified under {within}."
    verb, stay = ("is", "stays") if count == 1 else ("are", "stay")
    held = f"{count:,} ({share(count, summary.total)})"
    return f"{of}, {held} {verb} classified right and provably {stay} so under {within}."


def headline_radius(
    radii: Sequence[Radius], summary: Summary, first: str | None
) -> tuple[Radius | None, int]:
    """The radius that the headline speaks of, and how many hold there.

    The first that was asked for; else the largest at which half of the right ones still hold.
    """
    if not radii:
        return None, summary.right
    pairs = list(zip(radii, summary.certified, strict=True))
    asked = [pair for pair in pairs if pair[0].text == first]
    positive = [pair for pair in pairs if pair[0].value((2, 2)) > 0]
    half = [pair for pair in positive if pair[1] and 2 * pair[1] >= summary.right]
    return (asked or half[::-1] or positive or pairs)[0]


def limits(groups: Sequence[Group]) -> list[str]:
    """What the certificates of these runs do not say."""
    alphas = sorted({m.first.alpha for group in groups for m in group.members})
    most = max((m.first.alpha, len(m.results)) for group in groups for m in group.members)
    stopped = [m.name for group in groups for m in group.members if "stopping" in m.run.config]
    expected = f"{math.ceil(100 * most[0] * most[1]) / 100:g} of {images(most[1])}"
    return [
        "A certificate speaks of shifts of the deformation's parameters for the image as it is "
        "stored: the deformed image is always read from the original pixels. It does not speak "
        "of an image that was deformed and resampled before it arrived.",
        "It is about the smoothed classifier, which answers by vote under random deformations; "
        "not about a single call of the model.",
        f"alpha ({', '.join(f'{alpha:g}' for alpha in alphas)}) bounds the probability of a false "
        "certificate for each image, not for the whole set: on average at most "
        f"{expected} may be certified wrongly.",
        "The figures are exact for the images that were certified. How they carry over to other "
        "images depends on how these were chosen.",
        *([_STOPPED.format(", ".join(stopped))] if stopped else []),
    ]


_STOPPED = (
    "Sampling stopped early ({}): as soon as what was asked was settled for an image. The "
    "certificates hold as ever; at radii that were not asked for, at a stricter alpha, and on "
    "average, more samples would certify more."
)


def average_words(config: Config) -> str:
    """What to know of a run's average radius; nothing where there is nothing."""
    decided = "stopping" in config and lookup(config, "stopping", "tolerance") is None
    return "only what was asked was settled: more samples would give more" if decided else ""


def stopping_words(config: Config) -> str:
    """Until when images were sampled; nothing where it was up to a fixed number.

    >>> stopping_words({"stopping": {"radii": ["10px", "13px", "2px"], "regions": ["shear=0"]}})
    'until settled: 2px, 10px, 13px, the region (shear=0)'
    """
    tolerance = lookup(config, "stopping", "tolerance")
    radii, regions = (
        [str(text) for text in some] if isinstance(some, list) else []
        for some in (lookup(config, "stopping", key) for key in ("radii", "regions"))
    )
    asked = [
        *sorted(radii, key=_leading_number),
        *(f"the region ({region})" for region in regions),
    ]
    words = [f"until settled: {', '.join(asked)}"] if asked else []
    words += [f"until less than {tolerance} is to gain"] if tolerance is not None else []
    return " and ".join(words)


def _leading_number(text: str) -> float:
    found = re.match(r"[\d.]+(e[-+]?\d+)?", text)
    return float(found[0]) if found else math.inf


def chosen_words(member: Member) -> str:
    """How the images that were certified were chosen."""
    config, indices = member.run.config, [result.index for result in member.results]
    name, skip = lookup(config, "data", "name"), config.get("skip")
    number = lookup(config, "data", "pictures") or lookup(config, "data", "number")
    words = [f"of {name}"] if name else []
    if isinstance(number, int):
        words.append(f"from {number:,}")
    if isinstance(skip, int) and skip > 1:
        words.append(f"one in {skip}")
    words.append(f"numbers {spread(indices)}" if len(indices) > 1 else f"number {indices[0]}")
    return ", ".join(words)


def time_words(member: Member) -> tuple[str, str] | None:
    """How long an image took, and all of them, if the run's folder tells."""
    seconds = read_times(member.run.folder)
    known = [seconds[r.index] for r in member.results if r.index in seconds]
    if not known:
        return None
    total = math.fsum(known)
    return f"{total / len(known):.3g} s an image", f"{clock(total).partition('.')[0]} in all"


def spread(values: Sequence[int]) -> str:
    """One number, or from the least to the most."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
