"""What a plan takes: FLOPs and time, before it begins and while it goes on."""
