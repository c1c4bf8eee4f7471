"""Options that the folder of a training or of a run supplies."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from made_training import QUICK, trained
from PIL import Image

from commands import inside
from deformrs import Gaussian, Rotation, Uniform
from deformrs.cli.defaults import certification, find_trained, options_from_run, options_of
from deformrs.cli.jobs import resume
from deformrs.cli.options import DataOptions, ModelOptions, SmoothingOptions, plain_options
from deformrs.config import Config
from deformrs.data import load_data
from deformrs.errors import InputError
from deformrs.models.inference import natural_precision
from deformrs.runs import Run, load_run, read_config
from deformrs.runs.files import file_digest
from deformrs.runs.records import sealed, unsealed
from made_runs import ALPHA, METHOD, Entry, results

NOTHING = SmoothingOptions("", "")
LENS = """
from dataclasses import dataclass
from pathlib import Path
from deformrs import Deformation
Path(__file__).with_name("executed").touch()
@dataclass(frozen=True)
class Lens(Deformation):
    name = "lens_of_trained"
    def dim(self, size):
        return 1
    def displacement(self, params, points, size):
        return params[:, :, None, None] * points
"""


def asked(folder: Path) -> dict[str, object]:
    options = read_config(folder)["options"]
    assert isinstance(options, dict)
    return dict(options)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_no_further_options_are_needed() -> None:
    trained(Path("run"))
    said, _ = inside("certify", "--model", "run", *QUICK)
    assert "uniform noise of scale 40°" in said
    assert "next: deformrs report run" in said
    assert len(load_run("run")) == 2
    options = asked(Path("run"))
    wanted = {"data": "digits", "split": "test", "deformation": "rotation", "padding": "border"}
    assert wanted.items() <= options.items()
    assert options["precision"] == "auto"
    found = read_config(Path("run"))["model"]
    assert found["precision"] == natural_precision(torch.device("cpu"))  # type: ignore[index,call-overload]
    inside("report", "run")


def test_the_best_epoch_is_certified_in_a_folder_of_its_own() -> None:
    run = trained(Path("run"))
    inside("certify", "--model", "run/best", *QUICK)
    assert len(load_run("run/best")) == 2
    assert not (run / "config.json").exists()
    found = find_trained("run/best/../best")
    assert found is not None
    assert found.smoothing == SmoothingOptions("rotation", "uniform:40deg", "border")


def test_what_is_given_wins() -> None:
    trained(Path("run"))
    inside(
        *("certify", "--model", "run", *QUICK, "--noise", "uniform:20deg", "--padding", "zeros"),
        *("--split", "train", "--out", "other", "--precision", "bfloat16"),
    )
    options = asked(Path("other"))
    assert options["noise"] == "uniform:20deg"
    assert options["padding"] == "zeros"
    assert options["split"] == "train"
    assert options["precision"] == "bfloat16"
    assert not Path("run/config.json").exists()


def test_another_deformation_needs_its_own_noise(tmp_path: Path) -> None:
    folder = find_trained(str(trained(tmp_path / "run")))
    assert folder is not None
    with pytest.raises(InputError, match="--noise is missing"):
        folder.smoothing_for(SmoothingOptions("scaling", ""), padding_given=False)
    given = SmoothingOptions("scaling", "uniform:0.1", "zeros")
    taken = folder.smoothing_for(given, padding_given=False)
    assert taken == SmoothingOptions("scaling", "uniform:0.1", "border")


def test_files_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path / "run", data="photos", data_root="kept")
    for name in ("photos", "kept", "else"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "else")
    asked_for = certification(
        ModelOptions("../run"), DataOptions(""), NOTHING, None, padding_given=False
    )
    assert asked_for.data == DataOptions("../photos", "test", "../kept", download=False)
    assert asked_for.out == Path("../run")


def test_guarantee_code_of_a_training_is_executed_only_if_named_or_trusted(tmp_path: Path) -> None:
    Path("lens.py").write_text(LENS)
    trained(Path("run"), deformation="lens.py:Lens", noise="gaussian:0.1")
    model, data = ModelOptions("run"), DataOptions("")
    message = r"executed; it must come from someone you trust.*--deformation lens\.py:Lens"
    with pytest.raises(InputError, match=message):
        certification(model, data, NOTHING, None, padding_given=False)
    folder = find_trained("run")
    assert folder is not None
    with pytest.raises(InputError, match=message):
        folder.smoothing_for(NOTHING, padding_given=False)
    trusting = ModelOptions("run", trust_code=True)
    found = certification(trusting, data, NOTHING, None, padding_given=False).smoothing
    assert found == SmoothingOptions("lens.py:Lens", "gaussian:0.1", "border")
    named = SmoothingOptions(f"{tmp_path}/lens.py:Lens", "")
    found = certification(model, data, named, None, padding_given=False).smoothing
    assert found == SmoothingOptions(named.deformation, "gaussian:0.1", "border")
    assert not Path("executed").exists()


@pytest.mark.parametrize("split", [None, "test"])
def test_images_that_were_trained_on_are_refused(tmp_path: Path, split: str | None) -> None:
    folder = find_trained(str(trained(tmp_path / "run", split, data="seen.npz")))
    assert folder is not None
    with pytest.raises(InputError, match=r"seen\.npz, without a test split.*--data"):
        folder.data_for(DataOptions(""))
    assert folder.data_for(DataOptions("unseen.npz")) == DataOptions("unseen.npz")


@pytest.mark.parametrize("place", ["run", "run/best"])
def test_a_training_that_goes_on(place: str) -> None:
    (trained(Path("run"), finished=False) / "best").mkdir()
    again = "the training in run is not finished.*run the same deformrs train command again"
    with pytest.raises(InputError, match=again):
        find_trained(place)


@pytest.mark.parametrize("note", [None, '{"epochs": 2, "seed": 0}\n'])
def test_other_folders_need_their_options(network: Path, note: str | None) -> None:
    """A note that something else wrote says nothing of data or noise."""
    if note is not None:
        (network / "training.json").write_text(note)
    model = ModelOptions(str(network))
    assert find_trained(model.model) is None
    full = (DataOptions("digits"), SmoothingOptions("rotation", "uniform:3deg"), Path("out"))
    assert certification(model, *full, padding_given=False).out == Path("out")
    for data, smoothing, out, option in (
        (DataOptions(""), *full[1:], "--data"),
        (full[0], SmoothingOptions("", "uniform:3deg"), full[2], "--deformation"),
        (full[0], SmoothingOptions("rotation", ""), full[2], "--noise"),
        (*full[:2], None, "--out"),
    ):
        with pytest.raises(InputError, match=f"{option} is missing; .*deformrs train wrote"):
            certification(model, data, smoothing, out, padding_given=False)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"command": "train"}',
        '{"command": "train", "options": {"data": 3}, "data": {}}',
        '{"command": "train", "options": [], "data": {}}',
        "\udcff",
    ],
)
def test_a_damaged_note(network: Path, text: str) -> None:
    (network / "training.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"training\.json is damaged"):
        find_trained(str(network))


@pytest.mark.parametrize("model", ["", "timm:resnet18", "net.py:build", "nowhere", "."])
def test_what_is_no_folder_of_training(model: str) -> None:
    assert find_trained(model) is None


@pytest.mark.parametrize("model", ["runs/firts", "tmm:resnet18", "net.safetensors"])
def test_a_model_that_is_mistyped_is_named_first(model: str) -> None:
    with pytest.raises(InputError, match=f"the model is {model!r}; it must be one of a run folder"):
        certification(ModelOptions(model), DataOptions(""), NOTHING, None, padding_given=False)


def test_the_weights_of_a_network_of_ones_own_lead_to_its_training() -> None:
    trained(Path("run"))
    for place in (Path("run"), Path("run/best")):
        about = unsealed((place / "model.json").read_text())
        (place / "model.json").write_text(sealed(about | {"network": "net.py:build"}))
        model = ModelOptions("net.py:build", str(place / "model.safetensors"))
        found = certification(model, DataOptions(""), NOTHING, None, padding_given=False)
        assert found.data == DataOptions("digits", "test", download=False)
        assert found.smoothing == SmoothingOptions("rotation", "uniform:40deg", "border")
        assert found.out == place
    assert find_trained("net.py:build", "run/other.safetensors") is None
    assert find_trained("net.py:build", "nowhere/model.safetensors") is None
    assert find_trained("timm:resnet18", "run/model.safetensors") is None


def test_predict_and_gallery_take_it_too() -> None:
    trained(Path("run"), noise="uniform:1deg")
    Image.new("L", (28, 28)).save("digit.png")
    samples = ("--n", "40", "--n0", "20", "--device", "cpu")
    said, _ = inside("predict", "digit.png", "--model", "run", *samples)
    assert said.startswith("digit.png: ")
    inside(
        *("gallery", "--model", "run", *samples, "--columns", "2", "--predict-n", "10"),
        *("--out", "a.png"),
    )
    assert Path("a.png").stat().st_size > 1000


def test_images_it_was_trained_on_are_certified_with_a_note() -> None:
    digest = load_data("digits", split="train").about["sha256"]
    trained(Path("run"), digest=digest)
    asked_for = ("certify", "--model", "run", *QUICK)
    _, errors = inside(*asked_for, "--split", "train", "--out", "seen")
    assert errors == (
        "note: the model was trained on these images; their certified accuracy says little\n"
    )
    assert inside(*asked_for, "--out", "unseen")[1] == ""


@pytest.mark.parametrize("there", [True, False])
def test_folders_of_other_images_with_the_same_names(tmp_path: Path, there: bool) -> None:
    """The digest of a folder is of its files' names and labels."""
    for name in ("mine", "other"):
        for kind in ("cat", "dog"):
            (tmp_path / name / kind).mkdir(parents=True)
            Image.new("L", (28, 28)).save(tmp_path / name / kind / "1.png")
    seen, unseen = (load_data(tmp_path / name) for name in ("mine", "other"))
    assert seen.about["sha256"] == unseen.about["sha256"]
    place = tmp_path / "mine" if there else Path("gone") / "mine"
    trained(Path("run"), None, data=str(place), digest=seen.about["sha256"])
    about = json.loads(Path("run/training.json").read_text())
    about["data"]["name"] = "mine"
    Path("run/training.json").write_text(json.dumps(about))
    folder = find_trained("run")
    assert folder is not None
    assert folder.has_seen(seen)
    assert not folder.has_seen(unseen)


def test_a_run_goes_on_in_its_own_precision(tmp_path: Path) -> None:
    for there in ("float32", "bfloat16"):  # one of which is not what auto comes to here
        folder = tmp_path / there
        folder.mkdir()
        options = plain_options(ModelOptions("net")) | {"data": "digits"}
        options |= plain_options(SmoothingOptions("rotation", "uniform:1deg"))
        config: Config = {"noise": {}, "alpha": 0.001, "method": "clopper_pearson"}
        config |= {"options": options, "model": {"precision": there}}
        (folder / "config.json").write_text(json.dumps(config))
        assert options["precision"] == "auto"
        assert options_from_run(folder)[0].precision == there
        assert resume(ModelOptions("net"), folder).precision == "auto"  # it has not begun
        (folder / "partial.json").touch()
        assert resume(ModelOptions("net"), folder).precision == there
        assert resume(ModelOptions("net", precision="float16"), folder).precision == "float16"
        with pytest.raises(InputError, match="--precision is float16; it must be the run's"):
            options_of(folder, ModelOptions("", precision="float16"), SmoothingOptions("", ""))
    assert resume(ModelOptions("net"), tmp_path).precision == "auto"
    assert resume(ModelOptions("net"), None).precision == "auto"


def stored_run(folder: Path, **options: str | bool) -> Path:
    """Write a run with these options and one result."""
    code = options.get("deformation") == "lens.py:Lens"
    if code:
        Path("lens.py").write_text(LENS)
    given: Any = {"model": "net", "data": "digits", "deformation": "rotation"}
    given |= {"noise": "gaussian:0.1" if code else "uniform:1deg"} | options
    about: Config = {"deformation": {"name": "lens_of_trained" if code else "rotation"}}
    about |= {"plugins": {"lens.py": file_digest(Path("lens.py"))}} if code else {}
    law = Gaussian(0.1) if code else Uniform(math.radians(1))
    (result,) = results([Entry(0, 0, 1000)], Rotation(), law, 10)
    about |= {"padding": "zeros", "options": given}
    with Run.open(folder, law, ALPHA, METHOD, about) as run:
        run.add(result)
    return folder


@pytest.mark.parametrize(
    ("option", "code"), [("model", "net.py:build"), ("deformation", "lens.py:Lens")]
)
def test_guarantee_code_of_a_run_is_executed_only_if_named_or_trusted(
    option: str, code: str
) -> None:
    options: dict[str, str | bool] = {option: code, "trust_code": True}
    run = stored_run(Path("run"), **options)
    nothing = ModelOptions("")
    assert not options_from_run(run)[0].trust_code, "a run cannot vouch for itself"
    message = (
        f"the {option} of run is {code}, .* someone you trust.*--trust-code.*--{option} {code}"
    )
    with pytest.raises(InputError, match=message):
        options_of(run, nothing, NOTHING)
    assert not Path("executed").exists()
    named_model = ModelOptions(code) if option == "model" else nothing
    named = SmoothingOptions(code, "") if option == "deformation" else NOTHING
    for given, how in ((named_model, named), (ModelOptions("", trust_code=True), NOTHING)):
        model, smoothing = options_of(run, given, how)
        assert code in (model.model, smoothing.deformation)


def test_options_beside_a_run_must_be_its_own() -> None:
    run = stored_run(Path("run"))
    with pytest.raises(InputError, match=r"--noise is uniform:2deg; it must be the run's"):
        options_of(run, ModelOptions(""), SmoothingOptions("", "uniform:2deg"))
    model, _ = options_of(run, ModelOptions("net", device="cpu", batch_size=3), NOTHING)
    assert (model.device, model.batch_size) == ("cpu", 3)
