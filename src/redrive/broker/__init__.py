"""What a broker has: its topology, its management API, and private brokers to try things on."""
