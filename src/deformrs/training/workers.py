"""Processes that read pictures ahead of training."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from multiprocessing.context import BaseContext

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from deformrs.checks import check_whole
from deformrs.errors import DeformRSError, InputError
from deformrs.training.reading import Reading

Row = list[int]


class Workers:
    """Reads batches of pictures in `count` processes, which live until `close`; 0: in this one.

    They begin with the first batch that is asked for. Leaving the batches early closes.
    """

    def __init__(self, reading: Reading, count: int, pinned: bool) -> None:
        check_whole("workers", count, least=0)
        self.count = count
        self._reading, self._pinned = reading, pinned
        self._rows = _Rows()
        self._loader: DataLoader[Tensor | DeformRSError] | None = None
        self._reads = False

    def batches(self, rows: Sequence[Row]) -> Generator[Tensor, None, None]:
        """For each row the pictures at those places, on the CPU, in that order.

        A picture that cannot be used raises here, whichever process found it.
        """
        if not self.count:
            for row in rows:
                batch = self._reading.batch(row)
                yield batch.pin_memory() if self._pinned else batch
            return
        if self._reads:
            raise InputError(
                "the stream of pictures",
                "being read already",
                "must be read to its end or left before it is read again",
                "close the first iterator",
            )
        self._reads, finished = True, False
        try:
            with closing(self._read(rows)) as batches:
                yield from batches
            finished = True
        finally:
            self._reads = False
            if not finished:
                self.close()

    def close(self) -> None:
        """End the processes; more batches would begin them anew."""
        # Nothing else refers to the loader, and it ends its processes when it goes.
        self._loader = None

    def _read(self, rows: Sequence[Row]) -> Generator[Tensor, None, None]:
        self._rows.rows = rows
        with warnings.catch_warnings():
            # More processes than processors: whoever asks for them has a reason.
            warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
            if self._loader is None:
                self._loader = self._made()
            batches = _started(self._loader)
        for _ in rows:
            try:
                batch = next(batches)
            except RuntimeError as error:
                batch = _gone(error)
            except BaseException as error:
                # The frames below would hold on to the loader and its processes.
                traceback.clear_frames(error.__traceback__)
                del batches
                raise
            if isinstance(batch, DeformRSError):
                del batches
                raise batch
            yield batch

    def _made(self) -> DataLoader[Tensor | DeformRSError]:
        return DataLoader(
            _Batches(self._reading),
            batch_size=None,  # an item is a batch already
            sampler=self._rows,
            num_workers=self.count,
            collate_fn=_as_it_is,
            pin_memory=self._pinned,
            worker_init_fn=_begin_worker,
            multiprocessing_context=_context(),
            generator=torch.Generator(),  # or it would draw from the global one
            persistent_workers=True,
        )


def usable_cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Rows(Sampler[Row]):
    """Which batches come next; changed from epoch to epoch."""

    rows: Sequence[Row] = ()

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)


class _Batches(Dataset[Tensor | DeformRSError]):
    """Batches by their rows. An error comes back as a value, since a raised one would be wrapped
    with the worker's traceback."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def __getitem__(self, row: Row) -> Tensor | DeformRSError:
        try:
            return self._reading.batch(row)
        except DeformRSError as error:
            return error


def _as_it_is(batch: object) -> object:
    return batch


def _begin_worker(number: int) -> None:
    # Whoever presses Ctrl-C stops the main process, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed process cannot end its workers, and torch looks at the server that forked them."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _context() -> BaseContext:
    """How processes begin: never as copies of this one, whose threads may hold locks."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _started(
    loader: DataLoader[Tensor | DeformRSError],
) -> Iterator[Tensor | DeformRSError]:
    try:
        return iter(loader)
    except RuntimeError as error:
        failed: InputError = _gone(error)
    # What cannot be pickled says so in many ways.
    except Exception as error:
        failed = _not_sent(error)
    # Not raised above: what led to it would hold on to the loader and its processes.
    raise failed


def _not_sent(error: Exception) -> InputError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return InputError(
        "the set of pictures",
        f"not to be sent to other processes ({reason})",
        "must be of a class that can be pickled to be read there",
        "choose --workers 0",
    )


def _gone(error: RuntimeError) -> InputError:
    return InputError(
        "a process that reads pictures",
        "gone (" + " ".join(str(error).split())[:200] + ")",
        "must live as long as training",
        "see that memory and shared memory suffice, and that a script begins its work under"
        " if __name__ == '__main__'; or choose --workers 0",
    )
