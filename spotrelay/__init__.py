"""SpotRelay keeps GPU inference running on EC2 Spot."""
