"""Run folders: configurations, records and packing. Needs no torch."""

from deformrs.runs.files import write_atomically
from deformrs.runs.folder import (
    CERTIFICATES,
    CONFIG,
    TIMES,
    Run,
    StoredRun,
    load_run,
    read_config,
    read_run,
    read_times,
    runs_in,
)
from deformrs.runs.packing import Packed, pack_run, unpack_run
from deformrs.runs.records import CertifiedRun, Result

__all__ = [
    "CERTIFICATES",
    "CONFIG",
    "TIMES",
    "CertifiedRun",
    "Packed",
    "Result",
    "Run",
    "StoredRun",
    "load_run",
    "pack_run",
    "read_config",
    "read_run",
    "read_times",
    "runs_in",
    "unpack_run",
    "write_atomically",
]
