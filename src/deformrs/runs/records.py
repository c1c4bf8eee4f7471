"""Results: the certificate of an image with its label, and its line in a run folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from deformrs.certificate import Certificate, Counts
from deformrs.config import Config, ConfigValue
from deformrs.space import Block, Space
from deformrs.units import Unit


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


def to_record(result: Result) -> Config:
    """Return the line of a result, as plain values."""
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
        "classes": len(c.counts.selection),
        "selection": sparse(c.counts.selection),
        "estimation": sparse(c.counts.estimation),
        "space": {"size": list(c.space.size), "blocks": blocks},
    }


def from_record(record: Any, certify: Callable[[Counts, Space], Certificate]) -> Result:
    """Return the result of a line, certified again; ValueError, KeyError, TypeError if damaged."""
    blocks = tuple(
        Block(b["family"], b["dim"], Unit(b["unit"]), b["period"])
        for b in record["space"]["blocks"]
    )
    height, width = record["space"]["size"]
    classes = record["classes"]
    counts = Counts(dense(record["selection"], classes), dense(record["estimation"], classes))
    plain = record["plain"]
    return Result(
        int(record["index"]),
        int(record["label"]),
        certify(counts, Space(blocks, (height, width))),
        None if plain is None else int(plain),
        str(record["source"]),
        str(record["pixels"]),
    )


def sparse(counts: Sequence[int]) -> Config:
    """Return the classes that were predicted at all: most of a thousand are not."""
    return {str(number): count for number, count in enumerate(counts) if count}


def dense(sparse: dict[str, int], classes: int) -> tuple[int, ...]:
    """Return the counts of all classes, as `sparse` stored them; ValueError if damaged."""
    counts = [0] * classes
    for number, count in sparse.items():
        if not 0 <= int(number) < classes:
            raise ValueError(f"class {number} of {classes}")
        counts[int(number)] = count
    return tuple(counts)


def binding(config: Config) -> Config:
    """Return the part of a configuration that binds its results."""
    return {key: value for key, value in config.items() if key != "options"}


def digest(record: Config, config: Config) -> str:
    """Return the digest that binds a record to its content and the run's configuration."""
    text = json.dumps([binding(config), record], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def signed(record: Config, config: Config) -> str:
    """Return a record as JSON, with its digest."""
    return json.dumps(record | {"check": digest(record, config)})
