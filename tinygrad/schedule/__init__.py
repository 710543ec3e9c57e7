"""Floor 3: a tensor graph becomes kernels. `walk` decides which values are stored and which are
recomputed where they are used, `ranges` writes loops and index arithmetic, `kernels` cuts and
orders, `memory` lets buffers share storage. Knows nothing of how a kernel is made fast."""
