"""Floor 3: graph to graph. Each transformation is one table of rules and one walk: `gradient`, and
`scan` for the gradient of a counted loop."""
