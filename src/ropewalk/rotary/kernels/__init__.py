"""Fast forms of the rotation, and the operator that chooses one."""
