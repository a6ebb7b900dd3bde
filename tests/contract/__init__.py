"""One suite per port, held against the ports in memory and the adapters for AWS (on moto) alike.

What moto can't do (refusals, throttles, cancelled transactions) is answered by botocore's Stubber, which
checks requests and answers against AWS's own service models.
"""
