"""Where capacity is asked for: pools, what was learned about them, and launches."""
