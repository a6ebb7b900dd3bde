"""The laboratory: what SpotRelay is proved and shown with. Nothing that is deployed knows of it."""
