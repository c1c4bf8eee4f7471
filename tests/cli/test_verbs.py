"""`deformrs report`, `gallery` and `predict` on real runs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from commands import deformrs, fails
from deformrs import Certificate, Region, SmoothedClassifier, Stopping, Uniform, load_model
from deformrs.data import load_data, load_image
from deformrs.data.preparation import Preparation
from deformrs.deformations import Rotation
from deformrs.models import SmallCNN, save_model
from deformrs.plan import SamplingPlan
from deformrs.rounding import percent_down
from deformrs.runs import load_run
from deformrs.sampling import Progress

SAMPLES = ("--n", "200", "--n0", "30", "--device", "cpu", "--seed", "0")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network, two runs of rotations, one of affine maps, and a digit as a file."""
    folder = tmp_path_factory.mktemp("place")
    net = SmallCNN(width=4, seed=1).eval()
    save_model(folder / "net", net, Preparation(channels=1), tuple("abcdefghij"))
    for name, noise in (("turn30", "uniform:30deg"), ("turn180", "uniform:180deg")):
        deformrs(
            *("certify", "--model", "net", "--data", "digits", "--deformation", "rotation"),
            *("--noise", noise, *SAMPLES, "--max", "12", "--out", name),
            cwd=folder,
        )
    deformrs(
        *("certify", "--model", "net", "--data", "digits", "--deformation", "affine"),
        *("--noise", "gaussian:0.05", *SAMPLES, "--max", "12", "--out", "affine"),
        cwd=folder,
    )
    pixels, _ = load_data("digits", Preparation())[3]
    Image.fromarray((255 * pixels[0]).astype(np.uint8)).save(folder / "digit.png")
    return folder


def test_report_writes_page_figures_and_tables(place: Path) -> None:
    said = deformrs(
        *("report", "turn30", "turn180", "affine", "--radii", "10deg,0.01", "--out", "page"),
        *("--region", "rotation<=1deg, shift<=0.2px", "--title", "Ours", "--note", "A <b> note."),
        *("--export", "log.tsv"),
        cwd=place,
        code=1,
    ).stderr
    assert "--export" in said
    deformrs(
        *("report", "turn30", "turn180", "affine", "--radii", "10deg,0.01", "--out", "page"),
        *("--region", "rotation<=1deg, shift<=0.2px", "--title", "Ours", "--note", "A <b> note."),
        cwd=place,
    )
    page = (place / "page" / "report.html").read_text()
    assert "<h1>Ours</h1>" in page
    assert "A &lt;b&gt; note." in page
    assert "data:image/png;base64," in page, "the least robust images are shown"
    kinds = {path.suffix for path in (place / "page").rglob("*") if path.is_file()}
    assert kinds == {".html", ".md", ".csv", ".tex", ".png", ".svg"}

    text = (place / "page" / "report.md").read_text()
    for name in ("turn30", "turn180"):
        results = load_run(place / name)
        held = sum(result.holds(np.radians(10)) for result in results)
        row = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
        assert f"{percent_down(held, 12)} % ({held}/12; " in row
    region = Region.parse("rotation<=1deg, shift<=0.2px")
    results = load_run(place / "affine")
    held = sum(r.correct and r.certificate.covers_region(region) for r in results)
    assert f"| affine | {percent_down(held, 12)} % ({held}/12; " in text


def test_report_at_another_alpha_needs_no_samples(place: Path) -> None:
    for alpha in ("0.1", "0.000001"):
        deformrs("report", "turn30", "--alpha", alpha, "--out", f"at{alpha}", cwd=place)
        results = load_run(place / "turn30", alpha=float(alpha))
        right = sum(result.correct for result in results)
        text = (place / f"at{alpha}" / "report.md").read_text()
        share = f"{percent_down(right, 12)} % ({right}/12)"
        assert f"| smoothed classifier correct | {share} |" in text
    assert "must lie in (0, 1)" in fails("report", "turn30", "--alpha", "2", cwd=place)


def test_report_says_when_images_are_gone(tmp_path: Path, network: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "some.npz", images=images, labels=[0, 1, 2])
    deformrs(
        *("certify", "--model", "network", "--data", "some.npz", "--deformation", "rotation"),
        *("--noise", "uniform:30deg", *SAMPLES, "--out", "run"),
        cwd=tmp_path,
    )
    np.savez(tmp_path / "some.npz", images=255 - images, labels=[0, 1, 2])
    changed = deformrs("report", "run", cwd=tmp_path).stderr
    assert "changed since it was certified" in changed
    (tmp_path / "some.npz").unlink()
    gone = deformrs("report", "run", cwd=tmp_path).stderr
    assert re.search(r"note: the images of run are not shown: .*some\.npz", gone)
    assert deformrs("report", "run", "--no-images", cwd=tmp_path).stderr == ""


def test_report_of_nothing(place: Path) -> None:
    assert "must hold a config.json" in fails("report", "nowhere", cwd=place)


def test_gallery_of_a_run(place: Path) -> None:
    for arguments, name in (
        (("--run", "turn30", "--columns", "3"), "turn30/gallery.png"),
        (("digit.png", "--run", "turn30", "--columns", "3", "--out", "file.pdf"), "file.pdf"),
        (("--kind", "families", "--run", "turn30", "--columns", "2"), "turn30/families.png"),
    ):
        said = deformrs("gallery", *arguments, *SAMPLES, cwd=place).stdout
        assert f"written: {name}" in said
        assert (place / name).stat().st_size > 5000
    with Image.open(place / "turn30/gallery.png") as drawn:
        assert min(drawn.size) > 300


def test_a_gallery_samples_further_images_as_its_run_did(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deformrs(
        *("certify", "--model", "net", "--data", "digits", "--deformation", "rotation"),
        *("--noise", "uniform:30deg", "--radii", "5deg", "--n", "300", "--n0", "20"),
        *("--alpha", "0.01", "--max", "2", "--device", "cpu", "--out", "decided"),
        cwd=place,
    )
    plans: list[SamplingPlan] = []
    certify = SmoothedClassifier.certify_batch

    def record(
        self: SmoothedClassifier,
        images: Sequence[torch.Tensor],
        indices: Sequence[int],
        plan: SamplingPlan,
        progress: Progress | None = None,
    ) -> list[Certificate]:
        plans.append(plan)
        return certify(self, images, indices, plan, progress)

    monkeypatch.setattr(SmoothedClassifier, "certify_batch", record)
    draw = ("gallery", "digit.png", "--columns", "1", "--out", "one.png", "--run")
    stopping = Stopping(radii=("5deg",))
    for arguments, expected in (
        (("turn30",), SamplingPlan(200, 30)),
        (("decided",), SamplingPlan(300, 20, 0.01, stopping=stopping)),
        (("decided", "--n", "50"), SamplingPlan(50, 20, 0.01, stopping=stopping)),
    ):
        deformrs(*draw, *arguments, cwd=place)
        assert plans.pop() == expected
    assert not plans
    deformrs("gallery", "--run", "turn30", "--columns", "1", "--out", "one.png", cwd=place)
    assert not plans, "stored certificates are used as they are"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a file, --run or --data"),
        (["--run", "turn30", "--out", "gallery.txt"], ".txt"),
        (["--run", "turn30", "--images", "5000"], "must lie in [0, 999]"),
        (["--run", "turn30", *["digit.png"] * 101], "must be at most 100"),
        (["--data", "digits"], "is needed for certified samples"),
        (["--kind", "fields", "--data", "digits", "--images", "1,2"], "must be one for fields"),
        (["--run", "nowhere"], "must hold a config.json"),
        (["--run", "turn30", "--weights", "net.pth"], "must be the run's"),
    ],
)
def test_gallery_explains(place: Path, arguments: list[str], message: str) -> None:
    assert message in fails("gallery", *arguments, cwd=place)


def test_predict_in_plain_words(place: Path) -> None:
    said = deformrs("predict", "digit.png", "digit.png", "--run", "turn180", *SAMPLES, cwd=place)
    first, second = said.stdout.splitlines()
    assert first == second, "an answer does not depend on the other files"
    loaded = load_model(str(place / "net"), precision="auto")
    g = SmoothedClassifier(loaded.module, Rotation(), Uniform(np.pi), 10)
    certificate = g.certify(
        torch.from_numpy(load_image(place / "digit.png", loaded.preparation)),
        n=200,
        n0=30,
    )
    if certificate.prediction is None:
        assert "digit.png: abstains" in first
    else:
        name = "abcdefghij"[certificate.prediction]
        assert first.startswith(f"digit.png: {name}, holds for every rotation")
    assert "(n = 200, alpha = 0.001)" in first


def test_predict_for_programs_and_regions(place: Path) -> None:
    region = "rotation<=1deg, shift<=0.1px"
    said = deformrs(
        *("predict", "digit.png", "--run", "affine", "--json", "--region", region, *SAMPLES),
        cwd=place,
    ).stdout
    answer = json.loads(said)
    assert answer["file"] == "digit.png"
    assert answer["radii"].keys() == {"affine"}
    assert answer["regions"].keys() == {region}


def test_predict_goes_on_after_a_file_it_cannot_read(place: Path) -> None:
    (place / "broken.png").write_bytes(b"no image")
    done = deformrs(
        *("predict", "broken.png", "digit.png", "--run", "turn30", *SAMPLES), cwd=place, code=1
    )
    assert done.stderr.startswith("error: ")
    assert "broken.png" in done.stderr
    assert done.stdout.startswith("digit.png: ")


def test_a_glob_may_catch_files_that_are_no_images(place: Path) -> None:
    mixed = place / "mixed"
    (mixed / "folder").mkdir(parents=True)
    for name in ("README.md", ".DS_Store", "labels.csv"):
        (mixed / name).write_text("file,label")
    Image.open(place / "digit.png").save(mixed / "b", format="PNG")
    Image.open(place / "digit.png").save(mixed / "a.PNG")
    everything = sorted(f"mixed/{path.name}" for path in mixed.iterdir())
    samples = ("--run", "turn30", *SAMPLES)
    done = deformrs("predict", *everything, *samples, cwd=place)
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["mixed/a.PNG", "mixed/b"]
    skipped = "mixed/.DS_Store, mixed/README.md, mixed/folder, mixed/labels.csv"
    assert done.stderr == f"note: skipped, not images: {skipped}\n"
    done = deformrs(
        *("gallery", *everything, *samples, "--columns", "1", "--out", "two.png"), cwd=place
    )
    assert done.stderr == f"note: skipped, not images: {skipped}\n"
    others = [name for name in everything if name.endswith((".md", ".csv"))]
    assert "without an image (mixed/README.md" in fails("predict", *others, *samples, cwd=place)
    assert "must be a complete image" in fails("predict", others[0], *samples, cwd=place)
    assert "missing" in fails("predict", "mixed/*.gif", *samples, cwd=place)


def test_predict_says_how_an_image_of_another_size_was_prepared(place: Path) -> None:
    for name, size in (("large.png", (64, 32)), ("larger.png", (128, 32)), ("same.png", (28, 28))):
        Image.new("RGB", size, "red").save(place / name)
    images = ("predict", "large.png", "larger.png", "same.png")
    noise = ("--deformation", "rotation", "--noise", "uniform:30deg", *SAMPLES)
    done = deformrs(*images, "--model", "net", *noise, "--resize", "28", "--crop", "28", cwd=place)
    assert done.stderr.splitlines() == [
        "note: large.png: 64 px wide and 32 high, prepared as the model expects: shorter side to "
        "28 px (bilinear), centre 28 x 28, grey",
        "note: resized or cropped: 1 more of these images",
    ]
    done = deformrs(*images, "--run", "turn30", "--json", *SAMPLES, cwd=place)
    assert done.stderr.splitlines() == [
        "note: large.png: 64 px wide and 32 high, unlike the run's images, 28 px wide and 28 high: "
        "noise in px or half sides is another share of it, and the run's accuracy need not carry "
        "over",
        "note: of another size than the run's images: 1 more of these images",
    ]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["size"] for answer in answers] == [[32, 64], [32, 128], [28, 28]]
    assert {answer["prepared"] for answer in answers} == {None}
    sideways = Image.new("L", (28, 40))
    sideways.getexif()[0x0112] = 6  # the camera was turned
    sideways.save(place / "sideways.jpg", exif=sideways.getexif())
    done = deformrs("predict", "sideways.jpg", "--model", "net", *noise, cwd=place)
    assert done.stderr == "", "turned upright is not another size"


def test_a_model_that_changed_since_its_run_is_noticed(tmp_path: Path, network: Path) -> None:
    deformrs(
        *("certify", "--model", "network", "--data", "digits", "--deformation", "rotation"),
        *("--noise", "uniform:30deg", *SAMPLES, "--max", "3", "--out", "run"),
        cwd=tmp_path,
    )
    save_model(network, SmallCNN(width=4, seed=2).eval(), Preparation(channels=1))
    Image.new("L", (28, 28)).save(tmp_path / "digit.png")
    for arguments in (("gallery", "--run", "run"), ("predict", "digit.png", "--run", "run")):
        assert "not the one found now (model." in fails(*arguments, cwd=tmp_path)


def test_code_that_a_run_names_is_executed_only_if_named_or_trusted(
    tmp_path: Path, network: Path
) -> None:
    (tmp_path / "net.py").write_text(
        "from pathlib import Path\n"
        "from deformrs.models import SmallCNN\n"
        "Path('executed').touch()\n"
        "def build():\n"
        "    return SmallCNN(width=4, seed=1)\n"
    )
    deformrs(
        *("certify", "--model", "net.py:build", "--data", "digits", "--deformation", "rotation"),
        *("--noise", "uniform:30deg", *SAMPLES, "--max", "3", "--out", "run"),
        cwd=tmp_path,
    )
    Image.new("L", (28, 28)).save(tmp_path / "digit.png")
    (tmp_path / "executed").unlink()
    predict = ("predict", "digit.png", "--run", "run", *SAMPLES)
    line = fails(*predict, cwd=tmp_path)
    assert "--trust-code" in line
    assert "--model net.py:build" in line
    assert not (tmp_path / "executed").exists()
    for trust in (("--trust-code",), ("--model", "net.py:build")):
        deformrs(*predict, *trust, cwd=tmp_path)
        assert (tmp_path / "executed").exists()
    (tmp_path / "net.py").write_text((tmp_path / "net.py").read_text() + "# changed\n")
    assert "not the one found now (model.files" in fails(*predict, "--trust-code", cwd=tmp_path)
