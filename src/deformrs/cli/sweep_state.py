"""What came of the runs of a sweep, side by side, no figure above the truth."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deformrs.cli.arguments import plain_options
from deformrs.cli.sweep_file import MACHINE
from deformrs.cli.sweep_plan import PlannedRun
from deformrs.config import Config
from deformrs.dataset import chosen
from deformrs.errors import InputError
from deformrs.models.saved import MODEL
from deformrs.report.people import shown_down
from deformrs.report.summary import count_certified, summarise
from deformrs.rounding import percent_down
from deformrs.runs import CERTIFICATES, CONFIG, Result, read_config, read_run, write_atomically
from deformrs.runs.files import file_digest, stored_bytes
from deformrs.specs import python_files
from deformrs.stopping import Query, RegionQuery
from deformrs.training.output import EPOCHS, TRAINING

MARK = "sweep.json"
"""Written into a run's folder when it is done, with all that it was asked."""

Stage = Literal["done", "certifying", "trained", "training", "not begun"]


@dataclass(frozen=True)
class State:
    """How far a run is, and the same in a few words."""

    stage: Stage
    words: str


def state_of(run: PlannedRun) -> State:
    """How far it is. Only a run that was finished with the very same options is done.

    If it needs another run, that one must be done too, and its network still be the same.
    """
    if (run.folder / CONFIG).exists():
        marked, (certified, wanted) = _mark(run), _certified(run)
        if marked != _asked(run):
            changed = "" if marked is None else ", with other options"
        elif run.needed is not None and state_of(run.needed).stage != "done":
            changed = f", but {run.needed.name} is not done"
        elif certified == wanted:
            return State("done", "done")
        else:
            changed = ""
        return State("certifying", f"certified {certified} of {wanted}{changed}")
    if run.network is not None:
        return State("not begun", "not begun")
    if (run.folder / MODEL).exists():
        return State("trained", "trained")
    if (run.folder / TRAINING).exists():
        epochs = run.folder / EPOCHS
        count = len(epochs.read_bytes().splitlines()) if epochs.exists() else 0
        return State("training", f"training, {count} epochs done")
    return State("not begun", "not begun")


def check_needed(run: PlannedRun) -> None:
    """Raise unless the run that this one needs is done, and the folder is for its results only."""
    needed = run.needed
    if needed is not None and (state := state_of(needed)).stage != "done":
        raise InputError(
            f"the run {needed.name}, which {run.name} needs",
            state.words,
            "must be done",
            "run that one first",
        )
    if run.network is not None and (run.folder / TRAINING).exists():
        raise InputError(
            f"the folder {run.folder}",
            "that of a training",
            f"must not be, to hold what {run.network.name} certifies",
            "remove it, or name the run otherwise",
        )


def mark_done(run: PlannedRun) -> None:
    """Write down that all that was asked is done."""
    write_atomically(run.folder / MARK, json.dumps(_asked(run), indent=2) + "\n")


def results_of(run: PlannedRun) -> list[Result]:
    """The results of a run that is done, of the images that were asked for."""
    stored = read_run(run.folder)
    wanted = set(_wanted(run, stored.config))
    return [result for result in stored.results if result.index in wanted]


def _asked(run: PlannedRun) -> Config:
    """All that a run's results follow from, in plain values; not what is asked of them later."""
    stopping = run.sampling.stopping(run.questions)
    asked: dict[str, dict[str, object]] = {
        "recipe": {
            "scratch": run.training.recipe_for(pretrained=False).to_config(),
            "pretrained": run.training.recipe_for(pretrained=True).to_config(),
        },
        "files": _digests(run),
        "start": dataclasses.asdict(run.start),
        "data": dict(plain_options(run.data)),
        "smoothing": dataclasses.asdict(run.smoothing),
        "training": dataclasses.asdict(run.training),
        "test": dict(plain_options(run.test)),
        "sampling": dataclasses.asdict(run.sampling),
        "stopping": dict(stopping.to_config()) if stopping else {},
        "model": {"precision": run.model.precision},
    }
    if run.needed is not None:
        asked["needed"] = {"name": run.needed.name, "sha256": _weights(run.needed)}
    for options in asked.values():
        for key in MACHINE:
            options.pop(key, None)
    plain: Config = json.loads(json.dumps(asked))  # tuples become lists, as in the file
    return plain


def _weights(run: PlannedRun) -> str | None:
    """The digest of the weights that a run has trained; its folder may do without them."""
    digest = (_mapping(run.folder / MODEL) or {}).get("sha256")
    return digest if isinstance(digest, str) else None


def _digests(run: PlannedRun) -> dict[str, object]:
    """What the files hold that options name: weights, code, arrays of images."""
    code = Path(run.start.model.partition(".py:")[0] + ".py")
    named = [code, *python_files(run.smoothing.deformation), Path(run.data.data)]
    named += [Path(run.test.data)] + ([Path(run.start.weights)] if run.start.weights else [])
    return {path.name: file_digest(path) for path in named if path.is_file()}


def _mark(run: PlannedRun) -> Config | None:
    return _mapping(run.folder / MARK)


def _mapping(path: Path) -> Config | None:
    """What that file holds; None where there is none.

    One that is damaged holds nothing: it is not what is asked for, so the run is gone through
    again, which says what is wrong or writes it anew.
    """
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _certified(run: PlannedRun) -> tuple[int, int]:
    """How many images are certified, of how many."""
    wanted = set(_wanted(run, read_config(run.folder)))
    found = set()
    for line in (stored_bytes(run.folder / CERTIFICATES) or b"").splitlines(keepends=True):
        if line.endswith(b"\n"):  # else a process was stopped in it, or is at work
            try:
                found.add(json.loads(line)["index"])
            except (ValueError, KeyError, TypeError):
                continue  # going on with the run names the line that is damaged
    return len(found & wanted), len(wanted)


def _wanted(run: PlannedRun, config: Config) -> range:
    data = config.get("data")
    total = data.get("pictures") if isinstance(data, dict) else None
    if not isinstance(total, int):
        raise InputError(
            str(run.folder / CONFIG), "of another kind", "must be a run of a sweep", "remove it"
        )
    return chosen(total, run.sampling.skip, run.sampling.max)


_NONE = "–"


@dataclass(frozen=True)
class Row:
    """One run: accuracies in per cent, rounded down, and the average radius where it has one."""

    name: str
    plain: str
    certified: dict[str, str]
    """By the text of the radius or region."""
    average: str


def row_of(name: str, results: Sequence[Result], questions: Sequence[Query]) -> Row:
    """What the results of a run come to."""
    counted = summarise(results)
    blocks = results[0].certificate.space.blocks

    def share(count: int) -> str:
        return f"{percent_down(count, counted.total)} %"

    return Row(
        name,
        _NONE if counted.plain is None else share(counted.plain),
        {q.text: share(count_certified(results, q)) for q in questions},
        shown_down(counted.averages[0], blocks[0].unit) if len(blocks) == 1 else _NONE,
    )


def table(rows: Sequence[Row], questions: Sequence[Query]) -> list[str]:
    """Lines of a table, a row a run; what was not asked of a run is left open.

    Regions are long: they are numbered, and spelt out beneath.
    """
    asked = list({question.text: question for question in questions}.values())
    regions = [question.text for question in asked if isinstance(question, RegionQuery)]
    heads = [f"({regions.index(q.text) + 1})" if q.text in regions else q.text for q in asked]
    cells = [["run", "plain", *heads, "average radius"]]
    for row in rows:
        shares = [row.certified.get(question.text, _NONE) for question in asked]
        cells.append([row.name, row.plain, *shares, row.average])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]
    return lines + [f"({number}) {text}" for number, text in enumerate(regions, start=1)]
