"""Engines: where the pieces of a run are sampled."""

from deformrs.engines.engine import Engine, InProcess, Outcome, Session, Setup, Work, Worker

__all__ = ["Engine", "InProcess", "Outcome", "Session", "Setup", "Work", "Worker"]
