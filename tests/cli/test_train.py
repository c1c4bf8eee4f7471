"""`deformrs train` as people run it, on tiny data: every recipe and option, and what goes wrong."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import torchvision_ops
from commands import ENVIRONMENT, command, deformrs, fails
from deformrs.errors import InputError, ModelError
from deformrs.models import ResNet50, SmallCNN, load_model, save_model
from deformrs.preparation import Preparation
from deformrs.runs import load_run, read_config
from inside import run_inside

SIDE = 16
SMOOTHING = ["--deformation", "rotation", "--noise", "uniform:54deg"]
PLAIN = ["--model", "small_cnn:width=4", *SMOOTHING, "--device", "cpu", "--no-tensorboard"]
QUICK = [*PLAIN, "--epochs", "2", "--batch-size", "8"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bright left halves and bright right halves, to train on and to test."""
    folder = tmp_path_factory.mktemp("data") / "halves"
    generator = np.random.default_rng(0)
    for split, count in (("train", 20), ("test", 6)):
        for index in range(count):
            for place, name in enumerate(("left", "right")):
                pixels = generator.integers(0, 90, (SIDE, SIDE), dtype=np.uint8)
                half = slice(0, SIDE // 2) if place == 0 else slice(SIDE // 2, SIDE)
                pixels[:, half] += 120
                path = folder / split / name / f"{index}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(path)
    return folder


def weights(folder: Path) -> torch.Tensor:
    state = load_file(folder / "model.safetensors")
    return torch.cat([value.double().flatten() for value in state.values()])


def test_train_then_certify_with_no_further_options(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    trained = deformrs(
        "train", "--data", data, *PLAIN, "--epochs", "12", "--out", out, cwd=tmp_path
    )
    assert "40 pictures held on cpu" in trained.stdout
    assert f"next: deformrs certify --model {out}" in trained.stdout
    assert "right under noise" in trained.stdout
    assert trained.stderr == ""
    certified = deformrs("certify", "--model", out, "--n", "200", cwd=tmp_path)
    assert "uniform noise of scale 54°" in certified.stdout
    results = load_run(out)
    assert len(results) == 12
    assert all(result.source.startswith(("left", "right")) for result in results)
    # It was trained until it tells halves apart: most are certified, all by the law it knows.
    assert sum(result.correct for result in results) >= 10
    best = deformrs("certify", "--model", out / "best", "--n", "50", "--max", "2", cwd=tmp_path)
    assert "of 2" in best.stdout


def test_the_folder_says_what_was_done(data: Path, tmp_path: Path) -> None:
    run_inside("train", "--data", data, *QUICK, "--out", tmp_path / "run")
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {"training.json", "epochs.jsonl", "model.json", "model.safetensors", "best"}
    config = json.loads((tmp_path / "run" / "training.json").read_text())
    assert config["recipe"]["epochs"] == 2
    assert config["noise"]["name"] == "uniform"
    assert config["data"]["pictures"] == 40
    assert config["augmentation"]["flip"] is False  # nobody said that mirrors change nothing
    lines = (tmp_path / "run" / "epochs.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]
    model = load_model(str(tmp_path / "run"))
    assert model.class_names == ("left", "right")
    assert model.preparation.channels == 1


def test_a_finished_training_is_left_as_it_is(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run_inside("train", "--data", data, *QUICK, "--out", out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.*")}
    assert "trained already" in run_inside("train", "--data", data, *QUICK, "--out", out)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.*")} == before
    with pytest.raises(InputError, match=r"seed: 0 there, 1 here.*choose another folder"):
        run_inside("train", "--data", data, *QUICK, "--seed", "1", "--out", out)
    with pytest.raises(InputError, match="another one"):
        run_inside("train", "--data", data, *QUICK, "--noise", "uniform:50deg", "--out", out)


@pytest.mark.parametrize(
    "options",
    [
        ["--recipe", "paper"],
        ["--recipe", "fast"],
        ["--copies", "1", "--tilt", "0"],
        ["--consistency", "10"],
        ["--consistency", "5", "--entropy", "0.1", "--copies", "3"],
        ["--tilt", "1"],
        ["--augment", "crop:2+flip"],
        ["--augment", "zoom:0.5+flip"],
        ["--learning-rate", "0.05", "--weight-decay", "0.001"],
        ["--hold-out", "0.25"],
        ["--precision", "bfloat16"],
        ["--hold", "no", "--workers", "0"],
        ["--resize", "20", "--crop", "12"],
        ["--channels", "3"],
        ["--padding", "reflection"],
        ["--model", "resnet18:width=2"],
        ["--deformation", "translation+scaling", "--noise", "gaussian:2px+uniform:20%"],
        ["--deformation", "vector_field", "--noise", "gaussian:1px"],
    ],
    ids=" ".join,
)
def test_every_recipe_and_option(data: Path, tmp_path: Path, options: list[str]) -> None:
    run_inside("train", "--data", data, *QUICK, *options, "--out", tmp_path / "other")
    run_inside("train", "--data", data, *QUICK, "--out", tmp_path / "usual")
    changed = weights(tmp_path / "other"), weights(tmp_path / "usual")
    same_weights = changed[0].shape == changed[1].shape and torch.equal(*changed)
    # The usual recipe is the fast one, and streaming only changes where pictures come from.
    assert same_weights == (options[-1] == "fast" or options[0] == "--hold")
    run_inside("certify", "--model", tmp_path / "other", "--n", "20", "--max", "2")
    assert len(load_run(tmp_path / "other")) == 2


def test_streaming_with_workers_gives_the_same_weights(data: Path, tmp_path: Path) -> None:
    for hold, out in (("yes", "held"), ("no", "streamed")):
        options: list[str | Path] = ["--hold", hold, "--workers", "2", "--out", tmp_path / out]
        done = deformrs("train", "--data", data, *QUICK, *options, cwd=tmp_path)
    assert "streamed by 2 workers" in done.stdout
    assert torch.equal(weights(tmp_path / "held"), weights(tmp_path / "streamed"))


@pytest.mark.parametrize("name", ["timm:resnet10t", "torchvision:squeezenet1_0"])
def test_networks_of_other_libraries(data: Path, tmp_path: Path, name: str) -> None:
    torchvision_ops.declare()
    small = ["--resize", "40", "--crop", "32", "--channels", "3"]
    options = [*QUICK, "--epochs", "1", "--model", name, *small]
    run_inside("train", "--data", data, *options, "--out", tmp_path / "run")
    run_inside("certify", "--model", tmp_path / "run", "--n", "10", "--max", "1")
    model = load_model(str(tmp_path / "run"))
    assert model.preparation.crop == (32, 32)
    assert model.about["mean"] is not None  # measured on the data


def test_resnet50_goes_on_from_weights_of_more_classes(data: Path, tmp_path: Path) -> None:
    published = ResNet50(num_classes=7, width=4).state_dict()
    save_file(published, tmp_path / "published.safetensors")
    options = [*QUICK, "--model", "resnet50:width=4", "--channels", "3", "--recipe", "paper"]
    options += ["--weights", str(tmp_path / "published.safetensors"), "--epochs", "1"]
    sizes = ["--resize", "40", "--crop", "32"]
    run_inside("train", "--data", data, *options, *sizes, "--out", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "training.json").read_text())
    assert config["recipe"]["learning_rate"] == 1e-3  # the paper's for pretrained networks
    state = load_file(tmp_path / "run" / "model.safetensors")
    assert state["fc.weight"].shape[0] == 2
    moved = (state["conv1.weight"] - published["conv1.weight"]).abs().max()
    assert 0 < moved < 0.01


def test_a_training_goes_on_from_another_one(data: Path, tmp_path: Path) -> None:
    run_inside("train", "--data", data, *QUICK, "--out", tmp_path / "first")
    options = [*QUICK, "--model", str(tmp_path / "first"), "--learning-rate", "1e-6"]
    run_inside("train", "--data", data, *options, "--out", tmp_path / "second")
    state = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "second"))
    first, second = (part["head.weight"] for part in state)
    assert not torch.equal(first, second)
    assert torch.allclose(first, second, atol=1e-3)


def test_resume_after_sigkill_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    """Killed with SIGKILL right after a checkpoint that was written within an epoch."""
    options = ["--data", "digits", "--model", "small_cnn:width=16", *SMOOTHING, "--device", "cpu"]
    options += ["--epochs", "2", "--batch-size", "40", "--checkpoint-seconds", "0"]
    options += ["--no-tensorboard", "--hold-out", "0.05"]
    deformrs("train", *options, "--out", tmp_path / "whole", cwd=tmp_path)
    out = tmp_path / "killed"
    state = out / "checkpoints" / "state.json"
    for kill in range(2):
        process = subprocess.Popen(
            command("train", *options, "--out", out),
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
        )
        with process:
            while process.poll() is None:
                step = json.loads(state.read_text())["step"] if state.exists() else 0
                if step % 95 and step > 95 * kill:
                    process.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.005)
        assert process.returncode == -signal.SIGKILL
        assert not (out / "model.json").exists()
        assert json.loads(state.read_text())["step"] % 95
    refused = fails("certify", "--model", out, cwd=tmp_path)
    assert "not finished" in refused
    deformrs("train", *options, "--out", out, cwd=tmp_path)
    for name in ("model.safetensors", "model.json", "best/model.safetensors"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (out / "checkpoints").exists()


def test_two_trainings_in_one_folder_at_once_are_refused(data: Path, tmp_path: Path) -> None:
    options: list[str | Path] = [
        "--data",
        data,
        *PLAIN,
        "--epochs",
        "20000",
        "--out",
        tmp_path / "run",
    ]
    with subprocess.Popen(
        command("train", *options), cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.DEVNULL
    ) as process:
        while not (tmp_path / "run" / "training.json").exists():
            time.sleep(0.01)
        assert "being written by another process" in fails("train", *options, cwd=tmp_path)
        process.send_signal(signal.SIGINT)
        process.wait()
    assert process.returncode == 130


def test_tensorboard_shows_the_curves(data: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options = [option for option in QUICK if option != "--no-tensorboard"]
    run_inside("train", "--data", data, *options, "--hold-out", "0.2", "--out", tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    records = (tmp_path / "run" / "epochs.jsonl").read_text().splitlines()
    for name in ("loss", "accuracy", "held_out_accuracy", "learning_rate"):
        shown = [scalar.value for scalar in events.Scalars(f"epoch/{name}")]
        assert shown == pytest.approx([json.loads(line)[name] for line in records], rel=1e-6)


def test_a_loss_that_diverges_stops_with_a_clear_message(data: Path, tmp_path: Path) -> None:
    options = [*QUICK, "--learning-rate", "1e30", "--epochs", "40"]
    with pytest.raises(ModelError, match=r"epoch \d+ is .*lower learning rate, in another folder"):
        run_inside("train", "--data", data, *options, "--out", tmp_path / "run")
    assert not (tmp_path / "run" / "model.json").exists()


def test_a_network_of_ones_own(data: Path, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16, 2))\n"
    )
    model = f"{tmp_path / 'net.py'}:build"
    options: list[str | Path] = [*QUICK, "--model", model, "--out", tmp_path / "run"]
    run_inside("train", "--data", data, *options)
    with pytest.raises(InputError, match="name the file yourself: ") as refusal:
        run_inside("certify", "--model", tmp_path / "run")
    named = refusal.value.remedy.partition(": ")[2].split(" ")
    assert named == ["--model", model, "--weights", str(tmp_path / "run" / "model.safetensors")]
    said = run_inside("certify", *named, "--n", "20", "--max", "2")
    assert "uniform noise of scale 54°" in said
    config = read_config(tmp_path / "run")
    assert config["data"]["class_names"] == ["left", "right"]  # type: ignore[index,call-overload]
    assert config["data"]["split"] == "test"  # type: ignore[index,call-overload]


def test_bad_pictures_are_named(data: Path, tmp_path: Path) -> None:
    def training_on(change: str) -> None:
        folder = tmp_path / change
        shutil.copytree(data, folder)
        left = folder / "train" / "left"
        if change == "none":
            for path in (folder / "train").rglob("*.png"):
                path.unlink()
        elif change == "one class":
            shutil.rmtree(left)
        elif change == "sizes":
            Image.new("L", (SIDE + 1, SIDE)).save(left / "9.png")
        elif change == "colour":
            Image.new("RGB", (SIDE, SIDE)).save(left / "9.png")
        elif change == "damaged":
            (left / "9.png").write_bytes((left / "9.png").read_bytes()[:60])
        else:
            for path in sorted((folder / "train").rglob("*.png")):
                path.rename(folder / "train" / f"{path.parent.name}{path.name}")
            for name in ("left", "right"):
                (folder / "train" / name).rmdir()
        run_inside("train", "--data", folder / "train", *QUICK, "--out", folder / "run")

    for change, message in {
        "none": "without a picture",
        "one class": "of one class",
        "sizes": r"left/9\.png.*17.*--resize",
        "colour": r"left/9\.png.*channel.*--channels",
        "damaged": r"left/9\.png.*whole picture",
        "labels": "without labels for its 40 pictures",
    }.items():
        with pytest.raises(InputError, match=message):
            training_on(change)
        assert not (tmp_path / change / "run" / "model.json").exists()


def test_a_checkpoint_of_another_model_is_refused(data: Path, tmp_path: Path) -> None:
    save_file(SmallCNN(width=6).state_dict(), tmp_path / "other.safetensors")
    other = ["--weights", str(tmp_path / "other.safetensors")]
    with pytest.raises(InputError, match="from another network"):
        run_inside("train", "--data", data, *QUICK, *other, "--out", tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--recipe", "papper"], "did you mean 'paper'"),
        (["--model", "resnet19"], "did you mean resnet18"),
        (["--epochs", "0"], "epochs"),
        (["--batch-size", "0"], "batch_size"),
        (["--learning-rate", "-1"], "learning_rate"),
        (["--copies", "1", "--consistency", "10"], "at least 2"),
        (["--hold-out", "0.9"], "hold out"),
        (["--augment", "turn"], "augmentation"),
        (["--noise", "uniform:500deg"], "half the period"),
        (["--deformation", "rotatoin"], "did you mean 'rotation'"),
        (["--device", "cudda"], "cannot be used here"),
        (["--workers", "-1", "--hold", "no"], "workers"),
        (["--seed", "-1"], "seed"),
        (["--devices", "0"], "devices"),
        (["--strategy", "dpp", "--devices", "2"], "did you mean 'ddp'"),
        (["--data", "nowhere"], "not there"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options_are_refused_at_once(
    data: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run_inside("train", "--data", data, *QUICK, *options, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_of_another_kind_is_left_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="holds another run or model already"):
        run_inside("train", "--data", data, *QUICK, "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_other_normalisation_is_another_training(data: Path, tmp_path: Path) -> None:
    options = [*QUICK, "--model", "resnet18:width=2"]
    given = [*options, "--mean", "0.13066047", "--std", "0.5"]
    run_inside("train", "--data", data, *given, "--out", tmp_path / "run")
    assert load_model(str(tmp_path / "run")).about["mean"] == [0.13066047]
    given = [*options, "--mean", "0.1", "--std", "0.5"]
    with pytest.raises(InputError, match="mean"):
        run_inside("train", "--data", data, *given, "--out", tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--hold-out", "0.25"], "hold_out"),
        (["--precision", "bfloat16"], "precision"),
        (["--padding", "border"], "padding"),
        (["--augment", "flip"], "augmentation"),
        (["--tilt", "0.5"], "tilt"),
        (["--resize", "20"], "resize"),
        (["--weights", "other"], "model"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_changes_the_weights_binds(
    data: Path, tmp_path: Path, options: list[str], named: str
) -> None:
    run_inside("train", "--data", data, *QUICK, "--out", tmp_path / "run")
    if options[1] == "other":
        save_file(SmallCNN(num_classes=2, width=4, seed=3).state_dict(), tmp_path / "w.safetensors")
        options = ["--weights", str(tmp_path / "w.safetensors")]
    with pytest.raises(InputError, match=f"another one .*{named}"):
        run_inside("train", "--data", data, *QUICK, *options, "--out", tmp_path / "run")


def test_a_family_of_ones_own_binds_by_its_content(data: Path, tmp_path: Path) -> None:
    text = Path(__file__).parents[2].joinpath("docs/adding_a_deformation.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    (tmp_path / "glass.py").write_text(code.replace("Lens", "Glass").replace('"lens"', '"glass"'))
    own = [*QUICK, "--deformation", f"{tmp_path / 'glass.py'}:Glass", "--noise", "gaussian:0.1"]
    run_inside("train", "--data", data, *own, "--out", tmp_path / "run")
    with (tmp_path / "glass.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(InputError, match=r"plugins"):
        run_inside("train", "--data", data, *own, "--out", tmp_path / "run")


def test_noise_in_pixels_is_that_of_the_picture_which_is_certified(
    data: Path, tmp_path: Path
) -> None:
    """Of a frame of 24 pixels 12 are cut out: one of them is a sixth of half a side."""
    options = [*QUICK, "--resize", "24", "--crop", "12"]
    options += ["--deformation", "translation", "--noise", "gaussian:3px"]
    printed = run_inside("train", "--data", data, *options, "--out", tmp_path / "run")
    assert "augmentation crop:0" in printed
    trained = json.loads((tmp_path / "run" / "training.json").read_text())
    assert trained["noise"]["scale"] == pytest.approx(3 / 6)
    assert trained["data"]["preparation"]["crop"] == [24, 24]
    run_inside("certify", "--model", tmp_path / "run", "--n", "20", "--max", "1")
    certified = json.loads((tmp_path / "run" / "config.json").read_text())
    assert certified["noise"] == trained["noise"]
    assert certified["data"]["preparation"]["crop"] == [12, 12]


def test_held_out_pictures_are_others_and_choose_the_best(data: Path, tmp_path: Path) -> None:
    """Labels of the held-out pictures are turned round: a network that learns is wrong on them."""
    images, labels = [], []
    for path in sorted((data / "train").rglob("*.png")):
        images.append(np.asarray(Image.open(path))[None])
        labels.append(int(path.parent.name == "right"))
    from deformrs.training.splitting import split

    _, unseen = split(labels, 0.25, 0)
    turned = [1 - label if place in unseen else label for place, label in enumerate(labels)]
    # The split is stratified by the labels it sees: give both classes as many as before.
    _, again = split(turned, 0.25, 0)
    np.savez(tmp_path / "turned.npz", images=np.stack(images), labels=np.array(turned))
    options: list[str | Path] = [*PLAIN, "--epochs", "12", "--hold-out", "0.25"]
    options += ["--out", tmp_path / "run"]
    run_inside("train", "--data", tmp_path / "turned.npz", *options)
    lines = (tmp_path / "run" / "epochs.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    best = max(record["held_out_accuracy"] for record in records)
    if set(again.tolist()) == set(unseen.tolist()):
        assert records[-1]["held_out_accuracy"] < 0.3 < 0.9 < records[-1]["accuracy"]
        assert best > records[-1]["held_out_accuracy"]
        assert not torch.equal(weights(tmp_path / "run" / "best"), weights(tmp_path / "run"))


def test_a_network_keeps_the_order_of_its_classes(data: Path, tmp_path: Path) -> None:
    run_inside("train", "--data", data, *PLAIN, "--epochs", "12", "--out", tmp_path / "first")
    about = json.loads((tmp_path / "first" / "model.json").read_text())
    state = load_file(tmp_path / "first" / "model.safetensors")
    for name in ("head.weight", "head.bias"):
        state[name] = state[name].flip(0)
    other = tmp_path / "other"
    module = SmallCNN(num_classes=2, width=4)
    module.load_state_dict(state)
    save_model(
        other, module, Preparation.from_config(about["preparation"]), class_names=("right", "left")
    )
    options = [*QUICK, "--model", str(other), "--learning-rate", "1e-9"]
    run_inside("train", "--data", data, *options, "--out", tmp_path / "second")
    record = json.loads((tmp_path / "second" / "epochs.jsonl").read_text().splitlines()[0])
    assert record["accuracy"] > 0.8
    assert load_model(str(tmp_path / "second")).class_names == ("right", "left")


def test_an_interrupted_training_keeps_what_it_did(tmp_path: Path) -> None:
    options: list[str | Path] = ["--data", "digits", "--model", "small_cnn:width=8", *SMOOTHING]
    options += ["--device", "cpu", "--epochs", "500", "--out", tmp_path / "run"]
    with subprocess.Popen(
        command("train", *options),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        epochs = tmp_path / "run" / "epochs.jsonl"
        while not epochs.exists() or not epochs.read_text():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130
    assert "what was done is kept" in said
    assert json.loads((tmp_path / "run/checkpoints/state.json").read_text())["step"] > 31


def test_a_small_data_set_gets_small_batches(data: Path, tmp_path: Path) -> None:
    printed = run_inside("train", "--data", data, *PLAIN, "--epochs", "1", "--out", tmp_path / "a")
    assert "of 1 steps with 32 pictures, learning rate 0.1;" in printed
    assert "2 classes: left, right" in printed


def test_strange_labels_are_refused(tmp_path: Path) -> None:
    images = np.zeros((4, 1, 8, 8), np.uint8)
    np.savez(tmp_path / "far.npz", images=images, labels=np.array([0, 1, 2, 2024051201]))
    with pytest.raises(InputError, match="largest label is 2024051201"):
        run_inside("train", "--data", tmp_path / "far.npz", *QUICK, "--out", tmp_path / "run")


def test_what_lies_beside_the_splits_is_no_class(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "more")
    (tmp_path / "more" / "annotations").mkdir()
    with pytest.raises(InputError, match="annotations"):
        run_inside("train", "--data", tmp_path / "more", *QUICK, "--out", tmp_path / "run")
