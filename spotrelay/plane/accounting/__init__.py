"""What a service's instances cost: worked out from its rows and from prices, and kept for each day."""
