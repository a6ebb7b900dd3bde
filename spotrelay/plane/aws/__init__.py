"""The ports on AWS, with boto3. `runtime` puts them together for the functions."""
