"""What an instance of a service gets: its cloud-config, its scripts, its files."""
