"""What runs in the account: decisions, the loop that carries them out, and the ports to AWS."""
