"""What only commands ask AWS."""
