"""Files of others: what is no regular file, unpacks to too much, or leads to a download."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import math
import os
import resource
import socket
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save

from commands import deformrs as command
from deformrs.cli.defaults import find_trained, options_from_run, options_of
from deformrs.cli.options import DataOptions, ModelOptions, SmoothingOptions
from deformrs.cli.sweep_file import read_sweep
from deformrs.data import load_data, load_image
from deformrs.data.labels import read_class_names
from deformrs.data.loading import data_of
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.limits import (
    MAX_CLASSES,
    MAX_PARAMETERS,
    MAX_PIXELS,
    open_file,
    parse_toml,
    unpack_gzip,
)
from deformrs.models import SmallCNN, load_model, save_model
from deformrs.models import onnx as onnx_files
from deformrs.models.onnx import external_files
from deformrs.models.weights import read_state
from deformrs.runs import read_run
from deformrs.runs.files import file_digest
from deformrs.runs.records import digests, signed
from deformrs.training.recipes import read_recipe
from made_runs import many, stored

GIB = 2**30
AS_STORED = Preparation()


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing published is stored here, and each attempt to fetch it fails the test."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setenv("DEFORMRS_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@contextmanager
def little_memory() -> Iterator[None]:
    """1 GiB beyond what the process has, where that can be known."""
    status, before = Path("/proc/self/statm"), resource.getrlimit(resource.RLIMIT_AS)
    if status.exists():
        used = int(status.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + GIB, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def irregular(path: Path, kind: str) -> None:
    """Put something at that path that is no regular file."""
    path.unlink(missing_ok=True)
    match kind:
        case "a named pipe":
            os.mkfifo(path)
        case "a device":
            path.symlink_to("/dev/zero")
        case "a folder":
            path.mkdir()
        case "a socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(os.path.relpath(path))


KINDS = ("a named pipe", "a device", "a folder", "a socket")
READERS: dict[str, Callable[[Path], object]] = {
    "image": lambda path: load_image(path.rename(path.with_suffix(".png")), AS_STORED),
    "class names": read_class_names,
    "sweep": read_sweep,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_guarantee_open_file_reads_regular_files_only(
    reader: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    irregular(Path("it"), kind)
    with pytest.raises(InputError, match=rf"it.* is {kind}.*; it must be a regular file") as caught:
        READERS[reader](Path("it"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize(
    "name", ["config.json", "certificates.jsonl", "certificates.jsonl.xz", "unsound.txt"]
)
def test_no_part_of_a_run_is_a_pipe_a_device_or_a_link(
    name: str, kind: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    stored(folder, many(2), on_disk=True)
    if name == "config.json":
        (folder / name).rename(tmp_path / name)
    irregular(folder / name, kind)
    found = "a link" if kind == "a device" else kind
    with pytest.raises(InputError, match=rf"{name} is {found}; it must be a regular file"):
        read_run(folder)
    (folder / name).unlink()
    (tmp_path / "elsewhere").write_text("{}")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=f"{name} is a link"):
        read_run(folder)


def test_files_of_a_model_and_of_weights_are_regular(tmp_path: Path) -> None:
    save_model(tmp_path / "net", SmallCNN(width=1), Preparation(channels=1))
    content = (tmp_path / "net/model.safetensors").read_bytes()
    (tmp_path / "other").write_bytes(content)
    for name in ("model.json", "model.safetensors"):
        before = (tmp_path / "net" / name).rename(tmp_path / name)
        (tmp_path / "net" / name).symlink_to(before)
        with pytest.raises(InputError, match=f"{name} is a link"):
            load_model(tmp_path / "net")
        (tmp_path / "net" / name).unlink()
        before.rename(tmp_path / "net" / name)
    load_model(tmp_path / "net")
    (tmp_path / "link.safetensors").symlink_to("other")  # weights that the user names may be one
    assert read_state(tmp_path / "link.safetensors").keys()


def test_links_inside_a_dataset_are_followed(tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "a.png").symlink_to(tmp_path / "a.png")
    assert len([*load_data(tmp_path / "data", AS_STORED)]) == 2


def test_what_replaces_a_file_meanwhile_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is opened once, and what was opened is checked."""
    path = tmp_path / "a"
    path.write_text("a")
    real, opened = os.open, []

    def replacing(name: Any, *arguments: Any) -> int:
        opened.append(name)
        irregular(path, "a named pipe")
        return real(name, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", replacing)
        with pytest.raises(InputError, match="is a named pipe"):
            open_file(path)
    assert opened == [path]


# Sizes.


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, *more: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    row = zlib.compress(bytes(width + 1) * min(height, 4))
    parts = [chunk(b"IHDR", header), *more, chunk(b"IDAT", row), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_an_image_has_a_limit_of_pixels_that_can_be_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.png"
    for side in (8_000, 12_000, 60_000):
        path.write_bytes(png(side, side))
        message = rf"a.png is of more than {MAX_PIXELS:,} pixels.*--max-pixels N"
        with pytest.raises(InputError, match=message):
            load_image(path, AS_STORED)
    Image.new("L", (40, 30), 255).save(path)
    for own_limit in (1, None, 10**9):  # Pillow's, which other code of the process may set
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", own_limit)
        assert load_image(path, AS_STORED).shape == (1, 30, 40)
        assert load_image(path, Preparation(crop=(20, 20))).shape == (1, 20, 20)
        with pytest.raises(InputError, match="more than 1,199 pixels"):
            load_image(path, Preparation(max_pixels=1199))
        assert load_image(path, Preparation(max_pixels=1200)).shape == (1, 30, 40)
        with pytest.raises(InputError, match="must have at most 2,000 pixels.*--max-pixels N"):
            load_image(path, Preparation(resize=60, max_pixels=2000))
        assert own_limit == Image.MAX_IMAGE_PIXELS
    config = Preparation(max_pixels=7).to_config()
    assert "max_pixels" not in config
    with pytest.raises(InputError, match="max_pixels; it must not be stored"):
        Preparation.from_config(config | {"max_pixels": 10**12})


@little_memory()
def test_text_inside_an_image_is_not_unpacked_without_limit(tmp_path: Path) -> None:
    bomb = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2**27)))
    (tmp_path / "a.png").write_bytes(png(4, 4, bomb))
    with pytest.raises(InputError, match=r"a\.png is damaged \(.*too large"):
        load_image(tmp_path / "a.png", AS_STORED)


def arrays(path: Path, shape: tuple[int, ...], data: bytes, kind: str = "|u1") -> None:
    """An .npz file whose images state that shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": kind, "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr("images.npy", file.getvalue() + data)
        labels = io.BytesIO()
        np.save(labels, np.zeros(3, np.int64))
        new.writestr("labels.npy", labels.getvalue())


@little_memory()
@pytest.mark.parametrize(
    ("shape", "size", "kind", "message"),
    [
        ((3, 10**6, 10**6), 12, "|u1", "not of the size that it states"),
        ((3, 2, 2), 13, "|u1", "not of the size that it states"),
        ((3, -2, -2), 12, "|u1", "not of the size that it states|header"),
        ((2**62, 4, 4), 0, "|u1", "not of the size that it states|header"),
        ((3, 2, 2), 96, "|O", "holds Python objects"),
    ],
)
def test_forged_arrays_are_refused_by_their_headers(
    shape: tuple[int, ...], size: int, kind: str, message: str, tmp_path: Path
) -> None:
    arrays(tmp_path / "a.npz", shape, bytes(size), kind)
    with pytest.raises(InputError, match=rf"a\.npz is not readable.*({message})"):
        load_data(tmp_path / "a.npz")


@little_memory()
def test_archives_that_unpack_to_too_much_are_refused(tmp_path: Path) -> None:
    shape = (66, 4096, 4096)
    arrays(tmp_path / "a.npz", shape, b"")
    content = bytearray((tmp_path / "a.npz").read_bytes())
    place = content.index(b"PK\1\2") + 24  # where the list of members states the unpacked size
    stated = int.from_bytes(content[place : place + 4], "little") + math.prod(shape)
    content[place : place + 4] = stated.to_bytes(4, "little")
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InputError, match="takes 1,107,296,256 bytes, but .* numpy.savez"):
        load_data(tmp_path / "a.npz")
    with pytest.raises(InputError, match=r"i\.gz, unpacked, is of more than 1,000,000 bytes"):
        unpack_gzip("i.gz", gzip.compress(bytes(2**24)), 1_000_000)
    packed = lzma.compress(bytes(2**27))
    stored(tmp_path / "run", many(1), on_disk=True)
    (tmp_path / "run/certificates.jsonl.xz").write_bytes(packed)
    with pytest.raises(InputError, match=r"jsonl\.xz, unpacked, is of more than 67,108,864 bytes"):
        read_run(tmp_path / "run")


@little_memory()
def test_weights_that_unpack_to_too_much_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(2**20)}, tmp_path / "a.pth")
    with (
        zipfile.ZipFile(tmp_path / "a.pth") as old,
        zipfile.ZipFile(tmp_path / "b.pth", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for member in old.namelist():
            new.writestr(member, old.read(member))
    with pytest.raises(InputError, match=r"b\.pth is unreadable \(compressed, .* bytes unpacked\)"):
        read_state(tmp_path / "b.pth")
    content = save({"a": torch.zeros(3)})
    for length in (2**24 + 1, 2**62, 2**64 - 1):
        (tmp_path / "a.safetensors").write_bytes(length.to_bytes(8, "little") + content[8:])
        with pytest.raises(InputError, match=rf"a header of {length:,} bytes"):
            read_state(tmp_path / "a.safetensors")
    save_model(tmp_path / "net", SmallCNN(width=1), Preparation(channels=1))
    about = json.loads((tmp_path / "net/model.json").read_text())
    del about["check"]
    for arguments in ({"width": 10**5}, {"num_classes": 10**12}):
        changed = about | {"arguments": about["arguments"] | arguments}
        (tmp_path / "net/model.json").write_text(json.dumps(changed))
        with pytest.raises(InputError, match="a network that fits into memory"):
            load_model(tmp_path / "net")


FORGED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "classes": (lambda line: line.update(classes=10**12), f"not 1 to {MAX_CLASSES:,}"),
    "dim": (
        lambda line: line["space"]["blocks"][0].update(dim=10**12),
        f"more than {MAX_PARAMETERS:,} parameters",
    ),
    "blocks": (
        lambda line: line["space"].update(blocks=line["space"]["blocks"] * 70_000),
        "longer than",
    ),
    "size": (lambda line: line["space"].update(size=[10**30, 5]), "an integer of 31 digits"),
    "counts": (lambda line: line["estimation"].update({"0": 10**40}), "of 41 digits"),
    "depth": (lambda line: line.update(source=json.loads("[" * 80 + "]" * 80)), "nested more"),
    "deep": (lambda line: line.update(source="\0deep"), "nested more"),
    "long": (lambda line: line.update(source="x" * 2**23), "longer than 4,194,304 bytes"),
}


@little_memory()
@pytest.mark.parametrize("case", FORGED)
def test_forged_lines_are_refused(case: str, tmp_path: Path) -> None:
    """Whoever forges a line can sign it too."""
    forge, message = FORGED[case]
    run = stored(tmp_path / "run", many(1), on_disk=True)
    path = run.folder / "certificates.jsonl"
    line = json.loads(path.read_text())
    del line["check"]
    forge(line)
    text = signed(line, run.config).replace('"\\u0000deep"', "[" * 10**5 + "]" * 10**5)
    path.write_text(text + "\n")
    with pytest.raises(InputError, match=rf"certificates\.jsonl is damaged \(line 1.*{message}"):
        read_run(run.folder)


@little_memory()
def test_many_lines_of_many_classes_do_not_fill_the_memory(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", many(1), on_disk=True)
    path = run.folder / "certificates.jsonl"
    line = json.loads(path.read_text())
    del line["check"]
    lines = []
    for index in range(250):
        counts = {"selection": {"0": 9}, "estimation": {"0": 1000 + index}}
        forged = line | counts | {"index": index, "classes": MAX_CLASSES}
        lines.append(signed(forged, run.config) + "\n")
    path.write_text("".join(lines))
    with pytest.raises(InputError, match="more classes and parameters than a file of its size"):
        read_run(run.folder)


def test_a_large_configuration_is_not_hashed_for_each_line(tmp_path: Path) -> None:
    """3,000 lines under 8 MB of class names: 24 GB would be hashed, which takes a minute."""
    run = stored(tmp_path / "run", many(1), on_disk=True)
    path = run.folder / "certificates.jsonl"
    line = json.loads(path.read_text())
    del line["check"]
    config = run.config | {"names": ["x" * 2**23]}
    (run.folder / "config.json").write_text(json.dumps(config))
    sign = digests(config)
    records = [line | {"index": index} for index in range(3000)]
    signed_lines = [json.dumps(record | {"check": sign(record)}) + "\n" for record in records]
    path.write_text("".join(signed_lines))
    began = time.process_time()
    assert len(read_run(run.folder)) == 3000
    assert time.process_time() - began < 10


@little_memory()
def test_text_files_have_bounds_of_size_depth_and_digits(tmp_path: Path) -> None:
    for text, message in (
        ("a." * 3000 + "b = 1", "a key of more than 32 parts"),
        ("a = " + "[" * 10**5, "nested more than 64 deep|too deeply"),
        ("a = " + "[" * 80 + "]" * 80, "nested more than 64 deep"),
        ("a = " + "9" * 5000, "digits"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_toml(text)
        (tmp_path / "a.toml").write_text(text)
        for read in (read_sweep, lambda path: read_recipe(str(path))):
            with pytest.raises(InputError, match=r"a\.toml"):
                read(tmp_path / "a.toml")
    for name, read_it in (
        ("a.toml", read_sweep),
        ("names.txt", read_class_names),
        ("data/labels.csv", lambda path: load_data(path.parent)),
        ("a.png", lambda path: load_image(path, AS_STORED)),
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.truncate(2**40)  # without a block on the disk
        with pytest.raises(InputError, match="is of 1,099,511,627,776 bytes; it must have at most"):
            read_it(path)
        path.unlink()


# ONNX.

onnx = pytest.importorskip("onnx")
WEIGHTS: NDArray[np.float32] = np.arange(12, dtype=np.float32)


def outside(location: str, **more: str) -> Any:
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[3, 4], data_location=1)
    for key, value in {"location": location, "length": "48", **more}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def inside_a(place: str, tensor: Any) -> Any:
    """A model that keeps a tensor in that place."""
    model = onnx.ModelProto(ir_version=8)
    graph, node = model.graph, onnx.NodeProto(op_type="Constant")
    if place == "initializer":
        graph.initializer.append(tensor)
    elif place == "sparse initializer":
        graph.sparse_initializer.add().values.CopyFrom(tensor)
    elif place == "training":
        model.training_info.add().algorithm.initializer.append(tensor)
    elif place == "default of a function":
        model.functions.add().attribute_proto.add().t.CopyFrom(tensor)
    else:
        attribute = node.attribute.add(name="value")
        match place:
            case "attribute":
                attribute.t.CopyFrom(tensor)
            case "attribute list":
                attribute.tensors.append(tensor)
            case "sparse attribute":
                attribute.sparse_tensors.add().indices.CopyFrom(tensor)
            case "subgraph":
                attribute.g.node.add().attribute.add().graphs.add().initializer.append(tensor)
            case "function":
                attribute.t.CopyFrom(tensor)
                model.functions.add().node.append(node)
        graph.node.append(node)
    return model


PLACES = (
    *("initializer", "sparse initializer", "training", "default of a function", "attribute"),
    *("attribute list", "sparse attribute", "subgraph", "function"),
)


@pytest.mark.parametrize("place", PLACES)
def test_guarantee_external_files_lie_in_the_folder_wherever_a_tensor_is(
    place: str, tmp_path: Path
) -> None:
    folder = tmp_path / "net"
    (folder / "sub").mkdir(parents=True)
    for path in (tmp_path / "secret", folder / "w.bin", folder / "sub/w.bin"):
        path.write_bytes(WEIGHTS.tobytes())
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to(tmp_path)
    path = folder / "net.onnx"

    def files(location: str) -> list[str]:
        path.write_bytes(inside_a(place, outside(location)).SerializeToString())
        return external_files(path)

    assert files("w.bin") == ["w.bin"]
    assert files("./sub/../sub/w.bin") == ["sub/w.bin"]
    for location in ("../secret", "sub/../../secret", str(tmp_path / "secret"), "up/secret", ""):
        with pytest.raises(InputError, match="outside its folder; it must lie in it or below"):
            files(location)
    for location, message in (
        ("link", "link is a link"),
        ("sub", "sub is a folder"),
        ("*/_ORT_MEM_ADDR_/*", "unreadable"),
        ("none", r"net\.onnx is unreadable \(its weights 'none'"),
        ("a" * 5000, "a name of 5,000 bytes"),
    ):
        with pytest.raises(InputError, match=message):
            files(location)


def test_every_message_that_can_hold_a_tensor_is_searched() -> None:
    """The fields are those that lead to a TensorProto in the messages of the package onnx."""

    def tensors_below(message: Any, seen: frozenset[str] = frozenset()) -> bool:
        if message.name == "TensorProto":
            return True
        below = [f.message_type for f in message.fields if f.message_type is not None]
        names = seen | {message.name}
        return any(tensors_below(kind, names) for kind in below if kind.name not in names)

    pending, done = [onnx.ModelProto.DESCRIPTOR], set()
    while pending:
        message = pending.pop()
        if message.name in done or message.name == "TensorProto":
            continue
        done.add(message.name)
        leading = {
            field.number: field.message_type
            for field in message.fields
            if field.message_type is not None and tensors_below(field.message_type)
        }
        own = onnx_files._FIELDS[message.name]
        assert {number: kind.name for number, kind in leading.items()} == own, message.name
        pending += leading.values()


def test_damaged_onnx_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    for content, message in (
        (b"\x3a\xff\xff\xff\xff\x7f", "longer than the whole"),
        (b"\x3a\x05\x08", "longer than the whole"),
        (b"\x3b\x08\x01\x3c", "of type 3"),
        (b"\x02\x00", "a field 0"),
        (b"\xff" * 12, "without end"),
        (b"\x3a", "cut off"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"net\.onnx is unreadable \(.*{message}"):
            external_files(path)
    graph = b""
    for _ in range(60):  # graphs in attributes of nodes of graphs
        attribute = b"\x32" + _length(graph) + graph
        node = b"\x2a" + _length(attribute) + attribute
        graph = b"\x0a" + _length(node) + node
    path.write_bytes(b"\x3a" + _length(graph) + graph)
    with pytest.raises(InputError, match="nested more than 100 deep"):
        external_files(path)


def _length(content: bytes) -> bytes:
    """The length of bytes, in base 128."""
    number, digits = len(content), []
    while number >= 128:
        digits.append(number % 128 + 128)
        number //= 128
    return bytes([*digits, number])


def test_guarantee_load_onnx_reads_and_binds_files_of_its_folder(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    helper, path = onnx.helper, tmp_path / "net/a.onnx"
    (tmp_path / "net/sub").mkdir(parents=True)
    for place in (tmp_path / "secret", tmp_path / "net/sub/w"):
        place.write_bytes(WEIGHTS.tobytes())
    for location in ("sub/w", "../secret"):
        graph = helper.make_graph(
            [
                helper.make_node("Flatten", ["x"], ["f"], axis=1),
                helper.make_node("MatMul", ["f", "w"], ["y"]),
            ],
            "g",
            [helper.make_tensor_value_info("x", 1, ["n", 3, 1, 1])],
            [helper.make_tensor_value_info("y", 1, ["n", 4])],
            [outside(location)],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(model.SerializeToString())
        if location == "sub/w":
            files = load_model(path).about["files"]
            assert files == {
                "a.onnx": file_digest(path),
                "sub/w": file_digest(tmp_path / "net/sub/w"),
            }
    with pytest.raises(InputError, match="'../secret' of the ONNX file .* is outside its folder"):
        load_model(path)


@pytest.mark.parametrize("version", ["1.17.3", "1.23.2"])
def test_a_runtime_that_reads_other_files_is_refused(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    (tmp_path / "a.onnx").write_bytes(b"")
    monkeypatch.setattr(runtime, "__version__", version)
    with pytest.raises(InputError, match=rf"onnxruntime is {version}; it must be 1\.24 or newer"):
        load_model(tmp_path / "a.onnx")


# What a configuration names is not fetched.


def run_of(folder: Path, **options: str | None) -> Path:
    """A run whose configuration names these options."""
    stored(folder, many(4), on_disk=True)
    config = json.loads((folder / "config.json").read_text())
    given = {
        "model": "timm:resnet18",
        "data": "mnist",
        "split": "test",
        "data_root": str(folder / "fetched"),
        "deformation": "rotation",
        "noise": "uniform:1rad",
        "padding": "zeros",
        "relative_to": "..",
    }
    config["data"] |= {"class_names": None, "preparation": Preparation().to_config()}
    config |= {"options": given | options, "padding": "zeros", "num_classes": 10, "seed": 0}
    lines = []
    for text in (folder / "certificates.jsonl").read_text().splitlines():
        line = json.loads(text)
        del line["check"]
        lines.append(signed(line, config) + "\n")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "certificates.jsonl").write_text("".join(lines))
    return folder


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
@pytest.mark.parametrize("root", ["fetched", None])
def test_guarantee_a_run_starts_no_download_and_makes_no_folder(
    data: str, root: str | None, tmp_path: Path
) -> None:
    place = None if root is None else str(tmp_path / "fetched")
    folder = run_of(tmp_path / "run", data=data, data_root=place)
    with pytest.raises(InputError, match=f"only you start downloads.*--data {data}"):
        data_of(read_run(folder))
    printed = command("report", folder, "--out", tmp_path / "report")
    assert f"as --data {data}" in printed.stderr
    with pytest.raises(InputError, match="only you start downloads"):
        options_from_run(folder)[1].load(AS_STORED)
    command("gallery", "--run", folder, "--kind", "fields", code=1)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "report"}


@pytest.mark.parametrize(
    "model",
    [
        "timm:resnet18.tv_in1k",
        "torchvision:resnet18",
        "hf:someone/something",
        "robustbench:cifar10/Linf/Standard",
    ],
)
def test_a_run_downloads_no_model(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = model.partition(":")[0]
    package = "transformers" if library == "hf" else library
    pytest.importorskip(package, exc_type=ImportError)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    folder = run_of(tmp_path / "run", model=model)
    own, _ = options_of(folder, ModelOptions(""), SmoothingOptions("", ""))
    assert own.model == model
    with pytest.raises(InputError, match=f"not in the cache.*--model {model}"):
        own.load()
    named, _ = options_of(folder, ModelOptions(model), SmoothingOptions("", ""))
    assert named.download


def test_guarantee_data_for_starts_no_download(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    save_model(folder, SmallCNN(width=1), Preparation(channels=1))
    options = {
        "data": "mnist",
        "data_root": str(tmp_path / "fetched"),
        "deformation": "rotation",
        "noise": "uniform:1rad",
    }
    training = {"command": "train", "options": options, "data": {"split": "train"}}
    (folder / "training.json").write_text(json.dumps(training))
    printed = command("certify", "--model", folder, "--out", tmp_path / "run", code=1)
    assert "name the data yourself, as --data mnist" in printed.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"net"}
    trained = find_trained(str(folder))
    assert trained is not None
    assert not trained.data_for(DataOptions("")).download
    assert trained.data_for(DataOptions("mnist")) == DataOptions("mnist")  # in the usual folder


def test_a_report_and_a_prediction_take_larger_images_on_request(
    tmp_path: Path, network: Path
) -> None:
    (tmp_path / "a").mkdir()
    Image.new("L", (28, 28), 90).save(tmp_path / "a/0.png")
    given = ("--model", network, "--deformation", "rotation", "--noise", "uniform:30deg")
    less = ("--max-pixels", "783")
    printed = command("predict", tmp_path / "a/0.png", *given, "--n", "20", *less, code=1)
    assert "more than 783 pixels" in printed.stderr
    assert "max-pixels" in printed.stderr
    command("predict", tmp_path / "a/0.png", *given, "--n", "20", "--max-pixels", "784")
    (tmp_path / "data/0").mkdir(parents=True)
    Image.new("L", (28, 28), 90).save(tmp_path / "data/0/0.png")
    run = ("--data", tmp_path / "data", "--n", "20", "--device", "cpu", "--out", tmp_path / "run")
    command("certify", *given, *run)
    assert "max_pixels" not in (tmp_path / "run/config.json").read_text()
    printed = command("report", tmp_path / "run", *less)
    assert "more than 783 pixels" in printed.stderr
    assert "pixels" not in command("report", tmp_path / "run").stderr
