"""The run folder: a configuration and the class counts of each image. Needs no torch.

    config.json          what reproduces the run
    certificates.jsonl   one line per image, written as soon as it is certified
    times.tsv            index and seconds of each, apart: equal runs have equal other files
    partial.json         class counts of the images that are being sampled
    backlog.jsonl        results that came before those of the images in front of them
    unsound.txt          why the run is refused: its model turned out not to be a fixed function
    unfinished.jsonl     the incomplete last records of killed processes, which are made again

Certificates and times may be packed, as `.xz`: such a run is read, but not written to.

Certificates are computed from the stored counts when they are read, so another alpha or another
bound needs no new samples. Each line carries a digest of itself and of the configuration: counts
are never certified with noise that they were not drawn from. The configuration lists the requested
images in order. The lines are those of the first of them: a line that is missing is noticed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, KeysView, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO, Any, Self

from deformrs.certificate import Certificate
from deformrs.config import Config, ConfigValue
from deformrs.errors import InputError, damaged, quoted
from deformrs.limits import JSON_BYTES, RUN_BYTES, open_file, read_file, read_json, too_large
from deformrs.noise import NoiseLaw
from deformrs.runs.backlog import BACKLOG, Backlog
from deformrs.runs.files import (
    append,
    below,
    lock,
    make_folder,
    naming,
    open_for_appending,
    packed_name,
    stored_bytes,
    sync_folder,
    write_atomically,
)
from deformrs.runs.places import FEW, Places
from deformrs.runs.records import (
    BAD_LINE,
    CertifiedRun,
    Result,
    binding,
    line_reader,
    signed,
    to_record,
)
from deformrs.runs.request import check_simultaneous, requested_indices, with_request
from deformrs.runs.tally import PARTIAL, Tally, remove_tally
from deformrs.statistics import Method


def difference(found: Config, requested: Config) -> str:
    """Return every setting that differs, by its full name: `options.noise: a there, b here`."""
    there, here = _flat(found), _flat(requested)
    keys = [key for key in there | here if there.get(key) != here.get(key)]
    return ", ".join(
        f"{key}: {_short(there.get(key))} there, {_short(here.get(key))} here" for key in keys
    )


def _flat(config: Config, prefix: str = "") -> Config:
    flat: Config = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _short(value: ConfigValue) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


RELATIVE_TO = "relative_to"
"""The option that holds the path from the run folder to its working directory."""

_PREFIXES = ("mnist:", "cifar10:", "hf:")
_WORDS = ("digits", "mnist", "cifar10")
"""Data sets by name, whatever folders there are."""


def start_of(folder: Path) -> str:
    """Return the relative path from a run folder to the working directory."""
    return Path(os.path.relpath(Path.cwd(), folder)).as_posix()


def located(text: str, folder: Path, options: Config) -> str:
    """Return the path that an option of a run names, as it is found from here.

    Anything that is not a relative path, or is not found from the run folder, stays unchanged.
    """
    prefix = next((p for p in _PREFIXES if text.startswith(p)), "")
    path, code, name = text.removeprefix(prefix).partition(".py:")
    path += ".py" if code else ""
    start = options.get(RELATIVE_TO)
    if text in _WORDS or not path or not isinstance(start, str) or Path(path).is_absolute():
        return text
    found = Path(os.path.normpath(folder / start / path))
    # The shorter way to say it, where it is the same from here.
    try:
        if not found.exists():
            return text
        shown = path if Path(path).exists() and Path(path).samefile(found) else str(found)
    except (OSError, ValueError):  # a name that no file can have
        return text
    return f"{prefix}{shown}{':' + name if code else ''}"


def located_code(text: str, folder: Path, options: Config) -> str:
    """Locate the Python files that a deformation of a run names.

    >>> located_code("rotation+shear", Path("runs/first"), {"relative_to": "../.."})
    'rotation+shear'
    """
    parts = text.split("+")
    return "+".join(located(part, folder, options) if ".py:" in part else part for part in parts)


CONFIG, CERTIFICATES, TIMES = "config.json", "certificates.jsonl", "times.tsv"

UNSOUND = "unsound.txt"
"""Says why the results cannot be trusted: the model did not repeat its predictions."""

UNFINISHED = "unfinished.jsonl"
"""Keeps what is cut off from the results: the incomplete records of killed processes."""

GENERATOR, TORCH = "generator", "torch"
"""The setting that names the generator of the noise, and the one of runs that do not name any."""


class Run:
    """A run folder open for writing. Made by `Run.open`, which also resumes an interrupted run.

    >>> import tempfile
    >>> from deformrs import Uniform
    >>> with Run.open(Path(tempfile.mkdtemp()), Uniform(0.5), 0.001, "clopper_pearson", {}) as run:
    ...     list(run.done)
    []
    """

    def __init__(
        self, folder: Path, config: Config, law: NoiseLaw, indices: Sequence[int] | None = None
    ) -> None:
        self.folder = folder
        path = folder / CERTIFICATES
        _check_unpacked(path)  # before a file is made
        below(folder, TIMES)
        self._file = open_for_appending(path)
        try:
            lock(self._file, path)  # before anything is read or written
            _check_unpacked(path)  # it may have been packed meanwhile
            _check_sound(folder)
            _check_kept(folder)
            stored = _stored_config(folder, config)
            self.config = stored or config
            self._law = law
            self._places = Places(path)
            for result, length in each_result(folder, stored, kept=FEW) if stored else ():
                self._places.add(result.index, length)
            _set_unfinished_aside(folder, self._file, self._places.end)
            if indices is not None:
                self.config = with_request(self.config, list(self.done), indices)
                if self.done >= set(indices):
                    remove_tally(folder)  # a kill or a power cut may have left it
            self.backlog = Backlog(folder, self.config, law, self.done)
            if self.config != stored:
                write_atomically(folder / CONFIG, json.dumps(self.config, indent=2) + "\n")
            sync_folder(folder)
        except BaseException:
            self._file.close()
            raise

    @property
    def done(self) -> KeysView[int]:
        """The indices of the images that are certified, in order."""
        return self._places.indices

    def read(self, indices: Sequence[int]) -> list[Result]:
        """Return the results of those of these images that have one, also in the backlog."""
        stored = self._places.read(indices, self.config, self._law)
        return stored + self.backlog.read(indices)

    @classmethod
    def open(
        cls,
        folder: Path,
        law: NoiseLaw,
        alpha: float,
        method: str,
        about: Config,
        indices: Sequence[int] | None = None,
    ) -> Self:
        """Begin a run, or resume the one in the folder if it has the same configuration.

        `about` is what else reproduces the run: model, data, seed and so on. Its "options" record
        how the run was requested, and need not agree: a file may have moved, or 30deg be written
        in radians. `indices` are the images that will be added, in that order; None: any.
        """
        cls.check(folder, law, alpha, method, about)
        make_folder(folder)
        return cls(folder, about | run_settings(law, alpha, method), law, indices)

    @staticmethod
    def check(folder: Path, law: NoiseLaw, alpha: float, method: str, about: Config) -> None:
        """Raise if the folder is a file, packed, or a run with other settings. No run is begun."""
        if folder.exists() and not folder.is_dir():
            raise InputError("the run folder", folder, "must not be a file", "choose another name")
        certificates = folder / CERTIFICATES
        _check_unpacked(certificates)
        _check_sound(folder)
        if (folder / CONFIG).exists():
            read_config(folder)  # one of another program is not replaced
        _check_kept(folder)
        if (folder / CONFIG).exists() and _has_results(folder):
            _check_settings(folder, about | run_settings(law, alpha, method))

    def add(self, result: Result, seconds: float | None = None) -> None:
        """Guarantee: when this returns, the result is on the disk.

        Times are kept in a file of their own, so that equal runs can be compared byte by byte.
        """
        self.add_all([result], [seconds])

    def add_all(self, results: Sequence[Result], seconds: Sequence[float | None] = ()) -> None:
        """Add several results, as `add` does; `seconds` is the time of each, None if not known."""
        if not results:
            return
        lines, indices = self._lines(results), [result.index for result in results]
        append(self._file, lines)
        remove_tally(self.folder)
        self._places.add_lines(indices, lines)
        self.backlog.discard(indices)
        times = [(i, s) for i, s in zip(indices, seconds, strict=False) if s is not None]
        if times:
            path = self.folder / TIMES
            with naming(path), open_for_appending(path) as file:
                file.writelines(f"{index}\t{taken:.6f}\n" for index, taken in times)

    def set_aside(self, results: Sequence[Result]) -> None:
        """Keep results whose turn has not come in the backlog.

        Guarantee: when this returns, they are on the disk.
        """
        self.backlog.add([result.index for result in results], self._lines(results))

    def _lines(self, results: Sequence[Result]) -> str:
        """Return the lines of results that were made with the run's noise, alpha and method."""
        for result in results:
            self._check(result)
        method = str(self.config["method"])
        return "".join(signed(to_record(result, method), self.config) + "\n" for result in results)

    def mark_unsound(self, reason: str) -> None:
        """Let the run be refused from now on by whatever reads it."""
        write_atomically(self.folder / UNSOUND, reason + "\n")

    def tally(self, images: Sequence[Config]) -> Tally:
        """Return what stores the class counts of these images while they are sampled."""
        return Tally(self.folder, self.config, images)

    def _check(self, result: Result) -> None:
        """Raise unless a result was made with the run's noise, alpha and method."""
        c = result.certificate
        method = Method.parse(self.config["method"]).chosen(c.counts)
        made = run_settings(noise_law(c), c.alpha, str(self.config["method"]))
        if c.method != method.name:
            made["method"] = c.method
        requested = {key: self.config[key] for key in made}
        if made != requested:
            raise InputError(
                f"the certificate of image {result.index}",
                f"made with other settings ({difference(requested, made)})",
                "must be made as the run's configuration says",
                "open another run for it",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.backlog.close()
        with naming(self.folder / CERTIFICATES):
            self._file.close()


def run_settings(law: NoiseLaw, alpha: float, method: str) -> Config:
    """Return the part of a run's configuration that its certificates are computed with."""
    return {"noise": law.to_config(), "alpha": alpha, "method": method}


@dataclass(frozen=True, repr=False)
class StoredRun(CertifiedRun):
    """A run as it is stored."""

    folder: Path
    config: Config
    results: list[Result]
    anew: str | None = None
    """The bound by which the results were certified anew; None where it is the run's own."""

    @property
    def is_recertified(self) -> bool:
        return self.anew is not None or super().is_recertified


def read_run(
    folder: Path | str, *, alpha: float | None = None, method: str | None = None
) -> StoredRun:
    """Return the run in a folder, its results certified again from their counts.

    `alpha` is that of each image, also where the images of the run share one.

    Choose alpha and method before looking at the results: the best of several bounds is not a bound
    of level alpha.
    """
    folder = Path(folder)
    config = read_config(folder)
    results = read_results(folder, config, alpha, method)
    anew = _anew(config, method)
    return StoredRun(folder, config, results, None if anew is None else anew.name)


def load_run(
    folder: Path | str, *, alpha: float | None = None, method: str | None = None
) -> list[Result]:
    """Return the results of the run in a folder, certified again from their counts."""
    return read_run(folder, alpha=alpha, method=method).results


def read_times(folder: Path) -> dict[int, float]:
    """Return the seconds that each image took, where known."""
    text = (stored_bytes(folder / TIMES) or b"").decode(errors="replace")
    # A killed process may leave part of a line; times are only informative.
    found = re.findall(r"^(\d{1,18})\t(\d{1,12}\.\d{6})$", text, re.MULTILINE)
    return {int(index): float(seconds) for index, seconds in found}


def read_config(folder: Path) -> Config:
    """Return the configuration of the run in a folder."""
    try:
        config = read_json(folder / CONFIG)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            "the run folder", folder, f"must hold a {CONFIG}", "give the folder of a run"
        ) from None
    if not isinstance(config, dict) or not {"noise", "alpha", "method"} <= config.keys():
        raise damaged(folder / CONFIG, "noise, alpha and method are needed")
    try:
        requested_indices(config)
    except ValueError as error:
        raise damaged(folder / CONFIG, error) from None
    return config


def begun_config(folder: Path) -> Config | None:
    """Return the configuration of the run that has begun in a folder; None without samples.

    A configuration alone is not a run: a seed in it could have been known beforehand.
    """
    path = folder / CERTIFICATES
    begun = path.exists() and path.stat().st_size
    begun = begun or packed_name(path).exists()
    begun = begun or (folder / PARTIAL).exists() or (folder / BACKLOG).exists()
    return read_config(folder) if begun and (folder / CONFIG).exists() else None


def read_results(
    folder: Path, config: Config, alpha: float | None = None, method: str | None = None
) -> list[Result]:
    """Return the results in a folder, which must belong to the configuration."""
    return [result for result, _ in each_result(folder, config, alpha, method)]


def each_result(
    folder: Path,
    config: Config,
    alpha: float | None = None,
    method: str | None = None,
    *,
    kept: int | None = None,
) -> Iterator[tuple[Result, int]]:
    """Yield each result in a folder and the length of its line; `kept` as in `line_reader`."""
    path = folder / CERTIFICATES
    _check_sound(folder)
    with _stored_lines(path) as (file, size):
        if not size:
            _check_kept(folder)
        else:
            yield from _results_in(file, size, path, config, alpha, method, kept)


def _results_in(
    file: IO[bytes],
    size: int,
    path: Path,
    config: Config,
    alpha: float | None,
    method: str | None,
    kept: int | None,
) -> Iterator[tuple[Result, int]]:
    settings: Any = config
    try:
        law = NoiseLaw.from_config(settings["noise"])
    except (ValueError, TypeError) as error:
        raise damaged(path.with_name(CONFIG), error) from None
    if "stopping" in config and not Method.parse(config["method"]).stops_early:
        raise damaged(path.with_name(CONFIG), "its bound does not hold where sampling stops early")
    read = line_reader(config, law, size, alpha, _anew(config, method), kept)
    seen: set[int] = set()
    requested = requested_indices(config)
    order = chain.from_iterable(requested or ())
    for number, line in enumerate(file, start=1):
        if b"\r" in line:
            raise damaged(
                path, "its line ends were changed", "restore it, or its line ends: LF alone"
            )
        if not line.endswith(b"\n"):
            _check_unfinished(line, path)
            return
        try:
            result = read(line[:-1])
        except BAD_LINE as error:
            raise damaged(path, f"line {number}: {error!r}") from None
        if result.index in seen:
            raise damaged(path, f"line {number}: image {result.index} again")
        due = result.index if requested is None else next(order, None)
        if result.index != due:
            place = "after the last requested one" if due is None else f"where image {due} is due"
            raise damaged(path, f"line {number}: image {result.index} {place}; lines are missing")
        seen.add(result.index)
        yield result, len(line)


def _anew(config: Config, name: str | None) -> Method | None:
    """Return the method of that name for the counts of a run, None if it is the run's own.

    Where sampling was stopped early, "auto" and "runner_up" are those that hold for such counts.
    """
    own = Method.parse(config["method"])
    method = own if name is None else Method.parse(name)
    stopped = "stopping" in config
    if stopped and name in ("auto", "runner_up"):
        method = replace(own, split=method.split, share=method.share)
    if method == own:
        return None
    if stopped and (method.sampling != own.sampling or method.most not in (None, own.most)):
        known = [replace(own, split=split).name for split in ("complement", "runner_up", "auto")]
        raise InputError(
            "the method",
            repr(method.name),
            f"must be one of {', '.join(known)} for a run whose sampling stopped early",
            "leave it out; any other bound would err more often than alpha",
        )
    return method


@contextmanager
def _stored_lines(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """Yield the file of a run's lines, packed or not, and its size; an empty one if there is none.

    Packed lines are unpacked in memory.
    """
    if not os.path.lexists(path) or os.path.lexists(packed_name(path)):
        content = stored_bytes(path) or b""
        yield BytesIO(content), len(content)
        return
    with open_file(path, links=False) as file:
        size = os.fstat(file.fileno()).st_size
        if size > RUN_BYTES:
            raise too_large(str(path), size, RUN_BYTES)
        yield file, size


def noise_law(certificate: Certificate) -> NoiseLaw:
    """Return the noise law of a certificate."""
    law = certificate.law
    if not isinstance(law, NoiseLaw):
        raise InputError("the noise", repr(law), "must be a NoiseLaw", "e.g. Uniform(0.5)")
    return law


def _stored_config(folder: Path, requested: Config) -> Config | None:
    """Return the stored configuration, which must be the requested one; None if none binds.

    A run without results may still change its configuration.
    """
    if not _has_results(folder):
        return None
    if (folder / CONFIG).exists():
        return _check_settings(folder, requested)
    raise InputError(
        str(folder / CERTIFICATES),
        f"without its {CONFIG}",
        "cannot be known to belong to this run",
        f"restore it, choose another folder, or remove {CERTIFICATES} and {TIMES}",
    )


def _has_results(folder: Path) -> bool:
    """Return whether results are stored, also of images whose turn has not come."""
    paths = (folder / CERTIFICATES, folder / BACKLOG)
    return any(path.exists() and path.stat().st_size for path in paths)


def _check_settings(folder: Path, requested: Config) -> Config:
    """Return the stored configuration; raise unless it is the requested one."""
    found = read_config(folder)
    check_simultaneous(folder, found, requested)
    now = requested.get(GENERATOR, TORCH)
    if found.get(GENERATOR, TORCH) != now:
        raise InputError(
            f"the run in {folder}",
            f"sampled with noise of the generator {found.get(GENERATOR, TORCH)!r}",
            f"cannot go on with {now!r}: its images would get other noise than was recorded",
            "certify into another folder; what is finished stays valid, and is reported as before",
        )
    if binding(found) != binding(requested):
        raise InputError(
            f"the run in {folder}",
            f"another one ({difference(binding(found), binding(requested))})",
            "cannot go on with other settings",
            f"choose another folder, or remove {CONFIG}, {CERTIFICATES} and {TIMES} from this one",
        )
    return found


def _check_unpacked(path: Path) -> None:
    """Raise if the results are packed: new ones beside them would be another run."""
    if packed_name(path).exists():
        if path.exists() and not path.stat().st_size:
            path.unlink()
        raise InputError(
            f"the run in {path.parent}",
            "packed",
            "can only be read",
            f"choose another folder, or unpack it by deformrs pack --undo {quoted(path.parent)}",
        )


def _check_sound(folder: Path) -> None:
    """Raise if the model of the run was found not to be a fixed function."""
    if os.path.lexists(folder / UNSOUND):
        reason = read_file(folder / UNSOUND, JSON_BYTES, links=False).decode(errors="replace")
        raise InputError(
            f"the run in {folder}",
            f"marked as unsound ({reason.strip()[:300]})",
            "must not be used",
            "certify a fixed model into another folder",
        )


def _check_kept(folder: Path) -> None:
    """Raise if there are no results, but signs that there were."""
    results, times = folder / CERTIFICATES, folder / TIMES
    if results.exists() and results.stat().st_size:
        return
    began = TIMES if times.exists() and times.stat().st_size else None
    if not results.exists() and (folder / CONFIG).exists():  # which is made after the results
        began = CONFIG
    if began is not None:
        raise InputError(
            str(results),
            "empty" if results.exists() else "missing",
            f"must hold the results of the run, which has begun according to {began}",
            f"restore it; or remove {CONFIG}, {CERTIFICATES} and {TIMES} to begin again",
        )


_RECORD = b'{"index": '
"""How each record begins; nowhere else in one, since quotes in texts are escaped."""


def _check_unfinished(rest: bytes, path: Path) -> None:
    """Raise unless what follows the last line is the beginning of a record, as a kill leaves it."""
    record = rest.rstrip(b"\0")  # which a power cut may leave
    begins = record.startswith(_RECORD) or _RECORD.startswith(record)
    if not begins or record.count(_RECORD) > 1:
        raise damaged(path, f"its last {len(rest)} bytes are not one incomplete line")


def _set_unfinished_aside(folder: Path, file: IO[str], end: int) -> None:
    """Cut off the incomplete record after the last line, and keep it in a file of its own."""
    path = folder / CERTIFICATES
    with open_file(path, links=False) as stored:
        stored.seek(end)
        rest = stored.read()
    if rest:
        _check_unfinished(rest, path)
        with open_for_appending(folder / UNFINISHED) as kept:
            append(kept, rest.decode(errors="replace") + "\n")
        with naming(path):
            file.truncate(end)
            os.fsync(file.fileno())


def runs_in(folder: Path) -> list[Path]:
    """Return the runs directly below a folder, sorted, such as those of a sweep.

    A folder that is a run itself, or that holds none, is returned alone.
    """
    if not folder.is_dir() or (folder / CONFIG).exists() or _certified(folder):
        return [folder]
    inside = sorted(folder.iterdir())
    found = [place for place in inside if (place / CONFIG).is_file() and _certified(place)]
    return found or [folder]


def _certified(folder: Path) -> bool:
    path = folder / CERTIFICATES
    return path.is_file() or packed_name(path).is_file()
