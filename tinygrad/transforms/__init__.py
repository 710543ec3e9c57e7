"""Floor 3: graph to graph. Each transformation is one table of rules and one walk: `gradient`, with
`factors` for products in which some factors are 0, and `scan` for the gradient of a counted loop.
"""
