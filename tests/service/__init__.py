"""Tests of the service file, the catalog and `spotrelay validate`."""
