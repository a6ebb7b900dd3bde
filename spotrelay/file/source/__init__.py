"""A service file as it is written: YAML with the place of every value, and what is said beside it."""
