"""How fast the path is, beside what else one could do: `make bench`; docs/performance.md has the figures."""
