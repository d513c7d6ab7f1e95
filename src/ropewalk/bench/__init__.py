"""How long a rotation takes on this machine, beside copying and beside other libraries' ropes."""
