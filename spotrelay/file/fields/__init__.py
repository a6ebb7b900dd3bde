"""The fields of a service file, and what is wrong with them."""
