"""Floor 3: graph to graph. Each transformation is one table of rules and one walk: `gradient`, with
`factors` for products that have zeros among them, and `scan` for the gradient of a counted loop."""
