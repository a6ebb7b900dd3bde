"""The local cloud's data plane: instances, load balancer, chat server, load."""
