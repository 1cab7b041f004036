"""A library that patches are written for. Whoever imports it is caught: judging must not."""

raise ImportError("acme was imported, although nothing of it needs to run")
