"""Reads recordings of Spot capacity, one module per format, and of Spot prices."""
