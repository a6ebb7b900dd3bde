"""AWS's wire format on 127.0.0.1, answered at once by a process of its own.

What is measured against it pays for the socket, for boto3 and for itself, and for nothing that AWS or a
simulation of AWS would do. `server` is the process, `account` what it answers; `client` starts it, fills it
and reads its counts.
"""
