"""One model trained by several processes, as `torchrun` starts them."""
