"""Results: the certificate of an image with its label, and its line in a run folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, overload

from deformrs.certificate import Certificate, Counts, PairedCounts
from deformrs.config import Config, ConfigValue
from deformrs.errors import InputError, damaged
from deformrs.limits import (
    JSON_BYTES,
    LINE_BYTES,
    MAX_CLASSES,
    MAX_PARAMETERS,
    Room,
    parse_json,
    read_text,
)
from deformrs.noise import NoiseLaw
from deformrs.regions import Region
from deformrs.rounding import float_down, format_alpha, percent_down
from deformrs.space import Block, Space
from deformrs.statistics import Method
from deformrs.stopping import RadiusQuery, RegionQuery, from_stored_region, parse_radius
from deformrs.units import Unit, round_radii

REQUESTED = "requested"
"""The setting that says which images a run is to certify, and that grows when it is extended."""


def image_digest(shape: tuple[int, ...], dtype: str, content: bytes) -> str:
    """Return a short digest of the shape, type and values of an image."""
    return hashlib.sha256(f"{shape} {dtype} ".encode() + content).hexdigest()[:16]


@dataclass(frozen=True)
class Result:
    """A certificate with the label of its image.

    `plain` is the model's own prediction without noise, `source` where the image comes from (a
    file name), `pixels` a digest of the certified image.
    """

    index: int
    label: int
    certificate: Certificate
    plain: int | None = None
    source: str = ""
    pixels: str = ""

    @property
    def correct(self) -> bool:
        """Whether the label was predicted."""
        return self.certificate.prediction == self.label

    def holds(self, radius: float) -> bool:
        """Return whether the prediction is correct and certified at every shift of that norm."""
        return self.correct and self.certificate.radius >= radius


class CertifiedRun(Sequence[Result]):
    """The results of a certification and its configuration: a sequence that prints as a table."""

    config: Config
    results: list[Result]

    def __init__(self, config: Config, results: list[Result]) -> None:
        self.config, self.results = config, results

    @property
    def requested(self) -> int | None:
        """The number of requested images, None of a run that does not record it."""
        match self.config.get(REQUESTED):
            case {"images": int(number)}:
                return number
        return None

    @property
    def is_recertified(self) -> bool:
        """Whether the results have another alpha or bound than the run was made with."""
        own = self.config.get("alpha")
        return bool(self.results) and own not in (None, self.results[0].certificate.alpha)

    @property
    def is_incomplete(self) -> bool:
        """Whether requested images are known to lack their results."""
        return self.requested is not None and self.requested > len(self.results)

    def __len__(self) -> int:
        return len(self.results)

    @overload
    def __getitem__(self, index: int) -> Result: ...

    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...

    def __getitem__(self, index: int | slice) -> Result | list[Result]:
        return self.results[index]

    def __repr__(self) -> str:
        """Return the accuracies and the average radius as lines, no figure above the truth."""
        if not self.results:
            return f"no results of {self.requested:,} images" if self.requested else "no results"
        first = self.results[0].certificate
        n = sorted({result.certificate.counts.n for result in self.results})
        images = f"{len(self)} image{'s' * (len(self) > 1)}"
        if self.is_incomplete:
            images = f"incomplete: {len(self):,} of {self.requested:,} images"
        samples = " to ".join(f"{k:,}" for k in n[:: max(1, len(n) - 1)])
        noise = first.law.describe(first.space)
        lines = [f"{images}, {noise}, n = {samples}, alpha = {format_alpha(first.alpha)}"]
        if all(result.plain is not None for result in self.results):
            lines.append(self._line("model alone", lambda result: result.plain == result.label))
        lines.append(self._line("smoothed model", lambda result: result.correct))
        match self.config.get("stopping"):
            case {"radii": list() as radii, "regions": list() as regions, "tolerance": None}:
                # At other radii such a run certifies less than it could.
                lines += self._radius_lines(radii)
                for stored in regions:
                    text = from_stored_region(str(stored))
                    with suppress(InputError):  # one of Python, which text does not say
                        query = RegionQuery(text, Region.parse(text))
                        lines.append(self._line(f"certified {query.words}", query.holds))
            case _ if len(first.radii) == 1 and len({r.certificate.space.size for r in self}) == 1:
                unit, size = first.space.blocks[0].unit, first.space.size
                radii = [r.certificate.radius if r.correct else 0.0 for r in self]
                largest = Fraction(max(radii) * unit.factor(size))
                lines += self._radius_lines(
                    [f"{float(radius):g}{unit.suffix}" for radius in round_radii(largest, unit)]
                )
                average = float_down(sum(map(Fraction, radii), Fraction(0)) / len(self))
                lines.append(f"  {'average radius':<26} {unit.show_down(average, size):>7}")
        return "\n".join(lines)

    def _radius_lines(self, radii: Sequence[ConfigValue]) -> list[str]:
        """Return a line for each radius, in rising order: text, or a number in the own unit."""
        space = self.results[0].certificate.space
        lines = []
        for radius in radii:
            if isinstance(radius, str):
                words, holds = radius, RadiusQuery(radius).holds
            elif isinstance(radius, float):
                words = space.blocks[0].unit.show_down(radius, space.size)
                holds = partial(Result.holds, radius=radius)
            else:
                continue
            line = self._line(f"certified up to {words}", holds)
            lines.append((parse_radius(radius, space), line))
        return [line for _, line in sorted(lines)]

    def _line(self, words: str, holds: Callable[[Result], bool]) -> str:
        share = percent_down(sum(map(holds, self.results)), len(self))
        return f"  {words:<26} {share:>5} %"


def to_record(result: Result, method: str) -> Config:
    """Return the line of a result, as plain values.

    `method` is that of the run; where another was chosen for the image, the line says so.
    """
    c = result.certificate
    blocks: list[ConfigValue] = [
        {"family": b.family, "dim": b.dim, "unit": b.unit.value, "period": b.period}
        for b in c.space.blocks
    ]
    return {
        "index": int(result.index),
        "label": int(result.label),
        "source": result.source,
        "pixels": result.pixels,
        "plain": None if result.plain is None else int(result.plain),
        "prediction": c.prediction,
        "radii": list(c.radii),
        "p_lower": c.p_lower,
        **({} if c.method == method else {"method": c.method}),
        "classes": len(c.counts.selection),
        "selection": sparse(c.counts.selection),
        "estimation": sparse(c.counts.estimation),
        **_pairs_record(c.counts),
        "space": {"size": list(c.space.size), "blocks": blocks},
    }


def _pairs_record(counts: Counts) -> Config:
    """Return the predictions under stratified noise, if there are any."""
    if counts.pairs is None:
        return {}
    return {
        "stratified": sparse(counts.pairs.classes),
        "disagreements": sparse(counts.pairs.disagreements),
    }


def from_record(record: Any, certify: Callable[[Counts, Space, str | None], Certificate]) -> Result:
    """Return the result of a line, certified again by the method chosen for it, if it says one.

    ValueError, KeyError, TypeError if damaged.
    """
    blocks = tuple(
        Block(str(b["family"]), b["dim"], Unit(b["unit"]), b["period"])
        for b in record["space"]["blocks"]
    )
    if sum(block.dim for block in blocks) > MAX_PARAMETERS:
        raise ValueError(f"more than {MAX_PARAMETERS:,} parameters")
    height, width = record["space"]["size"]
    classes = record["classes"]
    pairs = None
    if "stratified" in record:
        pairs = PairedCounts(
            dense(record["stratified"], classes), dense(record["disagreements"], classes)
        )
    counts = Counts(
        dense(record["selection"], classes), dense(record["estimation"], classes), pairs
    )
    method = record.get("method")
    if not isinstance(method, str | None):
        raise ValueError(f"{method!r} is no method")
    plain = record["plain"]
    return Result(
        _integer(record["index"]),
        _integer(record["label"]),
        certify(counts, Space(blocks, (height, width)), method),
        None if plain is None else _integer(plain),
        str(record["source"]),
        str(record["pixels"]),
    )


BAD_LINE = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
"""What a damaged line raises."""


def line_reader(
    config: Config,
    law: NoiseLaw,
    size: int,
    alpha: float | None = None,
    anew: Method | None = None,
    kept: int | None = None,
) -> Callable[[bytes], Result]:
    """Return the function that reads a line of a run with this configuration and noise.

    `size` is that of all lines in bytes, which limits the memory that their counts may take. The
    counts are certified at `alpha`, by default that of the run, by its own bound or by `anew`.
    Images of equal counts share a certificate; where the results are not kept, `kept` says how many
    certificates are. A line of another configuration, or a damaged one, raises one of BAD_LINE.
    """
    settings: Any = config
    level = settings["alpha"] if alpha is None else alpha
    own = Method.parse(settings["method"])
    # Before any line is read, or each would be called damaged.
    (anew or own).check_level(level)
    room, digest_of = Room(size), digests(config)

    @cache
    def shared(space: Space) -> Space:
        room.take(space.dim)
        return space

    @lru_cache(kept)  # many images have the same counts
    def certify(counts: Counts, space: Space, chosen: str | None) -> Certificate:
        if kept is None:
            room.take(2 * len(counts.selection))
        if chosen is not None and not own.may_choose(Method.parse(chosen)):
            raise ValueError(f"{chosen!r} is no method of the run")
        bound = chosen or own.name if anew is None else anew.name
        certificate = law.certify(counts, shared(space), level, bound)
        return replace(certificate, seed=settings.get("seed"))

    def read(line: bytes) -> Result:
        if len(line) > LINE_BYTES:
            raise ValueError(f"longer than {LINE_BYTES:,} bytes")
        record = parse_json(line)
        check = record.pop("check")
        if check != digest_of(record):
            raise ValueError("changed, or of another configuration")
        return from_record(record, certify)

    return read


def sparse(counts: Sequence[int]) -> Config:
    """Return the classes that were predicted at all: most of a thousand are not."""
    return {str(number): count for number, count in enumerate(counts) if count}


def dense(sparse: dict[str, int], classes: int) -> tuple[int, ...]:
    """Return the counts of all classes, as `sparse` stored them; ValueError if damaged."""
    if not 0 < classes <= MAX_CLASSES:
        raise ValueError(f"{classes} classes, not 1 to {MAX_CLASSES:,}")
    counts = [0] * classes
    for number, count in sparse.items():
        index = int(number)
        # Python also reads " 1", "01" and "1_0", which would stand for a class a second time.
        if number != str(index) or not 0 <= index < classes:
            raise ValueError(f"class {number!r} of {classes}")
        counts[index] = _integer(count)
    return tuple(counts)


def _integer(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is no integer")
    return value


def binding(config: Config) -> Config:
    """Return the part of a configuration that binds its results."""
    return {key: value for key, value in config.items() if key not in ("options", REQUESTED)}


def digests(config: Config) -> Callable[[Config], str]:
    """Return the function for the digest of a record of the run, whose configuration it binds."""
    begun = hashlib.sha256(f"[{json.dumps(binding(config), sort_keys=True)}, ".encode())

    def digest(record: Config) -> str:
        digest = begun.copy()
        digest.update(f"{json.dumps(record, sort_keys=True)}]".encode())
        return digest.hexdigest()[:16]

    return digest


def digest(record: Config, config: Config) -> str:
    """Return the digest that binds a record to its content and the run's configuration."""
    return digests(config)(record)


def signed(record: Config, config: Config) -> str:
    """Return a record as JSON, with its digest."""
    return json.dumps(record | {"check": digest(record, config)})


def sealed(content: Config) -> str:
    """Return the text of a metadata file: JSON with a digest of its content.

    The digest notices damage and edits. It is no signature: whoever recomputes it can write
    anything.
    """
    return json.dumps(content | {"check": digest(content, {})}, indent=2) + "\n"


def unsealed(text: str) -> Config:
    """Return the content of a metadata file; ValueError if it is not what `sealed` wrote.

    Files of earlier versions, without a digest, are read as they are.

    >>> unsealed(sealed({"seed": 1}))
    {'seed': 1}
    >>> unsealed(sealed({"seed": 1}).replace("1", "2", 1))
    Traceback (most recent call last):
    ValueError: changed since it was written
    """
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError("not a mapping")
    check = content.pop("check", None)
    if check not in (None, digest(content, {})):
        raise ValueError("changed since it was written")
    return content


def read_sealed(path: Path, remedy: str = "restore it") -> Config:
    """Return the content of a metadata file, which must not be a link."""
    try:
        return unsealed(read_text(path, JSON_BYTES, links=False))
    except InputError:
        raise
    except ValueError as error:
        raise damaged(path, error, remedy) from None
