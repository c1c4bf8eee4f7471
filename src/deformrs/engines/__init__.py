"""Engines: where the pieces of a run are sampled."""

from deformrs.engines.engine import Engine, InProcess, Outcome, Session, Setup, Work, Worker
from deformrs.engines.ray import RayEngine

__all__ = ["Engine", "InProcess", "Outcome", "RayEngine", "Session", "Setup", "Work", "Worker"]
