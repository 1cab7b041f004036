"""Each patch's check of its effect: the real FSDP1, stock against patched, in the processes of ``verify --probe``.

One patch is one module, and its ``probe`` runs once in each rank, with ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and
``MASTER_PORT`` in its environment; it returns what it measured. Without an accelerator FSDP1 runs under
``fsdp1.cpu-rehearsal``.
"""

from __future__ import annotations
