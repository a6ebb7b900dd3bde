"""What operators use: the commands, the local page, advice, and what these ask AWS."""
