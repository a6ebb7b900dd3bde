"""The ports on AWS, with boto3. `compose` puts them together; nothing else outside imports from here."""
