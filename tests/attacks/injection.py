"""Runs a program that fails, or is killed, at one of its file operations.

The operations are those that Python code calls, such as `open`, `os.write` or `os.replace`, on
paths below a folder. The program runs in a fork of this process, which has imported what it needs,
so that it takes a fraction of a second. A power cut is a kill after which the folder holds only
what was synced: contents of files by fsync, and names by fsync of their folder.
"""

from __future__ import annotations

import builtins
import errno
import hashlib
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

KILLS = ("kill before", "kill inside", "kill after", "power cut")
FAULTS = ("EIO", "ENOSPC", "short write", "full disk")
TIMEOUT_S = 120
Program = Callable[[], None]
Tree = dict[str, bytes]
"""Content of every file below a folder by its relative path; folders end in a slash."""
Comparable = Callable[[str, bytes], bytes | None]
"""Returns the part of a file that is equal in equal runs; None if there is none."""

# The harness itself calls these.
_CALLS = {
    name: getattr(os, name)
    for name in (
        *("open", "close", "write", "fsync", "fdatasync", "ftruncate", "truncate"),
        *("replace", "rename", "link", "symlink", "mkdir", "rmdir", "unlink", "remove"),
    )
    if hasattr(os, name)
}
_OPEN = io.open


@dataclass(frozen=True)
class Site:
    """A file operation of a program.

    `target` is the name that a temporary file will get. The system refuses some operations without
    a fault, such as the removal of what is not there.
    """

    operation: str
    path: str
    target: str
    refused: bool

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kills and faults that are possible there."""
        if self.refused:
            return ()
        match self.operation:
            case "exit":
                return ("power cut",)
            case "open to read":
                return ("kill before", "EIO")  # nothing on the disk changes
            case "write":
                return (*KILLS, *FAULTS)
            case "unlink" | "rmdir" | "truncate":
                return ("kill before", "kill after", "power cut", "EIO")
        return ("kill before", "kill after", "power cut", "EIO", "ENOSPC")


@dataclass(frozen=True)
class Outcome:
    """How a program ended: its exit code, or the negative number of the signal."""

    code: int
    out: str
    err: str
    hit: str = ""
    sites: list[Site] = field(default_factory=list)
    replaced: dict[str, list[str]] = field(default_factory=dict)
    """Digests of what each file was replaced by."""


class Injector:
    """Counts the file operations of this process below a folder; at one of them `kind` happens."""

    def __init__(self, folder: Path, site: int, kind: str, report: int, same: Comparable) -> None:
        self.folder, self.site, self.kind = str(folder), site, kind
        self.report, self.same = report, same
        self.sites: list[Site] = []
        self.replaced: dict[str, list[str]] = {}
        self.names: dict[int, str] = {}  # of open descriptors
        self.full = False
        self.disk = Disk(folder) if kind == "power cut" else None

    def below(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Return the path relative to the folder; None if it is elsewhere."""
        if isinstance(path, int):
            return self.names.get(path)
        text = os.fsdecode(path)
        if dir_fd is not None:
            if dir_fd not in self.names:
                return None
            text = os.path.join(self.folder, self.names[dir_fd], text)
        whole = os.path.abspath(text)
        if whole == self.folder:
            return "."
        inside = whole.startswith(self.folder + os.sep)
        return whole[len(self.folder) + 1 :] if inside else None

    def call(
        self,
        operation: str,
        path: str | None,
        perform: Callable[[], Any],
        *,
        named: tuple[Any, ...] = (),
        partly: Callable[[], Any] | None = None,
        target: str = "",
    ) -> Any:
        """Perform an operation, unless it is the one to fail.

        `named` are the paths that the system's error names; `partly` performs half of it.
        """
        if path is None:
            return perform()
        number = len(self.sites)
        self.sites.append(Site(operation, path, target, refused=False))
        if number == self.site:
            _CALLS["write"](self.report, f"{operation} {path}\n".encode())
            match self.kind:
                case "kill before" | "power cut":
                    self.kill()
                case "kill inside":
                    assert partly is not None
                    partly()
                    self.kill()
                case "short write" | "full disk":
                    assert partly is not None
                    self.full = self.kind == "full disk"
                    return partly()
                case "EIO" | "ENOSPC":
                    raise _error(self.kind, named)
        elif self.full and operation in ("write", "open to write", "mkdir"):
            raise _error("ENOSPC", named)
        try:
            done = perform()
        except OSError:
            self.sites[number] = replace(self.sites[number], refused=True)
            raise
        if self.disk is not None:
            self.disk.hold(Path(self.folder, path))
        if number == self.site:
            self.kill()
        return done

    def kill(self) -> None:
        """End this process as the system does when it runs out of memory, or power."""
        if self.disk is not None:
            self.disk.lose_unsynced()
        os.kill(os.getpid(), signal.SIGKILL)

    def finish(self) -> None:
        """Report the operations that were counted, unless it is here that the power is cut."""
        if self.site == len(self.sites):
            _CALLS["write"](self.report, b"exit .\n")
            self.kill()
        if self.site >= 0:
            return
        content = {"sites": [asdict(site) for site in self.sites], "replaced": self.replaced}
        with _OPEN(os.dup(self.report), "w") as file:
            json.dump(content, file)

    # The operations. Their signatures are those of `os`, and `open`.

    def install(self) -> None:
        """Replace the functions of `os` and `open` by those that count."""
        for name in _CALLS:
            if name not in ("fdatasync", "remove", "rename", "symlink", "link"):
                setattr(os, name, getattr(self, name))
        for name, function in (
            ("fdatasync", self.fsync),
            ("remove", self.unlink),
            ("rename", self.replace),
        ):
            setattr(os, name, function)
        builtins.open = io.open = self.open_file  # type: ignore[assignment]

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        below = self.below(path, dir_fd)
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        number: int = self.call(
            "open to write" if writes else "open to read",
            below,
            lambda: _CALLS["open"](path, flags, mode, dir_fd=dir_fd),
            named=(path,),
        )
        if below is not None:
            self.names[number] = below
        return number

    def close(self, number: int) -> None:
        self.names.pop(number, None)
        _CALLS["close"](number)

    def write(self, number: int, data: Any) -> int:
        return self.write_by(lambda part: int(_CALLS["write"](number, part)), number, data)

    def write_by(self, write: Callable[[bytes], int], number: int, data: Any) -> int:
        content = bytes(data)
        written: int = self.call(
            "write",
            self.names.get(number) if content else None,
            lambda: write(content),
            partly=lambda: write(content[: (len(content) + 1) // 2]),
        )
        return written

    def fsync(self, number: int) -> None:
        path = self.names.get(number)
        self.call("fsync", path, lambda: _CALLS["fsync"](number))
        if self.disk is not None and path is not None:
            self.disk.sync(Path(self.folder, path))

    def ftruncate(self, number: int, length: int) -> None:
        self.call("truncate", self.names.get(number), lambda: _CALLS["ftruncate"](number, length))

    def truncate(self, path: Any, length: int) -> None:
        named = () if isinstance(path, int) else (path,)
        self.call(
            "truncate", self.below(path), lambda: _CALLS["truncate"](path, length), named=named
        )

    def replace(
        self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        target = self.below(dst, dst_dir_fd)
        self.call(
            "replace",
            self.below(src, src_dir_fd),
            lambda: _CALLS["replace"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd),
            named=(src, dst),
            target=target or "",
        )
        if target is not None and os.path.isfile(place := os.path.join(self.folder, target)):
            with _OPEN(place, "rb") as file:
                self.replaced.setdefault(target, []).append(digest(self.same, target, file.read()))

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self.call(
            "mkdir",
            self.below(path, dir_fd),
            lambda: _CALLS["mkdir"](path, mode, dir_fd=dir_fd),
            named=(path,),
        )

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self.call(
            "rmdir",
            self.below(path, dir_fd),
            lambda: _CALLS["rmdir"](path, dir_fd=dir_fd),
            named=(path,),
        )

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self.call(
            "unlink",
            self.below(path, dir_fd),
            lambda: _CALLS["unlink"](path, dir_fd=dir_fd),
            named=(path,),
        )

    def open_file(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Callable[[str, int], int] | None = None,
    ) -> IO[Any]:
        """Open a file as `open` does; its unbuffered writes are counted."""
        below = self.below(file)
        if below is None:
            return _OPEN(file, mode, buffering, encoding, errors, newline, closefd, opener)
        writes = bool(set(mode) & set("wax+"))
        access = mode.replace("b", "").replace("t", "")
        raw: CountedFile
        if isinstance(file, int) or opener is not None:  # the descriptor was counted
            raw = CountedFile(self, file, access, closefd, opener)
        else:
            raw = self.call(
                "open to write" if writes else "open to read",
                below,
                lambda: CountedFile(self, file, access),
                named=(file,),
            )
        self.names[raw.fileno()] = below
        if "b" in mode and buffering == 0:
            return raw
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        buffer: Any
        if "+" in mode:
            buffer = io.BufferedRandom(raw, size)
        else:
            buffer = io.BufferedWriter(raw, size) if writes else io.BufferedReader(raw, size)
        if "b" in mode:
            return buffer  # type: ignore[no-any-return]
        return io.TextIOWrapper(buffer, encoding, errors, newline, buffering == 1)


class CountedFile(io.FileIO):
    """An unbuffered file whose writes are counted."""

    def __init__(
        self,
        injector: Injector,
        file: Any,
        mode: str,
        closefd: bool = True,
        opener: Callable[[str, int], int] | None = None,
    ) -> None:
        self._injector = injector
        super().__init__(file, mode, closefd, opener)

    def write(self, data: Any, /) -> int:
        return self._injector.write_by(super().write, self.fileno(), data)

    def truncate(self, size: int | None = None, /) -> int:
        path, shorten = self._injector.names.get(self.fileno()), super().truncate
        length: int = self._injector.call("truncate", path, lambda: shorten(size))
        return length

    def close(self) -> None:
        if not self.closed:
            self._injector.names.pop(self.fileno(), None)
        super().close()


class Disk:
    """The part of a folder that would survive a power cut."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.contents: dict[int, bytes] = {}  # by inode
        self.entries: dict[int, dict[str, tuple[int, bool]]] = {}
        for path in (folder, *folder.rglob("*")):
            self.hold(path)
            self.sync(path)

    def hold(self, path: Path) -> None:
        """Keep the inode, or another file could get its number."""
        if path.exists():
            _CALLS["open"](path, os.O_RDONLY)

    def sync(self, path: Path) -> None:
        """Note that a file's content, or a folder's names, are on the disk."""
        number = path.stat().st_ino
        if path.is_dir():
            self.entries[number] = {e.name: (e.inode(), e.is_dir()) for e in os.scandir(path)}
        else:
            with _OPEN(path, "rb") as file:
                self.contents[number] = file.read()

    def lose_unsynced(self) -> None:
        """Remove from the folder whatever was not synced."""
        left = dict(self._left(self.folder.stat().st_ino, ""))
        for name in _CALLS:
            setattr(os, name, _CALLS[name])
        builtins.open = io.open = _OPEN
        restore(self.folder, left)

    def _left(self, number: int, prefix: str) -> Iterator[tuple[str, bytes]]:
        for name, (inode, is_folder) in self.entries.get(number, {}).items():
            if is_folder:
                yield f"{prefix}{name}/", b""
                yield from self._left(inode, f"{prefix}{name}/")
            else:
                yield prefix + name, self.contents.get(inode, b"")


def run(
    program: Program,
    folder: Path,
    same: Comparable,
    site: int = -1,
    kind: str = "",
) -> Outcome:
    """Run a program in a fork of this process, in the folder; `kind` happens at one site."""
    with ExitStack() as stack:
        out, err, report = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.stdout, sys.stderr = (_OPEN(k, "w", closefd=False) for k in (1, 2))
            os.chdir(folder)
            signal.alarm(TIMEOUT_S)
            injector = Injector(folder, site, kind, report.fileno(), same)
            injector.install()
            code = _exit_code(program)
            injector.finish()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        texts = []
        for file in (out, err, report):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    code = os.waitstatus_to_exitcode(status)
    if site >= 0 or code < 0:
        return Outcome(code, texts[0], texts[1], texts[2].strip())
    content = json.loads(texts[2])
    sites = [Site(**entry) for entry in content["sites"]]
    names = {s.path: s.target for s in sites if s.operation == "replace"}
    sites = [replace(site, target=names.get(site.path, "")) for site in sites]
    sites.append(Site("exit", ".", "", refused=False))
    return Outcome(code, texts[0], texts[1], "", sites, content["replaced"])


def _exit_code(program: Program) -> int:
    """Return the exit code that a process of this program would have."""
    code: object = 0
    try:
        program()
    except SystemExit as leaving:
        code = leaving.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return int(str(code))


def _error(kind: str, named: tuple[Any, ...]) -> OSError:
    number, paths = getattr(errno, kind), [os.fspath(path) for path in named]
    if len(paths) == 2:
        return OSError(number, os.strerror(number), paths[0], None, paths[1])
    return OSError(number, os.strerror(number), *paths)


def digest(same: Comparable, path: str, content: bytes) -> str:
    """Return the digest of the comparable part of a file."""
    part = same(path, content)
    return "" if part is None else hashlib.sha256(part).hexdigest()


def tree_of(folder: Path) -> Tree:
    """Return the content of a folder."""
    found = sorted(folder.rglob("*"))
    return {
        path.relative_to(folder).as_posix() + "/" * path.is_dir(): b""
        if path.is_dir()
        else path.read_bytes()
        for path in found
    }


def restore(folder: Path, tree: Tree) -> None:
    """Replace the content of a folder by the tree."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, content in tree.items():
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
