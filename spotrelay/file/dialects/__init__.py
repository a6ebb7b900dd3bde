"""SpotRelay's format and SkyServe's: from either to the one that is read."""
