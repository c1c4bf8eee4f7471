"""How fast this machine certifies, against the bare network and against a plain loop."""
