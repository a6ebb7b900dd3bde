"""What fields amount to: an instance's requirements, a disk, files, what exists already."""
