"""Options of `deformrs train` for a network that trains in a moment."""

from __future__ import annotations

SMOOTHING = ["--deformation", "rotation", "--noise", "uniform:54deg"]
PLAIN = ["--model", "small_cnn:width=4", *SMOOTHING, "--device", "cpu", "--no-tensorboard"]
QUICK = [*PLAIN, "--epochs", "2", "--batch-size", "8"]
