"""What a machine has: GPU inventory (NVML or declared), topology, usage samples. Entry: `inventory.discover`."""
