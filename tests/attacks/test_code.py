"""Received files that name code: none of it is executed unless the user trusts or names it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import torchvision_ops
from commands import deformrs, fails
from deformrs import Rotation, Uniform
from deformrs.errors import InputError
from deformrs.models import SmallCNN, load_model, timm
from deformrs.report.document import write_report
from deformrs.runs import StoredRun
from made_runs import Entry, stored

SMOOTHING = ["--deformation", "rotation", "--noise", "uniform:30deg"]
EVIL = "received/evil.py:build"
PREDICT = ["predict", "image.png", "--n", "10"]
CERTIFY = ["certify", "--data", "digits", "--max", "1", "--n", "10", "--out", "out"]
TRAIN = ["train", "--data", "digits", "--out", "out", "--no-tensorboard", *SMOOTHING]


@pytest.fixture(autouse=True)
def received(network: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a Python file that leaves a mark when it is executed."""
    monkeypatch.chdir(network.parent)
    folder = Path("received")
    folder.mkdir()
    (folder / "evil.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    Path("image.png").write_bytes(b"no image is read before the model")
    return folder


class Payload:
    """Leaves the mark when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (Path("executed"),)


def model_folder(folder: Path, network: str = EVIL) -> str:
    """Write a folder as training would, whose network a Python file builds."""
    about = json.loads(Path("network/model.json").read_text()) | {"network": network}
    (folder / "model.json").write_text(json.dumps(about))
    (folder / "model.safetensors").write_bytes(Path("network/model.safetensors").read_bytes())
    return str(folder)


def trained_folder(folder: Path) -> str:
    """Write a training whose deformation comes from a Python file."""
    name = model_folder(folder, "SmallCNN")
    options = {"data": "digits", "deformation": EVIL, "noise": "uniform:1deg"}
    config = {"command": "train", "options": options, "data": {"sha256": "0"}}
    (folder / "training.json").write_text(json.dumps(config))
    return name


def run_folder(folder: Path, **options: object) -> str:
    given = {"model": "network", "data": "digits", "deformation": "rotation", "noise": "uniform:1"}
    config = {
        "noise": Uniform(1.0).to_config(),
        "alpha": 0.001,
        "method": "clopper_pearson",
        "options": given | {"trust_code": True} | options,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def sweep(text: str) -> str:
    path = Path("received/some.toml")
    train = "data = 'digits'\nmodel = 'small_cnn'\n"
    run = "[[runs]]\ndeformation = 'rotation'\nnoise = 'uniform:30deg'\n"
    path.write_text("[train]\n" + text.replace("TRAIN", train).replace("RUN", run))
    return str(path)


def pickled(name: str) -> str:
    path = Path("received", name)
    if name.endswith(".npz"):
        np.savez(path, images=np.array([Payload()], dtype=object), labels=np.zeros(1))
    elif name.endswith(".pt2"):
        path.write_bytes(pickle.dumps(Payload()))
    else:
        torch.save(SmallCNN(width=4).state_dict() | {"hidden": Payload()}, path)
    return str(path)


ATTEMPTS: dict[str, Callable[[Path], list[str]]] = {
    "model of a folder": lambda f: [*CERTIFY, *SMOOTHING, "--model", model_folder(f)],
    "model of a folder, predicted": lambda f: [*PREDICT, *SMOOTHING, "--model", model_folder(f)],
    "model of a folder, trained on": lambda f: [*TRAIN, "--model", model_folder(f)],
    "deformation of a training": lambda f: [*CERTIFY, "--model", trained_folder(f)],
    "deformation of a training, drawn": lambda f: [
        *("gallery", "--data", "digits", "--model", trained_folder(f)),
    ],
    "model of a run": lambda f: [*PREDICT, "--run", run_folder(f, model=EVIL)],
    "deformation of a run": lambda f: [*PREDICT, "--run", run_folder(f, deformation=EVIL)],
    "part of a composition": lambda f: [
        *PREDICT,
        *("--run", run_folder(f, deformation=f"rotation+{EVIL}")),
    ],
    "folder that a run names": lambda f: [*PREDICT, "--run", run_folder(f, model=model_folder(f))],
    "program of a run": lambda f: [*PREDICT, "--run", run_folder(f, model=pickled("m.pt2"))],
    "deformation of a run, drawn": lambda f: ["gallery", "--run", run_folder(f, deformation=EVIL)],
    "model of a sweep": lambda f: ["sweep", sweep(f"data = 'digits'\nmodel = '{EVIL}'\nRUN")],
    "model of one run": lambda f: ["sweep", sweep(f"TRAIN\nRUN\ntrain = {{model = ' {EVIL}'}}")],
    "one of several deformations": lambda f: [
        "sweep",
        sweep(f"TRAIN[[runs]]\nnoise = 'uniform:1deg'\ndeformation = ['rotation', '{EVIL}']"),
    ],
    "folder that a sweep names": lambda f: [
        "sweep",
        sweep(f"data = 'digits'\nmodel = '{model_folder(f)}'\nRUN"),
    ],
    "program of a sweep": lambda f: [
        "sweep",
        sweep(f"data = 'digits'\nmodel = '{pickled('m.pt2')}'\nRUN"),
    ],
    "weights of a sweep": lambda f: ["sweep", sweep(f"TRAINweights = '{pickled('w.pth')}'\nRUN")],
    "data of a sweep": lambda f: [
        "sweep",
        sweep(f"data = '{pickled('a.npz')}'\nmodel = 'small_cnn'\nRUN"),
    ],
    "trust in a sweep": lambda f: ["sweep", sweep(f"TRAINtrust_code = true\nRUNmodel = '{EVIL}'")],
}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_nothing_that_a_received_file_names_is_executed(name: str, received: Path) -> None:
    arguments = ATTEMPTS[name](received)
    if name.startswith(("weights", "data", "folder that a sweep")):  # known once a run begins
        done = deformrs(*arguments, code=1)
        assert "error: " in done.stderr
    else:
        fails(*arguments)
    assert not Path("executed").exists()


def test_the_attempts_would_be_noticed() -> None:
    fails(*CERTIFY, *SMOOTHING, "--model", EVIL)
    assert Path("executed").exists()
    Path("executed").unlink()
    pickle.loads(Path(pickled("m.pt2")).read_bytes())
    assert Path("executed").exists()


@pytest.mark.parametrize("name", ["hf-hub:evil/net", "hf_hub:evil/net", "local-dir:received"])
def test_a_library_knows_its_own_networks_only(name: str) -> None:
    torchvision_ops.declare()
    pytest.importorskip("timm")
    with pytest.raises(InputError, match="must be a network that timm knows"):
        timm.new_network(name, None)
    with pytest.raises(InputError, match="must be a network that timm knows"):
        load_model(f"timm:{name}")


TEMPLATE = "{{ 7 * 7 }}{% raw %}${7*7}<%= 7*7 %>"


def test_names_are_no_templates(tmp_path: Path, no_figures: None) -> None:
    run = stored(
        tmp_path / TEMPLATE.replace("/", ""), [Entry(0, 0, 990, source=TEMPLATE)], names=[TEMPLATE]
    )
    config = run.config | {"deformation": {"name": EVIL, "k": "__import__('os')"}}
    odd = StoredRun(run.folder, config, run.results)
    page = write_report([odd], tmp_path / "out", title=TEMPLATE)["report.html"]
    text = page.read_text(encoding="utf-8")
    assert "49" not in text.partition("<body>")[2].partition("<script")[0]
    assert "{{ 7 * 7 }}" in text


def test_a_configuration_builds_registered_objects_only() -> None:
    for name in (EVIL, "os.system", "__init__", "Payload"):
        with pytest.raises(InputError, match="must be one of"):
            Rotation.from_config({"name": name})
        with pytest.raises(InputError, match="must be one of"):
            Uniform.from_config({"name": name})
