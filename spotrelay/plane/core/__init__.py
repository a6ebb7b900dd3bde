"""What everything here speaks of: values, names, times, and the ports to the outside."""
