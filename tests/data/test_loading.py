"""Names, files and folders that are accepted as data."""

from __future__ import annotations

from pathlib import Path

import pytest
from image_folders import class_folders, write_image

from deformrs.data import load_data
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError

AS_STORED = Preparation()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("minst", "'minst', which does not exist.*did you mean 'mnist'"),
        ("CIFAR10", "did you mean 'cifar10'"),
        ("cifar-10:somewhere", "did you mean 'cifar10:somewhere'"),
        ("imagenet", "ImageNet is not downloaded: give its validation folder"),
        ("no/such/folder", "'no/such/folder', which does not exist.*check the path"),
        ("no/such/file.npz", "'no/such/file.npz', which does not exist"),
        ("x" * 5000, "cannot be found .File name too long"),
        ("mnist:" + "x" * 5000, "cannot be found .File name too long"),
        ("~nobody-of-that-name/x", "cannot be found .*home"),
        ("a\0b", "which does not exist"),
        ("", "the data is '', which does not exist"),
        ("mnist:", "'mnist:'; it must name a folder"),
        ("mnist:no/such", "the folder no/such of MNIST is not there"),
        ("cifar10:no/such", "the folder no/such of CIFAR-10 is not there"),
        ("digits:somewhere", "must be digits alone"),
    ],
)
def test_unknown_sources(
    source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message) as refusal:
        load_data(source, AS_STORED)
    assert "\n" not in str(refusal.value)


def test_files_that_are_not_datasets(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("file,label\n")
    (tmp_path / "a.txt").touch()
    for path, remedy in {
        write_image(tmp_path / "a.png"): "use deformrs predict",
        tmp_path / "labels.csv": "give the folder it lies in",
        tmp_path / "a.txt": "numpy.savez",
    }.items():
        with pytest.raises(InputError, match=f"must be a folder or an .npz file: .*{remedy}"):
            load_data(str(path), AS_STORED)


def test_relative_paths_and_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class_folders(tmp_path / "pets", {"a": 1, "b": 1})
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_data("~/pets", AS_STORED).name == "pets"
    monkeypatch.chdir(tmp_path / "pets")
    here = load_data(".", AS_STORED)
    assert (here.name, here.about["source"]) == ("pets", ".")


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="split is 'val'"):
        load_data("digits", AS_STORED, split="val")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the number of classes is 0"):
        load_data("digits", AS_STORED, num_classes=0)
