"""Names that pass for others: of classes, of class counts, of runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from deformrs.cli.sweep_file import plan_sweep, read_sweep
from deformrs.data import load_data
from deformrs.data.labels import normalized, read_class_names
from deformrs.errors import InputError
from deformrs.runs.records import dense, from_record, to_record
from made_runs import Entry, stored

NO_INTEGERS = ["+1", " 1 ", "１", "1_0", "¹", "1.0", "1e0", "٣"]
DIGITS = tuple("0123456789")


def class_folder(folder: Path, name: str) -> Path:
    (folder / name).mkdir(parents=True)
    Image.new("L", (4, 4)).save(folder / name / "a.png")
    return folder


@pytest.mark.parametrize("class_names", [None, DIGITS])
@pytest.mark.parametrize("name", NO_INTEGERS)
def test_a_folder_is_a_class_index_only_in_decimal_digits(
    tmp_path: Path, name: str, class_names: tuple[str, ...] | None
) -> None:
    folder = class_folder(tmp_path, name)
    with pytest.raises(InputError, match="the number of class folders"):
        load_data(folder, num_classes=10, class_names=class_names)


def test_leading_zeros_make_no_other_class(tmp_path: Path) -> None:
    for name in ("00000", "00002", "00042"):
        class_folder(tmp_path / "signs", name)
    assert load_data(tmp_path / "signs", num_classes=43).labels == (0, 2, 42)
    class_folder(tmp_path / "signs", "2")
    with pytest.raises(InputError, match="the class 2 is named both '00002' and '2'"):
        load_data(tmp_path / "signs", num_classes=43)
    names = ("00000", "2", "00002", "00042")  # they are other classes if the model says so
    assert load_data(tmp_path / "signs", class_names=names).labels == (0, 2, 3, 1)


@pytest.mark.parametrize("class_names", [None, DIGITS, tuple("123456789a")])
def test_minus_one_is_not_class_one(tmp_path: Path, class_names: tuple[str, ...] | None) -> None:
    folder = class_folder(tmp_path, "-1")
    with pytest.raises(InputError, match="is -1; it must be a class of the model, 0 to 9"):
        load_data(folder, num_classes=10, class_names=class_names)
    assert load_data(class_folder(tmp_path / "b", "1"), num_classes=10).labels == (1,)


@pytest.mark.parametrize("word", ["+1", "１", "1_0", "-01", "-0", "1" * 5000])
def test_a_listed_label_is_an_integer_only_in_decimal_digits(tmp_path: Path, word: str) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "labels.csv").write_text(f"file,label\na.png,{word}\n", encoding="utf-8")
    with pytest.raises(InputError, match="the label on line 2 of labels.csv"):
        load_data(tmp_path, num_classes=20, class_names=("no name",) * 20)


@pytest.mark.parametrize(
    ("one", "other"), [("-1", "1"), ("class -1", "class 1"), ("_1", "1"), ("no_-5", "no_5")]
)
def test_signs_are_not_hyphens(one: str, other: str) -> None:
    assert normalized(one) != normalized(other)
    assert normalized("class-1") == normalized("Class_1")


@pytest.mark.parametrize("key", [" 0", "00", "+0", "-0", "0_0", "０"])
def test_a_file_of_class_names_has_each_index_once(tmp_path: Path, key: str) -> None:
    path = tmp_path / "names.json"
    path.write_text(json.dumps({key: "cat", "1": "dog"}))
    with pytest.raises(InputError, match="not readable .*is not a class index"):
        read_class_names(path)
    path.write_text('{"cat": false, "dog": true}')
    with pytest.raises(InputError, match="not readable"):
        read_class_names(path)


def test_only_line_breaks_end_a_class_name(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("cat\u2028lion\ndog\x0bwolf\r\nowl\n", encoding="utf-8", newline="")
    assert read_class_names(path) == ("cat\u2028lion", "dog\x0bwolf", "owl")


@pytest.mark.parametrize("key", ["-1", " 1", "1 ", "01", "+1", "1_0", "１", "20", "x"])
def test_a_class_is_counted_under_one_key(key: str) -> None:
    assert dense({"1": 5}, 20)[1] == 5
    with pytest.raises(ValueError, match="class|invalid"):
        dense({"1": 5, key: 7}, 20)


@pytest.mark.parametrize("value", ["1", 1.0, True, None, [1]])
@pytest.mark.parametrize("field", ["index", "label", "plain", "estimation"])
def test_numbers_of_a_result_are_integers(tmp_path: Path, field: str, value: object) -> None:
    result = stored(tmp_path, [Entry(0, 0, 990)]).results[0]
    record = json.loads(json.dumps(to_record(result, "auto")))
    assert from_record(dict(record), lambda *_: result.certificate).index == 0
    if field == "plain" and value is None:
        return  # not known
    record[field] = {"0": value} if field == "estimation" else value
    with pytest.raises(ValueError, match="no integer"):
        from_record(record, lambda *_: result.certificate)


@pytest.mark.parametrize("out", ["../elsewhere", "/elsewhere", "a/../../../elsewhere", ".."])
def test_a_sweep_writes_elsewhere_only_where_its_user_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    file, here = tmp_path / "received" / "some.toml", tmp_path / "here"
    for folder in (file.parent, here):
        folder.mkdir()
    monkeypatch.chdir(here)
    run = '[train]\ndata = "digits"\nmodel = "small_cnn"\n[[runs]]\ndeformation = "rotation"\n'
    run += 'noise = "uniform:1deg"\n'
    file.write_text(f'out = "{out}"\n{run}')
    with pytest.raises(InputError, match=r"out in .* must lie in the folder of this file .*--out"):
        read_sweep(file)
    assert read_sweep(file, Path(out)).out == Path(out)
    for inside in ("runs", "../here/runs"):
        file.write_text(f'out = "{inside}"\n{run}')
        assert read_sweep(file).out == file.parent / inside


def planned(*names: str) -> list[str]:
    runs = [{"deformation": "rotation", "noise": "uniform:1deg", "name": name} for name in names]
    train = {"data": "digits", "model": "small_cnn"}
    return [run.name for run in plan_sweep({"train": train, "runs": runs}, Path("out")).runs]


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../up", "a/b", "a\\b", "/tmp/a", "C:a", "~", ".hidden", "-rf", "--out"),
        *("a\n", "a\x1b[31m", "a\x00", "a\u202eb", "a\udcff", "a ", "a.", "$(touch a)", "a;b", "*"),
        *("con", "NUL", "nul.txt", "Com1", "com¹.a", "LPT9 .x", "report", "REPORT"),
        *("a" * 201, "ä" * 101),
    ],
)
def test_a_run_is_named_as_one_folder(name: str) -> None:
    with pytest.raises(InputError):
        planned(name)


@pytest.mark.parametrize(
    ("one", "other"), [("shift", "SHIFT"), ("straße", "STRASSE"), ("é", "e\u0301"), ("ﬁ", "fi")]
)
def test_runs_whose_folders_some_systems_take_for_one_are_refused(one: str, other: str) -> None:
    with pytest.raises(InputError, match="must differ from those above|plain folder name"):
        planned(one, other)


def test_ordinary_names_are_kept() -> None:
    names = ["shift", "54deg, wide", "a_b-c.d=1", "größe", "console", "com10", "1+1"]
    assert planned(*names) == names
