"""Training of a cell, alone or by several processes together, resumable at any step."""
