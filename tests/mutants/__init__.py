"""Mutation testing: mistakes put into the core one at a time, and whether simulation and tests notice."""
