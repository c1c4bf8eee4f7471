"""Downloads, from a local server."""

from __future__ import annotations

import functools
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deformrs.data import cifar10, load_data, mnist
from deformrs.data.download import default_root, fetch
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/short":  # promises more than it sends
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"only this")
            return
        super().do_GET()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address under which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def test_guarantee_fetch_leaves_the_complete_file_or_none(
    tmp_path: Path, served: tuple[Path, str]
) -> None:
    folder, url = served
    data = bytes(range(256)) * 10_000
    (folder / "a.bin").write_bytes(data)
    target = tmp_path / "new" / "folder" / "a.bin"
    for address, checksum, message in (
        (url + "a.bin", md5(b"other"), "md5 checksum of http.*a.bin is .* as published: ask"),
        (url + "b.bin", md5(data), "download of http.*b.bin is not possible .*404"),
        (url + "short", md5(data), "md5 checksum|not possible"),
        ("http://127.0.0.1:9/a.bin", md5(data), "is not possible .*refused.*: ask"),
    ):
        with pytest.raises(InputError, match=message) as refusal:
            fetch(address, target, checksum, "ask")
        assert "\n" not in str(refusal.value)
        assert list(target.parent.iterdir()) == []
    steps: list[tuple[str, int, int | None]] = []
    fetch(url + "a.bin", target, md5(data), "ask", lambda *step: steps.append(step))
    assert target.read_bytes() == data
    assert list(target.parent.iterdir()) == [target]
    assert steps[-1] == ("a.bin", len(data), len(data))


def test_a_folder_that_cannot_be_created(tmp_path: Path, served: tuple[Path, str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is not possible .*: ask"):
        fetch(served[1] + "a.bin", tmp_path / "file" / "a.bin", md5(b""), "ask")


def test_mnist_is_fetched_once(
    tmp_path: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = served
    for name in mnist.FILES["test"]:
        (folder / f"{name}.gz").write_bytes(name.encode())
        monkeypatch.setitem(mnist.MD5, f"{name}.gz", md5(name.encode()))
    steps: list[str] = []
    for _ in range(2):  # the second time both are there
        mnist.fetch_mnist(tmp_path / "mnist", "test", lambda name, *_: steps.append(name), url)
    assert steps == [f"{name}.gz" for name in mnist.FILES["test"]]
    for name in mnist.FILES["test"]:
        assert (tmp_path / "mnist" / f"{name}.gz").read_bytes() == name.encode()


def archive(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            packed.addfile(info, io.BytesIO(data))
    return file.getvalue()


def serve_cifar10(folder: Path, members: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    data = archive(members)
    (folder / "cifar.tar.gz").write_bytes(data)
    monkeypatch.setattr(cifar10, "MD5_ARCHIVE", md5(data))


def test_cifar10_is_fetched_unpacked_and_read(
    tmp_path: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = served
    record = bytes([7]) + bytes(3072)
    monkeypatch.setitem(cifar10.MD5, "test_batch.bin", md5(record))
    members = {"cifar-10-batches-bin/test_batch.bin": record}
    serve_cifar10(folder, members, monkeypatch)
    root = tmp_path / "root"
    cifar10.fetch_cifar10(root / "cifar10", "test", url=url + "cifar.tar.gz")
    assert [path.name for path in (root / "cifar10").iterdir()] == ["cifar-10-batches-bin"]
    (folder / "cifar.tar.gz").unlink()
    cifar10.fetch_cifar10(root / "cifar10", "test", url=url + "cifar.tar.gz")  # is there already
    assert load_data("cifar10", Preparation(), root=root).labels == (7,)
    monkeypatch.setenv("DEFORMRS_DATA", str(root))
    assert load_data("cifar10", Preparation()).labels == (7,)


def test_an_archive_cannot_write_outside_its_folder(
    tmp_path: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = served
    serve_cifar10(folder, {"../../outside": b"x"}, monkeypatch)
    with pytest.raises(InputError, match="cifar-10-binary.tar.gz is not unpacked"):
        cifar10.fetch_cifar10(tmp_path / "a" / "b", "test", url=url + "cifar.tar.gz")
    assert not (tmp_path / "a" / "outside").exists()
    assert not (tmp_path / "outside").exists()
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_where_downloads_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEFORMRS_DATA", str(tmp_path))
    assert default_root() == tmp_path
    monkeypatch.delenv("DEFORMRS_DATA")
    assert default_root().name == "deformrs"


@pytest.mark.parametrize("word", ["mnist", "cifar10"])
def test_without_a_network(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A proxy that is not there, so that the test needs no real network to be without.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    with pytest.raises(InputError, match=rf"download of https://.*give the folder.*{word}:FOLDER"):
        load_data(word, Preparation(), root=tmp_path)
