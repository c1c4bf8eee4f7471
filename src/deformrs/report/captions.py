"""The sentences and labels of a report."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction

from deformrs.regions import Factor, Region, Rotate, Scale, ShearBy, Shift
from deformrs.report.export import clock
from deformrs.report.groups import Entry, Group, Member, Section, lookup
from deformrs.report.radii import Radius, displayed_radius, family_noun, is_full_turn
from deformrs.report.summary import FAILURE, interval, most_false_of
from deformrs.rounding import percent_down
from deformrs.runs import CertifiedRun, Result, read_times
from deformrs.runs.request import simultaneous_of
from deformrs.space import Block

READING = (
    "An image is certified at a radius if the prediction is correct and, with confidence "
    "1 - alpha, provably stays the same under every deformation of at most that size. The share of "
    "such images is the certified accuracy; at radius 0 it is the accuracy of the smoothed "
    "classifier, which may abstain. Counts are exact; every figure, curve and radius is rounded "
    "down."
)
BEST = (
    "The best of these runs at each radius is how the literature reports results. Because the runs "
    "are chosen with the test images themselves, it is optimistic: it is no certificate of any "
    "one classifier."
)
INTERVAL = (
    "The 95 % interval (exact, Clopper-Pearson) tells how the share may carry over to other images "
    "from the same source, if these are a random sample of them."
)
AVERAGE = (
    "Average certified radius: the mean over all images, 0 where the prediction is wrong or "
    "abstains. It rewards a constant classifier, which certifies any radius on the images of its "
    "class: choose between runs by certified accuracy at stated radii, not by this average."
)
_STOPPED = (
    "Sampling stopped early ({}): as soon as the requested queries were decided for an image. The "
    "certificates hold all the same; at radii that were not requested, at a stricter alpha, and on "
    "average, more samples would certify more."
)
_ANEW = (
    "Certified anew by another alpha or bound than the run was made with ({}): this holds at its "
    "level only if it was chosen before the results were seen. Choosing after looking is not the "
    "protocol: the best of several bounds, or one chosen afterwards, errs more often."
)


def share(count: int, total: int) -> str:
    """Return a share in per cent, rounded down."""
    return f"{percent_down(count, total)} %"


def interval_words(count: int, total: int) -> str:
    """Return the 95 % interval of a share.

    >>> interval_words(18, 20)
    '68.3 to 98.8 %'
    """
    return f"{' to '.join(interval(count, total))} %"


def images(count: int) -> str:
    """Return a number of images in words.

    >>> images(1)
    '1 image'
    """
    return f"{count:,} image" + ("" if count == 1 else "s")


def certified_count(member: Member) -> str:
    """Return how many images are certified, and of how many that were requested: 40 of 120."""
    done, requested = len(member.results), member.run.requested
    return f"{done:,}" if requested is None else f"{done:,} of {requested:,}"


def certified_words(member: Member) -> str:
    """Return how many images are certified in words."""
    last = member.run.requested or len(member.results)
    return f"{certified_count(member)} image" + ("" if last == 1 else "s")


def incomplete_words(section: Section) -> list[str]:
    """Return a sentence on the runs that lack requested images, empty if none is known to."""
    members = [entry.member for entry in section.entries if entry.member.run.is_incomplete]
    named = [f"{member.name} has {certified_words(member)}" for member in members]
    return [f"Incomplete: {', '.join(named)}; figures are of these alone."] if named else []


def spread(values: Sequence[int]) -> str:
    """Return one number, or the range from the least to the largest."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def joined(parts: Sequence[str], blocks: Sequence[Block]) -> str:
    """Return one text per block as one, with the families' names if there are several."""
    if len(parts) == 1:
        return parts[0]
    named = zip(blocks, parts, strict=True)
    return ", ".join(f"{family_noun(block.family)} {part}" for block, part in named)


def radii_words(result: Result) -> str:
    """Return the certified radii of a result in displayed units, rounded down."""
    space, radii = result.certificate.space, result.certificate.radii
    parts = [
        "every angle"
        if is_full_turn(block, radius)
        else block.unit.format_down(displayed_radius(block, radius, space.size))
        for block, radius in zip(space.blocks, radii, strict=True)
    ]
    return joined(parts, space.blocks)


def averages_words(averages: Sequence[Fraction], blocks: Sequence[Block]) -> str:
    """Return average radii in displayed units, rounded down, one per block."""
    parts = [b.unit.format_down(average) for average, b in zip(averages, blocks, strict=True)]
    return joined(parts, blocks)


def axis_words(group: Group, block: Block) -> str:
    """Return the label of the radius axis: the family, the unit, and the norm if it matters."""
    norm = "" if group.norm is None else f", l{group.norm} norm"
    return f"{block.family.replace('_', ' ')} radius ({block.unit.words}{norm})"


def legend_label(member: Member) -> str:
    """Return the label of a run in a legend."""
    return f"{member.name}: {member.short_noise}"


@dataclass(frozen=True)
class Headline:
    """The certified accuracy to remember of a run, e.g. of the query "at 10°".

    `share` is None where the query was not requested of the run, and with it the `interval`.
    """

    query: str
    share: str | None
    interval: str
    sentence: str


def headline(section: Section, entry: Entry) -> Headline:
    """Return the certified accuracy of a run at the radius that all runs of the section show.

    Without radii it is that on the first region, and without regions the accuracy itself.
    """
    summary, k = entry.summary, _headline_radius(section)
    of = f"Of {images(summary.total)}"
    if entry.member.run.is_incomplete:
        of = f"Incomplete: {certified_words(entry.member)} are certified. Of these"
    if k is not None:
        radius, count = section.radii[k], entry.certified(summary)[k]
        query, under = f"at {radius.label}", f"under {within_words(radius, entry.member)}"
    elif entry.regions and entry.regions[0].count is not None:
        count, query = entry.regions[0].count, "on the requested region"
        under = f"under every {region_words(entry.regions[0].region)}"
    else:
        right = share(summary.right, summary.total)
        verb = "is" if summary.right == 1 else "are"
        return Headline(
            "correct",
            right,
            interval_words(summary.right, summary.total),
            f"{of}, {summary.right:,} ({right}) {verb} classified correctly without abstaining. "
            "How far that holds is answered by regions"
            + (
                ", and by one radius for each part of the composition with the others at rest."
                if section.group.block is None
                else "."
            ),
        )
    if count is None:
        return Headline(query, None, "", f"It was not requested of this run what holds {under}.")
    percent, range_ = share(count, summary.total), interval_words(count, summary.total)
    verb, stay = ("is", "stays") if count == 1 else ("are", "stay")
    sentence = (
        f"{count:,} ({percent}) {verb} classified correctly and, with confidence 1 - alpha"
        f"{' each' * (count > 1)}, provably {stay} so {under}."
    )
    if count == 0:
        sentence = f"none is classified correctly and certified {under}."
    return Headline(query, percent, range_, f"{of}, {sentence}")


def headline_words(section: Section, entry: Entry) -> str:
    """Return the headline of a run with its interval, and what holds of all its certificates."""
    answer, together = headline(section, entry), set_words(entry.member.run)
    interval = f"95 % interval: {answer.interval}." if answer.interval else ""
    return " ".join(filter(None, (answer.sentence, interval, together)))


def _headline_radius(section: Section) -> int | None:
    """Return the number of the radius to remember, the same for every run; None without radii.

    It is the first requested one; without one, the largest that all runs decided and at which
    half of the correct predictions of each still hold, else the smallest.
    """
    if section.requested is not None:
        return section.radii.index(section.requested)
    positive = [k for k, radius in enumerate(section.radii) if radius.value((2, 2)) > 0]
    known = [k for k in positive if all(entry.decided[k] for entry in section.entries)]
    places = known or positive or list(range(len(section.radii)))
    summaries = [entry.summary for entry in section.entries]
    held = [k for k in places if all(2 * s.certified[k] >= max(1, s.right) for s in summaries)]
    return next(iter(held[-1:] or places), None)


def set_words(run: CertifiedRun) -> str:
    """Return a sentence on all certificates of a run together, empty if nothing is known.

    Guarantee: it is false with probability at most one minus the confidence that it names, if the
    images were chosen before they were sampled. Of results that were certified anew, the sentence
    says what else it needs.
    """
    sentence = _of_all_certificates(run)
    if not sentence or not run.is_recertified:
        return sentence
    return sentence[:-1] + ", if this alpha and bound were chosen before the results were seen."


def _of_all_certificates(run: CertifiedRun) -> str:
    certificates, shared = len(run), simultaneous_of(run.config)
    if shared is not None:
        total = shared.images * Fraction(run[0].certificate.alpha)
        if total < 1:
            return f"{_confidence(total)} {_all_hold(certificates)}"
    most = most_false_of(run)
    if most is None or most >= certificates:
        return ""
    if most == 0:
        return f"{_confidence(Fraction(FAILURE))} {_all_hold(certificates)}"
    are = "is" if most == 1 else "are"
    return (
        f"{_confidence(Fraction(FAILURE))} at most {most:,} of these {certificates:,} certificates "
        f"{are} false."
    )


def _all_hold(certificates: int) -> str:
    if certificates == 1:
        return "this certificate holds."
    return f"all {certificates:,} certificates hold together."


def _confidence(failure: Fraction) -> str:
    """Return the confidence that a failure probability leaves, which is rounded up.

    >>> _confidence(Fraction(1, 1000))
    'With 99.9 % confidence'
    """
    shortest = repr(float(failure))  # 0.001 is slightly above it as a float
    failing = Context(prec=6, rounding=ROUND_CEILING).create_decimal(shortest)
    return f"With {(100 * (1 - failing)).normalize():f} % confidence"


def plain_words(entry: Entry) -> str:
    """Return the accuracy of the model without noise in words, empty where it is not known."""
    plain, total = entry.summary.plain, entry.summary.total
    return "" if plain is None else f"plain accuracy {share(plain, total)}"


def ending_words(section: Section) -> str:
    """Return which curves end where no larger radius was requested, empty if none does."""
    names = [member.name for member, curve in section.curves if curve.until is not None]
    if not names:
        return ""
    return (
        f"Sampled until the requested radii were decided: {', '.join(names)}. The curve ends at "
        "the largest of them, since no more was requested, and is a lower bound between them."
    )


def region_words(region: Region) -> str:
    """Return a region in words.

    >>> region_words(Region.parse("rotation<=10deg, scale=0.8..1.2"))
    'rotation up to 10°, then scale from 0.8 to 1.2 (shown at 84 to 125 % of its size)'
    """
    return ", then ".join(map(_factor, region.factors))


def limits(groups: Sequence[Group]) -> list[str]:
    """Return what the certificates of these runs do not promise."""
    members = [member for group in groups for member in group.members]
    own = [member for member in members if simultaneous_of(member.run.config) is None]
    stopped = [member.name for member in members if member.early_stop is not None]
    anew = [member.name for member in members if member.run.is_recertified]
    return [
        "A certificate covers shifts of the deformation's parameters for the image as it is "
        "stored: the deformed image is always read from the original pixels. It does not cover "
        "an image that was deformed and resampled before it arrived.",
        "It is about the smoothed classifier, which decides by vote under random deformations; "
        "not about a single call of the model.",
        *_alpha_limits(own),
        "The figures are exact for the images that were certified. How they carry over to other "
        "images depends on how these were chosen.",
        *([_STOPPED.format(", ".join(stopped))] if stopped else []),
        *([_ANEW.format(", ".join(anew))] if anew else []),
    ]


def _alpha_limits(members: Sequence[Member]) -> list[str]:
    """Return what alpha means where each image has its own."""
    if not members:
        return []
    alphas = sorted({member.first.alpha for member in members})
    most = max((member.first.alpha, len(member.results)) for member in members)
    expected = f"{math.ceil(100 * most[0] * most[1]) / 100:g} of {images(most[1])}"
    sentences = [
        f"alpha ({', '.join(f'{alpha:g}' for alpha in alphas)}) bounds the probability of a false "
        "certificate for each image, not for the whole set: on average at most "
        f"{expected} may be certified wrongly."
    ]
    if any(set_words(member.run) for member in members):
        sentences.append(
            "How many certificates of a run may be false is a statement about all of its images, "
            "chosen beforehand. One on which the classifier abstains states nothing, but counts "
            "among them: how many do is known only from the samples."
        )
    return sentences


def average_words(member: Member) -> str:
    """Return the caveat of a run's average radius, empty if there is none."""
    if not member.only_decided:
        return ""
    return "only the requested queries were decided: more samples would give more"


def recertified_words(member: Member) -> str:
    """Return the caveat of a run that was certified anew, empty if it was not."""
    return _ANEW.format(member.name) if member.run.is_recertified else ""


def stricter_words(member: Member) -> str:
    """Return the caveat of a run that stopped early for a larger alpha, empty if there is none."""
    own, alpha = member.run.config["alpha"], member.first.alpha
    if member.early_stop is None or not isinstance(own, float) or alpha >= own:
        return ""
    return (
        f"the images of {member.name} were sampled until decided at alpha = {own:g}; at {alpha:g} "
        "these samples are too few, and most of what more samples would certify is not counted"
    )


_SMALL_RANGES = {
    "rotation": "rotation<=5deg",
    "scaling": "scale=0.95..1.05",
    "shear": "shear<=5%",
    "translation": "shift<=2px",
}


def region_example(blocks: Sequence[Block]) -> str:
    """Return the text of a small region of these families, empty where one has no range.

    >>> from deformrs import Compose, Rotation, Scaling
    >>> region_example(Compose(Rotation(), Scaling()).space((28, 28)).blocks)
    'rotation<=5deg, scale=0.95..1.05'
    """
    ranges = [_SMALL_RANGES.get(block.family, "") for block in blocks]
    return ", ".join(ranges) if all(ranges) else ""


def stopping_words(member: Member) -> str:
    """Return until when images were sampled, empty where all got the same number of samples."""
    stop = member.early_stop
    if stop is None:
        return ""
    radii = sorted(map(str, stop.radii), key=_leading_number)
    queries = [*radii, *(f"the region ({region})" for region in stop.regions)]
    words = [f"until decided: {', '.join(queries)}"] if queries else []
    if stop.tolerance is not None:
        words.append(f"until less than {stop.tolerance} is to gain")
    return " and ".join(words)


def chosen_words(member: Member) -> str:
    """Return which images of the dataset were certified."""
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
    """Return the time per image and in all, None where the run's folder has none."""
    seconds = read_times(member.run.folder)
    known = [seconds[r.index] for r in member.results if r.index in seconds]
    if not known:
        return None
    total = math.fsum(known)
    return f"{total / len(known):.3g} s per image", f"{clock(total).partition('.')[0]} in all"


def within_words(radius: Radius, member: Member) -> str:
    """Return the deformations up to a radius in words: "any rotation up to 10°"."""
    block, size = radius.block, member.first.space.size
    if is_full_turn(block, radius.value(size)):
        return f"every {family_noun(block.family)}"
    norm = "" if block.dim == 1 else f" (l{member.first.law.norm(0)} norm)"
    return f"any {family_noun(block.family)} up to {radius.label}{norm}"


def _factor(factor: Factor) -> str:
    match factor:
        case Rotate():
            return _range("rotation", math.degrees(factor.low), math.degrees(factor.high), "°")
        case ShearBy():
            return _range("shear", 100 * factor.low, 100 * factor.high, " %")
        case Scale():
            low, high = _inside(factor.low, ROUND_CEILING), _inside(factor.high)
            return f"scale from {low} to {high} ({factor.shown})"
        case Shift() if factor.px is not None:
            return f"shift up to {_inside(factor.px)} px"
        case Shift() if factor.length is not None:
            return f"shift up to {_inside(factor.length)} half sides"
    return repr(factor)


def _range(name: str, low: float, high: float, sign: str) -> str:
    if low == -high:
        return f"{name} up to {_inside(high)}{sign}"
    return f"{name} from {_inside(low, ROUND_CEILING)}{sign} to {_inside(high)}{sign}"


def _inside(bound: float, rounding: str = ROUND_FLOOR) -> str:
    """Return up to nine digits of a bound of a range, else five that are rounded into the range.

    >>> _inside(1 / 0.95), _inside(1 / 1.05, ROUND_CEILING), _inside(math.degrees(math.radians(20)))
    ('1.0526', '0.95239', '20')
    """
    nearest = f"{bound:.9g}"
    if math.isclose(float(nearest), bound, rel_tol=1e-14):  # the float of that decimal, or nearly
        return nearest
    return f"{Context(prec=5, rounding=rounding).create_decimal(bound):.5g}"


def _leading_number(text: str) -> float:
    match = re.match(r"[\d.]+(e[-+]?\d+)?", text)
    return float(match[0]) if match else math.inf
