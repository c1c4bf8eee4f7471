"""Results as a DataFrame and as the usual log."""

from __future__ import annotations

import io
import math
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deformrs import Compose, Gaussian, Independent, Rotation, Translation, Uniform
from deformrs.errors import InputError, UnsupportedError
from deformrs.report.export import clock, export_tsv, results_frame
from made_runs import Entry, many, stored

pandas = pytest.importorskip("pandas")
PARTS = (
    Compose(Rotation(), Translation(), Rotation()),
    Independent(Uniform(1.0), Gaussian(0.2), Uniform(0.5)),
)


def test_a_frame_has_a_row_for_every_image(tmp_path: Path) -> None:
    run = stored(tmp_path / "a", many(30), on_disk=True)
    frame = results_frame(tmp_path / "a")
    assert frame.equals(results_frame(run))
    assert list(frame.columns) == [
        *("index", "source", "label", "prediction", "correct", "plain"),
        *("radius", "radius_degrees", "p_lower", "n", "n0", "alpha"),
    ]
    assert len(frame) == 30
    assert str(frame["prediction"].dtype) == "Int64"
    assert frame["correct"].dtype == bool
    assert not frame.drop(columns=["prediction", "plain"]).isna().any().any()
    abstained = [result.certificate.prediction is None for result in run.results]
    assert frame["prediction"].isna().tolist() == abstained
    assert any(abstained)
    held = sum(result.holds(math.radians(20)) for result in run.results)
    assert int((frame["correct"] & (frame["radius"] >= math.radians(20))).sum()) == held
    for result, degrees in zip(run.results, frame["radius_degrees"], strict=True):
        assert degrees <= math.degrees(result.certificate.radius)
        assert degrees == pytest.approx(math.degrees(result.certificate.radius), abs=1e-8)


def test_a_frame_of_a_composition_has_a_radius_for_each_part(tmp_path: Path) -> None:
    frame = results_frame(stored(tmp_path, None, *PARTS))
    assert [name for name in frame.columns if name.startswith("radius")] == [
        *("radius_rotation", "radius_rotation_degrees"),
        *("radius_translation", "radius_translation_px"),
        *("radius_rotation_2", "radius_rotation_2_degrees"),
    ]


def test_a_frame_of_nothing_and_without_a_plain_answer(tmp_path: Path) -> None:
    assert len(results_frame(stored(tmp_path, []))) == 0
    frame = results_frame(stored(tmp_path, [Entry(0, 0, 900, plain=None)]))
    assert frame["plain"].isna().all()


def test_pandas_that_is_not_there_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match='pip install "pandas>=2.0"$'):
        results_frame(stored(tmp_path))


def test_the_log_is_read_by_the_usual_scripts(tmp_path: Path) -> None:
    """As the analysis of randomized smoothing does: certified accuracy at a radius."""
    run = stored(tmp_path / "a", many(50))
    text = export_tsv(run.results, {0: 3725.5, 1: 0.0})
    assert text.splitlines()[0] == "idx\tlabel\tpredict\tradius\tcorrect\ttime"
    log = pandas.read_csv(io.StringIO(text), delimiter="\t")
    for radius in (0.0, 0.2, 0.5, 0.9):
        share = (log["correct"] & (log["radius"] >= radius)).mean()
        assert share == pytest.approx(sum(result.holds(radius) for result in run.results) / 50)
    assert sorted(set(log["predict"]) - set(range(10))) == [-1]
    assert (log["radius"][log["predict"] == -1] == 0).all()
    assert log["time"].tolist()[:2] == ["1:02:05.500000", "0:00:00.000000"]
    assert log["time"].isna().sum() == 48


@given(st.integers(501, 1000), st.floats(1e-5, 3.0))
def test_guarantee_export_tsv_never_rounds_a_radius_up(hits: int, scale: float) -> None:
    run = stored(Path("a"), [Entry(0, 0, hits)], law=Uniform(scale))
    radius = run.results[0].certificate.radius
    written = export_tsv(run.results, {}).splitlines()[1].split("\t")[3]
    assert "e" not in written
    assert Fraction(written) <= Fraction(radius)
    assert radius - 1e-17 <= float(written) <= radius


def test_every_angle_reads_back_as_every_angle(tmp_path: Path) -> None:
    run = stored(tmp_path, [Entry(0, 0, 900)], law=Uniform(math.pi))
    assert float(export_tsv(run.results, {}).split("\t")[8]) == math.pi


def test_a_composition_has_no_log(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="rotation, translation, rotation together"):
        export_tsv(stored(tmp_path, None, *PARTS).results, {})


def test_times_of_many_hours() -> None:
    assert clock(100 * 3600 + 59.9999999) == "100:01:00.000000"
