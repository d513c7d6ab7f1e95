"""Time of a rotation on this machine, compared with copying and with other libraries."""
