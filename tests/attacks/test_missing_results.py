"""Results that are missing: removed lines and files, changed line ends, runs without their end."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import run_inside
from deformrs import Rotation, Uniform
from deformrs.config import Config
from deformrs.dataset import certify_dataset, select_indices
from deformrs.errors import InputError
from deformrs.runs import (
    CERTIFICATES,
    CONFIG,
    TIMES,
    Run,
    load_run,
    pack_run,
    read_config,
    read_run,
    request,
)
from deformrs.runs.folder import UNFINISHED
from deformrs.runs.records import digest
from deformrs.runs.request import from_text, requested_indices, to_text, with_request
from examples import IMAGE, smoothed
from made_runs import ALPHA, METHOD, many, results

LAW = Uniform(1.0)
ALL = results(many(40), Rotation(), LAW, 10)


def certify(
    folder: Path, indices: Sequence[int] = range(12), *, seed: int = 0, most: int | None = None
) -> Path:
    """Certify these images as far as they are not, `most` at most before the process ends."""
    about: Config = {"seed": seed, "deformation": Rotation().to_config(), "data": {"name": "x"}}
    with Run.open(folder, LAW, ALPHA, METHOD, about, indices) as run:
        for index in [index for index in indices if index not in run.done][:most]:
            run.add(ALL[index], seconds=0.1)
    return folder


def order(folder: Path) -> list[int]:
    return [index for indices in requested_indices(read_config(folder)) or () for index in indices]


def change(folder: Path, edit: Callable[[list[bytes]], list[bytes]]) -> None:
    path = folder / CERTIFICATES
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))


def refused(folder: Path, match: str) -> None:
    """Neither read nor resumed; nothing is changed."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for attempt in (load_run, certify):
        with pytest.raises(InputError, match=match):
            attempt(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


LINES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "first": (lambda lines: lines[1:], "line 1: image 1 where image 0 is due; lines are missing"),
    "middle": (lambda lines: lines[:5] + lines[6:], "line 6: image 6 where image 5 is due"),
    "swapped": (lambda lines: [lines[1], lines[0], *lines[2:]], "line 1: image 1 where image 0"),
    "twice": (lambda lines: [*lines, lines[3]], "line 13: image 3 again"),
    "no line ends": (lambda lines: [b"".join(lines).replace(b"\n", b" ")], "not one incomplete"),
    "CRLF": (lambda lines: [line[:-1] + b"\r\n" for line in lines], "line ends were changed"),
    "CR": (lambda lines: [line[:-1] + b"\r" for line in lines], "line ends were changed"),
    "CRLF in one": (lambda lines: [lines[0][:-1] + b"\r\n", *lines[1:]], "line ends were changed"),
    "emptied": (lambda lines: [], "is empty; .* has begun according to times.tsv"),
    "garbage": (lambda lines: [*lines, b"garbage"], "last 7 bytes are not one incomplete line"),
    "two unfinished": (
        lambda lines: [*lines[:8], lines[8][:-1], lines[9][:30]],
        "not one incomplete line",
    ),
}


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("done", [12, 11], ids=["finished", "begun"])
def test_removed_and_changed_lines_are_errors(tmp_path: Path, kind: str, done: int) -> None:
    edit, match = LINES[kind]
    change(certify(tmp_path / "run", most=done), edit)
    refused(tmp_path / "run", match.replace("line 13", f"line {done + 1}"))


def test_a_removed_file_of_results_is_an_error(tmp_path: Path) -> None:
    certify(tmp_path / "run")
    (tmp_path / "run" / CERTIFICATES).unlink()
    refused(tmp_path / "run", "is missing; .* has begun according to config.json: restore it; or")
    (tmp_path / "run" / TIMES).unlink()
    refused(tmp_path / "run", "is missing; .* has begun according to config.json")
    certify(tmp_path / "other")
    (tmp_path / "other" / CERTIFICATES).unlink()
    (tmp_path / "other" / CONFIG).unlink()
    with pytest.raises(InputError, match="has begun according to times.tsv"):
        certify(tmp_path / "other")
    (tmp_path / "other" / TIMES).unlink()  # as the error says
    assert len(load_run(certify(tmp_path / "other"))) == 12


def test_a_removed_packed_file_is_an_error(tmp_path: Path) -> None:
    pack_run(certify(tmp_path))
    (tmp_path / f"{CERTIFICATES}.xz").unlink()
    refused(tmp_path, "is missing")


@pytest.mark.parametrize(
    ("other", "match"),
    [
        ({"seed": 1}, "line 1: .*of another configuration"),
        ({"indices": range(5, 12)}, "line 1: image 5 where image 0 is due"),
        ({"indices": range(14)}, "line 13: image 12 after the last requested one"),
    ],
)
def test_a_replaced_file_of_results_is_an_error(
    tmp_path: Path, other: dict[str, object], match: str
) -> None:
    certify(tmp_path / "other", **other)  # type: ignore[arg-type]
    certify(tmp_path / "run")
    (tmp_path / "other" / CERTIFICATES).replace(tmp_path / "run" / CERTIFICATES)
    refused(tmp_path / "run", match)


def test_a_run_that_lacks_its_last_lines_is_incomplete(tmp_path: Path) -> None:
    change(certify(tmp_path), lambda lines: lines[:7])
    run = read_run(tmp_path)
    assert (len(run), run.requested, run.is_incomplete) == (7, 12, True)
    assert repr(run).startswith("incomplete: 7 of 12 images, ")
    certify(tmp_path)
    run = read_run(tmp_path)
    assert (len(run), run.requested, run.is_incomplete) == (12, 12, False)
    assert repr(run).startswith("12 images, ")


def test_nothing_is_said_of_runs_that_do_not_record_their_request(root: Path) -> None:
    run = read_run(root / "tests/runs_as_before/rotation")
    assert (len(run), run.requested, run.is_incomplete) == (6, None, False)


@pytest.mark.parametrize("rest", [b'{"ind', b"", b'{"index": 7, "label": 1', b"\0\0\0"])
def test_what_is_cut_off_is_one_incomplete_record_and_kept(tmp_path: Path, rest: bytes) -> None:
    whole = (certify(tmp_path / "whole") / CERTIFICATES).read_bytes()
    folder = certify(tmp_path / "run")
    for _ in range(2):
        change(folder, lambda lines: [*lines[:7], rest])
        assert len(load_run(folder)) == 7
        certify(folder)
        assert (folder / CERTIFICATES).read_bytes() == whole
    kept = folder / UNFINISHED
    assert (kept.read_bytes() if rest else b"") == (2 * (rest + b"\n") if rest else b"")
    assert kept.exists() == bool(rest)


def test_a_run_may_be_extended_and_knows_all_that_was_requested(tmp_path: Path) -> None:
    spread = [0, 4, 8, 1]
    certify(tmp_path, spread, most=2)
    assert order(tmp_path) == [0, 4, 8, 1]
    certify(tmp_path, range(6), most=2)
    assert order(tmp_path) == [0, 4, 1, 2, 3, 5, 8], "what is done, what is new, what was before"
    certify(tmp_path, range(2))
    assert read_run(tmp_path).is_incomplete, "fewer images requested later do not complete it"
    certify(tmp_path, range(9))
    assert order(tmp_path) == [0, 4, 1, 2, 3, 5, 6, 7, 8]
    assert [result.index for result in load_run(tmp_path)] == order(tmp_path)
    change(tmp_path, lambda lines: lines[:2] + lines[3:])
    refused(tmp_path, "line 3: image 2 where image 1 is due")


def test_a_run_without_results_forgets_what_was_requested(tmp_path: Path) -> None:
    certify(tmp_path, range(40), most=0)
    certify(tmp_path, range(30), most=0)
    assert order(tmp_path) == [*range(30)]
    (tmp_path / CERTIFICATES).write_text('{"index": 0, "la')
    certify(tmp_path, range(3))
    assert order(tmp_path) == [0, 1, 2]


def test_certify_dataset_records_what_it_is_given(tmp_path: Path) -> None:
    images = [(IMAGE.roll(k, -1), k % 5) for k in range(9)]
    list(certify_dataset(smoothed(), images, n=50, skip=2, max=6, out=tmp_path))
    assert order(tmp_path) == [0, 2, 4]
    half = certify_dataset(smoothed(), images, n=50, skip=2, out=tmp_path)
    for _ in range(4):
        next(half)
    half.close()  # type: ignore[attr-defined]
    run = read_run(tmp_path)
    assert order(tmp_path) == [0, 2, 4, 6, 8]
    assert (len(run), run.requested) == (4, 5)


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=60))
def test_every_order_comes_back(indices: list[int]) -> None:
    assert [index for part in from_text(to_text(indices)) for index in part] == indices


def test_fifty_thousand_images_are_stored_compactly() -> None:
    labels = [k // 50 for k in range(50_000)]
    assert to_text(select_indices(50_000)) == "0-49999"
    assert to_text(select_indices(50_000, skip=100)) == "0-49900:100"
    assert to_text(select_indices(50_000, max=500, labels=labels)) == "0-24950:50"
    assert len(to_text(select_indices(50_000, max=49_000, labels=labels))) < 1000


@pytest.mark.parametrize(
    ("old", "new"), [("0-11", "0-10"), ("0-11", "0-5"), ('"images": 12', '"images": 7')]
)
def test_a_changed_request_is_an_error(tmp_path: Path, old: str, new: str) -> None:
    path = certify(tmp_path) / CONFIG
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    refused(tmp_path, "config.json is damaged .requested was changed")


@pytest.mark.parametrize(
    "text", ["0-999999999999999999", ",", "0-", "5-2", "0-9:0", "-1", "0-9,x", "9" * 30]
)
def test_a_forged_request_is_an_error_and_takes_no_memory(tmp_path: Path, text: str) -> None:
    config = read_config(certify(tmp_path))
    record: Config = {"images": 10**18, "indices": text}
    config["requested"] = record | {"check": digest(record, config)}
    (tmp_path / CONFIG).write_text(json.dumps(config))
    refused(tmp_path, "config.json is damaged")


@pytest.mark.parametrize("record", [3, [], {}, {"images": 12, "indices": "0-11"}, {"check": ""}])
def test_a_request_of_another_form_is_an_error(tmp_path: Path, record: object) -> None:
    config = read_config(certify(tmp_path))
    (tmp_path / CONFIG).write_text(json.dumps(config | {"requested": record}))
    refused(tmp_path, "requested must have images, indices and check")


def test_more_images_than_a_run_can_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "MOST_IMAGES", 10)
    with pytest.raises(InputError, match="number of images is 11; it must be at most 10"):
        with_request({}, [], range(11))


@pytest.mark.usefixtures("no_figures")
def test_a_report_says_how_many_images_of_how_many(tmp_path: Path) -> None:
    certify(tmp_path / "whole")
    certify(tmp_path / "part", most=7)
    arguments = ("--no-images", "--region", "rotation<=5deg", "--out", tmp_path / "report")
    said = run_inside("report", tmp_path / "whole", *arguments)
    assert "Rotation on x, 12 of 12 images\n" in said
    assert "ncomplete" not in said
    page = (tmp_path / "report/report.html").read_text()
    assert "ncomplete" not in page
    assert "12 of 12" in page
    said = run_inside("report", tmp_path / "part", tmp_path / "whole", *arguments)
    sentence = "Incomplete: part has 7 of 12 images; figures are of these alone."
    assert f"\n  {sentence}\n" in said
    for name in ("report.html", "report.md"):
        text = (tmp_path / "report" / name).read_text()
        assert "Incomplete: 7 of 12 images are certified. Of these, " in text
        assert text.count(sentence) == 3, "beneath every table of accuracies"
    tables = tmp_path / "report/tables"
    for name in ("accuracy", "regions", "runs"):
        assert sentence in (tables / f"x-rotation-{name}.tex").read_text()
    with (tables / "x-rotation-runs.csv").open() as file:
        rows = {row["run"]: (row["images"], row["requested"]) for row in csv.DictReader(file)}
    assert rows == {"part": ("7", "12"), "whole": ("12", "12")}
