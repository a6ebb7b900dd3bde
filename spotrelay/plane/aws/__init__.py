"""The ports on AWS, with botocore. `runtime` puts them together for the functions."""
