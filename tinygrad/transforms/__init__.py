"""Floor 3: graph to graph. Each transformation is one table of rules and one walk."""
