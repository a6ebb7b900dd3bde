"""What `make demo` shows: a fleet that serves through one interruption after the other."""
