"""What a service that serves needs: pure decisions, from what is seen to what is to be done."""
