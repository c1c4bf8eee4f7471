"""The run folder: what was asked, and the counts that answer it. Needs no torch.

    config.json          what reproduces the run
    certificates.jsonl   one line an image, class counts included

Certificates are computed from the stored counts when they are read, so another alpha or another
bound needs no new samples.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deformrs.certificate import Certificate, Counts
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.noise import NoiseLaw
from deformrs.space import Block, Space
from deformrs.units import Unit

CONFIG, CERTIFICATES = "config.json", "certificates.jsonl"


@dataclass(frozen=True)
class Result:
    """A certificate beside the truth."""

    index: int
    label: int
    certificate: Certificate

    @property
    def correct(self) -> bool:
        """Was the right class predicted, without abstaining?"""
        return self.certificate.prediction == self.label

    def holds(self, radius: float) -> bool:
        """Right, and certified at every shift of that norm?"""
        return self.correct and self.certificate.radius >= radius


def save_run(folder: Path, config: Config, results: Iterable[Result]) -> None:
    """Write a finished run. `config` says what else reproduces it, beyond what results know."""
    results = list(results)
    if not results:
        raise InputError("the run", "empty", "must have results", "certify at least one image")
    first = results[0].certificate
    law, space = first.law, first.space
    if not isinstance(law, NoiseLaw):
        raise InputError("the noise", repr(law), "must be a NoiseLaw", "e.g. Uniform(0.5)")
    known: Config = {
        "noise": law.to_config(),
        "space": {
            "size": list(space.size),
            "blocks": [
                {"family": b.family, "dim": b.dim, "unit": b.unit.value, "period": b.period}
                for b in space.blocks
            ],
        },
        "alpha": first.alpha,
        "method": first.method,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / CONFIG, json.dumps(config | known, indent=2) + "\n")
    lines = [json.dumps(_record(result)) + "\n" for result in results]
    write_atomically(folder / CERTIFICATES, "".join(lines))


def load_run(
    folder: Path, *, alpha: float | None = None, method: str | None = None
) -> list[Result]:
    """The results of a run, certified anew from their counts."""
    config = json.loads((folder / CONFIG).read_text())
    law = NoiseLaw.from_config(config["noise"])
    blocks = tuple(
        Block(b["family"], b["dim"], Unit(b["unit"]), b["period"])
        for b in config["space"]["blocks"]
    )
    height, width = config["space"]["size"]
    space = Space(blocks, (height, width))
    alpha = config["alpha"] if alpha is None else alpha
    method = config["method"] if method is None else method
    results = []
    for line in (folder / CERTIFICATES).read_text().splitlines():
        record = json.loads(line)
        counts = Counts(tuple(record["selection"]), tuple(record["estimation"]))
        certificate = law.certify(counts, space, alpha, method)
        results.append(Result(record["index"], record["label"], certificate))
    return results


def _record(result: Result) -> Config:
    certificate = result.certificate
    return {
        "index": result.index,
        "label": result.label,
        "prediction": certificate.prediction,
        "radii": list(certificate.radii),
        "p_lower": certificate.p_lower,
        "selection": list(certificate.counts.selection),
        "estimation": list(certificate.counts.estimation),
    }


def write_atomically(path: Path, text: str) -> None:
    """Guarantee: the file holds either its old content or all of the new one, never a part."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
