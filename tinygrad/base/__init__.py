"""Floor 0: what every other floor may use. Knows nothing of graphs, devices' drivers or tensors."""
