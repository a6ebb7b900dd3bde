"""From a service file to a service, or to all that is wrong with it."""
