"""The ports on AWS, with boto3. `runtime` puts them together; nothing else outside imports from here."""
