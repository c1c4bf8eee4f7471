"""What is about to be certified, in lines of text, and what may be wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from deformrs.cli.cost import Cost, samples_per_second, suggested_radius
from deformrs.config import Config, ConfigValue
from deformrs.data import ImageSet
from deformrs.data.folders import ImageFolder
from deformrs.data.image_set import Subset
from deformrs.deformations import Scaling
from deformrs.geometry import size_of
from deformrs.job import Job
from deformrs.models.saved import load_factory, of_file
from deformrs.models.weights import state_digest
from deformrs.noise import Gaussian, Independent, NoiseLaw
from deformrs.noise.scaled import ScaledLaw
from deformrs.pieces import images_together
from deformrs.plan import SamplingPlan
from deformrs.randomness import Stage
from deformrs.runs import CONFIG, read_run
from deformrs.runs.backlog import BACKLOG
from deformrs.runs.folder import begun_config
from deformrs.runs.tally import PARTIAL
from deformrs.space import Space
from deformrs.stopping import Query
from deformrs.units import scaled_size

SHOWN_CLASSES = 3
CHECK_LABELS = (
    "compare them with the classes of the training; a labels.csv or --class-names FILE states them"
)


def row(name: str, text: str) -> str:
    """Return a line of the overview; the texts of all stand below each other.

    >>> row("model", "net.onnx")
    'model          net.onnx'
    """
    return f"{name:<13}  {text}"


@dataclass(frozen=True)
class Overview:
    """What a certification is about to do, and what may be wrong with it."""

    job: Job
    plan: SamplingPlan
    queries: Sequence[Query]
    indices: Sequence[int]
    """The selected images."""
    out: Path
    config: Config
    """What the run records."""
    random_seed: bool = False
    """Whether the seed is yet to be drawn, as for a dry run."""
    total_alpha: float | None = None
    """The alpha that the images share, None where each has that of the plan."""

    @cached_property
    def left(self) -> int:
        """The number of selected images that are not certified in the run folder yet."""
        if not (self.out / CONFIG).exists():
            return len(self.indices)
        done = {result.index for result in read_run(self.out).results}
        return len(set(self.indices) - done)

    @cached_property
    def origin(self) -> Origin:
        """Where the model comes from, according to the options and to what was loaded."""
        options, about = self.job.about["options"], self.job.model.about
        assert isinstance(options, dict)
        source, weights = str(options["model"]), options["weights"]
        repeats = False
        if weights is None and of_file(source):
            again = load_factory(source, None).spec.module.state_dict()
            repeats = state_digest(again) == about["state_sha256"]
        return Origin(
            source,
            None if weights is None else str(weights),
            _numbers(about["mean"]),
            _numbers(about["std"]),
            repeats,
        )

    @property
    def lines(self) -> list[str]:
        """All that is known before sampling, but for the time it takes, as lines."""
        job, total = self.job, len(self.indices)
        classifier, images, options = job.classifier, job.images, job.about["options"]
        assert isinstance(options, dict)
        space = classifier.deformation.space(size_of(job.first_image))
        compiled = self.config.get("compiled", "no")
        done = total - self.left
        present = len({images.labels[index] for index in self.indices})
        labels = images.label_words(job.model.class_names, SHOWN_CLASSES)
        if present < job.num_classes:
            labels += f"; {present:,} of the model's {job.num_classes:,} in these images"
        seed, state = "a random one" if self.random_seed else str(self.plan.seed), "new"
        if begun_config(self.out) is not None:
            seed, state = f"{self.plan.seed}, with which the run in that folder began", "begun"
        if done:
            state = f"{done:,} of {total:,} images are certified already, and read from there"
        if (self.out / PARTIAL).exists():
            state += "; samples of an interrupted image are kept"
        if (self.out / BACKLOG).exists():
            state += "; results that came before their turn are kept"
        noise = classifier.noise.describe(space) + content_words(classifier.noise, space)
        method = self.plan.method_for(classifier.noise, space).name
        execution = self._execution + f", compiled ({compiled})" * (compiled != "no")
        return [
            row("model", self.origin.words),
            row("normalisation", self.origin.normalisation),
            row("images", image_words(images, self.indices)),
            row("labels", labels),
            row("deformation", f"{options['deformation']}: {noise}; {classifier.padding} padding"),
            row("samples", sampling_words(self.plan, method, self.queries) + self._share),
            row("seed", seed),
            row("execution", execution),
            row("folder", f"{self.out}, {state}"),
        ]

    @property
    def _execution(self) -> str:
        """The precision, the device and the batch size in words."""
        model, device = self.config["model"], self.config["device"]
        assert isinstance(model, dict)
        return f"{model['precision']} on {device}, batches of {self.config['batch_size']}"

    @property
    def _share(self) -> str:
        """The alpha that the images share in words, empty where they do not."""
        if self.total_alpha is None:
            return ""
        return f"; all {len(self.indices):,} together alpha = {self.total_alpha:g}"

    @property
    def remarks(self) -> list[str]:
        """What may be wrong, as lines."""
        source, lines = self.origin.source, []
        if self.origin.unknown and not self.origin.repeats:
            lines.append(
                f"warning: {source} returns other weights whenever it is called: they are random, "
                "and an untrained network is certified; add --weights FILE"
            )
        if self.job.images.is_matched_by_order:
            lines.append(f"note: labels follow the sorted names of class folders; {CHECK_LABELS}")
        return lines

    def measured_speed(self) -> float:
        """Return the samples per second of this run, from a short measurement.

        Its samples are counted nowhere else, and are at most a tenth of the run's.
        """
        classifier, plan = self.job.classifier, self.plan
        # Images that share batches are copied, and have a compiled program of their own.
        rows = min(images_together(classifier, self.job.first_image, plan), 2)
        batch = [self.job.first_image] * rows

        def count(n: int) -> None:
            classifier.count_batch(batch, range(rows), -(-n // rows), Stage.PREDICT, seed=plan.seed)

        # Compiled, a smaller batch would be filled up.
        least = rows if classifier.sampler.compiled == "no" else classifier.batch_size
        return samples_per_second(count, self.left * (plan.n0 + plan.n) // 10, first=least)

    def cost(self, speed: float) -> list[str]:
        """Return the estimate of the time, at that many samples per second, as lines."""
        cost = Cost(self.left, self.plan.n0, self.plan.n, speed)
        noise = self.job.classifier.noise
        space = self.job.classifier.deformation.space(size_of(self.job.first_image))
        suggestion = None
        if isinstance(noise, ScaledLaw):
            suggestion = suggested_radius(float(noise.scales(space).min()), space)
        stopping = self.plan.stopping
        decided = stopping is not None and stopping.tolerance is None
        queries = len(self.queries) if decided else 0
        texts = cost.words(queries, suggestion, until=stopping is not None)
        return [row("" if number else "time", text) for number, text in enumerate(texts)]

    def likely_causes(self, below: bool) -> list[str]:
        """Return the likely causes of an accuracy near, or below, chance."""
        return likely_causes(self.origin, self.job.images, below=below)


def _numbers(values: ConfigValue) -> list[float] | None:
    if not isinstance(values, list):
        return None
    return [value for value in values if isinstance(value, int | float)]


@dataclass(frozen=True)
class Origin:
    """Where a model comes from: its source and weights as typed, its normalisation."""

    source: str
    weights: str | None
    mean: Sequence[float] | None
    std: Sequence[float] | None
    repeats: bool = False
    """Whether the user's function returned the same weights twice, as one does that loads them."""

    @property
    def unknown(self) -> bool:
        """Whether it is for a function of the user to load weights, which cannot be known."""
        return self.weights is None and of_file(self.source)

    @property
    def words(self) -> str:
        """The model and its weights in words."""
        library = self.source.partition(":")[0]
        origin = "weights in that folder"
        if self.weights is not None:
            origin = f"weights from {self.weights}"
        elif self.unknown:
            origin = "weights as that function returns them" + ", twice the same" * self.repeats
        elif library in ("timm", "torchvision", "robustbench"):
            origin = f"weights published by {library}, downloaded or from its cache"
        elif library == "hf" and not Path(self.source.removeprefix("hf:")).is_dir():
            origin = "weights published on Hugging Face, downloaded or from its cache"
        elif self.source.endswith((".onnx", ".pt2")):
            origin = "weights in that file"
        return f"{self.source}, {origin}"

    @property
    def normalisation(self) -> str:
        """The normalisation in words."""
        if self.mean is None or self.std is None:
            return "none, or inside the network"
        mean, std = (", ".join(f"{value:.4g}" for value in v) for v in (self.mean, self.std))
        return f"mean {mean}; std {std}"


def image_words(images: ImageSet, indices: Sequence[int]) -> str:
    """Return the number of images, their dataset, size and preparation in words."""
    height, width = images[0][0].shape[1:]
    split = images.about["split"]
    prepared = images.preparation
    fixed = prepared.crop is not None or isinstance(prepared.resize, tuple)
    stored = images.dataset if isinstance(images, Subset) else images
    first = "the first " if isinstance(stored, ImageFolder) and not fixed else ""
    spread = len({after - before for before, after in pairwise(indices)}) > 1
    order = " (spread over the classes)" * spread
    return (
        f"{len(indices):,} of {len(images):,}{order} from {images.name}"
        f"{f' ({split})' if split else ''}; {first}{height} x {width} px, {prepared.words}"
    )


def content_words(law: NoiseLaw, space: Space) -> str:
    """Return at which sizes noise on scaling shows the content, in words; empty without scaling."""
    parts: Sequence[ScaledLaw] = ()
    if isinstance(law, Independent):
        parts = law.laws
    elif isinstance(law, ScaledLaw):
        parts = [law.alone(part) for part in space.slices]
    words = ""
    for index, (part, block) in enumerate(zip(parts, space.blocks, strict=False)):
        if block.family == Scaling.name:
            scale = float(part.scales(space.alone(index))[0])
            gaussian = isinstance(part, Gaussian)  # two standard deviations are 95 %
            shown = scaled_size(2 * scale if gaussian else scale)
            words += f" (content{' mostly' * gaussian} {shown})"
    return words


def sampling_words(plan: SamplingPlan, method: str, queries: Sequence[Query]) -> str:
    """Return the samples of an image, the level and the bound in words."""
    number = f"n0 = {plan.n0:,}, then n = {plan.n:,}"
    if plan.stopping is not None:
        ends = [query.words for query in queries]
        if plan.stopping.tolerance is not None:
            ends.append(f"within {plan.stopping.tolerance}")
        number = f"n0 = {plan.n0:,}, then until decided ({'; '.join(ends)}), at most {plan.n:,}"
    return f"{number} per image; alpha = {plan.alpha:g}, bound {method}"


def likely_causes(origin: Origin, images: ImageSet, *, below: bool) -> list[str]:
    """Return the likely causes of an accuracy near chance, and how to check each.

    The likeliest comes first. `below`: it is lower than chance, which labels can explain best.
    """
    causes = []
    if origin.unknown:
        seeded = "unless it loads some and not only fixes a seed, " * origin.repeats
        causes.append(
            f"random weights: {origin.source} was given without --weights; {seeded}"
            "add --weights FILE"
        )
    if below or images.is_matched_by_order:
        place = 0 if below else len(causes)
        matched = images.label_words(most=SHOWN_CLASSES)
        causes.insert(place, f"labels that do not fit ({matched}): {CHECK_LABELS}")
    # A library's own networks, and those of deformrs train, have theirs.
    own = of_file(origin.source) or origin.source.endswith((".onnx", ".pt2"))
    if own and origin.mean is None:
        causes.append(
            "missing normalisation: unless it is inside the network, add --mean and --std as in "
            "its training, for images in [0, 1]"
        )
    causes.append(
        "images unlike those of its training, in their classes, size or colours: compare "
        "--resize, --crop and --channels with it"
    )
    return causes
