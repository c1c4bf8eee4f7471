"""Every reader, fed valid files that were mutated: a result or one line of error, and no more.

An example may take 10 s of processor time and 1 GiB of memory beyond what the process has, and may
open nothing outside its folder and write nothing at all. DEFORMRS_FUZZ=20000 tries that many for
each reader, each time others; without it the examples are few, and always the same.
"""

from __future__ import annotations

import copy
import gzip
import io
import json
import lzma
import mmap
import os
import resource
import signal
import sys
import sysconfig
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save

import deformrs
from deformrs.cli.defaults import find_trained, options_from_run
from deformrs.cli.sweep_file import read_sweep
from deformrs.data import load_data, load_image
from deformrs.data.cifar10 import read_binary_batch, read_python_batch
from deformrs.data.labels import read_class_names
from deformrs.data.loading import data_of
from deformrs.data.mnist import read_idx
from deformrs.data.preparation import Preparation
from deformrs.errors import DeformRSError, ScarcityWarning
from deformrs.models import SmallCNN, save_model
from deformrs.models.onnx import external_files
from deformrs.models.saved import load_saved
from deformrs.models.weights import read_state
from deformrs.report.reference import read_reference
from deformrs.runs import read_run, read_times
from deformrs.runs.records import digest, signed
from deformrs.runs.tally import Tally
from deformrs.training.checkpoints import Best, Checkpoints, Snapshot
from deformrs.training.recipes import read_recipe
from made_runs import many, stored

GIB, SECONDS = 2**30, 10
LONG = os.environ.get("DEFORMRS_FUZZ")
PIXELS = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)

Mutation = tuple[int, float, float, int]
Files = dict[str, bytes]


# What is written into files: numbers that are too large, names of other places, deep nesting.
TOKENS: tuple[bytes, ...] = (
    *(
        b"",
        b"\0",
        b"\xff" * 4,
        b"\xff" * 8,
        b"\x7f\xff\xff\xff",
        b"\0" * 8,
        b"\xff\xfe",
        b"\n",
        b",",
    ),
    *(
        b"-1",
        b"1e999",
        b"NaN",
        b"9" * 19,
        b"9" * 5000,
        b"0x1",
        b"1_0",
        b'"',
        b"'",
        b"{",
        b"}",
        b"]",
    ),
    *(
        b"[" * 70,
        b"[" * 100_000,
        b'{"a":' * 2000,
        b"a." * 40,
        b"a." * 3000 + b"a = 1",
        b"[[runs]]\n",
    ),
    *(b"null", b"true", b"../..", b"/dev/zero", b"mnist", b"cifar10", b"net.py:build", b"\xf0\x9f"),
    *(b"(" * 500, b"\x8d" + b"\xff" * 8, b"T\xff\xff\xff\x7f", b"\x8a\xff", b"\xed\xa0\x80"),
)
HOSTILE: tuple[object, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3, 1.5, -0.0, 1e308, -1e308, 1e-320, float("inf")),
    *(float("nan"), 2**31, 2**53, 2**63, 2**64, 10**12, 10**18, 10**19, 10**30, 10**400),
    *(
        "",
        "x",
        "-1",
        "9" * 5000,
        "1e9",
        "\0",
        "é\u202e",
        "a\nb",
        "../..",
        "/",
        "/dev/zero",
        "mnist",
    ),
    *(
        "cifar10",
        "mnist:/",
        "hf:some/model",
        "timm:resnet18",
        "lens.py:Lens",
        "a" * 5000,
        "rotation",
    ),
    *("dct:999999999", "1e30deg", "uniform", "gaussian", "independent", "compose", "dct"),
    *([], {}, [[]], [0], [1, 2], [1e12, 1e12], [None], [""], {"a": 1}, {"name": "x"}, ["x"] * 100),
    *({"name": "uniform", "scale": 1e-300}, {"name": "gaussian", "scale": [1.0] * 1000}),
    *({"99999999999": 1}, {"0": 10**19}, {"-1": 5}, {"\u0661": 5}, {"size": [10**9, 10**9]}),
)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def mutated(data: bytes, mutations: Sequence[Mutation]) -> bytes:
    """Flip bytes, cut, remove, repeat and insert; mostly near the ends, where headers are."""

    def place(where: float) -> int:
        near = 2 * where**2 if where < 0.5 else 1 - 2 * (1 - where) ** 2
        return min(len(data), int(near * (len(data) + 1)))

    for kind, one, two, token in mutations:
        start, end = sorted((place(one), place(two)))
        chosen = TOKENS[token % len(TOKENS)]
        match kind % 7:
            case 0:
                data = data[:start] + bytes([token % 256]) + data[start + 1 :]
            case 1:
                data = data[:start]
            case 2:
                data = data[:start] + data[end:]
            case 3:
                data = data[:end] + data[start:]
            case 4:
                data = data[:start] + chosen + data[start:]
            case 5:
                data = data[:start] + chosen + data[start + len(chosen) :]
            case 6:
                data = data[:start] + data[start:end][::-1] + data[end:]
    return data


def places(value: object) -> Iterator[tuple[Any, Any]]:
    """Yield every container in plain values with each of its keys."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def restructured(value: Any, mutations: Sequence[Mutation]) -> Any:
    """Replace, remove, wrap, copy and rename parts of plain values."""
    for kind, one, two, token in mutations:
        found = list(places(value))
        if not found:
            break
        container, key = found[int(one * (len(found) - 1))]
        match kind % 7:
            case 0:
                del container[key]
            case 1:
                container[key] = [container[key]]
            case 2:
                there, other = found[int(two * (len(found) - 1))]
                container[key] = json.loads(json.dumps(there[other]))
            case 3 if isinstance(container, dict):
                container[str(HOSTILE[token % len(HOSTILE)])] = container.pop(key)
            case 4:
                container[key] = nested(50 + token % 500)
            case _:
                container[key] = copy.deepcopy(HOSTILE[token % len(HOSTILE)])
    return value


@dataclass(frozen=True)
class Reader:
    """Valid files, which of them is mutated, and how they are read."""

    files: Files
    name: str
    read: Callable[[Path], object]
    mutate: Callable[[Files, str, Sequence[Mutation]], bytes]


def by_bytes(files: Files, name: str, mutations: Sequence[Mutation]) -> bytes:
    return mutated(files[name], mutations)


def by_value(files: Files, name: str, mutations: Sequence[Mutation]) -> bytes:
    return json.dumps(restructured(json.loads(files[name]), mutations)).encode()


def signed_again(files: Files, name: str, mutations: Sequence[Mutation]) -> bytes:
    """Change what a line says, and sign it as anyone can."""
    config, line = json.loads(files["config.json"]), files[name].splitlines()[0]
    record = json.loads(line)
    del record["check"]
    record = restructured(record, mutations)
    others = files[name].splitlines(keepends=True)[1:]
    return b"".join([f"{signed(record, config)}\n".encode(), *others])


def under_another_config(files: Files, name: str, mutations: Sequence[Mutation]) -> bytes:
    """Change the configuration, and return lines that are signed for it."""
    config = restructured(json.loads(files["config.json"]), mutations)
    if not isinstance(config, dict):
        return files[name]
    lines = []
    for line in files[name].splitlines():
        record = json.loads(line)
        del record["check"]
        lines.append(json.dumps(record | {"check": digest(record, config)}))
    files["config.json"] = json.dumps(config).encode()
    return "".join(f"{line}\n" for line in lines).encode()


def packed(files: Files, name: str, mutations: Sequence[Mutation]) -> bytes:
    return lzma.compress(mutated(lzma.decompress(files[name]), mutations[1:]))


# The readers.


def some_run() -> Files:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        run = stored(folder, many(4), on_disk=True)
        config = json.loads((folder / "config.json").read_text()) | {
            "seed": 3,
            "num_classes": 10,
            "stopping": None,
            "model": {"source": "net", "precision": "float32"},
            "data": {
                "name": "digits",
                "class_names": [str(digit) for digit in range(10)],
                "preparation": Preparation(channels=1).to_config(),
                "pictures": 1000,
            },
            "options": {
                "model": "runs/net",
                "weights": None,
                "data": "digits",
                "split": "test",
                "data_root": None,
                "deformation": "rotation",
                "noise": "uniform:1rad",
                "padding": "zeros",
                "relative_to": "..",
            },
        }
        assert len(run) == 4
        del config["stopping"]
        lines = []
        for line in (folder / "certificates.jsonl").read_text().splitlines():
            record = json.loads(line)
            del record["check"]
            lines.append(signed(record, config) + "\n")
        return {
            "config.json": json.dumps(config).encode(),
            "certificates.jsonl": "".join(lines).encode(),
            "times.tsv": (folder / "times.tsv").read_bytes(),
        }


IMAGES: list[Any] = [
    {"index": 0, "label": 3, "pixels": "ab"},
    {"index": 1, "label": 0, "pixels": "c"},
]


def some_tally() -> bytes:
    record = {
        "images": IMAGES,
        "batch_size": 8,
        "step": 3,
        "seconds": 1.5,
        "first": [0.5, {"0": 8}, {"1": 8}],
        "classes": 10,
        "counts": [{"0": 20, "3": 4}, {"1": 24}],
    }
    return signed(record, {"seed": 1}).encode()  # type: ignore[arg-type]


def read_tally(folder: Path) -> object:
    tally = Tally(folder, {"seed": 1}, IMAGES)
    counts = np.zeros((2, 10), np.int64)
    counts[0, 0] = counts[1, 1] = 8
    return tally.add(1, lambda: counts, 8, lambda: 0.5)


def tally_signed_again(files: Files, name: str, mutations: Sequence[Mutation]) -> bytes:
    record = json.loads(files[name])
    del record["check"]
    record = restructured(record, mutations)
    return json.dumps(record | {"check": digest(record, {"seed": 1})}).encode()


def everything_of_a_run(folder: Path) -> object:
    run = read_run(folder)
    read_times(folder)
    with one_line():
        options_from_run(folder)
    with one_line():
        data_of(run)[0]
    return repr(run)


@contextmanager
def one_line() -> Iterator[None]:
    """Go on after an error in one line."""
    message = ""
    try:
        yield
    except DeformRSError as error:
        message = str(error)
    assert message.isprintable()


def some_model() -> Files:
    with tempfile.TemporaryDirectory() as place:
        save_model(Path(place), SmallCNN(width=1), Preparation(channels=1), tuple("0123456789"))
        return {path.name: path.read_bytes() for path in Path(place).iterdir()}


TRAINING: dict[str, Any] = {
    "command": "train",
    "seed": 3,
    "options": {
        "model": "small_cnn",
        "data": "digits",
        "data_root": None,
        "split": "train",
        "deformation": "rotation",
        "noise": "uniform:40deg",
        "padding": "border",
        "relative_to": "..",
    },
    "data": {"split": "train", "sha256": "ab", "name": "digits", "hold_out": 0.1},
}


def read_training(folder: Path) -> object:
    trained = find_trained(str(folder))
    return trained and trained.smoothing


def some_checkpoint() -> Files:
    tensors, momentum = {"a": torch.arange(3.0)}, {"a": torch.zeros(3)}
    with tempfile.TemporaryDirectory() as place:
        snapshot = Snapshot(3, tensors, momentum, (1.0, 2.0), [{"epoch": 1}], Best(1, 0.5, tensors))
        Checkpoints(Path(place)).write(snapshot)
        return {path.name: path.read_bytes() for path in Path(place).iterdir()}


def idx(array: NDArray[np.uint8]) -> bytes:
    shape = b"".join(length.to_bytes(4) for length in array.shape)
    return b"\0\0\x08" + bytes([array.ndim]) + shape + array.tobytes()


IDX = idx(np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28))
RECORD = bytes([3]) + bytes(3072)
PYTHON_BATCH = b"".join(
    [
        b"\x80\x02}q\x01(U\x06labelsq\x04]q\x05(K\x03e",
        b"U\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85",
        b"U\x01b\x87Rq\x09(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87Rq\x0b(K",
        b"\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00"
        + bytes(3072),
        b"tbU\x09filenamesq\x0c]q\x0dU\x05a.pngau.",
    ]
)


def npz(save: Callable[..., None]) -> bytes:
    file = io.BytesIO()
    save(file, images=np.zeros((3, 4, 5), np.uint8), labels=np.arange(3))
    return file.getvalue()


def npz_header(files: Files, name: str, mutations: Sequence[Mutation]) -> bytes:
    """Change an array inside the archive, whose checksums then fit."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(files[name])) as old, zipfile.ZipFile(file, "w") as new:
        for member in old.namelist():
            data = old.read(member)
            new.writestr(member, mutated(data, mutations) if member.startswith("im") else data)
    return file.getvalue()


def picture(kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, kind, **options)
    return file.getvalue()


def pth() -> bytes:
    file = io.BytesIO()
    torch.save({"state_dict": {"a": torch.arange(3.0), "b": torch.zeros(2, 2)}}, file)
    return file.getvalue()


def part(number: int, content: bytes) -> bytes:
    """A field of protobuf's wire format with bytes in it."""
    length = len(content)
    digits = bytes([length % 128 + 128, length // 128]) if length > 127 else bytes([length])
    return bytes([number * 8 + 2]) + digits + content


ENTRY = part(13, part(1, b"location") + part(2, b"w.bin"))
ONNX = b"\x08\x08" + part(7, part(5, b"\x08\x03" + ENTRY) + part(1, part(5, part(5, ENTRY))))

SWEEP = b"""out = "runs"
[train]
data = "digits"
model = "small_cnn"
learning_rate = 1
mean = [0.5]
std = [0.25]
[certify]
n = 1000
radii = ["10deg", "30deg"]
[[runs]]
deformation = "rotation"
noise = ["uniform:54deg", "uniform:180deg"]
[[runs]]
name = "shift"
deformation = "translation"
noise = "gaussian:0.4"
train = { consistency = 10, device = "cpu" }
certify = { n = 10000, radii = "1px, 5px" }
"""
RECIPE = b"""epochs = 3
batch_size = 32
learning_rate = 0.1
copies = 2
consistency = 1.5
[pretrained]
epochs = 2
"""
NAMES = b'{"id2label": {"0": "cat", "1": ["n01", "dog"], "2": "owl"}}'
LABELS = b"file,label\na.png,0\nb.png,1\n"
REFERENCE = b"dataset,deformation,radius,accuracy,name\ncifar10,rotation,10deg,93.07,paper\n"

RUN, MODEL, CHECKPOINT = some_run(), some_model(), some_checkpoint()
LISTED: Files = {"labels.csv": LABELS, "a.png": picture("PNG"), "b.png": picture("PNG")}
LINES = "certificates.jsonl"
PACKED = {"config.json": RUN["config.json"], f"{LINES}.xz": lzma.compress(RUN[LINES])}


def one(name: str, content: bytes, read: Callable[[Path], object]) -> Reader:
    """A reader of one file, by its path."""
    return Reader({name: content}, name, lambda folder: read(folder / name), by_bytes)


READERS: dict[str, Reader] = {
    "lines": Reader(RUN, LINES, read_run, by_bytes),
    "lines, signed": Reader(RUN, LINES, everything_of_a_run, signed_again),
    "config": Reader(RUN, "config.json", everything_of_a_run, by_bytes),
    "config, signed": Reader(RUN, LINES, everything_of_a_run, under_another_config),
    "packed": Reader(PACKED, f"{LINES}.xz", read_run, by_bytes),
    "packed, inside": Reader(PACKED, f"{LINES}.xz", read_run, packed),
    "times": Reader(RUN, "times.tsv", read_times, by_bytes),
    "tally": Reader({"partial.json": some_tally()}, "partial.json", read_tally, by_bytes),
    "tally, signed": Reader(
        {"partial.json": some_tally()}, "partial.json", read_tally, tally_signed_again
    ),
    "model": Reader(MODEL, "model.json", load_saved, by_bytes),
    "model, values": Reader(MODEL, "model.json", load_saved, by_value),
    "training": Reader(
        MODEL | {"training.json": json.dumps(TRAINING).encode()},
        "training.json",
        read_training,
        by_value,
    ),
    "checkpoint": Reader(CHECKPOINT, "state.json", lambda f: Checkpoints(f).read(), by_value),
    "safetensors": one("w.safetensors", save({"a": torch.arange(3.0)}), read_state),
    "pth": one("w.pth", pth(), read_state),
    "onnx": Reader(
        {"net.onnx": ONNX, "w.bin": b"1"},
        "net.onnx",
        lambda f: external_files(f / "net.onnx"),
        by_bytes,
    ),
    "sweep": one("sweep.toml", SWEEP, read_sweep),
    "recipe": one("own.toml", RECIPE, lambda path: read_recipe(str(path))),
    "labels": Reader(LISTED, "labels.csv", lambda f: load_data(f)[0], by_bytes),
    "names": one("names.json", NAMES, read_class_names),
    "names, values": Reader(
        {"names.json": NAMES}, "names.json", lambda f: read_class_names(f / "names.json"), by_value
    ),
    "names, text": one("names.txt", b"cat\ndog\nowl\n", read_class_names),
    "reference": one("numbers.csv", REFERENCE, read_reference),
    "idx": one("images", IDX, lambda path: read_idx(path.name, path.read_bytes())),
    "idx, packed": one(
        "i.gz", gzip.compress(IDX, mtime=0), lambda path: read_idx(path.name, path.read_bytes())
    ),
    "cifar, binary": one("b.bin", RECORD * 2, lambda path: read_binary_batch(path.read_bytes())),
    "cifar, python": one("b", PYTHON_BATCH, lambda path: read_python_batch(path.read_bytes())),
    "npz": one("a.npz", npz(np.savez), lambda path: load_data(path)[0]),
    "npz, packed": one("a.npz", npz(np.savez_compressed), lambda path: load_data(path)[0]),
    "npz, inside": Reader(
        {"a.npz": npz(np.savez)}, "a.npz", lambda f: load_data(f / "a.npz")[0], npz_header
    ),
    **{
        kind: one("a." + kind.lower(), picture(kind), lambda path: load_image(path, Preparation()))
        for kind in ("PNG", "JPEG", "GIF", "BMP", "PPM", "TIFF", "WEBP")
    },
}


# What a reader must not do.

FOLDER: list[Path] = []
"""The only place where files may be opened now; empty while no example is run."""
OWN = tuple(
    str(Path(place).resolve())
    for place in (
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(sys.prefix, sys.base_prefix, os.path.dirname(deformrs.__file__), "/proc/self", "/dev/fd"),
    )
)
CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.chmod")
CALLS = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec")


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not FOLDER:
        return
    if event in (*CHANGES, *CALLS):
        raise AssertionError(f"{event} {arguments}")
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        path, flags = os.path.realpath(os.fsdecode(arguments[0])), arguments[2]
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise AssertionError(f"writing {path}")
        if not path.startswith((str(FOLDER[0]), *OWN)):
            raise AssertionError(f"reading {path}")


sys.addaudithook(watch)


@contextmanager
def bounded(folder: Path) -> Iterator[None]:
    """Raise in what uses 10 s of the processor, 1 GiB of memory or files outside the folder."""
    status = Path("/proc/self/statm")
    before = resource.getrlimit(resource.RLIMIT_AS)
    if status.exists():
        used = int(status.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + GIB, before[1]))

    def stop(*_: object) -> None:
        raise AssertionError(f"not done after {SECONDS} s")

    handler = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    FOLDER.append(folder.resolve())
    try:
        yield
    finally:
        FOLDER.clear()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def attempt(reader: Reader, files: Files, folder: Path) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with bounded(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore", ScarcityWarning)
        with one_line():
            reader.read(folder)
    assert {path.name for path in folder.iterdir()} == files.keys()
    assert all((folder / name).read_bytes() == content for name, content in files.items())


mutations = st.lists(
    st.tuples(
        st.integers(0, 6), st.floats(0, 1), st.floats(0, 1), st.integers(0, len(TOKENS) * 256)
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module", autouse=True)
def _no_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Published data are not there, and must not be downloaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEFORMRS_DATA", str(tmp_path_factory.mktemp("none") / "nowhere"))
        yield


@pytest.mark.parametrize("name", READERS)
def test_the_valid_files_are_read(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    for file, content in reader.files.items():
        (tmp_path / file).write_bytes(content)
    with bounded(tmp_path):
        reader.read(tmp_path)


@pytest.mark.parametrize("name", READERS)
@settings(
    max_examples=int(LONG or 25),
    derandomize=LONG is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(changes=mutations)
def test_mutated_files_are_read_or_refused_in_one_line(
    name: str, changes: Sequence[Mutation]
) -> None:
    reader = READERS[name]
    files = dict(reader.files)
    try:
        files[reader.name] = reader.mutate(files, reader.name, changes)
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeEncodeError):
        return  # a mutation of a mutation that makes no file
    with tempfile.TemporaryDirectory() as place:
        attempt(reader, files, Path(place))


def test_the_watch_sees_what_readers_must_not_do(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_text("a")
    (tmp_path / "b").write_text("b")
    forbidden: list[Callable[[], object]] = [
        lambda: (tmp_path / "b").read_text(),
        lambda: (tmp_path / "in/a").write_text("b"),
        lambda: (tmp_path / "in/new").mkdir(),
    ]
    with bounded(tmp_path / "in"):
        assert (tmp_path / "in/a").read_text() == "a"
    for act in forbidden:
        with pytest.raises(AssertionError), bounded(tmp_path / "in"):
            act()
    # Not bytearray(2 * GIB): what earlier tests of this process have freed may serve it.
    with pytest.raises(OSError, match="Cannot allocate"), bounded(tmp_path / "in"):
        mmap.mmap(-1, 2 * GIB)
