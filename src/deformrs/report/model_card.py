"""The model card of a run: Markdown below metadata that the Hugging Face Hub reads."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath, PureWindowsPath

from deformrs import __version__
from deformrs.config import Config, ConfigValue
from deformrs.errors import quoted
from deformrs.report.captions import (
    INTERVAL,
    certified_words,
    headline_words,
    incomplete_words,
    interval_words,
    limits,
    region_words,
    share,
    stopping_words,
    within_words,
)
from deformrs.report.formats import (
    Cell,
    Table,
    YAMLValue,
    escape_markdown,
    to_markdown,
    to_yaml,
)
from deformrs.report.groups import (
    MADE_IN_PYTHON,
    TITLES,
    Entry,
    Member,
    Section,
    lookup,
)
from deformrs.report.summary import NOT_REQUESTED, interval
from deformrs.report.tables import model_name
from deformrs.rounding import format_alpha, format_down
from deformrs.runs.files import file_digest
from deformrs.runs.records import read_sealed
from deformrs.runs.request import simultaneous_of

HUB_DATASETS = {"mnist": "ylecun/mnist", "cifar10": "uoft-cs/cifar10"}
"""The names on the Hub of the datasets that `--data` names."""

_UNKNOWN = "unknown"
_SHOWN_CLASSES = 10
_WIDTH = 96
_MODEL, _TRAINING, _HELD_OUT, _BEST = "model.json", "training.json", "held-out", "best"
_CERTIFIED = (
    "An image is certified for a query if the smoothed classifier predicts its label and, with "
    "confidence 1 - alpha, its prediction provably stays the same under every deformation of the "
    "query. The share of such images is the certified accuracy. Counts are exact; every share is "
    "rounded down."
)
_SMOOTHED = (
    "What is certified is its smoothed classifier: it answers with the class that the model "
    "predicts most often when the image is deformed at random ({family}: {noise}{padding}), and "
    "abstains where too few samples agree."
)
_CITATION = """\
```bibtex
@inproceedings{alfarra2022deformrs,
  title = {{DeformRS}: Certifying Input Deformations with Randomized Smoothing},
  author = {Alfarra, Motasem and Bibi, Adel and Khan, Naeemullah and Torr, Philip H. S. and
            Ghanem, Bernard},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  year = {2022}
}
```"""


@dataclass(frozen=True)
class Metric:
    """The share of images that are correct, or correct and certified for a query.

    `query` names it in the metadata, `words` in the table. `count` is None for `reason`.
    """

    type: str
    name: str
    words: str
    count: int | None
    total: int
    query: dict[str, YAMLValue]
    reason: str = ""


def model_card(section: Section, name: str | None = None) -> str:
    """Return the model card of the only run of a section; `name` is by default that of the run.

    Guarantee: no count or share in it is above that of the results, and names of the run, which
    may come from others, are neither markup nor metadata.
    """
    (entry,) = section.entries
    title = name or entry.member.name
    body = "\n".join(_body(section, entry, title)) + "\n"
    front = to_yaml(_metadata(section, entry, title))
    return f"---\n{front}---\n{_mark(front + body)}\n{body}"


_MARK = re.compile(r"<!-- deformrs card, sha256 of the rest: [0-9a-f]{64} -->")


def is_untouched(text: str) -> bool:
    """Return whether a text is a model card that nobody has changed since it was written.

    Git and editors may have changed its line ends.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    marks = [k for k, line in enumerate(lines) if _MARK.fullmatch(line)]
    if not marks or lines[0] != "---" or lines[marks[0] - 1] != "---":
        return False
    front, body = lines[1 : marks[0] - 1], lines[marks[0] + 1 :]
    return _mark("\n".join([*front, *body])) == lines[marks[0]]


def _mark(rest: str) -> str:
    digest = hashlib.sha256(rest.encode("utf-8", "replace")).hexdigest()
    return f"<!-- deformrs card, sha256 of the rest: {digest} -->"


def _metadata(section: Section, entry: Entry, name: str) -> dict[str, YAMLValue]:
    member = entry.member
    families = dict.fromkeys(block.family.replace("_", "-") for block in section.group.blocks)
    tags = ["deformrs", "certified-robustness", "randomized-smoothing", *families]
    trained = _trained_on(member)
    known: dict[str, YAMLValue] = {} if trained is None else {"datasets": [trained]}
    metrics: list[YAMLValue] = [
        {
            "type": metric.type,
            "name": metric.name,
            "value": Decimal(format_down(Fraction(metric.count, metric.total), 4)),
            "args": metric.query | _counted(metric.count, metric.total, member),
        }
        for metric in _metrics(section, entry)
        if metric.count is not None
    ]
    result: dict[str, YAMLValue] = {
        "task": {"type": "image-classification", "name": "Image Classification"},
        "dataset": _dataset(member),
        "metrics": metrics,
    }
    return {
        "library_name": "deformrs",
        "pipeline_tag": "image-classification",
        "tags": tags,
        **known,
        "model-index": [{"name": name, "results": [result]}],
    }


def _metrics(section: Section, entry: Entry) -> Iterator[Metric]:
    """Yield the accuracies without noise and of the smoothed classifier, then those certified."""
    member, summary = entry.member, entry.summary
    total, how = summary.total, _certification(section, member)
    if summary.plain is not None:
        words = "correct: the model alone, without noise"
        yield Metric("accuracy", "Accuracy", words, summary.plain, total, {})
    words = "correct: the smoothed classifier"
    yield Metric(
        "smoothed_accuracy", "Accuracy, smoothed classifier", words, summary.right, total, how
    )
    for radius, count in zip(section.radii, entry.certified(summary), strict=True):
        if radius.value((2, 2)) == 0:  # the accuracy of the smoothed classifier
            continue
        within = within_words(radius, member)
        yield Metric(
            type="certified_accuracy",
            name=f"Certified accuracy, {within.removeprefix('any ')}",
            words=f"certified: {within}",
            count=count,
            total=total,
            query={"threat_model": "deformation", "radius": radius.label} | how,
            reason="" if count is not None else NOT_REQUESTED,
        )
    for answer in entry.regions:
        region = region_words(answer.region)
        known = answer.count is not None or answer.reason == NOT_REQUESTED
        yield Metric(
            type="certified_accuracy",
            name=f"Certified accuracy, {region}",
            words=f"certified: every {region}",
            count=answer.count,
            total=answer.total,
            query={"threat_model": "deformation", "region": region} | how,
            reason=answer.reason if known else f"not applicable: {answer.reason}",
        )


def _certification(section: Section, member: Member) -> dict[str, YAMLValue]:
    """Return how the images of a run were certified."""
    config, counts = member.run.config, [result.certificate.counts for result in member.results]
    padding, shared = config.get("padding"), simultaneous_of(config)
    about: dict[str, YAMLValue] = {"deformation": section.group.family, "noise": member.noise}
    if padding is not None:
        about["padding"] = str(padding)
    about |= {"alpha": member.first.alpha}
    if shared is not None and not member.run.is_recertified:
        about["alpha_of_all_images"] = shared.alpha
    about |= {"n0": max(count.n0 for count in counts), "n": max(count.n for count in counts)}
    if stopping := stopping_words(member):
        about["sampled"] = stopping
    return about | {"bound": member.method}


def _counted(count: int, total: int, member: Member) -> dict[str, YAMLValue]:
    """Return a count with its interval, of the images and of those that were requested."""
    requested = member.run.requested
    ends: list[YAMLValue] = [Decimal(end).scaleb(-2) for end in interval(count, total)]
    return {
        "count": count,
        "images": total,
        **({} if requested is None else {"images_requested": requested}),
        "confidence_interval": ends,
        "confidence_level": Decimal("0.95"),
    }


def _dataset(member: Member) -> dict[str, YAMLValue]:
    """Return the dataset of a run; its Hub name only where it is published data, not a folder."""
    name, split = (lookup(member.run.config, "data", key) for key in ("name", "split"))
    published = _published(name, lookup(member.run.config, "options", "data"))
    title = TITLES[str(name)] if published else str(name or _UNKNOWN)
    dataset: dict[str, YAMLValue] = {"name": title, "type": published or _UNKNOWN}
    return dataset | ({"split": split} if isinstance(split, str) else {})


def _published(name: ConfigValue, source: ConfigValue) -> str | None:
    """Return the Hub name of published data, None for a folder or file, also of such a name."""
    known = isinstance(name, str) and str(source).partition(":")[0] == name
    return HUB_DATASETS.get(str(name)) if known else None


def _trained_on(member: Member) -> str | None:
    """Return the Hub name of the data that the model was trained on; None where not known.

    It is known of networks of `deformrs train` in the folder of the run or above it.
    """
    folder = member.run.folder.resolve()
    place = folder.parent if folder.name == _HELD_OUT else folder
    digest = lookup(member.run.config, "model", "files", _MODEL)
    if not (place / _MODEL).is_file() or file_digest(place / _MODEL, links=False) != digest:
        return None
    training = (place.parent if place.name == _BEST else place) / _TRAINING
    if not training.is_file():
        return None
    config: Config = read_sealed(training)
    return _published(lookup(config, "data", "name"), lookup(config, "options", "data"))


def _body(section: Section, entry: Entry, name: str) -> Iterator[str]:
    member = entry.member
    yield from ("", f"# {escape_markdown(name)}", "")
    yield escape_markdown(_model_words(entry))
    smoothed = _SMOOTHED.format(
        family=section.group.family, noise=member.noise, padding=_padding_words(member)
    )
    yield from ("", escape_markdown(smoothed))
    yield from ("", "## Certified accuracy", "")
    for line in incomplete_words(section):
        yield from (f"**{escape_markdown(line)}**", "")
    yield escape_markdown(f"{_CERTIFIED} {_alpha_words(member)}")
    yield from ("", escape_markdown(headline_words(section, entry)))
    yield from ("", to_markdown(_table(section, entry)).rstrip())
    yield from ("", "## Limits of the certificates", "")
    yield from (f"- {escape_markdown(limit)}" for limit in limits([section.group]))
    yield from ("", "## How to reproduce it", "", *_reproduction(member))
    yield from ("", "## Citation", "")
    yield (
        "The method is that of [DeformRS: Certifying Input Deformations with Randomized Smoothing]"
        "(https://arxiv.org/abs/2107.00996)."
    )
    yield from ("", _CITATION)
    made = member.run.config.get("version")
    by = "" if made is None else f" The images were certified by version {made}."
    yield from ("", escape_markdown(f"This card was written by deformrs {__version__}.{by}"))


def _model_words(entry: Entry) -> str:
    member, model = entry.member, model_name(entry)
    names, number = member.class_names, member.run.config.get("num_classes")
    classes = ""
    if isinstance(number, int):
        shown = [*names[:_SHOWN_CLASSES], *(["…"] if len(names) > _SHOWN_CLASSES else [])]
        classes = f" of {number:,} classes" + (f" ({', '.join(shown)})" if shown else "")
    dataset = _dataset(member)
    split = f" ({dataset['split']})" if "split" in dataset else ""
    named = "" if model == "–" else f"{_without_folders(model)}: "
    verb = "is" if (member.run.requested or len(member.results)) == 1 else "are"
    return (
        f"{named}an image classifier{classes}. {certified_words(member)} of the dataset "
        f"{dataset['name']}{split} {verb} certified."
    )


def _padding_words(member: Member) -> str:
    padding = member.run.config.get("padding")
    return "" if padding is None else f"; {padding} padding outside the image"


def _alpha_words(member: Member) -> str:
    alpha, shared = member.first.alpha, simultaneous_of(member.run.config)
    if shared is None or member.run.is_recertified:
        return f"alpha = {format_alpha(alpha)} for each image."
    return (
        f"alpha = {format_alpha(alpha)} for each image, as {shared.images:,} share "
        f"{format_alpha(shared.alpha)}."
    )


def _table(section: Section, entry: Entry) -> Table:
    rows = []
    for metric in _metrics(section, entry):
        if metric.count is None:
            cells = ("–", metric.reason, "–")
        else:
            count, total = metric.count, metric.total
            cells = (share(count, total), f"{count:,}/{total:,}", interval_words(count, total))
        rows.append(tuple(map(Cell, (metric.words, *cells))))
    return Table(
        title="Certified accuracy",
        align="lrrr",
        columns=("images", "share", "count", "95 % interval"),
        rows=tuple(rows),
        notes=(INTERVAL,),
    )


def _reproduction(member: Member) -> Iterator[str]:
    command = _command(member)
    if command is None:
        yield (
            "No command repeats this run: it was made in Python from objects, or by a method of an "
            "earlier version."
        )
    else:
        yield from ("```", *command, "```", "")
        yield "Of absolute paths only the last part is shown."
    about = [("sampled on", member.run.config.get("device"))]
    about += [("by PyTorch", member.run.config.get("torch"))]
    said = " ".join(f"{words} {value}" for words, value in about if value is not None)
    yield ""
    if said:
        yield escape_markdown(
            f"The images were {said}; other devices and versions may draw other noise, or round "
            "differently."
        )
        yield ""
    yield (
        "`deformrs verify RUN` checks a copy of the run folder, and `deformrs predict IMAGE --run "
        "RUN` predicts another image with its certified radius."
    )


def _command(member: Member) -> list[str] | None:
    """Return the lines of the command that repeats a run; None if the run does not record it."""
    config, options = member.run.config, lookup(member.run.config, "options")
    needed = ("model", "data", "deformation", "noise")
    if not isinstance(options, dict) or not all(isinstance(options.get(k), str) for k in needed):
        return None
    stop, shared = member.early_stop, simultaneous_of(config)
    regions = () if stop is None else stop.regions
    if config["method"] == "bonferroni" or any(r.startswith(MADE_IN_PYTHON) for r in regions):
        return None
    paths = ((key, options.get(key)) for key in ("model", "weights", "data", "deformation"))
    values: list[tuple[str, ConfigValue]] = [
        *((key, _without_folders(v)) for key, v in paths if isinstance(v, str)),
        *((key, options.get(key)) for key in ("split", "noise", "padding")),
        *((key, options.get(key)) for key in ("resize", "crop", "interpolation", "channels")),
        *((key, options.get(key)) for key in ("mean", "std")),
        ("precision", lookup(config, "model", "precision")),
        ("compile", config.get("compiled")),
        *((key, config.get(key)) for key in ("n", "n0")),
        ("alpha", config["alpha"] if shared is None else shared.alpha),
        *((key, config.get(key)) for key in ("method", "seed", "skip")),
        ("max", _maximum(member)),
        *((key.replace("_", "-"), config.get(key)) for key in ("batch_size", "together")),
    ]
    if stop is not None:
        values += [("radii", ",".join(map(str, stop.radii)) or None)]
        values += [("region", region) for region in regions]
        values += [("adaptive", stop.tolerance)]
    words = [f"--{option} {_argument(value)}" for option, value in values if value is not None]
    lines = ["deformrs certify"]
    for word in [*words, *(["--simultaneous"] if shared is not None else []), "--out RUN"]:
        if len(lines[-1]) + len(word) > _WIDTH:
            lines[-1] += " \\"
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}"
    return lines


def _argument(value: ConfigValue) -> str:
    if isinstance(value, list):
        return quoted(",".join(map(str, value)))
    return quoted(value)


def _maximum(member: Member) -> int | None:
    """Return how many images were selected, None if it was all of them, or is not known."""
    config = member.run.config
    available = lookup(config, "data", "pictures")
    skip, selected = config.get("skip", 1), member.run.requested or len(member.results)
    if not isinstance(available, int) or not isinstance(skip, int) or skip < 1:
        return None
    return selected if selected < -(-available // skip) else None


def _without_folders(text: str) -> str:
    """Return the text of an option, of absolute paths in it their last part only.

    A card is published: it must not tell where its author keeps files.

    >>> _without_folders("/home/ada/nets/net.py:build"), _without_folders("rotation+runs/a.py:A")
    ('net.py:build', 'rotation+runs/a.py:A')
    """
    return "+".join(map(_last_part, text.split("+")))


def _last_part(text: str) -> str:
    prefix = next((p for p in ("mnist:", "cifar10:", "hf:") if text.startswith(p)), "")
    path = text.removeprefix(prefix)
    kinds = (PurePosixPath(path), PureWindowsPath(path))
    return prefix + next((kind.name for kind in kinds if kind.is_absolute()), path)
