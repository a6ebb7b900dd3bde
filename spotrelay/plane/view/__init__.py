"""A service as of now, for whoever looks: the dashboard's widget, the commands and the page."""
