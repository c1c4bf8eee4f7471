"""Runs with counts that are made up, so that what a report must say of them is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from deformrs import Counts, Deformation, NoiseLaw, Rotation, Uniform
from deformrs.config import Config, ConfigValue
from deformrs.runs import CERTIFICATES, CONFIG, Result, Run, StoredRun, read_config, read_run
from deformrs.runs.records import signed

ALPHA, METHOD, N = 0.001, "clopper_pearson", 1000


@dataclass(frozen=True)
class Entry:
    """An image of class `label`, answered `top` by `hits` of the thousand samples."""

    label: int
    top: int
    hits: int
    plain: int | None = 0
    source: str = ""


def many(total: int, classes: int = 10, least: int = 400) -> list[Entry]:
    """Images that abstain, hold a little, and hold far; one in nine is answered wrongly."""
    step = (N - least) / max(1, total - 1)
    return [
        Entry(
            label=k % classes,
            top=(k + (k % 9 == 8)) % classes,
            hits=N - round(step * ((k * 7919) % total)),
            plain=(k + (k % 5 == 4)) % classes,
            source=f"photos/{k:05d}.png",
        )
        for k in range(total)
    ]


def results(
    images: Sequence[Entry],
    deformation: Deformation,
    law: NoiseLaw,
    classes: int,
    size: tuple[int, int] = (28, 28),
) -> list[Result]:
    space = deformation.space(size)
    made = []
    for index, image in enumerate(images):
        selection, estimation = [0] * classes, [0] * classes
        selection[image.top] = 100
        estimation[image.top] = image.hits
        estimation[(image.top + 1) % classes] += N - image.hits
        counts = Counts(tuple(selection), tuple(estimation))
        certificate = law.certify(counts, space, ALPHA)
        made.append(Result(index, image.label, certificate, image.plain, image.source))
    return made


def stored(
    folder: Path,
    images: Sequence[Entry] | None = None,
    deformation: Deformation = Rotation(),  # noqa: B008 (immutable)
    law: NoiseLaw = Uniform(1.0),  # noqa: B008
    *,
    data: str | None = "photos",
    classes: int = 10,
    names: Sequence[str] | None = None,
    size: tuple[int, int] = (28, 28),
    on_disk: bool = False,
) -> StoredRun:
    """A run of these images, by way of its folder if it is to lie on the disk."""
    some = results(many(40, classes) if images is None else images, deformation, law, classes, size)
    about: Config = {"deformation": deformation.to_config(), "n": N, "n0": 100, "skip": 1}
    if data is not None:
        about["data"] = {"name": data, "class_names": None if names is None else list(names)}
    if not on_disk:
        settings: Config = {"noise": law.to_config(), "alpha": ALPHA, "method": METHOD}
        return StoredRun(folder, about | settings, some)
    with Run.open(folder, law, ALPHA, METHOD, about) as run:
        for result in some:
            run.add(result, seconds=0.25)
    return read_run(folder)


def resign(folder: Path, **changes: ConfigValue) -> None:
    """Change what binds the lines of a run, and sign them again; None removes a setting."""
    config = read_config(folder)
    # What else carries a digest of the configuration.
    for name in (*changes, "requested"):
        config.pop(name, None)
    config |= {name: value for name, value in changes.items() if value is not None}
    path = folder / CERTIFICATES
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        del record["check"]
    (folder / CONFIG).write_text(json.dumps(config))
    path.write_text("".join(signed(record, config) + "\n" for record in records))


def decided(
    run: StoredRun, radii: Sequence[str | float] = (), regions: Sequence[str] = ()
) -> StoredRun:
    """The run as if sampling had stopped once these queries were decided."""
    stopping: Config = {"radii": list(radii), "regions": list(regions), "tolerance": None}
    return StoredRun(run.folder, run.config | {"stopping": stopping}, run.results)


class Page(HTMLParser):
    """A page as a browser takes it apart: elements, what it shows, its data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.shown: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._inside: list[str] = []
        self._broken = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._broken = tag == "wbr"
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside:
            (self.scripts if self._inside[-1] == "script" else self.styles).append(data)
        elif self._broken:  # a word that may be broken here is still one
            self.shown[-1] += " ".join(data.split())
            self._broken = False
        elif data.strip():
            self.shown.append(" ".join(data.split()))

    @property
    def data(self) -> Any:
        """The counts that charts and class tables are drawn from."""
        return json.loads(self.scripts[0])
