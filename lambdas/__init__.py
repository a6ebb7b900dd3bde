"""Entry points of the control plane's functions, and nothing else."""
