"""What operators look at and talk to: a deployed control plane, the fleet as it changes, its timeline."""
