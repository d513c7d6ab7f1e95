"""What a config.json says of a model's ropes: read to layers, and written from them."""
