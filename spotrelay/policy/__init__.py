"""Pure decisions: values in, values out. No boto3, no clock, no environment."""
