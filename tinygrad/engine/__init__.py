"""Floor 6: the only floor that runs things. `storage` owns bytes, `structure` finds what a graph
shares with others, `compile` makes kernels once, `run` runs plans, `realize` is what tensors call,
`jit` replays a whole step."""
