"""What reads service files, for the CDK app and the commands. No function imports it."""
