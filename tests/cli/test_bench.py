"""`deformrs bench` as people run it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from commands import ENVIRONMENT, command, fails
from deformrs.benchmarks.asked import Asked
from deformrs.benchmarks.plan import Execution
from deformrs.benchmarks.questions import Questions
from deformrs.benchmarks.samples import measure_samples
from deformrs.benchmarks.subject import SubjectOptions, load_subject
from deformrs.cli import commands as verbs
from deformrs.errors import DeformRSError

ROWS = ["--only", "rows", "--network", "small_cnn", "--n", "20", "--images", "1"]


def bench(*arguments: str | Path, cwd: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """In this process, which has torch already."""
    monkeypatch.chdir(cwd)
    done = CliRunner().invoke(verbs, ["bench", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_one_table_and_rows_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [*ROWS, "--repeats", "1", "--family", "rotation", "--family", "dct"]
    said = bench(*arguments, "--out", "b.json", cwd=tmp_path, monkeypatch=monkeypatch)
    assert "of bare" in said
    content = json.loads((tmp_path / "b.json").read_text())
    assert [row["family"] for row in content["rows"]] == ["rotation", "dct"]
    for row in content["rows"]:
        assert row["error"] is None
        assert row["ratio_to_bare"] == pytest.approx(
            row["samples_per_s"] / row["bare_samples_per_s"], rel=0.01
        )
    assert content["samples_used"] == []


def test_samples_of_a_run(network: Path) -> None:
    """An untrained network answers anything: what is checked is the arithmetic."""

    options = SubjectOptions(str(network), "digits", None, "rotation", "uniform:54deg")
    asked = Questions(n=200, subset=4, radii=("0deg", "30deg"))
    how = Execution("cpu", "float32", "no", 1)
    subject = load_subject(options, how, asked, Console(quiet=True))
    used = list(measure_samples(subject, asked, "float32", "cpu"))
    assert [one.protocol for one in used] == ["fixed", "adaptive", "decide", "decide", "decide"]
    fixed, *others = used
    assert fixed.samples == 4 * 300
    assert fixed.share_of_fixed == 1
    assert set(fixed.certified) == {"0deg", "30deg", "10deg"}
    assert fixed.points_from_fixed is None
    for one in others:
        assert one.images == 4
        assert 4 * 100 < one.samples <= 4 * (one.n + 100)
        assert one.share_of_fixed == one.samples / fixed.samples
        assert one.points_from_fixed is not None
        for radius, share in one.certified.items():
            wanted = share - fixed.certified[radius]
            assert one.points_from_fixed[radius] == pytest.approx(wanted)
    assert set(others[1].certified) == {"10deg"}
    assert others[-1].n == 20
    with pytest.raises(DeformRSError, match="add --model RUN"):
        Asked(data="digits", device="cpu").bench()


def test_the_profile_names_stages_and_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = bench("--profile", "--network", "small_cnn", cwd=tmp_path, monkeypatch=monkeypatch)
    assert all(stage in said for stage in ("draw", "warp", "network", "count"))
    assert "grid_sampler" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--family", "rotatoin"], "did you mean 'rotation'?"),
        (["--only", "row"], "did you mean 'rows'?"),
        (["--repeats", "0"], "repeats is 0"),
        (["--subset", "0"], "subset is 0"),
        (["--radii", "10px", "--only", "samples"], "10px"),
        (["--adaptive", "0deg", "--only", "cost"], "must be positive"),
        (["--radii", ",", "--only", "samples"], "radii"),
        (["--model", "nosuch", "--only", "samples"], "nosuch"),
        (["--plot", "none.json"], "none.json is absent"),
    ],
)
def test_bad_options_are_told_before_anything_is_measured(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DeformRSError) as caught:
        bench(*arguments, "--device", "cpu", cwd=tmp_path, monkeypatch=monkeypatch)
    assert words in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_bad_words_are_one_line(tmp_path: Path) -> None:
    both = ("bench", "--profile", "--out", "b.json")
    assert "only prints" in fails(*both, cwd=tmp_path, code=2)
    assert "did you mean 'default'?" in fails("bench", "--compile", "defualt", cwd=tmp_path, code=2)


def test_a_kill_keeps_the_rows_that_were_done(tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    process = subprocess.Popen(
        command("bench", *ROWS, "--repeats", "40", "--out", out.name),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
    )
    waited = time.monotonic() + 60
    while not out.exists():
        assert process.poll() is None
        assert time.monotonic() < waited
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    rows = json.loads(out.read_text())["rows"]
    assert 1 <= len(rows) < 6
    assert all(row["samples_per_s"] for row in rows)
