"""Floor 2: algebra. What a value is never changes here; how it is written does."""
